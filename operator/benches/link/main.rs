//! Measures the link against a real API server: how long a revoked tool can still be used, and
//! the cost of many pods.
//!
//! `./e2e/run bench-link [--pods N] [--revocations N]` brings a control plane up and runs this;
//! figures go into docs/performance.md. The controller is a process of its own (this program
//! again). The mediators' end is their own code, with one client and one connection each, and
//! tokens that the API server bound to pods. Pods are never scheduled, and files are loaded once,
//! so tools are lost by the link alone. `./e2e/run bench-volume` brings a node up and measures
//! the volume alone ([`volume`]). Not covered: a node's network. No time is asserted. Two facts
//! are: nothing is written in steady state, and a change of the leader takes nothing from any
//! pod.

mod controller;
mod objects;
mod pods;
mod volume;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::future::try_join_all;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;

use controller::Controller;
use objects::{GrantPath, Objects};
use pods::Mediator;

const KUBECONFIG: &str = "TOOLCRIB_TEST_KUBECONFIG";
/// Number of emergency stops.
const STOPS: usize = 3;
/// Longest wait for one figure.
const DEADLINE: Duration = Duration::from_secs(180);

#[derive(Parser)]
struct Arguments {
    /// Number of pods on the link at once.
    #[arg(long, default_value_t = 1_000)]
    pods: usize,
    /// Number of revocations of each kind.
    #[arg(long, default_value_t = 200)]
    revocations: usize,
    /// Number of agents whose revocations run side by side, each with two pods.
    #[arg(long, default_value_t = 4)]
    side_by_side: usize,
    /// Measures the volume alone, in this many pods on the node of the cluster that `--cluster`
    /// names.
    #[arg(long, requires = "cluster")]
    volume: Option<usize>,
    /// A cluster with a node.
    #[arg(long)]
    cluster: Option<String>,
    /// One small round: shows that the bench runs; its figures mean nothing.
    #[arg(long)]
    short: bool,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider is installed"))?;
    let client = client().await?;
    if let Some(ports) = controller::child_ports()? {
        return controller::run(client, ports).await;
    }
    let mut arguments = Arguments::parse();
    if arguments.short {
        arguments.pods = 20;
        arguments.revocations = 2;
        arguments.side_by_side = 2;
    }
    let objects = Objects::new(client);
    objects.define().await?;
    let result = match (&arguments.cluster, arguments.volume) {
        (Some(cluster), Some(pods)) => volume::measure(&objects, cluster, pods).await,
        _ => measure(&objects, &arguments).await,
    };
    objects.clear().await?;
    result
}

async fn client() -> Result<Client> {
    let path = std::env::var(KUBECONFIG)
        .with_context(|| format!("{KUBECONFIG} names no kubeconfig: ./e2e/run bench-link"))?;
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn measure(objects: &Objects, arguments: &Arguments) -> Result<()> {
    let controller = Controller::start(controller::Ports::free()?)?;
    revoke(objects, &controller, arguments).await?;
    many(objects, controller, arguments.pods).await
}

/// Measures the distribution of each kind: from the request to the API server until the last of
/// the agent's pods denies.
async fn revoke(objects: &Objects, controller: &Controller, arguments: &Arguments) -> Result<()> {
    let rounds = arguments.revocations.div_ceil(arguments.side_by_side);
    let ways = GrantPath::all();
    let places = (0..arguments.side_by_side).map(|place| async move {
        let place = objects.place(place).await?;
        let mediators = try_join_all((0..2).map(|number| {
            Mediator::start(
                objects,
                controller,
                &place.pond,
                "otter",
                format!("otter-{number}"),
            )
        }))
        .await?;
        for mediator in &mediators {
            mediator.whole().await?;
        }
        let mut took: Vec<Vec<Duration>> = Vec::new();
        for way in GrantPath::all() {
            let mut of_way = Vec::new();
            for _ in 0..rounds {
                let begun = Instant::now();
                objects.take(&place, way).await?;
                for mediator in &mediators {
                    mediator
                        .until(|now| way.is_gone(now))
                        .await
                        .with_context(|| way.name())?;
                }
                of_way.push(begun.elapsed());
                objects.give(&place, way).await?;
                for mediator in &mediators {
                    mediator.whole().await.with_context(|| way.name())?;
                }
            }
            took.push(of_way);
        }
        Ok::<_, anyhow::Error>(took)
    });
    let took = try_join_all(places).await?;
    println!("from the revoking request to the last pod that denies, by the link alone:");
    println!("| kind | n | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|");
    for (at, way) in ways.into_iter().enumerate() {
        let all: Vec<Duration> = took.iter().flat_map(|place| place[at].clone()).collect();
        println!("| {} {}", way.name(), Distribution::of(all));
    }
    let seconds = controller.histogram("toolcrib_revocation_seconds").await?;
    println!("toolcrib_revocation_seconds (event to the last acknowledgement): {seconds}");
    Ok(())
}

/// Measures many pods: memory, a lost leader, one change that concerns all, and an idle time.
async fn many(objects: &Objects, controller: Controller, pods: usize) -> Result<()> {
    let (agents, of_each) = ((pods / 20).max(1), 20.min(pods));
    let place = objects.crowd(agents).await?;
    let before = controller.memory()?;
    let begun = Instant::now();
    let mut mediators = Vec::new();
    for agent in 0..agents {
        let agent = format!("agent-{agent}");
        let started = (0..of_each).map(|number| {
            Mediator::start(
                objects,
                &controller,
                &place.pond,
                &agent,
                format!("{agent}-{number}"),
            )
        });
        mediators.extend(try_join_all(started).await?);
    }
    let pods = mediators.len();
    for mediator in &mediators {
        mediator.whole().await?;
    }
    println!(
        "{pods} pods of {agents} agents made and linked in {:.1?}",
        begun.elapsed()
    );
    wait_for_long_polls(&controller, pods).await?;
    let after = controller.memory()?;
    println!(
        "controller's memory: {before:.1} MiB before, {after:.1} MiB with them held: {:.0} KiB for each pod",
        (after - before) * 1024.0 / pods as f64
    );

    let asked = objects.requests().await?;
    let (writes, cpu) = (
        controller.metric("toolcrib_operator_writes").await?,
        controller.cpu()?,
    );
    let quiet = Duration::from_secs(if pods < 100 { 5 } else { 60 });
    tokio::time::sleep(quiet).await;
    let wrote = controller.metric("toolcrib_operator_writes").await? - writes;
    println!(
        "{quiet:?} of silence: {wrote} writes, {:.2} s of CPU; requests to the API server: {}",
        controller.cpu()? - cpu,
        objects.requests().await?.since(&asked)
    );
    ensure!(
        wrote == 0.0,
        "the controller wrote although nothing changed"
    );

    let seen: Vec<u64> = mediators.iter().map(Mediator::seen).collect();
    let ports = controller.ports;
    let asked = objects.requests().await?;
    drop(controller);
    objects.vacate().await?;
    let begun = Instant::now();
    let controller = Controller::start(ports)?;
    let back = mediators
        .iter()
        .zip(&seen)
        .map(|(mediator, seen)| async move {
            mediator.until(|now| now.seen > *seen).await?;
            ensure!(pods::stands(&mediator.current.now()), "a pod lost a tool");
            Ok(begun.elapsed())
        });
    let back = try_join_all(back).await?;
    table(
        "the leader is killed, the next one starts at once; from its start to each pod's first answer:",
        pods,
        back,
    );
    wait_for_long_polls(&controller, pods).await?;
    println!(
        "memory of the new leader: {:.1} MiB; requests to the API server until then: {}",
        controller.memory()?,
        objects.requests().await?.since(&asked)
    );

    for round in 1..=STOPS {
        let begun = Instant::now();
        objects.stop_all().await?;
        let stopped = denials(&mediators, begun).await?;
        table(
            &format!(
                "emergency stop {round} of {STOPS}, a ClusterToolPolicy with suspend; from the request to each pod that denies:"
            ),
            pods,
            stopped,
        );
        objects.end_stop().await?;
        for mediator in &mediators {
            mediator.whole().await?;
        }
    }

    let begun = Instant::now();
    objects.delete_crowds_surface(&place).await?;
    let denied = denials(&mediators, begun).await?;
    table(
        "one surface of all of them is deleted; from the request to each pod that denies:",
        pods,
        denied,
    );
    Ok(())
}

/// Waits until every pod denies every tool; returns each pod's time since `begun`.
async fn denials(mediators: &[Mediator], begun: Instant) -> Result<Vec<Duration>> {
    let denied = mediators.iter().map(|mediator| async move {
        mediator
            .until(|now| {
                let left = now.allowlist.as_ref();
                now.version().is_err() || left.is_some_and(|left| left.tools.is_empty())
            })
            .await?;
        Ok(begun.elapsed())
    });
    try_join_all(denied).await
}

fn table(title: &str, pods: usize, took: Vec<Duration>) {
    println!(
        "{title}\n| | n | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|\n| {pods} pods {}",
        Distribution::of(took)
    );
}

/// Waits until every pod has a long poll waiting.
async fn wait_for_long_polls(controller: &Controller, pods: usize) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while controller.metric("toolcrib_operator_link_held").await? < pods as f64 {
        ensure!(
            Instant::now() < deadline,
            "not all of {pods} pods have a long poll"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The rest of a table's row: percentiles.
struct Distribution(Vec<Duration>);

impl Distribution {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort();
        Self(all)
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(last) = self.0.len().checked_sub(1) else {
            return write!(f, "| 0 | | | | |");
        };
        write!(f, "| {}", self.0.len())?;
        for share in [0.5, 0.9, 0.99, 1.0] {
            let at = (share * last as f64).round() as usize;
            write!(f, " | {} ms", self.0[at].as_millis())?;
        }
        write!(f, " |")
    }
}
