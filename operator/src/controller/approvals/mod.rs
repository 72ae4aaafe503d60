//! Approvals in the API server: takes the questions of mediators, and writes what follows from decisions.
//!
//! Reading order: [`watch`] (fills the stores); [`ask`] (a question becomes a ToolApproval, and [`pace`]
//! says when); [`check`] (whether the admission policies are in force); [`work`] (one ToolApproval and
//! its ToolDecisions), with [`write`] (single writes) and [`notify`] (Events and metrics). Not here: what
//! is to be written ([`crate::approvals::plan`]).
//!
//! Invariants: a question has one ToolApproval, whoever leads and however often it is asked. Each write
//! carries the version from which it was decided, so a leader that was paused decides nothing.

pub mod ask;
pub mod check;
mod notify;
mod pace;
pub mod watch;
mod work;
mod write;

use std::sync::Arc;

use tokio::task::JoinSet;

use super::context::Context;
use check::Schedule;

/// Spawns the leader's tasks.
pub fn spawn(context: &Arc<Context>, parts: &mut JoinSet<anyhow::Error>, checks: Arc<Schedule>) {
    for _ in 0..work::WORKERS {
        let context = Arc::clone(context);
        parts.spawn(async move { work::keep(&context).await });
    }
    let context = Arc::clone(context);
    parts.spawn(async move { check::keep(&context, &checks).await });
}
