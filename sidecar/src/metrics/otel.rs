//! The client metrics of OpenTelemetry's semantic conventions for GenAI and MCP, beside ours: their names,
//! attributes and bucket bounds, in Prometheus' form.
//!
//! Not promised: the conventions are in development, and these follow them. Attributes that a model, a
//! runner, a provider or a service writes are not here: a model that no object names is `_OTHER`, and an
//! error is a word of a closed list. Series exist once they have a value.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Histograms;
use super::table::{Kind, Label, Row, Values};

/// Stands for a model that no object names, and for an error that has no word.
pub const OTHER: &str = "_OTHER";
const CHAT: &str = "chat";

const TOKEN_BUCKETS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// In seconds.
const CHAT_BUCKETS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
/// In seconds.
const MCP_BUCKETS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

const PROVIDER_NAMES: &[&str] = &["openai", "anthropic"];
/// The ends of a model call that are errors. A success has an empty label.
const CHAT_ERRORS: &[&str] = &[
    "http_3xx",
    "http_4xx",
    "http_5xx",
    "no_usable_key",
    "unreachable",
    "timeout",
    "too_large",
    "malformed",
    "interrupted",
    "canceled",
    OTHER,
];

const fn label(name: &'static str, values: Values) -> Label {
    Label { name, values }
}

/// The labels of [`ServingModel`].
const OPERATION_NAME: Label = label("gen_ai_operation_name", Values::Closed(&[CHAT]));
const PROVIDER_NAME: Label = label("gen_ai_provider_name", Values::Closed(PROVIDER_NAMES));
const REQUEST_MODEL: Label = label("gen_ai_request_model", Values::Compiled);
const PROVIDER: Label = label("toolcrib_provider", Values::Compiled);

pub const TOKEN_USAGE: Row = Row {
    prefix: None,
    name: "gen_ai_client_token_usage",
    kind: Kind::Histogram,
    labels: &[
        OPERATION_NAME,
        PROVIDER_NAME,
        REQUEST_MODEL,
        PROVIDER,
        label("gen_ai_token_type", Values::Closed(&["input", "output"])),
    ],
    help: "Tokens of a model call, as the provider reported them",
};
pub const OPERATION_SECONDS: Row = Row {
    prefix: None,
    name: "gen_ai_client_operation_duration_seconds",
    kind: Kind::Histogram,
    labels: &[
        OPERATION_NAME,
        PROVIDER_NAME,
        REQUEST_MODEL,
        PROVIDER,
        label("error_type", Values::Closed(CHAT_ERRORS)),
    ],
    help: "Duration of a model call with its failovers, to the last byte of the reply",
};
pub const MCP_SECONDS: Row = Row {
    prefix: None,
    name: "mcp_client_operation_duration_seconds",
    kind: Kind::Histogram,
    labels: &[
        label("mcp_method_name", Values::Closed(&["tools/call"])),
        label("gen_ai_operation_name", Values::Closed(&["execute_tool"])),
        label("gen_ai_tool_name", Values::Compiled),
        label("network_transport", Values::Closed(&["tcp"])),
        label(
            "error_type",
            Values::Open(&["tool_error", "mcp_error", "timeout"]),
        ),
    ],
    help: "Duration of a call of an MCP server, with the credential and session that it needed first",
};
pub const ROWS: [Row; 3] = [TOKEN_USAGE, OPERATION_SECONDS, MCP_SECONDS];

/// The provider and the model of a call.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ServingModel {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: &'static str,
    gen_ai_request_model: String,
    toolcrib_provider: String,
}

impl ServingModel {
    /// `format` is the provider's by the conventions; `provider` and `model` are names of objects, or
    /// [`OTHER`].
    pub fn chat(format: &'static str, provider: String, model: String) -> Self {
        Self {
            gen_ai_operation_name: CHAT,
            gen_ai_provider_name: format,
            gen_ai_request_model: model,
            toolcrib_provider: provider,
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TokenLabels {
    #[prometheus(flatten)]
    model: ServingModel,
    gen_ai_token_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    #[prometheus(flatten)]
    model: ServingModel,
    error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct McpLabels {
    mcp_method_name: &'static str,
    gen_ai_operation_name: &'static str,
    gen_ai_tool_name: String,
    network_transport: &'static str,
    error_type: String,
}

#[derive(Debug)]
pub(super) struct OtelMetrics {
    tokens: Histograms<TokenLabels>,
    operations: Histograms<OperationLabels>,
    mcp: Histograms<McpLabels>,
}

impl Default for OtelMetrics {
    fn default() -> Self {
        Self {
            tokens: Family::new_with_constructor(|| Histogram::new(TOKEN_BUCKETS)),
            operations: Family::new_with_constructor(|| Histogram::new(CHAT_BUCKETS)),
            mcp: Family::new_with_constructor(|| Histogram::new(MCP_BUCKETS)),
        }
    }
}

impl OtelMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        TOKEN_USAGE.register(to, self.tokens.clone());
        OPERATION_SECONDS.register(to, self.operations.clone());
        MCP_SECONDS.register(to, self.mcp.clone());
    }

    pub(super) fn tokens(&self, model: &ServingModel, input: u64, output: u64) {
        let mut labels = TokenLabels {
            model: model.clone(),
            gen_ai_token_type: "",
        };
        for (kind, tokens) in [("input", input), ("output", output)] {
            // A provider that reports nothing has not used nothing.
            if tokens > 0 {
                labels.gen_ai_token_type = kind;
                let series = self.tokens.get_or_create(&labels);
                series.observe(tokens as f64);
            }
        }
    }

    pub(super) fn operation(&self, model: ServingModel, error: &'static str, took: Duration) {
        let labels = OperationLabels {
            model,
            error_type: error,
        };
        let series = self.operations.get_or_create(&labels);
        series.observe(took.as_secs_f64());
    }

    /// `error`: a word as in the label `outcome` of our own count of calls.
    pub(super) fn mcp_call(&self, tool: &str, error: Option<String>, took: Duration) {
        let labels = McpLabels {
            mcp_method_name: "tools/call",
            gen_ai_operation_name: "execute_tool",
            gen_ai_tool_name: tool.to_string(),
            network_transport: "tcp",
            error_type: error.unwrap_or_default(),
        };
        let series = self.mcp.get_or_create(&labels);
        series.observe(took.as_secs_f64());
    }
}
