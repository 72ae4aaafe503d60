//! Counters for Prometheus. Labels take compiled names only (tools, feeds and services of
//! the manifest, providers) and words of closed lists, so that nothing a model or a runner
//! writes becomes a time series.
//!
//! [`labels`] has the labels of each family; [`table`] names the metrics; [`otel`] has those of
//! OpenTelemetry's conventions; [`usage`] counts for the operator's link. A state, unlike an event, is
//! read at each scrape ([`State`]).

mod labels;
pub mod otel;
pub mod page;
pub mod table;
#[cfg(test)]
mod tests;
pub mod usage;

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use toolcrib_record::DecisionVerdict;

use labels::{
    CodeLabels, DecisionLabels, DialectLabels, FeedLabels, KeyLabels, KindLabels, ModelLabels,
    OutcomeLabels, ProviderLabels, RequestLabels, ServiceLabels, SinkLabels, StateLabels,
    ToolLabel, ToolLabels,
};
use otel::{OtelMetrics, ServingModel};
pub use usage::{CallKind, UsageCounters};

/// In seconds, from a tenth of a millisecond to two seconds.
const OVERHEAD_BUCKETS: [f64; 10] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 2.0,
];
/// In seconds, from a quick service to a slow model.
const WAIT_BUCKETS: [f64; 9] = [0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn waits() -> Histogram {
    Histogram::new(WAIT_BUCKETS)
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    requests_running: Gauge,
    request_seconds: Histograms<DialectLabels>,
    overhead: Histogram,
    rounds: Counter,
    tools_called: Family<ToolLabels, Counter>,
    would_deny: Family<ToolLabel, Counter>,
    tool_seconds: Histograms<ServiceLabels>,
    approvals: Family<DecisionLabels, Counter>,
    approvals_open: Gauge,
    approval_wait: Histogram,
    models: Family<ModelLabels, Counter>,
    model_seconds: Histograms<ProviderLabels>,
    feeds: Family<FeedLabels, Counter>,
    tokens: Family<KindLabels, Counter>,
    interventions: Family<CodeLabels, Counter>,
    keys: Family<KeyLabels, Gauge>,
    in_force: Gauge,
    manifest_error: Gauge,
    tools: Family<StateLabels, Gauge>,
    link: Family<StateLabels, Gauge>,
    link_reports: Family<OutcomeLabels, Counter>,
    unrecorded: Counter,
    record_waiting: Gauge,
    record_missed: Family<SinkLabels, Counter>,
    connections: Gauge,
    connections_refused: Counter,
    descriptors: Gauge,
    tasks: Gauge,
    unauthorized: Counter,
    spans: Family<OutcomeLabels, Counter>,
    exported: Family<OutcomeLabels, Counter>,
    export_lag: Gauge,
    mcp_refused: Family<KindLabels, Counter>,
    otel: OtelMetrics,
    /// The counters for the operator's link.
    pub usage: UsageCounters,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            requests_running: Gauge::default(),
            request_seconds: Family::new_with_constructor(waits),
            overhead: Histogram::new(OVERHEAD_BUCKETS),
            rounds: Counter::default(),
            tools_called: Family::default(),
            would_deny: Family::default(),
            tool_seconds: Family::new_with_constructor(waits),
            approvals: Family::default(),
            approvals_open: Gauge::default(),
            approval_wait: waits(),
            models: Family::default(),
            model_seconds: Family::new_with_constructor(waits),
            feeds: Family::default(),
            tokens: Family::default(),
            interventions: Family::default(),
            keys: Family::default(),
            in_force: Gauge::default(),
            manifest_error: Gauge::default(),
            tools: Family::default(),
            link: Family::default(),
            link_reports: Family::default(),
            unrecorded: Counter::default(),
            record_waiting: Gauge::default(),
            record_missed: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            descriptors: Gauge::default(),
            tasks: Gauge::default(),
            unauthorized: Counter::default(),
            spans: Family::default(),
            exported: Family::default(),
            export_lag: Gauge::default(),
            mcp_refused: Family::default(),
            otel: OtelMetrics::default(),
            usage: UsageCounters::default(),
        };
        metrics.begin();
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        self.otel.register(&mut self.registry);
        let to = self.registry.sub_registry_with_prefix(table::PREFIX);
        table::REQUESTS.register(to, self.requests.clone());
        table::REQUESTS_RUNNING.register(to, self.requests_running.clone());
        table::REQUEST_SECONDS.register(to, self.request_seconds.clone());
        table::OVERHEAD_SECONDS.register(to, self.overhead.clone());
        table::ROUNDS.register(to, self.rounds.clone());
        table::TOOL_CALLS.register(to, self.tools_called.clone());
        table::WOULD_DENY.register(to, self.would_deny.clone());
        table::TOOL_SECONDS.register(to, self.tool_seconds.clone());
        table::APPROVALS.register(to, self.approvals.clone());
        table::APPROVALS_OPEN.register(to, self.approvals_open.clone());
        table::APPROVAL_SECONDS.register(to, self.approval_wait.clone());
        table::MODEL_CALLS.register(to, self.models.clone());
        table::MODEL_SECONDS.register(to, self.model_seconds.clone());
        table::FEED_FETCHES.register(to, self.feeds.clone());
        table::TOKENS.register(to, self.tokens.clone());
        table::INTERVENTIONS.register(to, self.interventions.clone());
        table::PROVIDER_KEYS.register(to, self.keys.clone());
        table::IN_FORCE.register(to, self.in_force.clone());
        table::MANIFEST_ERROR.register(to, self.manifest_error.clone());
        table::TOOLS.register(to, self.tools.clone());
        table::LINK.register(to, self.link.clone());
        table::LINK_REPORTS.register(to, self.link_reports.clone());
        table::UNRECORDED.register(to, self.unrecorded.clone());
        table::RECORD_WAITING.register(to, self.record_waiting.clone());
        table::RECORD_MISSED.register(to, self.record_missed.clone());
        table::CONNECTIONS.register(to, self.connections.clone());
        table::CONNECTIONS_REFUSED.register(to, self.connections_refused.clone());
        table::DESCRIPTORS.register(to, self.descriptors.clone());
        table::TASKS.register(to, self.tasks.clone());
        table::UNAUTHORIZED.register(to, self.unauthorized.clone());
        table::SPANS.register(to, self.spans.clone());
        table::EXPORTED.register(to, self.exported.clone());
        table::EXPORT_LAG.register(to, self.export_lag.clone());
        table::MCP_REFUSED.register(to, self.mcp_refused.clone());
        self
    }

    /// The text format, with `state` as it is now.
    pub fn text(&self, state: &State) -> String {
        self.show(state);
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            // Only writing can fail, and writing into a String does not.
            tracing::error!("encoding metrics failed");
        }
        with_empty_families(text)
    }

    /// Creates the series whose labels are closed lists, so that they begin at 0.
    fn begin(&self) {
        for dialect in table::DIALECTS {
            for &status in table::STATUSES {
                drop(
                    self.requests
                        .get_or_create(&RequestLabels { dialect, status }),
                );
            }
            drop(
                self.request_seconds
                    .get_or_create(&DialectLabels { dialect }),
            );
        }
        for kind in table::TOKEN_KINDS {
            drop(self.tokens.get_or_create(&KindLabels { kind }));
        }
        for code in table::INTERVENTIONS_MADE {
            let code = (*code).to_string();
            drop(self.interventions.get_or_create(&CodeLabels { code }));
        }
        for decision in table::DECISIONS {
            drop(self.approvals.get_or_create(&DecisionLabels { decision }));
        }
        for outcome in table::REPORT_OUTCOMES {
            drop(self.link_reports.get_or_create(&OutcomeLabels { outcome }));
        }
        for sink in table::SINKS {
            drop(self.record_missed.get_or_create(&SinkLabels { sink }));
        }
        for outcome in table::SPAN_OUTCOMES {
            drop(self.spans.get_or_create(&OutcomeLabels { outcome }));
        }
        for outcome in table::EXPORT_OUTCOMES {
            drop(self.exported.get_or_create(&OutcomeLabels { outcome }));
        }
        for kind in table::MCP_KINDS {
            drop(self.mcp_refused.get_or_create(&KindLabels { kind }));
        }
    }

    /// Creates the series of the names that are compiled now.
    fn begin_compiled(&self, state: &State) {
        for (tool, service) in &state.tools {
            for outcome in table::TOOL_OUTCOMES {
                let (tool, outcome) = (tool.clone(), (*outcome).to_string());
                drop(
                    self.tools_called
                        .get_or_create(&ToolLabels { tool, outcome }),
                );
            }
            let tool = tool.clone();
            drop(self.would_deny.get_or_create(&ToolLabel { tool }));
            let service = service.clone();
            drop(self.tool_seconds.get_or_create(&ServiceLabels { service }));
        }
        for (provider, _) in &state.keys {
            for outcome in table::MODEL_OUTCOMES {
                let provider = provider.clone();
                drop(
                    self.models
                        .get_or_create(&ModelLabels { provider, outcome }),
                );
            }
            let provider = provider.clone();
            drop(
                self.model_seconds
                    .get_or_create(&ProviderLabels { provider }),
            );
        }
        for feed in &state.feeds {
            for outcome in table::FEED_OUTCOMES {
                let feed = feed.clone();
                drop(self.feeds.get_or_create(&FeedLabels { feed, outcome }));
            }
        }
    }

    fn show(&self, state: &State) {
        self.begin_compiled(state);
        let set = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.requests_running, state.requests_running);
        set(&self.in_force, usize::from(state.in_force));
        set(&self.manifest_error, usize::from(state.manifest_error));
        set(&self.record_waiting, state.record_waiting);
        set(&self.approvals_open, state.approvals_open);
        set(&self.descriptors, state.descriptors);
        set(&self.tasks, state.tasks);
        let tools = |state, count| {
            set(&self.tools.get_or_create(&StateLabels { state }), count);
        };
        tools("offered", state.tools.len());
        tools("withheld", state.tools_withheld);
        for each in LinkState::ALL {
            let labels = StateLabels { state: each.name() };
            let is = usize::from(each == state.link);
            set(&self.link.get_or_create(&labels), is);
        }
        // Removes the series of providers that no longer exist.
        self.keys.clear();
        for (provider, keys) in &state.keys {
            for (state, count) in [
                ("usable", keys.usable),
                ("cooling", keys.cooling),
                ("retired", keys.retired),
            ] {
                let provider = provider.clone();
                let labels = KeyLabels { provider, state };
                set(&self.keys.get_or_create(&labels), count);
            }
        }
    }

    pub fn request(&self, dialect: &'static str, status: u16, duration: Duration) {
        self.requests
            .get_or_create(&RequestLabels { dialect, status })
            .inc();
        self.request_seconds
            .get_or_create(&DialectLabels { dialect })
            .observe(duration.as_secs_f64());
        self.usage.request();
    }

    pub fn rounds(&self, rounds: u64) {
        self.rounds.inc_by(rounds);
        self.usage.rounds(rounds);
    }

    /// `tool` is a name of the manifest.
    pub fn tool_call(&self, tool: &str, code: Option<&str>) {
        let labels = ToolLabels {
            tool: tool.to_string(),
            outcome: outcome(code),
        };
        self.tools_called.get_or_create(&labels).inc();
    }

    /// Counts a call that ran only because a rule is tried out. `tool` is a name of the manifest.
    pub fn would_deny(&self, tool: &str) {
        let tool = tool.to_string();
        self.would_deny.get_or_create(&ToolLabel { tool }).inc();
    }

    /// Observes the latency of a call that was sent to `service`.
    pub fn tool_answered(&self, service: &str, latency: Duration) {
        let service = service.to_string();
        self.tool_seconds
            .get_or_create(&ServiceLabels { service })
            .observe(latency.as_secs_f64());
    }

    /// Counts an attempt at a provider. `served`: its duration, if the provider replied.
    pub fn model_call(&self, provider: &str, outcome: &'static str, served: Option<Duration>) {
        let labels = ModelLabels {
            provider: provider.to_string(),
            outcome,
        };
        self.models.get_or_create(&labels).inc();
        if let Some(duration) = served {
            let provider = provider.to_string();
            self.model_seconds
                .get_or_create(&ProviderLabels { provider })
                .observe(duration.as_secs_f64());
        }
    }

    /// `feed` is a name of the manifest.
    pub fn feed_fetch(&self, feed: &str, outcome: &'static str) {
        let labels = FeedLabels {
            feed: feed.to_string(),
            outcome,
        };
        self.feeds.get_or_create(&labels).inc();
    }

    pub fn tokens(&self, prompt: u64, completion: u64) {
        let count = |kind, tokens| {
            self.tokens
                .get_or_create(&KindLabels { kind })
                .inc_by(tokens);
        };
        count("prompt", prompt);
        count("completion", completion);
        self.usage.tokens(prompt, completion);
    }

    /// Counts the end of a question, or its approval.
    pub fn decided(&self, verdict: DecisionVerdict) {
        let decision = verdict.word();
        self.approvals
            .get_or_create(&DecisionLabels { decision })
            .inc();
    }

    /// Counts the wait of a call for an approval.
    pub fn approval_waited(&self, wait: Duration) {
        self.approval_wait.observe(wait.as_secs_f64());
    }

    /// Counts a refused request of an MCP server; `kind` is a word of a closed list.
    pub fn mcp_refused(&self, kind: &'static str) {
        self.mcp_refused.get_or_create(&KindLabels { kind }).inc();
    }

    /// Counts the tokens of a model call under OpenTelemetry's name.
    pub fn model_tokens(&self, model: &ServingModel, input: u64, output: u64) {
        self.otel.tokens(model, input, output);
    }

    /// Observes a model call under OpenTelemetry's name. `error`: a word of a closed list; empty: none.
    pub fn model_operation(&self, model: ServingModel, error: &'static str, took: Duration) {
        self.otel.operation(model, error, took);
    }

    /// Observes a call of an MCP server under OpenTelemetry's name. `tool` is a name of the manifest.
    pub fn mcp_call(&self, tool: &str, code: Option<&str>, took: Duration) {
        self.otel
            .mcp_call(tool, code.map(|code| outcome(Some(code))), took);
    }

    /// `code` comes from a closed enum.
    pub fn intervention(&self, code: &str) {
        let code = code.to_string();
        self.interventions.get_or_create(&CodeLabels { code }).inc();
    }

    pub fn overhead(&self, duration: Duration) {
        self.overhead.observe(duration.as_secs_f64());
    }

    pub fn unrecorded(&self, lines: u64) {
        self.unrecorded.inc_by(lines);
    }

    pub fn record_missed(&self, sink: &'static str) {
        self.record_missed.get_or_create(&SinkLabels { sink }).inc();
    }

    pub fn unauthorized(&self) {
        self.unauthorized.inc();
    }

    pub fn connection_opened(&self) {
        self.connections.inc();
    }

    pub fn connection_closed(&self) {
        self.connections.dec();
    }

    pub fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub fn link_report(&self, outcome: &'static str) {
        self.link_reports
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    /// Counts lines of the record; `outcome` is a word of a closed list.
    pub fn exported(&self, outcome: &'static str, lines: u64) {
        self.exported
            .get_or_create(&OutcomeLabels { outcome })
            .inc_by(lines);
    }

    pub fn export_lag(&self, bytes: u64) {
        self.export_lag
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn spans(&self, outcome: &'static str, count: usize) {
        self.spans
            .get_or_create(&OutcomeLabels { outcome })
            .inc_by(count as u64);
    }
}

/// The state that is read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub in_force: bool,
    pub manifest_error: bool,
    /// The offered tools of the manifest, each with its service.
    pub tools: Vec<(String, String)>,
    pub feeds: Vec<String>,
    pub tools_withheld: usize,
    pub requests_running: usize,
    pub record_waiting: usize,
    /// Questions that wait for a decision or a call.
    pub approvals_open: usize,
    pub descriptors: usize,
    pub tasks: usize,
    pub link: LinkState,
    /// State per provider.
    pub keys: Vec<(String, KeyCounts)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    pub usable: usize,
    pub cooling: usize,
    pub retired: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// The agent's files have no link.
    #[default]
    Off,
    /// The last report was answered.
    Connected,
    /// The last report failed, or there was none yet.
    Failing,
}

impl LinkState {
    const ALL: [LinkState; 3] = [LinkState::Off, LinkState::Connected, LinkState::Failing];

    fn name(self) -> &'static str {
        match self {
            LinkState::Off => "off",
            LinkState::Connected => "connected",
            LinkState::Failing => "failing",
        }
    }
}

/// Adds the head of each family without series. The library omits these, and an alert could not
/// tell such a family from a program that has ended.
fn with_empty_families(text: String) -> String {
    let Some((families, end)) = text.rfind("# EOF").map(|at| text.split_at(at)) else {
        return text;
    };
    let mut whole = families.to_string();
    for row in table::ROWS.iter().chain(&otel::ROWS) {
        let name = row.family();
        let kind = format!("# TYPE {name} {}\n", row.kind.name());
        if !families.contains(&kind) {
            whole.push_str(&format!("# HELP {name} {}.\n{kind}", row.help));
        }
    }
    whole + end
}

/// The label of a call's outcome: `ok` or the code. Statuses are counted by class, since a service
/// chooses them.
fn outcome(code: Option<&str>) -> String {
    match code {
        None => "ok".to_string(),
        Some(code) => match code.strip_prefix("http_").and_then(|it| it.chars().next()) {
            Some(class) => format!("http_{class}xx"),
            None => code.to_string(),
        },
    }
}
