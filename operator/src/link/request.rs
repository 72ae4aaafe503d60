//! What the link's requests have in common: the refusals, the sender's identity, and reading a body.
//!
//! Invariant: a body is read only after its sender is authenticated.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use toolcrib_bounds::headers::bearer;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_serve::{BodyError, read_body};

use super::review::{Bearer, ReviewError, Reviewer};
use crate::leadership::Leadership;
use crate::listen::Visitor;
use crate::objects::store::StoreObject as _;
use crate::objects::stores::Stores;

/// Limit of the bodies that are being received from all mediators together, in KiB.
pub const BODIES_KIB: usize = 16 * 1024;
/// The bytes of an oversized body that are received, in multiples of its limit, so that its sender can
/// read the refusal.
const DISCARDED: usize = 4;
/// Timeout of waiting for buffer space, and of receiving a body. A body is sent in one piece, so it takes
/// up buffer space only briefly.
const READ: Duration = Duration::from_secs(5);
/// Timeout of a TokenReview.
const REVIEW: Duration = Duration::from_secs(10);

/// The parts of the leader that authenticate a sender.
#[derive(Clone, Copy)]
pub struct Door<'a> {
    pub leadership: &'a Leadership,
    pub stores: &'a Stores,
    pub reviewer: &'a Reviewer,
    /// The time at which this leader began.
    pub started: jiff::Timestamp,
}

/// An authenticated sender.
#[derive(Clone, Debug)]
pub struct AuthenticatedSender {
    pub bearer: Bearer,
    pub agent: ObjectRef,
    /// The pod was created before this leader began.
    pub older_than_leader: bool,
}

/// Reasons why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotLeading,
    NotSynced,
    /// This leader has not compiled the agent yet, or cannot.
    NotCompiled,
    NoToken,
    TokenRefused,
    Unavailable,
    /// The pod does not exist, or runs no agent.
    NoAgentPod,
    Malformed,
    TooLarge,
    TooSlow,
    /// The bound on authenticated connections, or on their bodies, is reached.
    Busy,
    /// A later request of the same pod has replaced this one.
    Superseded,
}

impl Refusal {
    pub fn status(self) -> StatusCode {
        match self {
            Refusal::NotLeading
            | Refusal::NotSynced
            | Refusal::NotCompiled
            | Refusal::Busy
            | Refusal::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::NoToken | Refusal::TokenRefused => StatusCode::UNAUTHORIZED,
            Refusal::NoAgentPod => StatusCode::FORBIDDEN,
            Refusal::Malformed => StatusCode::BAD_REQUEST,
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::Superseded => StatusCode::CONFLICT,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Refusal::NotLeading => "not_leading",
            Refusal::NotSynced => "not_synced",
            Refusal::NotCompiled => "not_compiled",
            Refusal::NoToken => "no_token",
            Refusal::TokenRefused => "token_refused",
            Refusal::Unavailable => "unavailable",
            Refusal::NoAgentPod => "no_agent_pod",
            Refusal::Malformed => "malformed",
            Refusal::TooLarge => "too_large",
            Refusal::TooSlow => "too_slow",
            Refusal::Busy => "busy",
            Refusal::Superseded => "superseded",
        }
    }
}

impl Door<'_> {
    /// Authenticates the sender of a request, and returns its body unread.
    pub async fn identify(&self, request: Request) -> Result<(AuthenticatedSender, Body), Refusal> {
        self.may_answer()?;
        let visitor = Visitor::of(&request);
        let (parts, body) = request.into_parts();
        let token = token(&parts)?;
        if let Some(visitor) = &visitor {
            visitor.checking();
        }
        let bearer = self.reviewed(token).await?;
        let (agent, older_than_leader) = self.pod(&bearer)?;
        if visitor.is_some_and(|visitor| !visitor.known()) {
            return Err(Refusal::Busy);
        }
        let identified = AuthenticatedSender {
            bearer,
            agent,
            older_than_leader,
        };
        Ok((identified, body))
    }

    /// Checks that this replica leads and that its stores are synced. An allowlist from empty
    /// stores would deny all agents, and one of a former leader might give back a revoked tool.
    pub fn may_answer(&self) -> Result<(), Refusal> {
        if !self.leadership.holds() {
            return Err(Refusal::NotLeading);
        }
        if self.stores.synced().is_none() {
            return Err(Refusal::NotSynced);
        }
        Ok(())
    }

    async fn reviewed(&self, token: &str) -> Result<Bearer, Refusal> {
        let review = tokio::time::timeout(REVIEW, self.reviewer.review(token));
        match review.await {
            Ok(Ok(bearer)) => Ok(bearer),
            Ok(Err(ReviewError::Refused)) => Err(Refusal::TokenRefused),
            Ok(Err(ReviewError::Unavailable(error))) => {
                tracing::warn!(%error, "TokenReview failed");
                Err(Refusal::Unavailable)
            }
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// Returns the agent of a pod, and whether the pod was created before this leader began.
    pub fn pod(&self, bearer: &Bearer) -> Result<(ObjectRef, bool), Refusal> {
        let pod = self
            .stores
            .pods
            .get(&bearer.namespace, &bearer.pod)
            .filter(|pod| pod.id().uid == Some(&bearer.uid))
            .ok_or(Refusal::NoAgentPod)?;
        let agent = pod.label(names::AGENT_LABEL).ok_or(Refusal::NoAgentPod)?;
        let older = pod
            .created
            // Creation times are rounded down to the second.
            .is_none_or(|created| created.as_second() < self.started.as_second());
        Ok((ObjectRef::new(&*bearer.namespace, agent), older))
    }
}

fn token(parts: &Parts) -> Result<&str, Refusal> {
    let values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let token = bearer(values.map(HeaderValue::as_bytes)).ok_or(Refusal::NoToken)?;
    std::str::from_utf8(token).map_err(|_| Refusal::NoToken)
}

/// Reads and decodes a body of at most `longest` bytes, and drops its bytes.
pub async fn read<T: DeserializeOwned>(
    bodies: &Semaphore,
    body: Body,
    longest: usize,
) -> Result<T, Refusal> {
    // A body of unknown length reserves the space of the largest one.
    let length = match (body.size_hint().exact(), body.size_hint().upper()) {
        (Some(exact), _) if exact > longest as u64 => {
            discard(body, longest).await;
            return Err(Refusal::TooLarge);
        }
        (_, Some(upper)) => usize::try_from(upper).map_or(longest, |upper| upper.min(longest)),
        (_, None) => longest,
    };
    let kib = u32::try_from(length.div_ceil(1024))
        .unwrap_or(u32::MAX)
        .max(1);
    let Ok(room) = tokio::time::timeout(READ, bodies.acquire_many(kib)).await else {
        return Err(Refusal::Busy);
    };
    let _room = room.expect("the semaphore is never closed");
    match tokio::time::timeout(READ, read_body(body, longest)).await {
        Ok(Ok(body)) => decoded(&body).ok_or(Refusal::Malformed),
        Ok(Err(BodyError::TooLarge)) => Err(Refusal::TooLarge),
        Ok(Err(BodyError::Broken(_))) => Err(Refusal::Malformed),
        Err(_) => Err(Refusal::TooSlow),
    }
}

/// Decodes a body.
pub fn decoded<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// Reads an authenticated sender's body and drops it, up to [`DISCARDED`] times its limit. A connection
/// that closes with unread bytes is reset, and the sender fails in mid-write before it reads its
/// refusal.
async fn discard(mut body: Body, longest: usize) {
    let discarding = async {
        let mut left = DISCARDED * longest;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len());
            let Some(rest) = left.checked_sub(length) else {
                return;
            };
            left = rest;
        }
    };
    if tokio::time::timeout(READ, discarding).await.is_err() {
        tracing::debug!("receiving an oversized body timed out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LINK_OUTCOMES;

    #[test]
    fn each_refusal_has_its_series() {
        let refusals = [
            Refusal::NotLeading,
            Refusal::NotSynced,
            Refusal::NotCompiled,
            Refusal::NoToken,
            Refusal::TokenRefused,
            Refusal::Unavailable,
            Refusal::NoAgentPod,
            Refusal::Malformed,
            Refusal::TooLarge,
            Refusal::TooSlow,
            Refusal::Busy,
            Refusal::Superseded,
        ];
        assert_eq!(refusals.map(Refusal::name), LINK_OUTCOMES[1..]);
    }
}
