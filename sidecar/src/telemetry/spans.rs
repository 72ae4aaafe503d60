//! Converts a request's steps to OpenTelemetry spans. Pure except for the spans' random ids.
//!
//! Names and attributes follow the GenAI semantic conventions; attributes that these do not define
//! begin with `toolcrib.`. Every value is a compiled name, a number, a word of a closed list, or a
//! tool's display line, which is scrubbed and short.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use toolcrib_dialect::Dialect;

use super::context::{TraceContext, random};
use super::otlp::{number, text};
use super::{Step, StepKind};

/// The span of the whole request.
#[derive(Clone, Debug)]
pub struct Root {
    pub agent: String,
    pub agent_id: String,
    pub namespace: String,
    pub request_id: String,
    /// `None`: a tool was called without a model.
    pub dialect: Option<Dialect>,
    /// The `provider/model` that answered.
    pub model: Option<String>,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub rounds: usize,
    pub interventions: Vec<String>,
    /// The status sent to the runner.
    pub http_status: u16,
    /// The error code sent to the runner.
    pub error: Option<String>,
    pub took: Duration,
}

/// Makes the spans, the request's first. Empty without randomness for their ids.
pub fn spans(context: &TraceContext, began: SystemTime, root: &Root, steps: &[Step]) -> Vec<Span> {
    let Some(id) = random::<8>() else {
        return Vec::new();
    };
    let mut spans = vec![invoke_agent(context, id, began, root)];
    spans.extend(steps.iter().filter_map(|step| {
        let blank = Span {
            trace_id: context.trace_id.to_vec(),
            span_id: random::<8>()?.to_vec(),
            parent_span_id: id.to_vec(),
            trace_state: context.state.clone(),
            ..Span::default()
        };
        Some(match &step.what {
            StepKind::Chat { .. } => chat(blank, step, root.dialect?),
            StepKind::Tool { .. } => execute_tool(blank, step),
        })
    }));
    spans
}

fn invoke_agent(context: &TraceContext, id: [u8; 8], began: SystemTime, root: &Root) -> Span {
    let (name, mut attributes) = match root.dialect {
        Some(dialect) => (
            format!("invoke_agent {}", root.agent),
            vec![
                text("gen_ai.operation.name", "invoke_agent"),
                text("gen_ai.provider.name", provider_name(dialect)),
            ],
        ),
        None => (
            "tools/call".to_string(),
            vec![text("mcp.method.name", "tools/call")],
        ),
    };
    attributes.extend([
        text("gen_ai.agent.name", &root.agent),
        text("gen_ai.agent.id", &root.agent_id),
        number("gen_ai.usage.input_tokens", root.prompt_tokens),
        number("gen_ai.usage.output_tokens", root.completion_tokens),
        number("http.response.status_code", u64::from(root.http_status)),
        text("toolcrib.namespace", &root.namespace),
        text("toolcrib.request_id", &root.request_id),
        number("toolcrib.rounds", root.rounds as u64),
    ]);
    if let Some(model) = &root.model {
        attributes.push(text("gen_ai.request.model", model));
    }
    if !root.interventions.is_empty() {
        attributes.push(text(
            "toolcrib.interventions",
            &root.interventions.join(","),
        ));
    }
    let span = Span {
        trace_id: context.trace_id.to_vec(),
        span_id: id.to_vec(),
        parent_span_id: context.parent.map(Vec::from).unwrap_or_default(),
        trace_state: context.state.clone(),
        name,
        kind: SpanKind::Server.into(),
        attributes,
        ..Span::default()
    };
    timed(span, began, root.took, root.error.as_deref())
}

fn chat(span: Span, step: &Step, dialect: Dialect) -> Span {
    let StepKind::Chat {
        provider,
        model,
        usage,
    } = &step.what
    else {
        return span;
    };
    let mut attributes = vec![
        text("gen_ai.operation.name", "chat"),
        text("gen_ai.provider.name", provider_name(dialect)),
        text("gen_ai.request.model", model),
        text("toolcrib.provider", provider),
    ];
    if let Some(usage) = usage {
        attributes.push(number("gen_ai.usage.input_tokens", usage.prompt_tokens));
        attributes.push(number(
            "gen_ai.usage.output_tokens",
            usage.completion_tokens,
        ));
    }
    let span = Span {
        name: format!("chat {model}"),
        kind: SpanKind::Client.into(),
        attributes,
        ..span
    };
    timed(span, step.began, step.took, step.error.as_deref())
}

fn execute_tool(span: Span, step: &Step) -> Span {
    let StepKind::Tool {
        name,
        service,
        transport,
        round,
        display,
    } = &step.what
    else {
        return span;
    };
    let mut attributes = vec![
        text("gen_ai.operation.name", "execute_tool"),
        text("gen_ai.tool.name", name),
        // `extension`: executed on the agent's side, not by the client.
        text("gen_ai.tool.type", "extension"),
        text("toolcrib.service", service),
        text("toolcrib.transport", transport.name()),
        number("toolcrib.round", u64::from(*round)),
    ];
    if let Some(display) = display {
        attributes.push(text("toolcrib.display", display.as_str()));
    }
    let span = Span {
        name: format!("execute_tool {name}"),
        kind: SpanKind::Internal.into(),
        attributes,
        ..span
    };
    timed(span, step.began, step.took, step.error.as_deref())
}

fn timed(mut span: Span, began: SystemTime, took: Duration, error: Option<&str>) -> Span {
    span.start_time_unix_nano = nanos(began);
    span.end_time_unix_nano = nanos(began + took);
    if let Some(error) = error {
        span.attributes.push(text("error.type", error));
        span.status = Some(Status {
            message: String::new(),
            code: StatusCode::Error.into(),
        });
    }
    span
}

/// The wire format stands for the provider; its own name is in `toolcrib.provider`.
pub(super) fn provider_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses => "openai",
        Dialect::AnthropicMessages => "anthropic",
    }
}

pub fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
