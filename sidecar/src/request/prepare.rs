//! A request for a model, and the model calls that are made for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use toolcrib_dialect::{Dialect, Request};
use toolcrib_manifest::Provider;
use toolcrib_mediation::{RunnerCode, RunnerError};

use crate::app::budgets::{BudgetStore, TokenCharge};
use crate::config::{EffectiveConfig, Unavailable, Version};
use crate::history::Body;
use crate::history::body::{MAX_BODY, RecordBody};
use crate::outbound::model::{Candidate, CandidateRequest, Operation, PolicyError, candidates};
use crate::request::caller::Caller;
use crate::request::room::BodyRoom;

/// A request for a model.
#[derive(Debug)]
pub struct ModelRequest {
    pub caller: Caller,
    pub operation: Operation,
    pub dialect: Dialect,
    /// The runner's headers, filtered for the model.
    pub headers: HeaderMap,
    /// The model's name as the runner wrote it.
    pub model: Option<String>,
    pub tools_count: usize,
    /// Time that was spent waiting for feeds; it does not count as overhead.
    pub waited_for_feeds: Duration,
    /// Codes of the interventions that were made before the turn began.
    pub interventions: Vec<&'static str>,
    pub body: SentBody,
}

/// The runner's body for the record, without a copy of a short one.
#[derive(Debug)]
pub enum SentBody {
    /// A request that was decoded and is not longer than a line of the record has it.
    Request(Arc<Request>),
    /// Other bytes; of many, the two ends.
    Bytes(RecordBody),
}

impl Default for SentBody {
    fn default() -> Self {
        Self::Bytes(RecordBody::default())
    }
}

impl SentBody {
    pub fn of(request: &Arc<Request>) -> Self {
        let text = request.as_text();
        match text.len() {
            ..=MAX_BODY => Self::Request(request.clone()),
            _ => Self::Bytes(RecordBody::of(text.as_bytes())),
        }
    }

    /// False if only the two ends are in memory.
    pub fn is_whole(&self) -> bool {
        match self {
            SentBody::Request(_) => true,
            SentBody::Bytes(kept) => kept.whole().is_some(),
        }
    }

    pub fn recorded(&self) -> Body<'_> {
        match self {
            SentBody::Request(request) => Body::Json(request.as_text()),
            SentBody::Bytes(kept) => Body::Kept(kept),
        }
    }
}

/// A model call that is ready to be sent: the candidates that may serve it now, with the bodies.
#[derive(Debug)]
pub struct Preparation {
    pub candidates: Vec<CandidateRequest>,
    pub version: Arc<Version>,
}

impl Preparation {
    /// The candidate that is asked first.
    pub fn first(&self) -> Option<&Candidate> {
        self.candidates.first().map(|it| &it.candidate)
    }

    /// Moves the candidate that answered the last round to the front, if it is still allowed.
    pub fn stay_with(mut self, reference: &str) -> Self {
        let served = |it: &CandidateRequest| it.candidate.is(reference);
        if let Some(at) = self.candidates.iter().position(served) {
            self.candidates[..=at].rotate_right(1);
        }
        self
    }

    /// Begins to count the tokens of the call, if the agent has a budget of tokens.
    pub fn charge(&self, budgets: &Arc<BudgetStore>) -> Option<TokenCharge> {
        let body = self.candidates.first().map_or(0, |it| it.body.len());
        TokenCharge::begin(budgets, &self.version.agent.budgets, body)
    }

    pub fn providers(&self) -> &BTreeMap<String, Provider> {
        &self.version.providers
    }
}

/// Prepares a model call. Called again for each one, since models and providers can be
/// withdrawn. `body` writes the body for a model's name; `room` is for all bodies together.
pub fn prepare(
    now: &EffectiveConfig,
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
        let code = match &unavailable {
            Unavailable::AccessWithdrawn => RunnerCode::AccessWithdrawn,
            Unavailable::AgentSuspended(_) => RunnerCode::AgentSuspended,
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
            PolicyError::NotAllowed { .. }
            | PolicyError::NotMatching { .. }
            | PolicyError::NoProvider { .. } => RunnerCode::ModelNotAllowed,
            PolicyError::Dialect(_) => RunnerCode::DialectUnsupported,
        };
        RunnerError::new(code, error.to_string())
    }
}
