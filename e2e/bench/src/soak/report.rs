//! The report of a run, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::events::EventCounts;
use super::findings::Finding;
use super::kind::Kind;
use super::mediator::IdleState;
use super::memory::Course;
use super::record::Counts;
use super::traffic::Tally;
use crate::machine::Machine;

#[derive(Debug)]
pub struct Report {
    pub(super) machine: Machine,
    pub(super) duration: Duration,
    pub(super) per_second: f64,
    pub(super) requests: BTreeMap<(&'static str, Kind), Tally>,
    pub(super) events: EventCounts,
    pub(super) mediators: Vec<MediatorReport>,
    pub(super) findings: BTreeMap<String, Finding>,
    /// The folder of the mediators' files, records and logs, which is kept after a finding.
    pub(super) folder: Option<PathBuf>,
}

#[derive(Clone, Debug, Serialize)]
pub struct MediatorReport {
    pub(super) name: &'static str,
    pub(super) before: IdleState,
    pub(super) after: IdleState,
    pub(super) memory: Course,
    pub(super) counts: Counts,
    /// Requests that must have a line each.
    pub(super) recorded: u64,
    /// Requests without a valid token, which are not recorded.
    pub(super) refused_unrecorded: u64,
    pub(super) cpu: Duration,
}

impl Report {
    pub fn passed(&self) -> bool {
        self.findings.is_empty()
    }

    /// The failures, a line for each kind with its first example.
    pub fn failures(&self) -> String {
        let line = |(kind, finding): (&String, &Finding)| {
            format!("FAILED {kind} ({} ×): {}\n", finding.times, finding.example)
        };
        let mut lines: String = self.findings.iter().map(line).collect();
        if let Some(folder) = &self.folder {
            // Writing to a String cannot fail.
            writeln!(lines, "files, records and logs: {}", folder.display()).ok();
        }
        lines
    }

    pub fn json(&self) -> Result<String> {
        let requests: Vec<Value> = self
            .requests
            .iter()
            .map(|((mediator, kind), tally)| {
                json!({"mediator": mediator, "kind": kind.name(), "tally": tally})
            })
            .collect();
        let events = &self.events;
        let report = json!({
            "machine": self.machine,
            "seconds": self.duration.as_secs_f64(),
            "per_second": self.per_second,
            "requests": requests,
            "swaps": events.swaps,
            "kills": events.kills,
            "until_denied_ms": milliseconds(&events.until_denied),
            "until_given_ms": milliseconds(&events.until_given),
            "mediators": self.mediators,
            "findings": self.findings,
        });
        Ok(serde_json::to_string_pretty(&report)?)
    }

    /// Formats the report as Markdown, for the documentation.
    pub fn table(&self) -> String {
        let machine = &self.machine;
        let mut out = format!(
            "{} × {}, Linux {}, load before the run {}; {} requests a second\n\n",
            machine.cores, machine.cpu, machine.kernel, machine.load, self.per_second
        );
        let total = |of: &dyn Fn(&Tally) -> u64| -> u64 { self.requests.values().map(of).sum() };
        let mut rows = vec![
            ("duration".to_owned(), elapsed(self.duration)),
            ("requests".to_owned(), total(&|it| it.sent).to_string()),
            (
                "failed while the upstream was down".to_owned(),
                total(&|it| it.failed_while_down).to_string(),
            ),
            (
                "unexpected results".to_owned(),
                total(&|it| it.unexpected).to_string(),
            ),
            ("swaps of files".to_owned(), self.events.swaps.to_string()),
            (
                "revocations; time until denied: p50, max".to_owned(),
                times(&self.events.until_denied),
            ),
            (
                "tool given back; time until it runs: p50, max".to_owned(),
                times(&self.events.until_given),
            ),
            (
                "kills of the upstream".to_owned(),
                self.events.kills.to_string(),
            ),
        ];
        for mediator in &self.mediators {
            rows.extend(mediator.rows(self.duration));
        }
        for ((mediator, kind), tally) in &self.requests {
            rows.push((
                format!("{mediator}: {}", kind.name()),
                tally.sent.to_string(),
            ));
        }
        let width = rows.iter().map(|(name, _)| name.chars().count()).max();
        let width = width.unwrap_or_default();
        for (name, value) in [
            ("".to_owned(), "figure".to_owned()),
            ("-".repeat(width), "---".to_owned()),
        ]
        .iter()
        .chain(&rows)
        {
            // Writing to a String cannot fail.
            writeln!(out, "| {name:width$} | {value} |").ok();
        }
        out
    }
}

impl MediatorReport {
    fn rows(&self, duration: Duration) -> Vec<(String, String)> {
        let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
        let (memory, counts) = (&self.memory, &self.counts);
        let (before, after) = (&self.before, &self.after);
        let row = |name: &str, value: String| (format!("{}: {name}", self.name), value);
        vec![
            row(
                "memory in MiB: start, first quarter, last quarter, end, peak",
                [
                    memory.start,
                    memory.first_quarter,
                    memory.last_quarter,
                    memory.end,
                    memory.peak,
                ]
                .map(mib)
                .join(", "),
            ),
            row(
                "of it heap and stacks: start, end",
                format!("{}, {}", mib(memory.anonymous.0), mib(memory.anonymous.1)),
            ),
            row(
                "slope of the second half",
                format!("{:.0} KiB per hour", memory.slope),
            ),
            row(
                "descriptors, threads, tasks before",
                format!(
                    "{}, {}, {}",
                    before.descriptors, before.threads, before.tasks
                ),
            ),
            row(
                "descriptors, threads, tasks after",
                format!("{}, {}, {}", after.descriptors, after.threads, after.tasks),
            ),
            row(
                "requests to record, recorded",
                format!("{}, {}", self.recorded, counts.turns),
            ),
            row(
                "calls that the service got, recorded intents",
                format!("{}, {}", counts.served, counts.intents),
            ),
            row("lines of the record", counts.lines.to_string()),
            row(
                "wrong token: refused, not recorded",
                self.refused_unrecorded.to_string(),
            ),
            row(
                "CPU",
                format!(
                    "{:.0} s, {:.2} cores",
                    self.cpu.as_secs_f64(),
                    self.cpu.as_secs_f64() / duration.as_secs_f64()
                ),
            ),
        ]
    }
}

fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{} min {} s", seconds / 60, seconds % 60)
}

fn milliseconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(|it| it.as_secs_f64() * 1e3).collect()
}

/// The number of times, their median and the longest.
fn times(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let shown = |at: usize| match sorted.get(at) {
        Some(time) => format!("{:.0} ms", time.as_secs_f64() * 1e3),
        None => "none".to_owned(),
    };
    let last = sorted.len().saturating_sub(1);
    format!(
        "{}; {}, {}",
        sorted.len(),
        shown(sorted.len() / 2),
        shown(last)
    )
}
