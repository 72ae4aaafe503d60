//! A record with its export and no mediator around them: the export can be stopped at any moment, as a
//! kill stops it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use toolcrib_record::{LinkKind, Verifier, short_form};
use toolcrib_sidecar::config::CurrentConfig;
use toolcrib_sidecar::export::{Arguments, Backlog, ExportContext, Exporter, Pace, Settings};
use toolcrib_sidecar::history::{History, PodIdentity, RotationGate, StdoutBodies, TurnLines};
use toolcrib_sidecar::metrics::{Metrics, State};
use toolcrib_sidecar::outbound::resolver::Resolver;
use toolcrib_sidecar::outbound::{LocalNames, Outbound};

use crate::support::collector::Collector;
use crate::support::{until, within};

/// A pace for tests: what takes a second or more takes milliseconds.
pub const QUICK: Pace = Pace {
    look: Duration::from_millis(5),
    first_wait: Duration::from_millis(5),
    longest_wait: Duration::from_millis(40),
    request: Duration::from_millis(300),
};

pub struct Rig {
    pub dir: TempDir,
    pub collector: Collector,
    pub metrics: Arc<Metrics>,
    pub history: History,
    gate: Option<Arc<RotationGate>>,
    export: Option<Exporter>,
    max_bytes: u64,
}

impl Rig {
    /// `gate`: rotation waits for the collector.
    pub async fn start(max_bytes: u64, gate: Option<Arc<RotationGate>>) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let collector = Collector::start().await;
        let metrics: Arc<Metrics> = Arc::default();
        let backlog = Backlog::open(dir.path(), gate.as_deref()).unwrap();
        let history = open(dir.path(), max_bytes, gate.clone(), metrics.clone());
        let mut rig = Rig {
            dir,
            collector,
            metrics,
            history,
            gate,
            export: None,
            max_bytes,
        };
        rig.export_from(backlog);
        rig
    }

    fn export_from(&mut self, backlog: Backlog) {
        let current: Arc<CurrentConfig> = Arc::default();
        let resolver = Resolver::of_files(current.clone(), LocalNames::Allowed);
        let shared = ExportContext {
            current,
            metrics: self.metrics.clone(),
            outbound: Arc::new(Outbound::new(LocalNames::Allowed, resolver)),
            gate: self.gate.clone(),
        };
        let settings = Settings {
            endpoint: &self.collector.url(),
            pod: "otter-0",
            arguments: Arguments::Exported,
            pace: QUICK,
        };
        self.export = Some(Exporter::start(backlog, settings, shared));
    }

    /// Stops the export at once, wherever it is.
    pub async fn kill_export(&mut self) {
        if let Some(export) = self.export.take() {
            export.stop().await;
        }
    }

    /// Starts the export as the next process of the mediator does, with a new chain.
    pub async fn restart(&mut self) {
        self.kill_export().await;
        self.history.close();
        let backlog = Backlog::open(self.dir.path(), self.gate.as_deref()).unwrap();
        self.history = open(
            self.dir.path(),
            self.max_bytes,
            self.gate.clone(),
            self.metrics.clone(),
        );
        self.export_from(backlog);
    }

    /// Writes the line of a request, of about `length` bytes.
    pub fn line(&self, length: usize) {
        self.history.turn(turn(length)).unwrap();
    }

    pub async fn flushed(&self) {
        let export = self.export.as_ref().unwrap();
        within("the flush", export.flush()).await;
    }

    /// Waits until a counter has a value.
    pub async fn counts(&self, sample: &str, value: u64) {
        until(sample, || (self.count(sample) == value).then_some(())).await;
    }

    pub fn count(&self, sample: &str) -> u64 {
        let text = self.metrics.text(&State::default());
        let sample = format!("toolcrib_mediator_{sample} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&*sample));
        line.unwrap_or_else(|| panic!("{sample}: {text}"))
            .parse()
            .unwrap()
    }

    /// What `audit verify` says about what the collector took: the chains that are whole, and for the
    /// others the findings.
    pub fn verified(&self) -> BTreeMap<String, Vec<String>> {
        let mut verifier = Verifier::default();
        verifier.source("collector");
        for text in self.collector.texts() {
            verifier.push(text.as_bytes()).unwrap();
        }
        let (reports, _) = verifier.finish(&[]);
        let findings = reports.into_iter().map(|report| {
            let findings = report.findings.iter().map(ToString::to_string).collect();
            (report.chain, findings)
        });
        findings.collect()
    }

    /// The chain and `seq` of each line that the collector took, in order.
    pub fn places(&self) -> Vec<(String, u64)> {
        let texts = self.collector.texts();
        let places = texts.iter().filter_map(|text| {
            let link = short_form(text.as_bytes())?;
            match link.kind {
                LinkKind::Chained { seq, aside: _ } => Some((link.chain.into_owned(), seq)),
                LinkKind::Aside { .. } => None,
            }
        });
        places.collect()
    }
}

pub fn turn(length: usize) -> TurnLines<'static> {
    let text = format!(r#"{{"kind":"turn","padding":"{}"}}"#, "x".repeat(length));
    TurnLines {
        without: text.into_bytes(),
        bodies: vec![br#","request":"a prompt","response":"an answer""#.into()],
    }
}

fn open(
    dir: &Path,
    max_bytes: u64,
    gate: Option<Arc<RotationGate>>,
    metrics: Arc<Metrics>,
) -> History {
    let pod = PodIdentity {
        name: "otter-0",
        uid: Some("u-7"),
    };
    let bodies = StdoutBodies::WithoutBodies;
    History::open(dir, max_bytes, gate, pod, bodies, std::io::sink(), metrics).unwrap()
}
