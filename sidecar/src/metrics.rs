//! Counters for Prometheus and for the operator's link. Labels take compiled names only
//! (tools of the manifest, providers, codes of closed enums), so that nothing a model or
//! a runner writes becomes a time series.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use toolcrib_manifest::Usage;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    dialect: &'static str,
    /// The HTTP status towards the runner.
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ToolLabels {
    tool: String,
    outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModelLabels {
    provider: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct InterventionLabels {
    code: String,
}

/// How one executed or refused call counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Succeeded,
    Failed,
    Denied,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    rounds: Counter,
    tools: Family<ToolLabels, Counter>,
    models: Family<ModelLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    interventions: Family<InterventionLabels, Counter>,
    overhead: Histogram,
    unrecorded: Counter,
    in_force: Gauge,
    usage: UsageCounters,
}

/// The same as plain sums, for the link.
#[derive(Debug, Default)]
struct UsageCounters {
    requests: AtomicU64,
    rounds: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
    denied: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    last_call: Mutex<Option<String>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("toolcrib_mediator");
        let requests = Family::default();
        registry.register("requests", "Requests of the runner", requests.clone());
        let rounds = Counter::default();
        registry.register("rounds", "Hidden rounds", rounds.clone());
        let tools = Family::default();
        registry.register(
            "tool_calls",
            "Managed calls by tool and outcome",
            tools.clone(),
        );
        let models = Family::default();
        registry.register(
            "model_calls",
            "Calls of models by provider and outcome",
            models.clone(),
        );
        let tokens = Family::default();
        registry.register("tokens", "Tokens that providers reported", tokens.clone());
        let interventions = Family::default();
        registry.register(
            "interventions",
            "What the mediator did beside executing, by code",
            interventions.clone(),
        );
        // From a tenth of a millisecond to two seconds.
        let overhead = Histogram::new([
            0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 2.0,
        ]);
        registry.register_with_unit(
            "overhead",
            "Time of a request that was neither model nor tool",
            Unit::Seconds,
            overhead.clone(),
        );
        let unrecorded = Counter::default();
        registry.register(
            "unrecorded",
            "Lines of the record that could not be written",
            unrecorded.clone(),
        );
        let in_force = Gauge::default();
        registry.register(
            "manifest_in_force",
            "1 while a manifest is served",
            in_force.clone(),
        );
        Self {
            registry,
            requests,
            rounds,
            tools,
            models,
            tokens,
            interventions,
            overhead,
            unrecorded,
            in_force,
            usage: UsageCounters::default(),
        }
    }
}

impl Metrics {
    /// The text format.
    pub fn text(&self, in_force: bool) -> String {
        self.in_force.set(i64::from(in_force));
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            // Only a formatter that refuses to write can fail, and a String does not.
            tracing::error!("metrics could not be written");
        }
        text
    }

    pub fn usage(&self) -> Usage {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let last_call = self
            .usage
            .last_call
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Usage {
            requests: read(&self.usage.requests),
            rounds: read(&self.usage.rounds),
            calls: read(&self.usage.calls),
            failed: read(&self.usage.failed),
            denied: read(&self.usage.denied),
            prompt_tokens: read(&self.usage.prompt_tokens),
            completion_tokens: read(&self.usage.completion_tokens),
            last_call: last_call.clone(),
        }
    }

    pub fn request(&self, dialect: &'static str, status: u16) {
        self.requests
            .get_or_create(&RequestLabels { dialect, status })
            .inc();
        self.usage.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub fn rounds(&self, rounds: u64) {
        self.rounds.inc_by(rounds);
        self.usage.rounds.fetch_add(rounds, Ordering::Relaxed);
    }

    /// `tool` is a name of the manifest, `outcome` `ok` or a result code.
    pub fn tool_call(&self, tool: &str, outcome: &str, kind: CallKind, at: String) {
        let labels = ToolLabels {
            tool: tool.to_string(),
            outcome: outcome.to_string(),
        };
        self.tools.get_or_create(&labels).inc();
        match kind {
            CallKind::Succeeded => {}
            CallKind::Failed => {
                self.usage.failed.fetch_add(1, Ordering::Relaxed);
            }
            CallKind::Denied => {
                self.usage.denied.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        self.usage.calls.fetch_add(1, Ordering::Relaxed);
        let mut last = self
            .usage
            .last_call
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(at);
    }

    pub fn model_call(&self, provider: &str, outcome: &'static str) {
        let labels = ModelLabels {
            provider: provider.to_string(),
            outcome,
        };
        self.models.get_or_create(&labels).inc();
    }

    pub fn tokens(&self, prompt: u64, completion: u64) {
        let count = |kind, tokens| {
            self.tokens
                .get_or_create(&TokenLabels { kind })
                .inc_by(tokens);
        };
        count("prompt", prompt);
        count("completion", completion);
        self.usage
            .prompt_tokens
            .fetch_add(prompt, Ordering::Relaxed);
        self.usage
            .completion_tokens
            .fetch_add(completion, Ordering::Relaxed);
    }

    /// `code` comes from a closed enum.
    pub fn intervention(&self, code: &str) {
        let labels = InterventionLabels {
            code: code.to_string(),
        };
        self.interventions.get_or_create(&labels).inc();
    }

    pub fn overhead(&self, duration: Duration) {
        self.overhead.observe(duration.as_secs_f64());
    }

    pub fn unrecorded(&self) {
        self.unrecorded.inc();
    }
}
