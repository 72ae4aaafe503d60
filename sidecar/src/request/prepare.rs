//! One authenticated request, and what is asked of others on its behalf.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use toolcrib_dialect::Dialect;
use toolcrib_manifest::Provider;
use toolcrib_mediation::{RunnerCode, RunnerError};

use crate::config::{Effective, Unavailable, Version};
use crate::history::{Body, KeptBody};
use crate::model::{Candidate, CandidateRequest, Operation, PolicyError, candidates};
use crate::request::caller::Caller;
use crate::request::room::BodyRoom;

/// A request for a model.
#[derive(Debug)]
pub struct ModelRequest {
    pub caller: Caller,
    pub operation: Operation,
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

impl ModelRequest {
    /// What the record says of the runner's body. `text`: it, where it is still there.
    pub fn recorded_body<'a>(&'a self, text: Option<&'a str>) -> Body<'a> {
        match text {
            Some(text) if self.body.is_empty() => Body::Json(text),
            Some(_) | None => Body::Kept(&self.body),
        }
    }
}

/// A model call that is ready to be sent: who may serve it now, with the bodies.
#[derive(Debug)]
pub struct Preparation {
    pub candidates: Vec<CandidateRequest>,
    pub version: Arc<Version>,
}

impl Preparation {
    /// Who is asked first.
    pub fn first(&self) -> Option<&Candidate> {
        self.candidates.first().map(|it| &it.candidate)
    }

    /// Asks whoever answered the last round before all others, where it may still be asked.
    pub fn stay_with(mut self, reference: &str) -> Self {
        let served = |it: &CandidateRequest| it.candidate.reference() == reference;
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
    let mut prepared: Vec<CandidateRequest> = Vec::with_capacity(candidates.len());
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
        prepared.push(CandidateRequest { candidate, body });
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
