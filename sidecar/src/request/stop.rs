//! Whether a request must stop before it has its answer.

use std::future::pending;
use std::time::Instant;

use tokio::sync::watch;
use toolcrib_mediation::RunnerError;

use crate::config::Current;
use crate::request::caller::Caller;

/// What ended a request.
#[derive(Debug)]
pub enum StopReason {
    RunnerGone,
    /// Its agent's files or its runner's token were taken away.
    Ended(RunnerError),
    Late,
}

/// Sees changes of what is in force. The first is one that came before it was made.
#[derive(Debug)]
pub struct AccessWatch(watch::Receiver<u64>);

impl AccessWatch {
    pub fn new(current: &Current) -> Self {
        let mut changes = current.subscribe();
        changes.mark_changed();
        Self(changes)
    }

    /// Resolves when the caller's request may not go on. It may be dropped and asked again.
    pub async fn ended(&mut self, current: &Current, caller: &Caller) -> RunnerError {
        // Err: nobody can change anything any more, and the request goes on as it is.
        while self.0.changed().await.is_ok() {
            if let Some(error) = caller.ended(&current.now()) {
                return error;
            }
        }
        pending().await
    }
}

/// Resolves when the request must stop: `gone` resolves when its runner has hung up. It may be
/// dropped and asked again.
pub async fn stopped(
    access: &mut AccessWatch,
    current: &Current,
    caller: &Caller,
    deadline: Instant,
    gone: impl Future<Output = ()>,
) -> StopReason {
    tokio::select! {
        biased;
        () = gone => StopReason::RunnerGone,
        error = access.ended(current, caller) => StopReason::Ended(error),
        () = tokio::time::sleep_until(deadline.into()) => StopReason::Late,
    }
}
