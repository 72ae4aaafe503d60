//! What the controller counts. Labels come from closed enums only: no name that a user
//! chooses becomes a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

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

/// The controller's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub reconciles: Family<Reconcile, Counter>,
    pub reconcile_seconds: Histogram,
    pub writes: Family<Write, Counter>,
    /// Findings that became known (each counts once while it stands).
    pub diagnostics: Family<Finding, Counter>,
    pub link_reports: Family<Outcome, Counter>,
    pub link_pods: Gauge,
    pub queue_depth: Gauge,
    pub leader: Gauge,
    pub watch_errors: Counter,
    pub undecodable: Counter,
    registry: std::sync::Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("toolcrib_operator");
        let reconciles = Family::default();
        registry.register(
            "reconciles",
            "Reconciled objects, by kind and outcome",
            reconciles.clone(),
        );
        // 1 ms to about 16 s.
        let reconcile_seconds = Histogram::new(
            prometheus_client::metrics::histogram::exponential_buckets(0.001, 4.0, 8),
        );
        registry.register(
            "reconcile_seconds",
            "Time of one reconcile, writes included",
            reconcile_seconds.clone(),
        );
        let writes = Family::default();
        registry.register(
            "writes",
            "Writes to the API server that were accepted",
            writes.clone(),
        );
        let diagnostics = Family::default();
        registry.register(
            "diagnostics",
            "Findings that became known, by code",
            diagnostics.clone(),
        );
        let link_reports = Family::default();
        registry.register(
            "link_reports",
            "Reports of mediators, by outcome",
            link_reports.clone(),
        );
        let link_pods = Gauge::default();
        registry.register(
            "link_pods",
            "Pods whose mediator has reported",
            link_pods.clone(),
        );
        let queue_depth = Gauge::default();
        registry.register(
            "queue_depth",
            "Objects that wait for a worker",
            queue_depth.clone(),
        );
        let leader = Gauge::default();
        registry.register("leader", "1 while this replica leads", leader.clone());
        let watch_errors = Counter::default();
        registry.register(
            "watch_errors",
            "Watches that failed and were begun again",
            watch_errors.clone(),
        );
        let undecodable = Counter::default();
        registry.register(
            "undecodable_objects",
            "Objects seen that could not be read as their kind",
            undecodable.clone(),
        );
        Self {
            reconciles,
            reconcile_seconds,
            writes,
            diagnostics,
            link_reports,
            link_pods,
            queue_depth,
            leader,
            watch_errors,
            undecodable,
            registry: std::sync::Arc::new(registry),
        }
    }
}

impl Metrics {
    pub fn wrote(&self, object: &'static str, verb: &'static str) {
        self.writes.get_or_create(&Write { object, verb }).inc();
    }

    /// The text exposition format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing into a String cannot fail; a metric's own encoder could.
            Err(error) => {
                tracing::error!(%error, "metrics not encoded");
                String::new()
            }
        }
    }
}
