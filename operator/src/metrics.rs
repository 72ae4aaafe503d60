//! The controller's metrics, and the type that describes a metric of the controller or the webhook.
//!
//! [`ROWS`] describes every metric, for registration and for the reference. Invariant: labels have
//! closed sets of values; no name that a user chooses becomes a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use toolcrib_compile::Code;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reconcile {
    pub kind: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Write {
    pub object: &'static str,
    pub verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Finding {
    pub code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub outcome: &'static str,
}

/// A label and its possible values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    pub values: LabelValues,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelValues {
    These(&'static [&'static str]),
    /// The names of [`Code::ALL`].
    Codes,
}

pub(crate) const fn label(name: &'static str, values: &'static [&'static str]) -> Label {
    let values = LabelValues::These(values);
    Label { name, values }
}

pub const KINDS: &[&str] = &[
    "Agent",
    "Surface",
    "ToolGrant",
    "ToolDefaults",
    "ModelProvider",
    "ClusterToolPolicy",
];
const RECONCILE_OUTCOMES: &[&str] = &["ok", "waiting", "failed", "panicked", "timeout"];
/// Object and verb of each write that the controller makes.
const WRITES_MADE: [(&str, &str); 11] = [
    ("Secret", "create"),
    ("Secret", "patch"),
    ("Secret", "certificates"),
    ("ConfigMap", "create"),
    ("ConfigMap", "patch"),
    ("NetworkPolicy", "create"),
    ("NetworkPolicy", "patch"),
    ("NetworkPolicy", "delete"),
    ("Event", "create"),
    ("Pod", "patch"),
    ("status", "patch"),
];
const WRITTEN_OBJECTS: &[&str] = &[
    "Secret",
    "ConfigMap",
    "NetworkPolicy",
    "Event",
    "Pod",
    "status",
];
const WRITE_VERBS: &[&str] = &["create", "patch", "delete", "certificates"];
pub const LINK_OUTCOMES: &[&str] = &[
    "taken",
    "not_leading",
    "not_synced",
    "not_compiled",
    "no_token",
    "token_refused",
    "unavailable",
    "no_agent_pod",
    "malformed",
    "too_large",
    "too_slow",
    "busy",
    "superseded",
];
pub const CLAW_VERBS: &[&str] = &[
    "list_agents",
    "get_agent",
    "explain_tool",
    "recent_calls",
    "none",
];
pub const CLAW_OUTCOMES: &[&str] = &[
    "ok",
    "not_ready",
    "unauthenticated",
    "not_granted",
    "no_such_verb",
    "not_get",
    "body_not_read",
    "invalid_argument",
    "no_such_agent",
    "agent_unreadable",
    "busy",
    "too_slow",
];

/// The description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name without [`PREFIX`], and without the suffix `_total` of a counter.
    pub name: &'static str,
    /// Type in the text format.
    pub kind: &'static str,
    pub labels: &'static [Label],
    pub help: &'static str,
}

/// Prefix of every name in [`ROWS`].
pub const PREFIX: &str = "toolcrib_operator";

const RECONCILES: Row = Row {
    name: "reconciles",
    kind: "counter",
    labels: &[label("kind", KINDS), label("outcome", RECONCILE_OUTCOMES)],
    help: "Reconciled objects, by kind and outcome",
};
const RECONCILE_SECONDS: Row = Row {
    name: "reconcile_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time of one reconcile, writes included",
};
const WRITES: Row = Row {
    name: "writes",
    kind: "counter",
    labels: &[label("object", WRITTEN_OBJECTS), label("verb", WRITE_VERBS)],
    help: "Writes to the API server that were accepted",
};
const DIAGNOSTICS: Row = Row {
    name: "diagnostics",
    kind: "counter",
    labels: &[Label {
        name: "code",
        values: LabelValues::Codes,
    }],
    help: "New findings, by code",
};
const LINK_REPORTS: Row = Row {
    name: "link_reports",
    kind: "counter",
    labels: &[label("outcome", LINK_OUTCOMES)],
    help: "Reports of mediators, by outcome",
};
const LINK_PODS: Row = Row {
    name: "link_pods",
    kind: "gauge",
    labels: &[],
    help: "Pods whose mediator has reported",
};
const LINK_HELD: Row = Row {
    name: "link_held",
    kind: "gauge",
    labels: &[],
    help: "Mediators with a pending long poll",
};
const CLAW_REQUESTS: Row = Row {
    name: "claw_requests",
    kind: "counter",
    labels: &[label("verb", CLAW_VERBS), label("outcome", CLAW_OUTCOMES)],
    help: "Requests to claw-api, by verb and outcome; verb none: an unknown path",
};
const REVOCATIONS_OPEN: Row = Row {
    name: "revocations_open",
    kind: "gauge",
    labels: &[],
    help: "Revocations that at least one pod has not acknowledged yet",
};
const QUEUE_DEPTH: Row = Row {
    name: "queue_depth",
    kind: "gauge",
    labels: &[],
    help: "Objects that wait for a worker",
};
const UNSETTLED: Row = Row {
    name: "unsettled_objects",
    kind: "gauge",
    labels: &[],
    help: "Objects that are queued, being reconciled, or waiting for a retry; 0: everything is reconciled",
};
const REFRESH_HINTS_OFF: Row = Row {
    name: "refresh_hints_off",
    kind: "gauge",
    labels: &[],
    help: "1 while refresh hints are enabled and not sent, since no policy limits the right to patch pods",
};

const AGENT_SELECTORS_OFF: Row = Row {
    name: "agent_selectors_off",
    kind: "gauge",
    labels: &[],
    help: "1 while a grant selects agents by labels and selects none, since no policy is known to protect the labels",
};

const LEADER: Row = Row {
    name: "leader",
    kind: "gauge",
    labels: &[],
    help: "1 while this replica leads",
};
const WATCH_ERRORS: Row = Row {
    name: "watch_errors",
    kind: "counter",
    labels: &[],
    help: "Watches that failed and were restarted",
};
const UNDECODABLE: Row = Row {
    name: "undecodable_objects",
    kind: "counter",
    labels: &[],
    help: "Objects received that could not be decoded",
};

const EVENTS_DROPPED: Row = Row {
    name: "events_dropped",
    kind: "counter",
    labels: &[],
    help: "Events about gained or lost tools that were not written, because there were too many",
};

const OBJECTS_BYTES: Row = Row {
    name: "objects_bytes",
    kind: "gauge",
    labels: &[],
    help: "Memory of the cached objects, including ConfigMaps and Secrets in use; an upper estimate",
};
const OBJECTS_BUDGET_BYTES: Row = Row {
    name: "objects_budget_bytes",
    kind: "gauge",
    labels: &[],
    help: "Upper bound of objects_bytes, a third of the memory limit; above it, the youngest objects of namespaces over an equal share are left out",
};
const OBJECTS_LEFT_OUT: Row = Row {
    name: "objects_left_out",
    kind: "gauge",
    labels: &[],
    help: "Objects that are ignored because the budget of their namespace, or that of all namespaces, is exceeded (TooExpensive)",
};

/// Every metric of the controller.
pub const ROWS: [Row; 20] = [
    RECONCILES,
    RECONCILE_SECONDS,
    WRITES,
    DIAGNOSTICS,
    LINK_REPORTS,
    LINK_PODS,
    LINK_HELD,
    CLAW_REQUESTS,
    REVOCATIONS_OPEN,
    QUEUE_DEPTH,
    UNSETTLED,
    LEADER,
    REFRESH_HINTS_OFF,
    AGENT_SELECTORS_OFF,
    WATCH_ERRORS,
    UNDECODABLE,
    EVENTS_DROPPED,
    OBJECTS_BYTES,
    OBJECTS_BUDGET_BYTES,
    OBJECTS_LEFT_OUT,
];

/// Prefix of the names in [`PROMISES`].
pub const PROJECT: &str = "toolcrib";
const PART: &str = "operator";

const REVOCATION_SECONDS: Row = Row {
    name: "revocation_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time from the watch event of a revocation to the last linked pod's acknowledgement; 300 s or more if a pod did not answer",
};

/// Metrics of the promises made to users. Their names have no component's prefix.
pub const PROMISES: [Row; 1] = [REVOCATION_SECONDS];

/// Buckets from 50 ms to 5 min: 2 s are promised with the link, 120 s by the volume alone.
const REVOCATION_BUCKETS: [f64; 12] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// Registers a metric under the row's name and help.
pub(crate) fn register(registry: &mut Registry, row: Row, metric: impl Metric) {
    registry.register(row.name, row.help, metric);
}

/// The controller's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub reconciles: Family<Reconcile, Counter>,
    pub reconcile_seconds: Histogram,
    pub writes: Family<Write, Counter>,
    /// New findings; each counts once until it is resolved.
    pub diagnostics: Family<Finding, Counter>,
    pub link_reports: Family<Outcome, Counter>,
    pub link_pods: Gauge,
    pub link_held: Gauge,
    pub claw_requests: Family<RequestLabels, Counter>,
    pub revocation_seconds: Histogram,
    pub revocations_open: Gauge,
    pub queue_depth: Gauge,
    pub unsettled: Gauge,
    pub leader: Gauge,
    pub refresh_hints_off: Gauge,
    pub agent_selectors_off: Gauge,
    pub watch_errors: Counter,
    pub undecodable: Counter,
    pub events_dropped: Counter,
    pub objects_bytes: Gauge,
    pub objects_budget_bytes: Gauge,
    pub objects_left_out: Gauge,
    registry: std::sync::Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut whole = Registry::with_prefix(PROJECT);
        let revocation_seconds = Histogram::new(REVOCATION_BUCKETS);
        register(&mut whole, REVOCATION_SECONDS, revocation_seconds.clone());
        let registry = whole.sub_registry_with_prefix(PART);
        let reconciles = Family::default();
        register(registry, RECONCILES, reconciles.clone());
        // 1 ms to about 16 s.
        let reconcile_seconds = Histogram::new(
            prometheus_client::metrics::histogram::exponential_buckets(0.001, 4.0, 8),
        );
        register(registry, RECONCILE_SECONDS, reconcile_seconds.clone());
        let writes = Family::default();
        register(registry, WRITES, writes.clone());
        let diagnostics = Family::default();
        register(registry, DIAGNOSTICS, diagnostics.clone());
        let link_reports = Family::default();
        register(registry, LINK_REPORTS, link_reports.clone());
        let link_pods = Gauge::default();
        register(registry, LINK_PODS, link_pods.clone());
        let link_held = Gauge::default();
        register(registry, LINK_HELD, link_held.clone());
        let claw_requests = Family::default();
        register(registry, CLAW_REQUESTS, claw_requests.clone());
        let revocations_open = Gauge::default();
        register(registry, REVOCATIONS_OPEN, revocations_open.clone());
        let queue_depth = Gauge::default();
        register(registry, QUEUE_DEPTH, queue_depth.clone());
        let unsettled = Gauge::default();
        register(registry, UNSETTLED, unsettled.clone());
        let leader = Gauge::default();
        register(registry, LEADER, leader.clone());
        let refresh_hints_off = Gauge::default();
        register(registry, REFRESH_HINTS_OFF, refresh_hints_off.clone());
        let agent_selectors_off = Gauge::default();
        register(registry, AGENT_SELECTORS_OFF, agent_selectors_off.clone());
        let watch_errors = Counter::default();
        register(registry, WATCH_ERRORS, watch_errors.clone());
        let undecodable = Counter::default();
        register(registry, UNDECODABLE, undecodable.clone());
        let events_dropped = Counter::default();
        register(registry, EVENTS_DROPPED, events_dropped.clone());
        let objects_bytes = Gauge::default();
        register(registry, OBJECTS_BYTES, objects_bytes.clone());
        let objects_budget_bytes = Gauge::default();
        register(registry, OBJECTS_BUDGET_BYTES, objects_budget_bytes.clone());
        let objects_left_out = Gauge::default();
        register(registry, OBJECTS_LEFT_OUT, objects_left_out.clone());
        let metrics = Self {
            reconciles,
            reconcile_seconds,
            writes,
            diagnostics,
            link_reports,
            link_pods,
            link_held,
            claw_requests,
            revocation_seconds,
            revocations_open,
            queue_depth,
            unsettled,
            leader,
            refresh_hints_off,
            agent_selectors_off,
            watch_errors,
            undecodable,
            events_dropped,
            objects_bytes,
            objects_budget_bytes,
            objects_left_out,
            registry: std::sync::Arc::new(whole),
        };
        metrics.begin();
        metrics
    }
}

impl Metrics {
    /// Creates each series at 0, so that `rate()` sees the first event.
    fn begin(&self) {
        for kind in KINDS {
            for outcome in RECONCILE_OUTCOMES {
                drop(self.reconciles.get_or_create(&Reconcile { kind, outcome }));
            }
        }
        for (object, verb) in WRITES_MADE {
            drop(self.writes.get_or_create(&Write { object, verb }));
        }
        for code in Code::ALL {
            let code = code.name();
            drop(self.diagnostics.get_or_create(&Finding { code }));
        }
        for outcome in LINK_OUTCOMES {
            drop(self.link_reports.get_or_create(&Outcome { outcome }));
        }
        for verb in CLAW_VERBS {
            for outcome in CLAW_OUTCOMES {
                drop(
                    self.claw_requests
                        .get_or_create(&RequestLabels { verb, outcome }),
                );
            }
        }
    }

    pub fn wrote(&self, object: &'static str, verb: &'static str) {
        self.writes.get_or_create(&Write { object, verb }).inc();
    }

    /// The metrics in the text exposition format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing into a String cannot fail; a metric's own encoder could.
            Err(error) => {
                tracing::error!(%error, "encoding metrics failed");
                String::new()
            }
        }
    }
}
