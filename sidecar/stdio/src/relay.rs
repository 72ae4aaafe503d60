//! Sends a client's request to the running child, and returns its answer.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use toolcrib_mcp::{Fault, Members, RpcResponse};
use toolcrib_sidecar::app::sessions::SessionId;

use crate::program::{CallError, Caller, Program};
use crate::revision::{ChildDescription, Method};
use crate::supervisor::State;

/// Limits concurrent calls. Bodies are bounded too, so this bounds the memory of all calls.
const CALLS: usize = 64;
/// Timeout of waiting for a child that is starting.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Relay {
    state: watch::Receiver<State>,
    permits: Semaphore,
    call_timeout: Duration,
}

impl Relay {
    pub fn new(state: watch::Receiver<State>, call_timeout: Duration) -> Self {
        Self {
            state,
            permits: Semaphore::new(CALLS),
            call_timeout,
        }
    }

    /// Returns true if a call would reach a child now.
    pub fn is_ready(&self) -> bool {
        matches!(&*self.state.borrow(), State::Running { .. })
    }

    /// Sends a request and returns its answer. Sends it at most once, even if the child ends.
    pub async fn call(
        &self,
        caller: Caller,
        method: Method,
        params: Option<&Members>,
    ) -> Result<RpcResponse, CallError> {
        let _permit = self.permits.try_acquire().map_err(|_| CallError::Busy)?;
        let (program, _) = self.running().await?;
        let call = program.request(Some(caller), method.name(), params);
        let answer = timeout(self.call_timeout, call)
            .await
            .unwrap_or(Err(CallError::TimedOut))?;
        if let (Method::ListTools, RpcResponse::Result(page)) = (method, &answer) {
            program.listed.learn(page);
        }
        Ok(answer)
    }

    /// Checks that the headers of a `tools/call` agree with its body, as far as the child's tools
    /// require it.
    pub fn check(&self, headers: &HeaderMap, params: Option<&RawValue>) -> Result<(), Fault> {
        match &*self.state.borrow() {
            State::Running { program, .. } => program.listed.check(headers, params),
            // A child that is starting has listed no tools.
            State::Starting { .. } | State::Stopped => Ok(()),
        }
    }

    pub async fn about(&self) -> Result<Arc<ChildDescription>, CallError> {
        let _permit = self.permits.try_acquire().map_err(|_| CallError::Busy)?;
        Ok(self.running().await?.1)
    }

    pub fn cancel(&self, session: &SessionId, id: &RawValue) {
        if let State::Running { program, .. } = &*self.state.borrow() {
            program.cancel(session, id);
        }
    }

    /// Waits for the child, and returns it with its description.
    async fn running(&self) -> Result<(Arc<Program>, Arc<ChildDescription>), CallError> {
        let mut state = self.state.clone();
        let came = |state: &State| !matches!(state, State::Starting { .. });
        // An error means that the child is still starting, or that this process is shutting down.
        if let Ok(Ok(state)) = timeout(PATIENCE, state.wait_for(came)).await
            && let State::Running { program, about } = &*state
        {
            return Ok((program.clone(), about.clone()));
        }
        let why = match &*self.state.borrow() {
            State::Starting { before: Some(why) } => why.clone(),
            State::Starting { before: None } | State::Running { .. } => {
                "it is being started".to_owned()
            }
            State::Stopped => "it is being stopped".to_owned(),
        };
        Err(CallError::NotRunning { why })
    }
}
