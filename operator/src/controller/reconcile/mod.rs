//! One object, from the stores to the API server and back into its status.
//!
//! Here: which kind goes which way, and how it can fail. Reading order: [`ask`]
//! (compile on the stores), [`agent`] (an Agent's steps, in order), [`secrets`] (what compile asked for),
//! [`objects`] (materialize and apply) with [`identity`], [`identity_secret`] and [`put`], [`outcome`]
//! with [`pods`] and [`report`] (write status and Events); [`others`] (the kinds that are only
//! checked). Not here: compile, the content of status, and single writes (`snapshot`, `status`,
//! `write`).
//!
//! Invariant: level-based. It looks only at what is, never waits, and doing it twice does
//! nothing the second time.

mod agent;
mod ask;
mod identity;
mod identity_secret;
mod objects;
mod others;
mod outcome;
mod pods;
mod put;
mod report;
mod secrets;

pub use agent::explain;
pub use outcome::reported;
pub use report::panicked;
use toolcrib_compile::ObjectRef;

use super::context::Context;
use super::queue::Completion;
use super::queue::work::{Work, WorkKind};
use super::write::apply::ApplyError;
use report::ReportError;

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Not a failure: the work is requeued until the watches have caught up.
    #[error("the watches have not brought everything yet")]
    NotSynced,
    #[error("this replica leads no longer")]
    NotLeading,
    #[error("Secret {0}: {1}")]
    NotWatched(ObjectRef, String),
    #[error("Secret {0} not read")]
    ReadSecret(ObjectRef, #[source] kube::Error),
    #[error("randomness not available: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl ReconcileError {
    /// Whether it is only a matter of the watches catching up.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            ReconcileError::NotSynced
                | ReconcileError::NotLeading
                | ReconcileError::Apply(ApplyError::Stale { .. })
                | ReconcileError::Apply(ApplyError::NotLeading { .. })
                | ReconcileError::Report(ReportError::Stale(_))
        )
    }
}

/// Runs CPU-bound work off the async threads. The lease is renewed on those threads, and a large
/// manifest must not block them.
///
/// Two at a time: what a compilation holds while it runs is many times an object's size, and the
/// workers together would hold it for all of them.
async fn computed<T>(context: &Context, work: impl FnOnce() -> T) -> T {
    // Never closed.
    let _turn = context.turns.acquire().await;
    tokio::task::block_in_place(work)
}

/// Publishes the agent's allowlist to its mediators over the link.
pub async fn publish(context: &Context, work: &Work) {
    // Not synced: there is nothing to publish yet.
    if let Some(synced) = context.stores.synced() {
        agent::publish(context, work, synced).await;
    }
}

/// Does one piece of work.
pub async fn reconcile(context: &Context, work: &Work) -> Result<Completion, ReconcileError> {
    let synced = context.stores.synced().ok_or(ReconcileError::NotSynced)?;
    match work.kind {
        WorkKind::Agent => return agent::agent(context, work, synced).await,
        WorkKind::Surface => others::surface(context, work, synced).await?,
        WorkKind::ToolGrant => others::grant(context, work, synced).await?,
        WorkKind::ToolDefaults => others::defaults(context, work, synced).await?,
        WorkKind::ModelProvider => others::provider(context, work, synced).await?,
    }
    Ok(Completion::Settled)
}
