//! One authenticated request, and what is asked of others on its behalf.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use toolcrib_dialect::Dialect;
use toolcrib_manifest::{AgentFile, Provider};
use toolcrib_mediation::{ClawId, RunnerCode, RunnerError};

use crate::admission::BodyRoom;
use crate::config::{Effective, Unavailable, Version};
use crate::history::line::Who;
use crate::history::{Body, KeptBody};
use crate::identity::Runner;
use crate::model::{Candidate, PolicyError, Prepared, candidates};
use crate::telemetry::Trace;

/// A request of the runner that was let in, whatever it asks for. What it holds of the
/// bounds that all requests share is held until its record is written.
#[derive(Debug)]
pub struct Caller {
    pub request_id: String,
    pub via: Via,
    pub runner: Runner,
    pub agent: Arc<AgentFile>,
    /// The identity that services and the record see.
    pub claw_id: String,
    pub pod: String,
    pub started: Instant,
    pub trace: Trace,
    /// One of the requests that may run at once.
    pub running: Option<OwnedSemaphorePermit>,
    /// For the body that it sent.
    pub body: BodyRoom,
}

/// How tools are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// By a model, whose turn is mediated.
    Mediated,
    /// By the runner itself, as an MCP client.
    Native,
}

impl Via {
    pub fn is_mediated(&self) -> bool {
        *self == Self::Mediated
    }
}

impl Caller {
    pub fn who(&self) -> Who<'_> {
        Who {
            request_id: &self.request_id,
            agent_id: &self.claw_id,
            pod: &self.pod,
            path: self.via,
        }
    }

    /// The same, as each service is told it.
    pub fn identity(&self) -> ClawId {
        ClawId {
            name: self.claw_id.clone(),
            namespace: self.agent.namespace.clone(),
        }
    }

    /// Why this request may not go on, if something was taken away meanwhile.
    pub fn ended(&self, now: &Effective) -> Option<RunnerError> {
        match now.version() {
            Err(unavailable) => Some(unavailable.into()),
            Ok(_) if !now.admits(&self.runner) => Some(unauthorized()),
            Ok(_) => None,
        }
    }
}

/// A request for a model.
#[derive(Debug)]
pub struct Asked {
    pub caller: Caller,
    pub dialect: Dialect,
    /// The runner's, filtered for the model.
    pub headers: HeaderMap,
    /// As the runner named it.
    pub model: Option<String>,
    pub tools_count: usize,
    /// Time that was spent waiting for feeds, which is nobody's overhead.
    pub waited_for_feeds: Duration,
    /// What was noticed before the turn began: codes.
    pub noticed: Vec<&'static str>,
    /// The runner's body, for the record, where nothing else holds it.
    pub body: KeptBody,
}

impl Asked {
    /// What the record says of the runner's body. `text`: it, where it is still there.
    pub fn said<'a>(&'a self, text: Option<&'a str>) -> Body<'a> {
        match text {
            Some(text) if self.body.is_empty() => Body::Json(text),
            Some(_) | None => Body::Kept(&self.body),
        }
    }
}

/// The one text for every way of not being let in.
pub fn unauthorized() -> RunnerError {
    RunnerError::new(
        RunnerCode::Unauthorized,
        // The code's own advice follows.
        "a valid token of the agent is required; a pod that is older than its Agent holds the key \
         of an earlier Agent, so delete it",
    )
}

/// A model call that is ready to be sent: who may serve it now, with the bodies.
#[derive(Debug)]
pub struct Preparation {
    pub candidates: Vec<Prepared>,
    pub version: Arc<Version>,
}

impl Preparation {
    /// Who is asked first.
    pub fn first(&self) -> Option<&Candidate> {
        self.candidates.first().map(|it| &it.candidate)
    }

    /// Asks whoever answered the last round before all others, where it may still be asked.
    pub fn stay_with(mut self, reference: &str) -> Self {
        let served = |it: &Prepared| it.candidate.reference() == reference;
        if let Some(at) = self.candidates.iter().position(served) {
            self.candidates[..=at].rotate_right(1);
        }
        self
    }

    pub fn providers(&self) -> &BTreeMap<String, Provider> {
        &self.version.providers
    }
}

/// Asked anew for each model call, since models and providers can be withdrawn.
/// `body` writes it for a model's name; `room` is for all of them together.
pub fn prepare(
    now: &Effective,
    dialect: Dialect,
    model: Option<&str>,
    room: &mut BodyRoom,
    body: impl Fn(&str) -> Result<Vec<u8>, RunnerError>,
) -> Result<Preparation, RunnerError> {
    let version = now.version()?.clone();
    let candidates = candidates(now, &version, dialect, model)?;
    let mut prepared: Vec<Prepared> = Vec::with_capacity(candidates.len());
    let mut length = 0;
    for candidate in candidates {
        let same = prepared
            .iter()
            .find(|other| other.candidate.model == candidate.model);
        let body = match same {
            Some(other) => other.body.clone(),
            None => {
                let body = Bytes::from(body(&candidate.model)?);
                length += body.len();
                room.hold(length)?;
                body
            }
        };
        prepared.push(Prepared { candidate, body });
    }
    Ok(Preparation {
        candidates: prepared,
        version,
    })
}

impl From<Unavailable> for RunnerError {
    fn from(unavailable: Unavailable) -> Self {
        let code = match unavailable {
            Unavailable::AccessWithdrawn => RunnerCode::AccessWithdrawn,
            Unavailable::ManifestBroken => RunnerCode::ManifestBroken,
            Unavailable::Ending => RunnerCode::Overloaded,
        };
        RunnerError::new(code, unavailable.to_string())
    }
}

impl From<PolicyError> for RunnerError {
    fn from(error: PolicyError) -> Self {
        let code = match error {
            PolicyError::Missing | PolicyError::Ambiguous { .. } => RunnerCode::ModelMissing,
            PolicyError::NotAllowed { .. } | PolicyError::NoProvider { .. } => {
                RunnerCode::ModelNotAllowed
            }
            PolicyError::Dialect(_) => RunnerCode::DialectUnsupported,
        };
        RunnerError::new(code, error.to_string())
    }
}
