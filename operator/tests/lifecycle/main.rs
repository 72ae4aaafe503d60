//! What users experience while parts of an installation are replaced, killed, paused or down:
//! processes of the real program, with the chart's arguments and rights, on a control plane of
//! this test's own.
//!
//! `cargo test -p toolcrib-operator --test lifecycle [-- ROW…]`. Each row
//! asserts its invariant and measures the time. The times are printed as a table
//! (docs/reliability.md) and asserted nowhere. At the end the audit log is read: the accounts
//! must have used all of their rights, and no others.
//!
//! In reading order: [`plane`], [`program`], [`wait`] (Kubernetes), [`install`], [`balancer`],
//! [`load`] (Toolcrib and its users), [`world`] (the state that every row starts from), the rows.

mod approvals;
mod balancer;
mod heavy;
mod install;
mod leaders;
mod load;
mod outside;
mod plane;
mod program;
mod proxy;
mod removing;
mod replacing;
mod rights;
mod strangers;
mod wait;
mod world;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use world::{Row, World};

/// The rows in order: each leaves the world as it found it.
const ROWS: [&str; 14] = [
    "webhook-rollout",
    "controller-rollout",
    "certificates",
    "strangers",
    "leader-killed",
    "leader-paused",
    "leader-unaware",
    "slow-caches",
    // Before the API server is stopped: this row needs Kubernetes' garbage collector, which takes
    // a long time to restore its watches.
    "recreated",
    "namespace",
    "heavy-objects",
    "api-server",
    "compaction",
    "rights",
];

async fn run(row: &str, world: &mut World) -> Result<Vec<Row>> {
    match row {
        "webhook-rollout" => replacing::webhook(world).await,
        "controller-rollout" => replacing::controller(world).await,
        "certificates" => replacing::certificates(world).await,
        "strangers" => strangers::doors(world).await,
        "leader-killed" => leaders::killed(world).await,
        "leader-paused" => leaders::paused(world).await,
        "api-server" => outside::api_server(world).await,
        "compaction" => outside::compaction(world).await,
        "heavy-objects" => heavy::objects(world).await,
        "leader-unaware" => leaders::unaware(world).await,
        "slow-caches" => outside::slow_caches(world).await,
        "recreated" => removing::recreated(world).await,
        "namespace" => removing::namespace(world).await,
        "rights" => rights::least(world).await,
        row => anyhow::bail!("no row {row:?}; there are {}", ROWS.join(", ")),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    match all(&chosen).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lifecycle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn all(chosen: &[String]) -> Result<()> {
    ensure!(
        rustls::crypto::ring::default_provider()
            .install_default()
            .is_ok(),
        "another TLS provider is installed"
    );
    let rows: Vec<&str> = match chosen {
        [] => ROWS.to_vec(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    let (mut world, first) = World::start().await?;
    let mut table = first;
    for row in rows {
        eprintln!("lifecycle: {row}");
        let done = run(row, &mut world).await;
        if done.is_err() {
            eprintln!("{}", world.last_output());
        }
        table.extend(done.with_context(|| row.to_owned())?);
    }
    println!("| what happened | what a user sees | how long |\n|---|---|---|");
    for row in table {
        println!("| {} | {} | {} |", row.fault, row.seen, row.took);
    }
    Ok(())
}
