//! `toolcrib-operator controller`: from watched objects to compiled agents and their status.
//!
//! Reading order: [`settings`]; [`watches`] (fill the tables of [`crate::objects`]); [`related`],
//! [`work`], [`lanes`], [`queue`], [`noticed`] (whom a change concerns); [`snapshot`], [`readers`], [`reconcile`] (one piece of work);
//! [`carrier`], [`apply`], [`identity`] (what is written); [`status`], [`report`], [`events`]
//! (what is said); [`leader`] (who does it).
//!
//! Invariants: nothing is compiled or written before everything is listed; only the leader
//! writes; nothing changes, nothing is written; what cannot be read stops nobody else.

pub mod apply;
pub mod carrier;
mod dns;
mod events;
mod health;
mod identity;
mod lanes;
mod leader;
mod noticed;
mod pace;
mod queue;
mod readers;
pub(crate) mod reconcile;
mod related;
mod report;
mod settings;
pub(crate) mod snapshot;
mod status;
mod watches;
pub(crate) mod work;
pub(crate) mod world;

use std::future::Future;
use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

pub use crate::objects::stores::SecretScope;
pub use settings::{Args, ClawApi, ClawScope, Settings};
use world::World;

use crate::lease::Candidate;
use crate::listen::bind;

/// The command: runs until SIGTERM or SIGINT.
pub async fn main(args: Args) -> anyhow::Result<()> {
    let client = Client::try_default()
        .await
        .context("no way to the API server")?;
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

/// Watches, stands for election, and works while it leads, until `shutdown`. Errs when it
/// cannot start, and when a part of it ended that must not.
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
    let world = Arc::new(World::new(client, settings));

    let mut parts = JoinSet::new();
    watches::start(&world, &mut parts);
    let routes = health::router(Arc::clone(&world));
    parts.spawn(async move {
        if let Err(error) = axum::serve(health, routes).await {
            tracing::error!(%error, "health listener ended");
        }
    });

    let result = stand(&world, &mut parts, shutdown).await;
    // Every task is seen to end: nothing of this controller runs when this returns.
    parts.shutdown().await;
    result
}

/// Stands for election and works while it leads.
async fn stand(
    world: &Arc<World>,
    parts: &mut JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::pin!(shutdown);
    loop {
        let candidate = candidate(world);
        let mut held = tokio::select! {
            () = &mut shutdown => return Ok(()),
            _ = parts.join_next() => anyhow::bail!("a watch or the health listener ended"),
            held = candidate.acquire() => held,
        };
        tracing::info!("leading");
        let mut duties = JoinSet::new();
        let end = tokio::select! {
            () = &mut shutdown => End::Shutdown,
            _ = parts.join_next() => End::Part,
            why = held.lost() => End::Lost(why),
            result = leader::lead(world, &mut duties) => match result {
                Ok(never) => match never {},
                Err(error) => End::Failed(error),
            },
        };
        world.set_leading(false);
        world.queue.close();
        duties.shutdown().await;
        leader::unlabel(world).await;
        match end {
            End::Shutdown => {
                held.release().await;
                return Ok(());
            }
            End::Part => {
                held.release().await;
                anyhow::bail!("a watch or the health listener ended");
            }
            End::Lost(why) => tracing::warn!(why, "leading no longer; standing by"),
            End::Failed(error) => {
                held.release().await;
                return Err(error);
            }
        }
    }
}

enum End {
    Shutdown,
    Part,
    Lost(&'static str),
    Failed(anyhow::Error),
}

fn candidate(world: &Arc<World>) -> Candidate {
    Candidate {
        client: world.client.clone(),
        namespace: world.settings.namespace.clone(),
        name: world.settings.lease.clone(),
        owner: world.settings.certificate_secret.clone(),
        identity: world.settings.pod_name.clone(),
        timing: world.settings.lease_timing,
        tenure: Arc::clone(&world.tenure),
    }
}
