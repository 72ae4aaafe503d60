//! `toolcrib-operator controller`: compiles watched objects for agents, and writes their status.
//!
//! Reading order: [`settings`]; [`context`] (shared state of the tasks); [`watches`] (fill the stores
//! of [`crate::objects`]); [`dependents`] (the work that a change affects); [`queue`] (the order of
//! work); [`snapshot`] (the input of a compilation); [`status`] (its content); [`mod@write`] (compiled
//! objects and Events); [`hints`] (planned refreshes of pods); [`selectors`] (whether grants may select
//! agents); [`reconcile`] (one piece of work); [`refresh`] (sends the hints); [`label_check`] (asks
//! whether the API server protects labels); [`approvals`] (persons decide about calls); [`leader`] (the
//! leader's tasks); [`health`].
//!
//! Invariants: nothing is compiled or written before every watch has listed; only the leader
//! writes; a reconcile without changes writes nothing; an object that cannot be decoded affects no other.

mod approvals;
mod context;
mod dependents;
mod health;
mod hints;
mod label_check;
mod leader;
mod queue;
mod reconcile;
mod refresh;
mod selectors;
mod settings;
mod snapshot;
mod status;
mod watches;
mod write;

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use toolcrib_serve::{Plain, bind};

pub use crate::claw::ClawScope;
pub use crate::objects::stores::SecretScope;
use context::Context;
pub use settings::{Args, ClawApi, Settings};

use crate::leadership::lease::Candidate;
use crate::listen::{STATUS, serve};

/// Runs the command until SIGTERM or SIGINT.
pub async fn main(args: Args) -> anyhow::Result<()> {
    let client = Client::try_default()
        .await
        .context("cannot configure the Kubernetes client")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    run(client, args.into(), shutdown).await
}

/// Watches, takes part in leader election, and works while it leads, until `shutdown`. Fails if it
/// cannot start, or if a task ends unexpectedly.
pub async fn run(
    client: Client,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    if settings.secrets == SecretScope::Namespaces(Default::default()) {
        tracing::warn!("no namespace is served: set --secret-namespaces or --cluster-wide-secrets");
    }
    let health = bind(settings.listen)
        .await
        .with_context(|| format!("--listen {}", settings.listen))?;
    let context = Arc::new(Context::new(client, settings));

    let mut parts = JoinSet::new();
    watches::start(&context, &mut parts);
    approvals::watch::start(&context, &mut parts);
    let routes = health::router(Arc::clone(&context));
    parts.spawn(async move {
        serve(health, Plain, routes, STATUS, pending(), Duration::ZERO).await;
    });

    let result = stand(&context, &mut parts, shutdown).await;
    // Waits for every task, so that none runs when this returns.
    parts.shutdown().await;
    result
}

/// Takes part in leader election and works while it leads.
async fn stand(
    context: &Arc<Context>,
    parts: &mut JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::pin!(shutdown);
    loop {
        let candidate = candidate(context);
        let mut lease = tokio::select! {
            () = &mut shutdown => return Ok(()),
            _ = parts.join_next() => anyhow::bail!("a watch or the health listener ended"),
            lease = candidate.acquire() => lease,
        };
        tracing::info!("became leader");
        let mut duties = JoinSet::new();
        let end = tokio::select! {
            () = &mut shutdown => End::Shutdown,
            _ = parts.join_next() => End::Part,
            why = lease.lost() => End::Lost(why),
            result = leader::lead(context, &mut duties) => match result {
                Ok(never) => match never {},
                Err(error) => End::Failed(error),
            },
        };
        context.resign();
        duties.shutdown().await;
        leader::unlabel(context).await;
        match end {
            End::Shutdown => {
                lease.release().await;
                return Ok(());
            }
            End::Part => {
                lease.release().await;
                anyhow::bail!("a watch or the health listener ended");
            }
            End::Lost(why) => tracing::warn!(why, "lost leadership, standing by"),
            End::Failed(error) => {
                lease.release().await;
                return Err(error);
            }
        }
    }
}

/// Reason why the work as leader ended.
enum End {
    Shutdown,
    /// A watch or the health listener ended.
    Part,
    Lost(&'static str),
    Failed(anyhow::Error),
}

fn candidate(context: &Arc<Context>) -> Candidate {
    Candidate {
        client: context.client.clone(),
        namespace: context.settings.namespace.clone(),
        name: context.settings.lease.clone(),
        owner: context.settings.certificate_secret.clone(),
        identity: context.settings.pod_name.clone(),
        timing: context.settings.lease_timing,
        tenure: context.leadership.tenure(),
    }
}
