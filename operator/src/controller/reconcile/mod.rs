//! Reconciles an object: reads the stores, writes its compiled objects, and reports in its status.
//!
//! Here: the steps of each kind, and their errors. Reading order: [`ask`] (compile on the stores),
//! [`agent`] (an Agent's steps, in order), [`secrets`] (the Secrets that compile needs), [`objects`]
//! (materialize and apply) with [`identity`], [`identity_secret`] and [`put`], [`outcome`] with
//! [`pods`] and [`report`] (write status and Events); [`others`] (the kinds that are only checked).
//! Not here: compile, the content of status, and single writes (`snapshot`, `status`, `write`).
//!
//! Invariant: level-based and idempotent. A reconcile depends on the current state only, never
//! waits, and does nothing the second time.

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
pub use pods::{PodName, pods_behind};
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
    #[error("the watches have not caught up yet")]
    NotSynced,
    #[error("this replica is no longer the leader")]
    NotLeading,
    #[error("Secret {0}: {1}")]
    NotWatched(ObjectRef, String),
    #[error("cannot read Secret {0}")]
    ReadSecret(ObjectRef, #[source] kube::Error),
    #[error("cannot generate a token: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl ReconcileError {
    /// Whether the error resolves itself once the watches or the leader election catch up.
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
/// The semaphore bounds memory: a running compilation takes many times the size of an object, and
/// there are more workers than permits.
async fn computed<T>(context: &Context, work: impl FnOnce() -> T) -> T {
    // The semaphore is never closed, so this never fails.
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

/// Reconciles one object.
pub async fn reconcile(context: &Context, work: &Work) -> Result<Completion, ReconcileError> {
    let synced = context.stores.synced().ok_or(ReconcileError::NotSynced)?;
    match work.kind {
        WorkKind::Agent => return agent::agent(context, work, synced).await,
        WorkKind::Surface => others::surface(context, work, synced).await?,
        WorkKind::ToolGrant => return others::grant(context, work, synced).await,
        WorkKind::ToolDefaults => others::defaults(context, work, synced).await?,
        WorkKind::ModelProvider => others::provider(context, work, synced).await?,
        WorkKind::ClusterToolPolicy => return others::policy(context, work, synced).await,
    }
    Ok(Completion::Settled)
}
