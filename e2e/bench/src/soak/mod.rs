//! A soak run: mediators as real processes under mixed load for an hour, while their files are swapped,
//! a tool is revoked and given back, and the upstream is killed.
//!
//! Two mediators run side by side: one with ten tools, and one without tools, which passes requests
//! through. Reading order: [`kind`] (the requests), [`client`] (a connection), [`conditions`] (what held
//! while a request ran), [`judge`] (the right result), [`record`] (each request has its line),
//! [`traffic`] (the load), [`files`], [`mediator`] and [`upstream`] (the processes), [`events`] (what
//! happens beside the load), [`memory`], [`findings`], [`report`]. Not here: costs, which the other
//! modules of this crate measure beside a reference.
//!
//! Invariant: a run without a finding saw exactly one line of the record for each request that was
//! sent, the right result of each, and processes that are afterwards as they were before.

mod client;
mod conditions;
mod events;
mod files;
mod findings;
mod judge;
mod kind;
mod mediator;
mod memory;
mod record;
mod report;
mod traffic;
mod upstream;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::machine::Machine;
use events::Events;
use findings::Findings;
use judge::Recording;
use kind::{WAITING, WITH_TOOLS, WITHOUT_TOOLS};
use mediator::{IdleState, Mediator, Probe};
use memory::{Course, MOST_GROWTH, MOST_GROWTH_COLD, Sample};
use record::Ledger;
pub use report::{MediatorReport, Report};
use traffic::{Schedule, Tally, Target, Traffic};
use upstream::Upstream;

/// Connections with mixed load to the mediator with tools, and to the one without.
const CONNECTIONS: [usize; 2] = [8, 4];
/// Connections that wait for the tool that never answers, and the time between two of its calls on one
/// of them.
const WAITING_CONNECTIONS: usize = 2;
const WAITING_PERIOD: Duration = Duration::from_millis(2500);
/// Pause between two samples of the memory.
const SAMPLING: Duration = Duration::from_millis(500);
/// Pause between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(60);
/// Longest time until nothing is left of the load. Pooled connections expire after 30 s, and are
/// looked for as often.
const UNTIL_IDLE: Duration = Duration::from_secs(90);
const KIB_PER_MIB: f64 = 1024.0;

#[derive(Clone, Debug)]
pub struct Settings {
    pub mediator: PathBuf,
    /// Path of bench-servers.
    pub upstream: PathBuf,
    pub duration: Duration,
    /// Requests per second over all connections, without the waiting ones.
    pub per_second: f64,
    pub pooled: PoolEnd,
    /// Longest time until a swap has its effect on calls.
    pub in_effect: Duration,
    /// Limits the growth of a mediator's memory, in KiB.
    pub most_growth: u64,
}

/// How the mediators' idle connections to the upstream end after the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolEnd {
    /// They expire, which takes most of a minute.
    Expire,
    /// The upstream ends.
    Closed,
}

impl Settings {
    /// The rate of a run for real figures: a quarter of a core for all programs together.
    pub fn full(upstream: PathBuf, mediator: PathBuf, duration: Duration) -> Self {
        Self {
            mediator,
            upstream,
            duration,
            per_second: 100.0,
            pooled: PoolEnd::Expire,
            // The mediator looks at its files each second, and at once if the kernel reports a swap.
            in_effect: Duration::from_secs(2),
            most_growth: MOST_GROWTH,
        }
    }

    /// Twenty seconds that show that everything runs. The rate and the limits suit a debug build beside
    /// other tests.
    pub fn short(upstream: PathBuf, mediator: PathBuf) -> Self {
        Self {
            per_second: 40.0,
            pooled: PoolEnd::Closed,
            in_effect: Duration::from_secs(10),
            most_growth: MOST_GROWTH_COLD,
            ..Self::full(upstream, mediator, Duration::from_secs(20))
        }
    }
}

/// Runs the soak. An error means that it could not run; the report has the findings.
pub async fn run(settings: &Settings) -> Result<Report> {
    let machine = Machine::this();
    let folder = tempfile::tempdir().context("a folder for the mediators' files")?;
    let findings = Arc::new(Findings::default());
    let ledgers = [(); 2].map(|()| Arc::new(Ledger::new(findings.clone())));
    let address = toolcrib_ports::free()?;
    let program = settings.upstream.clone();
    // Only the first mediator has tools.
    let mut upstream = Upstream::new(program, address, ledgers[0].clone(), findings.clone());
    upstream.start().await?;
    let mut mediators = Vec::new();
    for (name, has_tools, ledger) in [
        ("with tools", true, &ledgers[0]),
        ("without tools", false, &ledgers[1]),
    ] {
        let files = folder.path().join(name.replace(' ', "-"));
        let program = &settings.mediator;
        let ledger = ledger.clone();
        let mediator = Mediator::start(name, program, &files, address, has_tools, ledger);
        mediators.push(mediator.await?);
    }
    let traffic = Arc::new(Traffic::new(findings.clone()));
    let mut before = Vec::new();
    for mediator in &mediators {
        before.push(mediator.probe.first_state().await?);
    }

    let (begin, until) = (Instant::now(), Instant::now() + settings.duration);
    let mut load = JoinSet::new();
    for (target, schedule) in schedules(&mediators, settings.per_second, begin, until) {
        load.spawn(traffic.clone().run(target, schedule));
    }
    let events = Events {
        traffic: &traffic,
        upstream: &mut upstream,
        mediators: &mut mediators,
        in_effect: settings.in_effect,
        counts: events::EventCounts::default(),
    };
    let probes: Vec<Probe> = events.mediators.iter().map(|it| it.probe).collect();
    let loaded = async {
        while let Some(ended) = load.join_next().await {
            ended.context("a connection's task")??;
        }
        anyhow::Ok(())
    };
    let sampled = sample(&probes, &traffic, begin, until);
    let (events, samples, ()) = tokio::try_join!(events.run(until), sampled, loaded)?;
    let took = begin.elapsed();

    if settings.pooled == PoolEnd::Closed {
        upstream.kill()?;
    }
    let mut reports = Vec::new();
    for ((mediator, before), samples) in mediators.into_iter().zip(before).zip(samples) {
        reports.push(ended(mediator, before, &samples, &traffic, settings).await?);
    }
    if settings.pooled == PoolEnd::Expire {
        upstream.kill()?;
    }
    check_events(&events, &findings);
    let found = findings.all();
    let folder = (!found.is_empty()).then(|| folder.keep());
    Ok(Report {
        machine,
        duration: took,
        per_second: settings.per_second,
        requests: traffic.tallies(),
        events,
        mediators: reports,
        findings: found,
        folder,
    })
}

/// Returns the schedule of each connection. Their beginnings are spread over a period.
fn schedules(
    mediators: &[Mediator],
    per_second: f64,
    begin: Instant,
    until: Instant,
) -> Vec<(Target, Schedule)> {
    let connections: usize = CONNECTIONS.iter().sum();
    let period = Duration::from_secs_f64(connections as f64 / per_second);
    let kinds = [WITH_TOOLS, WITHOUT_TOOLS];
    let mut schedules = Vec::new();
    for ((mediator, kinds), count) in mediators.iter().zip(kinds).zip(CONNECTIONS) {
        for index in 0..count {
            let schedule = Schedule {
                kinds,
                // Each connection begins with another kind.
                first: index * kinds.len() / count,
                begin: begin + period * index as u32 / count as u32,
                period,
                until,
            };
            schedules.push((Target::of(mediator), schedule));
        }
    }
    for (index, mediator) in mediators
        .iter()
        .take(1)
        .cycle()
        .take(WAITING_CONNECTIONS)
        .enumerate()
    {
        let schedule = Schedule {
            kinds: WAITING,
            first: index,
            begin,
            period: WAITING_PERIOD,
            until,
        };
        schedules.push((Target::of(mediator), schedule));
    }
    schedules
}

/// Samples the memory of the mediators until this time, and prints the progress.
async fn sample(
    probes: &[Probe],
    traffic: &Traffic,
    begin: Instant,
    until: Instant,
) -> Result<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::new(); probes.len()];
    let mut printed = begin;
    while Instant::now() < until {
        for (probe, samples) in probes.iter().zip(&mut samples) {
            // Fails if the process has ended.
            let memory = probe
                .memory()
                .with_context(|| format!("the mediator {}", probe.name))?;
            let seconds = begin.elapsed().as_secs_f64();
            samples.push(Sample { seconds, memory });
        }
        if printed.elapsed() >= PROGRESS {
            printed = Instant::now();
            let last: Vec<&Sample> = samples.iter().filter_map(|it| it.last()).collect();
            eprintln!("{}", progress(begin.elapsed(), traffic.total(), &last));
        }
        tokio::time::sleep(SAMPLING).await;
    }
    Ok(samples)
}

fn progress(elapsed: Duration, total: Tally, memory: &[&Sample]) -> String {
    let memory: Vec<String> = memory
        .iter()
        .map(|it| format!("{:.1} MiB", it.memory.resident as f64 / KIB_PER_MIB))
        .collect();
    format!(
        "{} min: {} requests, {} failed while the upstream was down, {} unexpected results; {}",
        elapsed.as_secs() / 60,
        total.sent,
        total.failed_while_down,
        total.unexpected,
        memory.join(", ")
    )
}

/// Checks what is left of the load, ends the mediator and checks its record.
async fn ended(
    mediator: Mediator,
    before: IdleState,
    samples: &[Sample],
    traffic: &Traffic,
    settings: &Settings,
) -> Result<MediatorReport> {
    let (probe, findings) = (mediator.probe, &traffic.findings);
    let name = probe.name;
    let after = probe.until_idle(&before, UNTIL_IDLE).await?;
    findings.check(after.is_within(&before), "leak", || {
        format!("{name}: after the load {after:?}, before it {before:?}")
    });
    let most = settings.most_growth;
    let memory = Course::of(samples).context("too few samples of the memory")?;
    findings.check(memory.growth() <= most, "memory", || {
        format!("{name}: more than {most} KiB of growth: {memory:?}")
    });
    let rest = settings.duration / 2;
    findings.check(memory.growth_in(rest) <= most as f64, "memory", || {
        format!("{name}: the slope gives more than {most} KiB in {rest:?}: {memory:?}")
    });
    let metrics = probe.metrics().await?;
    let cpu = probe.cpu()?;
    let counts = mediator.end(findings).await?;

    let tallies = traffic.tallies();
    let own = tallies.iter().filter(|((of, _), _)| *of == name);
    let sent = |recording: Recording| -> u64 {
        let kinds = own
            .clone()
            .filter(|((_, kind), _)| Recording::of(*kind) == recording);
        kinds.map(|(_, tally)| tally.sent).sum()
    };
    let (counted, refused) = (sent(Recording::Counted), sent(Recording::None));
    let recorded = sent(Recording::Numbered) + counted;
    for (what, got, wanted) in [
        ("lines of requests", counts.turns, recorded),
        (
            "lines of requests that could not be read",
            counts.unnumbered,
            counted,
        ),
        (
            "requests without a valid token",
            metrics.sum("toolcrib_mediator_unauthorized_total")?,
            refused,
        ),
        (
            "requests in the metrics",
            metrics.sum("toolcrib_mediator_requests_total")?,
            recorded + refused,
        ),
        (
            "lines that were not written",
            metrics.sum("toolcrib_mediator_unrecorded_total")?,
            0,
        ),
        (
            "lines missing on disk or stdout",
            metrics.sum("toolcrib_mediator_record_missed_total")?,
            0,
        ),
    ] {
        findings.check(got == wanted, "counts", || {
            format!("{name}: {got} {what}, not {wanted}")
        });
    }
    Ok(MediatorReport {
        name,
        before,
        after,
        memory,
        counts,
        recorded,
        refused_unrecorded: refused,
        cpu,
    })
}

/// A run whose events had no effect proves nothing.
fn check_events(events: &events::EventCounts, findings: &Findings) {
    let counts = BTreeMap::from([
        ("swaps", events.swaps),
        ("revocations", events.until_denied.len() as u64),
        ("returns of the tool", events.until_given.len() as u64),
        ("kills", events.kills),
    ]);
    findings.check(counts.values().all(|count| *count > 0), "events", || {
        format!("an event never happened: {counts:?}")
    });
}
