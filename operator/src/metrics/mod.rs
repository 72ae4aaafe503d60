//! The controller's metrics, and the type that describes a metric of the controller or the webhook.
//!
//! [`rows`] describes every metric, for registration and for the reference. Invariant: labels have
//! closed sets of values; no name that a user chooses becomes a label.

mod rows;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use toolcrib_compile::Code;

pub(crate) use rows::label;
use rows::*;
pub use rows::{
    CLAW_OUTCOMES, CLAW_VERBS, KINDS, LINK_OUTCOMES, Label, LabelValues, PREFIX, PROJECT, PROMISES,
    QUESTION_OUTCOMES, ROWS, Row,
};

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
pub struct Phase {
    pub phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub outcome: &'static str,
}

/// The metrics of approvals. Only the leader's differ from 0.
#[derive(Clone, Debug, Default)]
pub struct ApprovalGauges {
    /// The number of open questions.
    pub pending: Gauge,
    /// 1 while the admission policies are not known to hold.
    pub off: Gauge,
}

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
    pub questions: Family<Outcome, Counter>,
    pub approvals: ApprovalGauges,
    pub approval_seconds: Family<Phase, Histogram>,
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
        let approvals = ApprovalGauges::default();
        register(&mut whole, APPROVALS_PENDING, approvals.pending.clone());
        let approval_seconds = Family::new_with_constructor(
            (|| Histogram::new(APPROVAL_BUCKETS)) as fn() -> Histogram,
        );
        register(&mut whole, APPROVAL_SECONDS, approval_seconds.clone());
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
        let questions = Family::default();
        register(registry, QUESTIONS, questions.clone());
        register(registry, APPROVALS_OFF, approvals.off.clone());
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
            questions,
            approvals,
            approval_seconds,
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
        for outcome in QUESTION_OUTCOMES {
            drop(self.questions.get_or_create(&Outcome { outcome }));
        }
        for phase in PHASES {
            drop(self.approval_seconds.get_or_create(&Phase { phase }));
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
