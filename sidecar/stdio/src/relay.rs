//! A client's request, brought to the child that runs now.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use toolcrib_mcp::{Answer, Fault, Members};
use toolcrib_sidecar::sessions::SessionId;

use crate::program::{CallError, Caller, Program};
use crate::revision::{About, Method};
use crate::supervisor::State;

/// Calls at once. A body is bounded as well, so this bounds what they hold.
const CALLS: usize = 64;
/// For a child that is being started.
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

    /// Whether a call would reach a child now.
    pub fn is_ready(&self) -> bool {
        matches!(&*self.state.borrow(), State::Running { .. })
    }

    /// Sent once at most, whatever becomes of the child.
    pub async fn call(
        &self,
        caller: Caller,
        method: Method,
        params: Option<&Members>,
    ) -> Result<Answer, CallError> {
        let _permit = self.permits.try_acquire().map_err(|_| CallError::Busy)?;
        let (program, _) = self.running().await?;
        let call = program.request(Some(caller), method.name(), params);
        let answer = timeout(self.call_timeout, call)
            .await
            .unwrap_or(Err(CallError::TimedOut))?;
        if let (Method::ListTools, Answer::Result(page)) = (method, &answer) {
            program.listed.learn(page);
        }
        Ok(answer)
    }

    /// Whether the headers of a `tools/call` say what its body says, as far as the child's tools
    /// ask for it.
    pub fn check(&self, headers: &HeaderMap, params: Option<&RawValue>) -> Result<(), Fault> {
        match &*self.state.borrow() {
            State::Running { program, .. } => program.listed.check(headers, params),
            // One that begins anew has listed nothing.
            State::Starting { .. } | State::Stopped => Ok(()),
        }
    }

    pub async fn about(&self) -> Result<Arc<About>, CallError> {
        let _permit = self.permits.try_acquire().map_err(|_| CallError::Busy)?;
        Ok(self.running().await?.1)
    }

    pub fn cancel(&self, session: &SessionId, id: &RawValue) {
        if let State::Running { program, .. } = &*self.state.borrow() {
            program.cancel(session, id);
        }
    }

    /// The child and what it said of itself, once it is there.
    async fn running(&self) -> Result<(Arc<Program>, Arc<About>), CallError> {
        let mut state = self.state.clone();
        let came = |state: &State| !matches!(state, State::Starting { .. });
        // Err of either: it is still being started, or this process is ending.
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
