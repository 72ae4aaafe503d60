//! The description of each metric of the controller: its name, its labels with all their values, and what it
//! means.

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
pub(super) const RECONCILE_OUTCOMES: &[&str] = &["ok", "waiting", "failed", "panicked", "timeout"];
/// Object and verb of each write that the controller makes.
pub(super) const WRITES_MADE: [(&str, &str); 15] = [
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
    ("ToolApproval", "create"),
    ("ToolApproval", "patch"),
    ("ToolApproval", "delete"),
    ("ToolDecision", "patch"),
    ("status", "patch"),
];
pub(super) const WRITTEN_OBJECTS: &[&str] = &[
    "Secret",
    "ConfigMap",
    "NetworkPolicy",
    "Event",
    "Pod",
    "ToolApproval",
    "ToolDecision",
    "status",
];
pub(super) const WRITE_VERBS: &[&str] = &["create", "patch", "delete", "certificates"];
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
/// Outcomes of a mediator's question: of the question itself, then of its request.
pub const QUESTION_OUTCOMES: &[&str] = &[
    "asked",
    "too_many_pending",
    "too_many_denied",
    "not_granted",
    "not_protected",
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
];
/// The ends of a question.
pub(super) const PHASES: &[&str] = &["Approved", "Denied", "Expired", "Withdrawn"];
pub const CLAW_VERBS: &[&str] = &[
    "list_agents",
    "get_agent",
    "explain_tool",
    "recent_calls",
    "explain_call",
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
    "no_such_call",
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

pub(super) const RECONCILES: Row = Row {
    name: "reconciles",
    kind: "counter",
    labels: &[label("kind", KINDS), label("outcome", RECONCILE_OUTCOMES)],
    help: "Reconciled objects, by kind and outcome",
};
pub(super) const RECONCILE_SECONDS: Row = Row {
    name: "reconcile_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time of one reconcile, writes included",
};
pub(super) const WRITES: Row = Row {
    name: "writes",
    kind: "counter",
    labels: &[label("object", WRITTEN_OBJECTS), label("verb", WRITE_VERBS)],
    help: "Writes to the API server that were accepted",
};
pub(super) const DIAGNOSTICS: Row = Row {
    name: "diagnostics",
    kind: "counter",
    labels: &[Label {
        name: "code",
        values: LabelValues::Codes,
    }],
    help: "New findings, by code",
};
pub(super) const LINK_REPORTS: Row = Row {
    name: "link_reports",
    kind: "counter",
    labels: &[label("outcome", LINK_OUTCOMES)],
    help: "Reports of mediators, by outcome",
};
pub(super) const LINK_PODS: Row = Row {
    name: "link_pods",
    kind: "gauge",
    labels: &[],
    help: "Pods whose mediator has reported",
};
pub(super) const LINK_HELD: Row = Row {
    name: "link_held",
    kind: "gauge",
    labels: &[],
    help: "Mediators with a pending long poll",
};
pub(super) const QUESTIONS: Row = Row {
    name: "questions",
    kind: "counter",
    labels: &[label("outcome", QUESTION_OUTCOMES)],
    help: "Questions of mediators to persons, by outcome",
};
pub(super) const APPROVALS_OFF: Row = Row {
    name: "approvals_off",
    kind: "gauge",
    labels: &[],
    help: "1 while no decision counts, since no policy is known to protect ToolApprovals and ToolDecisions",
};
pub(super) const CLAW_REQUESTS: Row = Row {
    name: "claw_requests",
    kind: "counter",
    labels: &[label("verb", CLAW_VERBS), label("outcome", CLAW_OUTCOMES)],
    help: "Requests to claw-api, by verb and outcome; verb none: an unknown path",
};
pub(super) const REVOCATIONS_OPEN: Row = Row {
    name: "revocations_open",
    kind: "gauge",
    labels: &[],
    help: "Revocations that at least one pod has not acknowledged yet",
};
pub(super) const QUEUE_DEPTH: Row = Row {
    name: "queue_depth",
    kind: "gauge",
    labels: &[],
    help: "Objects that wait for a worker",
};
pub(super) const UNSETTLED: Row = Row {
    name: "unsettled_objects",
    kind: "gauge",
    labels: &[],
    help: "Objects that are queued, being reconciled, or waiting for a retry; 0: everything is reconciled",
};
pub(super) const REFRESH_HINTS_OFF: Row = Row {
    name: "refresh_hints_off",
    kind: "gauge",
    labels: &[],
    help: "1 while refresh hints are enabled and not sent, since no policy limits the right to patch pods",
};

pub(super) const AGENT_SELECTORS_OFF: Row = Row {
    name: "agent_selectors_off",
    kind: "gauge",
    labels: &[],
    help: "1 while a grant selects agents by labels and selects none, since no policy is known to protect the labels",
};

pub(super) const LEADER: Row = Row {
    name: "leader",
    kind: "gauge",
    labels: &[],
    help: "1 while this replica leads",
};
pub(super) const WATCH_ERRORS: Row = Row {
    name: "watch_errors",
    kind: "counter",
    labels: &[],
    help: "Watches that failed and were restarted",
};
pub(super) const UNDECODABLE: Row = Row {
    name: "undecodable_objects",
    kind: "counter",
    labels: &[],
    help: "Objects received that could not be decoded",
};

pub(super) const EVENTS_DROPPED: Row = Row {
    name: "events_dropped",
    kind: "counter",
    labels: &[],
    help: "Events about gained or lost tools that were not written, because there were too many",
};

pub(super) const OBJECTS_BYTES: Row = Row {
    name: "objects_bytes",
    kind: "gauge",
    labels: &[],
    help: "Memory of the cached objects, including ConfigMaps and Secrets in use; an upper estimate",
};
pub(super) const OBJECTS_BUDGET_BYTES: Row = Row {
    name: "objects_budget_bytes",
    kind: "gauge",
    labels: &[],
    help: "Upper bound of objects_bytes, a third of the memory limit; above it, the youngest objects of namespaces over an equal share are left out",
};
pub(super) const OBJECTS_LEFT_OUT: Row = Row {
    name: "objects_left_out",
    kind: "gauge",
    labels: &[],
    help: "Objects that are ignored because the budget of their namespace, or that of all namespaces, is exceeded (TooExpensive)",
};

/// Every metric of the controller.
pub const ROWS: [Row; 22] = [
    RECONCILES,
    RECONCILE_SECONDS,
    WRITES,
    DIAGNOSTICS,
    LINK_REPORTS,
    LINK_PODS,
    LINK_HELD,
    QUESTIONS,
    APPROVALS_OFF,
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
pub(super) const PART: &str = "operator";

pub(super) const REVOCATION_SECONDS: Row = Row {
    name: "revocation_seconds",
    kind: "histogram",
    labels: &[],
    help: "Time from the watch event of a revocation to the last linked pod's acknowledgement; 300 s or more if a pod did not answer",
};

pub(super) const APPROVALS_PENDING: Row = Row {
    name: "approvals_pending",
    kind: "gauge",
    labels: &[],
    help: "Calls that wait for the approval of a person, or that are approved and not made yet",
};
pub(super) const APPROVAL_SECONDS: Row = Row {
    name: "approval_seconds",
    kind: "histogram",
    labels: &[label("phase", PHASES)],
    help: "Time from a question to its end, by the phase that ended it",
};

/// Metrics of what users wait for. Their names have no component's prefix.
pub const PROMISES: [Row; 3] = [REVOCATION_SECONDS, APPROVALS_PENDING, APPROVAL_SECONDS];

/// Buckets from 1 s to 1 h: a person decides.
pub(super) const APPROVAL_BUCKETS: [f64; 9] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// Buckets from 50 ms to 5 min: 2 s are promised with the link, 120 s by the volume alone.
pub(super) const REVOCATION_BUCKETS: [f64; 12] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];
