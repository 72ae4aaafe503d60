//! The table of all metrics that are promised: name, type, labels and help. Registration and
//! `docs/metrics.md` ([`super::page`]) both use it, so they cannot disagree.

use prometheus_client::registry::{Metric, Registry};

/// The prefix of our own names; `_` stands after it.
pub const PREFIX: &str = "toolcrib_mediator";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total` on the wire.
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A label and its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// The values of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Names of the manifest. Their series exist once it is in force.
    Compiled,
    /// The complete list. Their series exist from the start of the process.
    Closed(&'static [&'static str]),
    /// The values whose series exist from the start; services and providers add others.
    Open(&'static [&'static str]),
}

/// The dialects, and `mcp` for native mode.
pub const DIALECTS: &[&str] = &[
    "openai_chat",
    "anthropic_messages",
    "openai_responses",
    "mcp",
];
/// The mediator's own statuses, and the usual ones of providers.
pub const STATUSES: &[u16] = &[200, 400, 401, 403, 404, 426, 429, 499, 500, 502, 503];
const STATUS_WORDS: &[&str] = &[
    "200", "400", "401", "403", "404", "426", "429", "499", "500", "502", "503",
];
/// These series exist per tool from the start, so that an alert sees the first denial and the first
/// call that its service does not answer; another failure adds its code.
pub const TOOL_OUTCOMES: &[&str] = &[
    "ok",
    "permission_denied",
    "condition_failed",
    "rate_limited",
    "quota_exhausted",
    "approval_denied",
    "approval_pending",
    "approval_too_large",
    "too_many_pending",
    "too_many_denied",
    "unsupported_tool",
    "unsupported_requirement",
    "request_failed",
    "timeout",
];
/// The ends of a question, and the approval that its call may use.
pub const DECISIONS: &[&str] = &["approved", "denied", "expired", "withdrawn", "refused"];
pub const MODEL_OUTCOMES: &[&str] = &[
    "ok",
    "unauthorized",
    "quota_exhausted",
    "rate_limited",
    "server_error",
    "refused",
    "unreachable",
    "timeout",
    "too_large",
    "no_usable_key",
    "malformed",
];
pub const FEED_OUTCOMES: &[&str] = &[
    "ok",
    "unusable",
    "credential",
    "unreachable",
    "status",
    "unreadable",
    "timeout",
];
pub const TOKEN_KINDS: &[&str] = &["prompt", "completion"];
pub const INTERVENTIONS_MADE: &[&str] = &[
    "mixed_tool_order",
    "terminal_on_success_order",
    "tool_budget_exhausted",
    "terminal_on_success",
    "fabricated_history",
    "undeclared_calls",
];
pub const KEY_STATES: &[&str] = &["usable", "cooling", "retired"];
pub const TOOL_STATES: &[&str] = &["offered", "withheld"];
pub const LINK_STATES: &[&str] = &["off", "connected", "failing"];
pub const REPORT_OUTCOMES: &[&str] = &["ok", "failed"];
pub const SINKS: &[&str] = &["disk", "stdout"];
pub const SPAN_OUTCOMES: &[&str] = &["exported", "dropped"];
pub const EXPORT_OUTCOMES: &[&str] = &["sent", "rejected", "lost"];
pub const MCP_KINDS: &[&str] = &["sampling", "elicitation", "roots", "input", "other"];

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// [`PREFIX`], or `None` for a name of other conventions.
    pub prefix: Option<&'static str>,
    /// Without prefix and suffix.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [Label],
    /// One sentence without its full stop, as the text format adds one.
    pub help: &'static str,
}

impl Label {
    /// The label's text in the documentation.
    pub(super) fn described(&self) -> String {
        let name = self.name;
        match self.values {
            Values::Compiled => format!("`{name}`"),
            Values::Closed(words) => format!("`{name}`: {}", words.join(", ")),
            Values::Open(words) => format!("`{name}`: {}, …", words.join(", ")),
        }
    }
}

impl Row {
    pub fn register(&self, registry: &mut Registry, metric: impl Metric) {
        registry.register(self.name, self.help, metric);
    }

    /// The name for queries. For a histogram, `_bucket`, `_sum` and `_count` are added to it.
    pub fn queried(&self) -> String {
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.family() + total
    }

    /// The name of the family in the text format.
    pub fn family(&self) -> String {
        match self.prefix {
            Some(prefix) => format!("{prefix}_{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

macro_rules! rows {
    ($($id:ident = $kind:ident $name:literal
        [$($label:literal $values:ident $(($words:expr))?),*] $help:literal;)*) => {
        $(pub const $id: Row = Row {
            prefix: Some(PREFIX),
            name: $name,
            kind: Kind::$kind,
            labels: &[$(Label { name: $label, values: Values::$values $(($words))? }),*],
            help: $help,
        };)*
        /// All metrics that are promised, in the order of the documentation.
        pub const ROWS: &[Row] = &[$($id),*];
    };
}

rows! {
    REQUESTS = Counter "requests" ["dialect" Closed(DIALECTS), "status" Open(STATUS_WORDS)]
        "Requests of the runner by the HTTP status of the response; 499 if the runner disconnected first";
    REQUESTS_RUNNING = Gauge "requests_running" []
        "Running requests";
    REQUEST_SECONDS = Histogram "request_seconds" ["dialect" Closed(DIALECTS)]
        "Duration of a request, from its headers to its last byte";
    OVERHEAD_SECONDS = Histogram "overhead_seconds" []
        "Duration of a request without the time spent waiting for models, tools and feeds";
    ROUNDS = Counter "rounds" []
        "Hidden rounds: model replies whose managed calls the mediator answered";
    TOOL_CALLS = Counter "tool_calls" ["tool" Compiled, "outcome" Open(TOOL_OUTCOMES)]
        "Managed calls by tool of the manifest and outcome: ok, or the code that the model read; a status of a service by its class, as http_4xx";
    WOULD_DENY = Counter "would_deny" ["tool" Compiled]
        "Managed calls that ran since a rule of the tool, or a policy of the cluster, has `enforcement: Audit`, and would have been refused";
    TOOL_SECONDS = Histogram "tool_seconds" ["service" Compiled]
        "Duration of calls that were sent to a service";
    APPROVALS = Counter "approvals" ["decision" Closed(DECISIONS)]
        "Decisions on calls that need an approval: of persons, and expired, withdrawn, or refused by the operator";
    APPROVALS_OPEN = Gauge "approvals_open" []
        "Calls that wait for an approval, or for the same call after it";
    APPROVAL_SECONDS = Histogram "approval_wait_seconds" []
        "Time that a call waited for an approval before it had one, was denied, or the model was told that the decision is pending";
    MODEL_CALLS = Counter "model_calls" ["provider" Compiled, "outcome" Closed(MODEL_OUTCOMES)]
        "Attempts to get a reply from a provider; a failover counts as one attempt at each provider";
    MODEL_SECONDS = Histogram "model_seconds" ["provider" Compiled]
        "Time until a provider's whole reply, or its first byte if the reply is passed through";
    FEED_FETCHES = Counter "feed_fetches" ["feed" Compiled, "outcome" Closed(FEED_OUTCOMES)]
        "Fetches of feeds: ok, or the reason of the failure";
    TOKENS = Counter "tokens" ["kind" Closed(TOKEN_KINDS)]
        "Tokens that providers reported, prompt and completion";
    INTERVENTIONS = Counter "interventions" ["code" Closed(INTERVENTIONS_MADE)]
        "Interventions in a turn, other than executing its calls, and notices about it";
    PROVIDER_KEYS = Gauge "provider_keys" ["provider" Compiled, "state" Closed(KEY_STATES)]
        "Keys of a provider by state: usable, cooling after a 429, retired after a 401 or an exhausted quota";
    IN_FORCE = Gauge "manifest_in_force" []
        "1 while a manifest is served, 0 while everything is denied";
    MANIFEST_ERROR = Gauge "manifest_error" []
        "1 while the present files are not the served ones";
    TOOLS = Gauge "tools" ["state" Closed(TOOL_STATES)]
        "Tools of the manifest: offered, and withheld for a reason that /readyz names";
    LINK = Gauge "link" ["state" Closed(LINK_STATES)]
        "1 for the state of the link to the operator: off, connected or failing; 0 for the others";
    LINK_REPORTS = Counter "link_reports" ["outcome" Closed(REPORT_OUTCOMES)]
        "Reports to the operator: ok or failed";
    UNRECORDED = Counter "unrecorded" []
        "Record lines that could be written neither to disk nor to stdout";
    RECORD_WAITING = Gauge "record_waiting_bytes" []
        "Bytes of the record that wait in memory for a failing disk";
    RECORD_MISSED = Counter "record_missed" ["sink" Closed(SINKS)]
        "Record lines that are missing on disk or on stdout; the other one has them";
    CONNECTIONS = Gauge "connections" []
        "Open connections of the runner";
    CONNECTIONS_REFUSED = Counter "connections_refused" []
        "Connections refused with 503 since too many were open";
    DESCRIPTORS = Gauge "open_descriptors" []
        "Open file descriptors of the process";
    TASKS = Gauge "tasks" []
        "Running tasks of the runtime";
    UNAUTHORIZED = Counter "unauthorized" []
        "Requests without a valid token";
    SPANS = Counter "spans" ["outcome" Closed(SPAN_OUTCOMES)]
        "OpenTelemetry spans: exported, or dropped since the queue was full or the export failed";
    EXPORTED = Counter "exported_lines" ["outcome" Closed(EXPORT_OUTCOMES)]
        "Record lines for the collector: sent, rejected by it, or lost since rotation removed them first or they could not be read";
    EXPORT_LAG = Gauge "export_lag_bytes" []
        "Bytes of the record that the collector has not taken yet";
    MCP_REFUSED = Counter "mcp_requests_refused" ["kind" Closed(MCP_KINDS)]
        "Requests of MCP servers during a call, all of which are refused: sampling, elicitation, roots, input or other";
}
