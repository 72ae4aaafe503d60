//! The webhook's metrics. Labels come from a closed enum: no name that a user chooses becomes a
//! label.

use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::metrics::{Row, label, register};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    Injected,
    AlreadyInjected,
    /// Allowed without a check: a pod without the label, or not a creation.
    Passed,
    Refused,
    /// An object of our kinds was allowed with warnings.
    Warned,
    NoAgent,
    NotSynced,
    Malformed,
    /// No permit or no buffer space in time: the client is told to try again.
    Busy,
    /// The path is in no webhook configuration, so the client is not the API server.
    Stranger,
}

impl Outcome {
    pub const ALL: [Outcome; 10] = [
        Outcome::Injected,
        Outcome::AlreadyInjected,
        Outcome::Passed,
        Outcome::Refused,
        Outcome::Warned,
        Outcome::NoAgent,
        Outcome::NotSynced,
        Outcome::Malformed,
        Outcome::Busy,
        Outcome::Stranger,
    ];
}

/// [`Outcome::ALL`] as the encoder writes it.
const OUTCOMES: &[&str] = &[
    "Injected",
    "AlreadyInjected",
    "Passed",
    "Refused",
    "Warned",
    "NoAgent",
    "NotSynced",
    "Malformed",
    "Busy",
    "Stranger",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Admission {
    outcome: Outcome,
}

/// Prefix of every metric's name.
pub const PREFIX: &str = "toolcrib_webhook";

const ADMISSIONS: Row = Row {
    name: "admissions",
    kind: "counter",
    labels: &[label("outcome", OUTCOMES)],
    help: "Admissions, by outcome",
};
const SECONDS: Row = Row {
    name: "admission_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time of one admission",
};
const AGENTS: Row = Row {
    name: "agents",
    kind: "gauge",
    labels: &[],
    help: "Agents that are known",
};
const WATCH_ERRORS: Row = Row {
    name: "watch_errors",
    kind: "counter",
    labels: &[],
    help: "Watches that failed and were begun again",
};

/// Every metric of the webhook.
pub const ROWS: [Row; 4] = [ADMISSIONS, SECONDS, AGENTS, WATCH_ERRORS];

/// The metrics, registered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Meter {
    admissions: Family<Admission, Counter>,
    pub seconds: Histogram,
    pub agents: Gauge,
    pub watch_errors: Counter,
    registry: Arc<Registry>,
}

impl Default for Meter {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let admissions: Family<Admission, Counter> = Family::default();
        for outcome in Outcome::ALL {
            drop(admissions.get_or_create(&Admission { outcome }));
        }
        register(&mut registry, ADMISSIONS, admissions.clone());
        // 0.1 ms to about 6.5 s.
        let seconds = Histogram::new(exponential_buckets(0.0001, 4.0, 9));
        register(&mut registry, SECONDS, seconds.clone());
        let agents = Gauge::default();
        register(&mut registry, AGENTS, agents.clone());
        let watch_errors = Counter::default();
        register(&mut registry, WATCH_ERRORS, watch_errors.clone());
        Self {
            admissions,
            seconds,
            agents,
            watch_errors,
            registry: Arc::new(registry),
        }
    }
}

impl Meter {
    pub fn admitted(&self, outcome: Outcome) {
        self.admissions.get_or_create(&Admission { outcome }).inc();
    }

    /// Encodes the metrics in the text exposition format.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
