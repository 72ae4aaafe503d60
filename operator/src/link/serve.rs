//! Handles a message of the link: authenticates the sender, records its report, and answers.
//!
//! If the sender has the latest answer in force, the request is held until there is a newer one, or
//! for as long as the sender asked. Not here: the content of an answer ([`super::answers`]).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{self, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use toolcrib_bounds::headers::bearer;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_manifest::{LONGEST_REPORT, LinkUp};
use toolcrib_serve::{BodyError, part_of, read_body};

use super::answers::LatestAnswer;
use super::long_polls::LongPolls;
use super::reports::{ReportChange, Sender};
use super::review::{Bearer, ReviewError, Reviewer};
use super::state::State;
use crate::leadership::Leadership;
use crate::listen::{Bounds, Visitor};
use crate::metrics::{Metrics, Outcome};
use crate::objects::store::StoreObject as _;
use crate::objects::stores::Stores;

/// Limit of a report, in KiB. A report with every field at its limit takes under 48.
const BODY_KIB: u32 = 64;
const _: () = assert!(BODY_KIB as usize * 1024 == LONGEST_REPORT);
/// Limit of the reports that are being received from all mediators together, in KiB.
const BODIES_KIB: usize = 16 * 1024;
/// Bytes of an oversized report that are received, so that its sender can read the refusal.
const LONGEST_DISCARDED: usize = 4 * LONGEST_REPORT;
/// Timeout of waiting for buffer space, and of receiving a report. A report is sent in one piece,
/// so it takes up buffer space only briefly.
const READ: Duration = Duration::from_secs(5);
/// Timeout of a TokenReview.
const REVIEW: Duration = Duration::from_secs(10);
/// Limit of the time for which a request is held, and so of the time between two reports of a mediator
/// that reaches the operator; shorter than the idle timeout of proxies.
pub const LONGEST_HOLD: Duration = Duration::from_secs(30);

/// Bounds of the link's listener.
pub const BOUNDS: Bounds = Bounds {
    // Twice the supported number of pods; a mediator needs one connection.
    known: 20_000,
    // A node's pods may come from one address; no node runs more than a few hundred.
    known_of_one_address: 2_000,
    // All mediators connect to a new leader at once, and count here until their TokenReviews end.
    // Mediators over the bound try again.
    strangers: 2_048,
    strangers_of_one_address: 32,
    // Time for a TLS handshake, the headers of a request, and a TokenReview.
    introduction: Duration::from_secs(20),
    idle: Duration::from_secs(10),
    // A token has 8 KiB at most.
    head: 32 * 1024,
    lifetime: Some(Duration::from_secs(600)),
};

/// The link, and the parts of the leader that it uses.
pub struct Link {
    pub leadership: Arc<Leadership>,
    pub stores: Stores,
    pub state: Arc<State>,
    pub metrics: Metrics,
    pub reviewer: Reviewer,
    /// The time at which this leader began.
    pub started: jiff::Timestamp,
    /// Called after each report.
    pub on_report: Box<OnReport>,
}

/// Called with the agent whose mediator has reported, and what the report changes.
pub type OnReport = dyn Fn(&ObjectRef, ReportChange) + Send + Sync;

/// One listener's state.
struct Listener {
    link: Link,
    long_polls: Arc<LongPolls>,
    bodies: Semaphore,
}

impl Link {
    pub fn router(self) -> Router {
        let listener = Listener {
            long_polls: LongPolls::new(self.metrics.link_held.clone()),
            bodies: Semaphore::new(BODIES_KIB),
            link: self,
        };
        Router::new()
            .route(names::LINK_PATH, post(message))
            .with_state(Arc::new(listener))
    }
}

/// Reasons why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
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
    fn status(self) -> StatusCode {
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

    fn name(self) -> &'static str {
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

async fn message(
    extract::State(listener): extract::State<Arc<Listener>>,
    request: Request,
) -> Response {
    let result = answer(&listener, request).await;
    let outcome = match &result {
        Ok(_) => "taken",
        Err(refusal) => refusal.name(),
    };
    listener
        .link
        .metrics
        .link_reports
        .get_or_create(&Outcome { outcome })
        .inc();
    match result {
        Ok(down) => ([(header::CONTENT_TYPE, "application/json")], down).into_response(),
        // Closes the connection: the Service may lead to another replica by now, and a client that
        // is not authenticated needs no second request.
        Err(refusal) => {
            let close = [(header::CONNECTION, "close")];
            (refusal.status(), close, refusal.name()).into_response()
        }
    }
}

async fn answer(listener: &Listener, request: Request) -> Result<Vec<u8>, Refusal> {
    let link = &listener.link;
    may_answer(link)?;
    let visitor = Visitor::of(&request);
    let (parts, body) = request.into_parts();
    let values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let token = bearer(values.map(HeaderValue::as_bytes)).ok_or(Refusal::NoToken)?;
    let token = std::str::from_utf8(token).map_err(|_| Refusal::NoToken)?;
    if let Some(visitor) = &visitor {
        visitor.checking();
    }
    let sender = reviewed(link, token).await?;
    let (agent, older_than_leader) = pod(link, &sender)?;
    if visitor.is_some_and(|visitor| !visitor.known()) {
        return Err(Refusal::Busy);
    }
    // Bodies are read only after authentication.
    let up = read(&listener.bodies, body).await?;
    let report_sender = Sender {
        uid: sender.uid.clone(),
        pod: sender.pod.clone(),
        agent: agent.clone(),
        older_than_leader,
    };
    let change = link.state.report(&report_sender, &up);
    (link.on_report)(&agent, change);

    let present = link
        .stores
        .agents
        .get(&agent.namespace, &agent.name)
        .is_some();
    let mut answers = link.state.subscribe(&agent, present);
    let (seen, hold) = (up.seen, Duration::from_millis(up.hold_ms));
    drop(up);
    next_answer(&listener.long_polls, &sender.uid, &mut answers, seen, hold).await?;
    // Leadership and pod are checked again, since they may have changed while the request was held.
    may_answer(link)?;
    pod(link, &sender)?;
    let answer = answers.borrow();
    let answer = answer.as_ref().ok_or(Refusal::NotCompiled)?;
    let others = link.state.others(&agent, &sender.uid);
    Ok(answer.body(&others))
}

/// Reads the report, and drops its bytes.
async fn read(bodies: &Semaphore, body: Body) -> Result<LinkUp, Refusal> {
    // A body of unknown length reserves the space of the largest one.
    let length = body.size_hint().upper().unwrap_or(u64::MAX);
    let kib = match u32::try_from(length.div_ceil(1024)) {
        Ok(kib) if kib <= BODY_KIB => kib.max(1),
        _ if body.size_hint().exact().is_some() => {
            discard(body).await;
            return Err(Refusal::TooLarge);
        }
        _ => BODY_KIB,
    };
    let Ok(room) = tokio::time::timeout(READ, bodies.acquire_many(kib)).await else {
        return Err(Refusal::Busy);
    };
    let _room = room.expect("the semaphore is never closed");
    match tokio::time::timeout(READ, read_body(body, LONGEST_REPORT)).await {
        Ok(Ok(body)) => decoded(&body).ok_or(Refusal::Malformed),
        Ok(Err(BodyError::TooLarge)) => Err(Refusal::TooLarge),
        Ok(Err(BodyError::Broken(_))) => Err(Refusal::Malformed),
        Err(_) => Err(Refusal::TooSlow),
    }
}

/// Decodes a report.
pub(crate) fn decoded(body: &[u8]) -> Option<LinkUp> {
    serde_json::from_slice(body).ok()
}

/// Reads an authenticated sender's body and drops it, up to [`LONGEST_DISCARDED`]. A connection
/// that closes with unread bytes is reset, and the sender fails in mid-write before it reads its
/// refusal.
async fn discard(mut body: Body) {
    let discarding = async {
        let mut left = LONGEST_DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len());
            let Some(rest) = left.checked_sub(length) else {
                return;
            };
            left = rest;
        }
    };
    if tokio::time::timeout(READ, discarding).await.is_err() {
        tracing::debug!("receiving an oversized report timed out");
    }
}

/// Checks that this replica leads and that its stores are synced. An allowlist from empty
/// stores would deny all agents, and one of a former leader might give back a revoked tool.
fn may_answer(link: &Link) -> Result<(), Refusal> {
    if !link.leadership.holds() {
        return Err(Refusal::NotLeading);
    }
    if link.stores.synced().is_none() {
        return Err(Refusal::NotSynced);
    }
    Ok(())
}

async fn reviewed(link: &Link, token: &str) -> Result<Bearer, Refusal> {
    let review = tokio::time::timeout(REVIEW, link.reviewer.review(token));
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
fn pod(link: &Link, bearer: &Bearer) -> Result<(ObjectRef, bool), Refusal> {
    let pod = link
        .stores
        .pods
        .get(&bearer.namespace, &bearer.pod)
        .filter(|pod| pod.id().uid == Some(&bearer.uid))
        .ok_or(Refusal::NoAgentPod)?;
    let agent = pod.label(names::AGENT_LABEL).ok_or(Refusal::NoAgentPod)?;
    let older = pod
        .created
        // Creation times are rounded down to the second.
        .is_none_or(|created| created.as_second() < link.started.as_second());
    Ok((ObjectRef::new(&*bearer.namespace, agent), older))
}

/// Waits until there is an answer that the pod does not have in force, or until the time is up and
/// the latest answer is repeated.
async fn next_answer(
    long_polls: &Arc<LongPolls>,
    pod: &str,
    answers: &mut watch::Receiver<LatestAnswer>,
    seen: u64,
    hold: Duration,
) -> Result<(), Refusal> {
    let hold = hold.min(LONGEST_HOLD);
    // Jitter of up to a quarter, so that requests that arrived together do not return together.
    let until = Instant::now() + (hold - part_of(hold / 4));
    let mut long_poll = long_polls.begin(pod);
    let next = answers.wait_for(|answer| answer.as_ref().is_some_and(|answer| answer.seq != seen));
    tokio::select! {
        // A newer answer comes first, so that a request with a hold of zero gets it too.
        biased;
        next = next => next.map(drop).map_err(|_| Refusal::NotLeading),
        () = long_poll.superseded() => Err(Refusal::Superseded),
        () = tokio::time::sleep_until(until) => Ok(()),
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
