//! Every metric, once: its name, type, labels and help. Registration takes its texts from
//! here and `docs/metrics.md` is written from here, so that neither can say what the
//! other does not.

use prometheus_client::registry::{Metric, Registry};

/// Stands before every name.
pub const PREFIX: &str = "toolcrib_mediator";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total` on the wire.
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// As the text format says it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A label and the words that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// The words of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Names of the manifest: their series begin once it is in force.
    Compiled,
    /// All of them: their series begin with the process.
    Closed(&'static [&'static str]),
    /// Those that begin with the process; services and providers bring others.
    Open(&'static [&'static str]),
}

/// The dialects, and the native mode in place of one.
pub const DIALECTS: &[&str] = &[
    "openai_chat",
    "anthropic_messages",
    "openai_responses",
    "mcp",
];
/// The statuses that the mediator gives by itself, and the usual ones of providers.
pub const STATUSES: &[u16] = &[200, 400, 401, 403, 404, 429, 499, 500, 502, 503];
const STATUS_WORDS: &[&str] = &[
    "200", "400", "401", "403", "404", "429", "499", "500", "502", "503",
];
/// One series per tool exists from the start; a failure adds its code.
pub const TOOL_OUTCOMES: &[&str] = &["ok"];
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
];
pub const KEY_STATES: &[&str] = &["usable", "cooling", "retired"];
pub const TOOL_STATES: &[&str] = &["offered", "withheld"];
pub const LINK_STATES: &[&str] = &["off", "connected", "failing"];
pub const REPORT_OUTCOMES: &[&str] = &["ok", "failed"];
pub const SINKS: &[&str] = &["disk", "stdout"];
pub const SPAN_OUTCOMES: &[&str] = &["exported", "dropped"];
pub const MCP_KINDS: &[&str] = &["sampling", "elicitation", "roots", "input", "other"];

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Without prefix and suffix.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [Label],
    /// One sentence without its full stop, as the text format adds one.
    pub help: &'static str,
}

impl Label {
    /// As the documentation lists it.
    fn described(&self) -> String {
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

    /// What a query names. A histogram has `_bucket`, `_sum` and `_count` under it.
    pub fn queried(&self) -> String {
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{PREFIX}_{}{total}", self.name)
    }
}

macro_rules! rows {
    ($($id:ident = $kind:ident $name:literal
        [$($label:literal $values:ident $(($words:expr))?),*] $help:literal;)*) => {
        $(pub const $id: Row = Row {
            name: $name,
            kind: Kind::$kind,
            labels: &[$(Label { name: $label, values: Values::$values $(($words))? }),*],
            help: $help,
        };)*
        /// In the order of the documentation.
        pub const ROWS: &[Row] = &[$($id),*];
    };
}

rows! {
    REQUESTS = Counter "requests" ["dialect" Closed(DIALECTS), "status" Open(STATUS_WORDS)]
        "Requests of the runner by the HTTP status they got; 499 where it hung up first";
    REQUESTS_RUNNING = Gauge "requests_running" []
        "Requests that run now";
    REQUEST_SECONDS = Histogram "request_seconds" ["dialect" Closed(DIALECTS)]
        "Whole time of a request, from its headers to its last byte";
    OVERHEAD_SECONDS = Histogram "overhead_seconds" []
        "Time of a request that was spent waiting for neither a model nor a tool nor a feed";
    ROUNDS = Counter "rounds" []
        "Hidden rounds: replies of a model whose managed calls were answered here";
    TOOL_CALLS = Counter "tool_calls" ["tool" Compiled, "outcome" Open(TOOL_OUTCOMES)]
        "Managed calls by tool of the manifest and outcome: ok, or the code that the model read";
    TOOL_SECONDS = Histogram "tool_seconds" ["service" Compiled]
        "Time of calls that were sent to a service";
    MODEL_CALLS = Counter "model_calls" ["provider" Compiled, "outcome" Closed(MODEL_OUTCOMES)]
        "Attempts to get a reply from a provider; one that fails over counts as one of each";
    MODEL_SECONDS = Histogram "model_seconds" ["provider" Compiled]
        "Time until a provider's reply was there, or its first byte where it is passed through";
    FEED_FETCHES = Counter "feed_fetches" ["feed" Compiled, "outcome" Closed(FEED_OUTCOMES)]
        "Fetches of feeds: ok, or why there is no newer copy";
    TOKENS = Counter "tokens" ["kind" Closed(TOKEN_KINDS)]
        "Tokens that providers reported, prompt and completion";
    INTERVENTIONS = Counter "interventions" ["code" Closed(INTERVENTIONS_MADE)]
        "What was done to a turn beside executing its calls";
    PROVIDER_KEYS = Gauge "provider_keys" ["provider" Compiled, "state" Closed(KEY_STATES)]
        "Keys of a provider by state: usable, cooling after a 429, retired after a 401 or an exhausted quota";
    IN_FORCE = Gauge "manifest_in_force" []
        "1 while a manifest is served, 0 while everything is denied";
    MANIFEST_ERROR = Gauge "manifest_error" []
        "1 while the files that are there are not the ones that are served";
    TOOLS = Gauge "tools" ["state" Closed(TOOL_STATES)]
        "Tools of the manifest: offered, and withheld for a reason that /readyz names";
    LINK = Gauge "link" ["state" Closed(LINK_STATES)]
        "1 for the state of the link to the operator: off, connected or failing; 0 for the others";
    LINK_REPORTS = Counter "link_reports" ["outcome" Closed(REPORT_OUTCOMES)]
        "Reports to the operator: ok or failed";
    UNRECORDED = Counter "unrecorded" []
        "Lines of the record that neither disk nor stdout took";
    RECORD_WAITING = Gauge "record_waiting_bytes" []
        "Bytes of the record that wait in memory for a disk that refuses them";
    RECORD_MISSED = Counter "record_missed" ["sink" Closed(SINKS)]
        "Lines of the record that one of disk and stdout did not take; the other has them";
    CONNECTIONS = Gauge "connections" []
        "Connections of the runner that are open";
    CONNECTIONS_REFUSED = Counter "connections_refused" []
        "Connections that were turned away with 503 since too many were open";
    DESCRIPTORS = Gauge "open_descriptors" []
        "File descriptors of the process";
    TASKS = Gauge "tasks" []
        "Tasks of the runtime that have not ended";
    UNAUTHORIZED = Counter "unauthorized" []
        "Requests without a valid token, whatever was wrong with it";
    SPANS = Counter "spans" ["outcome" Closed(SPAN_OUTCOMES)]
        "OpenTelemetry spans: exported, or dropped since the queue was full or the receiver refused them";
    MCP_REFUSED = Counter "mcp_requests_refused" ["kind" Closed(MCP_KINDS)]
        "Requests of MCP servers in mid-call, none of which is served: sampling, elicitation, roots, input or other";
}

/// `docs/metrics.md`.
pub fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    for row in ROWS {
        let labels: Vec<String> = row.labels.iter().map(Label::described).collect();
        text.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            row.queried(),
            row.kind.name(),
            labels.join("; "),
            row.help,
        ));
    }
    text
}

const INTRODUCTION: &str = "\
# The mediator's metrics

Prometheus' text format, on the admin listener: `http://127.0.0.1:4142/metrics` inside the
pod, and on a port of its own, `tc-metrics`, where the chart's `mediator.metricsPort` opens one:
it answers `/metrics` to whoever reaches the pod and has nothing else.

Labels take names that were compiled (tools, feeds and services of the manifest, providers)
and words of closed lists; nothing that a model or a runner writes becomes a time series. The words of a
closed list stand behind their label, and \"…\" where services and providers bring others.

Every family is there from the first scrape. Its series begin at 0: with the process where all
labels have a list, and once a manifest is in force where a label takes compiled names. So `rate()` sees
the first event. This file is written from the table that the program registers its metrics from.

| name | type | labels | meaning |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        toolcrib_golden::expect(toolcrib_golden::here!(), path.as_ref(), &document());
    }
}
