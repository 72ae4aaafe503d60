//! The reasons why a request must stop before it has its answer.

use std::future::pending;
use std::time::Instant;

use tokio::sync::watch;
use toolcrib_mediation::RunnerError;

use crate::config::CurrentConfig;
use crate::request::caller::Caller;

/// The reason why a request was stopped.
#[derive(Debug)]
pub enum StopReason {
    RunnerGone,
    /// The runner cancelled the request and waits for an answer.
    Cancelled,
    /// The agent's files or the runner's token were withdrawn.
    Ended(RunnerError),
    Late,
}

/// Watches the configuration in force. Its first look is due at once, for a change that came
/// before the watch was made.
#[derive(Debug)]
pub struct AccessWatch(watch::Receiver<u64>);

impl AccessWatch {
    pub fn new(current: &CurrentConfig) -> Self {
        let mut changes = current.subscribe();
        changes.mark_changed();
        Self(changes)
    }

    /// Resolves when the caller's request may not go on. Cancel safe.
    pub async fn ended(&mut self, current: &CurrentConfig, caller: &Caller) -> RunnerError {
        // Err: the writer is gone and no change can follow; the request goes on.
        while self.0.changed().await.is_ok() {
            if let Some(error) = caller.ended(&current.now()) {
                return error;
            }
        }
        pending().await
    }
}

/// Resolves when the request must stop. `gone` resolves when the runner has disconnected,
/// `cancelled` when it has cancelled the request ([`pending`] if it cannot). Without a `deadline`,
/// the work bounds itself. Cancel safe.
pub async fn stopped(
    access: &mut AccessWatch,
    current: &CurrentConfig,
    caller: &Caller,
    deadline: Option<Instant>,
    gone: impl Future<Output = ()>,
    cancelled: impl Future<Output = ()>,
) -> StopReason {
    let late = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        () = gone => StopReason::RunnerGone,
        () = cancelled => StopReason::Cancelled,
        error = access.ended(current, caller) => StopReason::Ended(error),
        () = late => StopReason::Late,
    }
}
