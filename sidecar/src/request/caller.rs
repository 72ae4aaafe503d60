//! An authenticated request of the runner, on any route.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use toolcrib_manifest::AgentFile;
use toolcrib_mediation::{ClawId, RunnerCode, RunnerError};

use super::room::BodyRoom;
use crate::config::EffectiveConfig;
use crate::config::identity::Runner;
use crate::history::line::{CallPath, LineContext};
use crate::telemetry::Trace;

/// An authenticated request of the runner, on any route. Its permits of the bounds that all
/// requests share are held until its record is written.
#[derive(Debug)]
pub struct Caller {
    pub request_id: String,
    pub via: CallPath,
    pub runner: Runner,
    pub agent: Arc<AgentFile>,
    /// The identity that services and the record see.
    pub claw_id: String,
    pub pod: String,
    pub pod_uid: Option<Arc<str>>,
    pub started: Instant,
    pub trace: Trace,
    /// One of the requests that may run at once.
    pub running: Option<OwnedSemaphorePermit>,
    /// Room for the body that the runner sent.
    pub body: BodyRoom,
}

impl Caller {
    pub fn who(&self) -> LineContext<'_> {
        LineContext {
            request_id: &self.request_id,
            agent_id: &self.claw_id,
            namespace: &self.agent.namespace,
            pod: &self.pod,
            pod_uid: self.pod_uid.as_deref(),
            path: self.via,
        }
    }

    /// The same identity, as services get it.
    pub fn identity(&self) -> ClawId {
        ClawId {
            name: self.claw_id.clone(),
            namespace: self.agent.namespace.clone(),
        }
    }

    /// The reason why this request may not go on, if its access was revoked meanwhile.
    pub fn ended(&self, now: &EffectiveConfig) -> Option<RunnerError> {
        match now.version() {
            Err(unavailable) => Some(unavailable.into()),
            Ok(_) if !now.admits(&self.runner) => Some(unauthorized()),
            Ok(_) => None,
        }
    }
}

/// The one error for every failed authentication.
pub fn unauthorized() -> RunnerError {
    RunnerError::new(
        RunnerCode::Unauthorized,
        // The code's own advice follows.
        "a valid token of the agent is required; a pod that is older than its Agent holds the key \
         of an earlier Agent, so delete it",
    )
}
