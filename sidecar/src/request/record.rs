//! The end of a request: its line in the record, its counters, and one line in the log.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use toolcrib_dialect::Dialect;
use toolcrib_manifest::RawJson;
use toolcrib_mediation::{
    ConnectionFailure, RecordStatus, ResultCode, RunnerError, TraceCall, TraceUsage, TurnRecord,
};

use crate::app::App;
use crate::history::line::{Bodies, TurnLine, body, escaped};
use crate::history::{ModelCallLine, TurnLines};
use crate::metrics::usage::CallKind;
use crate::model::{Candidate, Operation};
use crate::request::admission::unrecordable;
use crate::request::caller::Caller;
use crate::request::prepare::{ModelRequest, Preparation};
use crate::telemetry::spans::Root;

/// The facts about a request that the record and the counters use.
#[derive(Clone, Copy, Debug)]
pub struct RequestSummary<'a> {
    pub caller: &'a Caller,
    /// `None`: the request was MCP.
    pub dialect: Option<Dialect>,
    pub operation: Operation,
    /// As the runner named it.
    pub model: Option<&'a str>,
    pub tools_count: usize,
    pub noticed: &'a [&'static str],
    pub waited_for_feeds: Duration,
}

impl ModelRequest {
    pub fn summary(&self) -> RequestSummary<'_> {
        RequestSummary {
            caller: &self.caller,
            dialect: Some(self.dialect),
            operation: self.operation,
            model: self.model.as_deref(),
            tools_count: self.tools_count,
            noticed: &self.noticed,
            waited_for_feeds: self.waited_for_feeds,
        }
    }
}

impl RequestSummary<'_> {
    fn dialect_name(&self) -> &'static str {
        self.dialect.map_or(MCP, Dialect::name)
    }
}

/// The name used instead of a dialect when no model is asked.
pub const MCP: &str = "mcp";

/// The result of a request.
#[derive(Debug)]
pub struct RequestEnd<'a> {
    pub record: &'a TurnRecord,
    /// The status sent to the runner; [`HUNG_UP`] if it had disconnected.
    pub http_status: u16,
    /// The `provider/model` that answered, and the id of its key.
    pub served_by: Option<(&'a str, &'a str)>,
    pub bodies: Bodies<'a>,
    /// The reason why no provider could be reached.
    pub connection: Option<&'a ConnectionFailure>,
    /// Time that was spent waiting for models and tools.
    pub waited: Duration,
}

/// The status in the record when the runner disconnected before it got one.
pub const HUNG_UP: u16 = 499;

/// The record of a request that was refused before a model was asked.
pub fn refused(error: &RunnerError) -> TurnRecord {
    TurnRecord {
        status: RecordStatus::Error,
        error: Some(error.code.name()),
        usage: TraceUsage::default(),
        tool_trace: Vec::new(),
        interventions: Vec::new(),
        undeclared_calls: Vec::new(),
    }
}

/// Writes the line that precedes a model call. On an error no model may be asked.
pub fn model_call(
    app: &App,
    request: &ModelRequest,
    prepared: &Preparation,
) -> Result<(), RunnerError> {
    let caller = &request.caller;
    let line = ModelCallLine::new(
        caller.who(),
        jiff::Timestamp::now().to_string(),
        request.dialect,
        request.operation,
        prepared.first().map(Candidate::reference),
        &caller.runner.token_id,
    );
    let text = serde_json::to_vec(&line).expect("texts always serialize");
    let scrubber = app.current.scrubber();
    let line = scrubber.scrubbed_json(escaped(text.into()));
    app.history.model_call(&line).map_err(|error| {
        tracing::error!(
            request_id = caller.request_id,
            error = error.to_string(),
            "record not written, model call refused"
        );
        unrecordable()
    })
}

/// Writes the record of a request and counts it. A record that cannot be written is counted and
/// logged: every call with a side effect has its intent line already.
pub fn finish(app: &App, request: RequestSummary<'_>, end: RequestEnd<'_>) {
    let duration = request.caller.started.elapsed();
    let mut noticed = None;
    if !request.noticed.is_empty() {
        let mut record = end.record.clone();
        let codes = request.noticed.iter().map(ToString::to_string);
        record.interventions.splice(0..0, codes);
        noticed = Some(record);
    }
    let end = RequestEnd {
        record: noticed.as_ref().unwrap_or(end.record),
        ..end
    };
    let lines = lines(app, request, &end, duration);
    if let Err(error) = app.history.turn(lines) {
        tracing::error!(
            request_id = request.caller.request_id,
            error = error.to_string(),
            "record line of the request not written"
        );
    }
    count(app, request, &end, duration);
    app.telemetry
        .export(&request.caller.trace, |took| root(request, &end, took));
}

fn root(request: RequestSummary<'_>, end: &RequestEnd<'_>, took: Duration) -> Root {
    Root {
        agent: request.caller.agent.agent.clone(),
        agent_id: request.caller.claw_id.clone(),
        namespace: request.caller.agent.namespace.clone(),
        request_id: request.caller.request_id.clone(),
        dialect: request.dialect,
        model: end.served_by.map(|(model, _)| model.to_string()),
        prompt_tokens: end.record.usage.prompt_tokens,
        completion_tokens: end.record.usage.completion_tokens,
        rounds: end.record.tool_trace.len(),
        interventions: end.record.interventions.clone(),
        http_status: end.http_status,
        error: end.record.error.map(str::to_string),
        took,
    }
}

fn lines<'a>(
    app: &App,
    request: RequestSummary<'_>,
    end: &RequestEnd<'a>,
    duration: Duration,
) -> TurnLines<'a> {
    let line = TurnLine {
        kind: "turn",
        request_id: &request.caller.request_id,
        agent_id: &request.caller.claw_id,
        pod: &request.caller.pod,
        path: request.caller.via,
        timestamp: jiff::Timestamp::now().to_string(),
        dialect: request.dialect_name(),
        operation: request.operation,
        model: end.served_by.map(|(model, _)| model).or(request.model),
        key: end.served_by.map(|(_, key)| key),
        token: &request.caller.runner.token_id,
        http_status: end.http_status,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        connection: end.connection,
        turn: end.record,
    };
    let text = serde_json::to_vec(&line).expect("texts, numbers and raw JSON always serialize");
    // Each part is scrubbed once, before the parts are joined.
    let scrubber = app.current.scrubber();
    let mut bodies = Vec::with_capacity(4);
    for (key, said) in [
        (r#","request":"#, end.bodies.request),
        (r#","response":"#, end.bodies.response),
    ] {
        if let Some(said) = body(said, &scrubber) {
            bodies.push(Cow::Borrowed(key.as_bytes()));
            bodies.push(scrubber.scrubbed_json(escaped(bytes(said))));
        }
    }
    TurnLines {
        without: scrubber.scrubbed_json(escaped(text.into())).into_owned(),
        bodies,
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }
}

fn count(app: &App, request: RequestSummary<'_>, end: &RequestEnd<'_>, duration: Duration) {
    let record = end.record;
    app.metrics
        .request(request.dialect_name(), end.http_status, duration);
    for call in record.tool_trace.iter().flat_map(|round| &round.tool_calls) {
        count_call(app, call);
    }
    if request.caller.via.is_mediated() {
        app.metrics.rounds(record.tool_trace.len() as u64);
    }
    app.metrics
        .tokens(record.usage.prompt_tokens, record.usage.completion_tokens);
    for code in &record.interventions {
        app.metrics.intervention(code);
    }
    let overhead = duration.saturating_sub(end.waited + request.waited_for_feeds);
    app.metrics.overhead(overhead);
    tracing::info!(
        request_id = request.caller.request_id,
        agent_id = request.caller.claw_id,
        dialect = request.dialect_name(),
        model = request.model,
        status = end.http_status,
        error = record.error,
        manifest_present = app.current.now().version().is_ok(),
        tools_count = request.tools_count,
        rounds = record.tool_trace.len(),
        interventions = record.interventions.join(","),
        duration_ms = duration.as_millis() as u64,
        overhead_us = overhead.as_micros() as u64,
        "request"
    );
}

/// Counts denials, whether the call reached its dispatch or not. Other dispatched calls are
/// counted when they end.
fn count_call(app: &App, call: &TraceCall) {
    let code = error_code(&call.result);
    let denial = |code: &String| ResultCode::DENIALS.iter().any(|it| it.to_string() == *code);
    if !call.executed && code.as_ref().is_some_and(denial) {
        let at = jiff::Timestamp::now().to_string();
        app.metrics.usage.call(CallKind::Denied, at);
    }
    // A name that the model made up must not become a time series.
    if !call.compiled {
        return;
    }
    app.metrics.tool_call(&call.name, code.as_deref());
    if let Some(service) = call.service.as_deref().filter(|_| call.executed) {
        let latency = Duration::from_millis(call.latency_ms);
        app.metrics.tool_answered(service, latency);
    }
}

/// The error code in a result as the model read it; `None`: the call succeeded.
fn error_code(result: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Result {
        error: Option<Error>,
    }
    #[derive(Deserialize)]
    struct Error {
        code: String,
    }
    let result: Result = serde_json::from_str(result.get()).ok()?;
    result.error.map(|error| error.code)
}
