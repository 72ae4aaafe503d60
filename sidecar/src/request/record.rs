//! The end of a request: its line in the record, its counters, and one line in the log.

use std::borrow::Cow;
use std::time::Duration;

use toolcrib_bounds::chain;
use toolcrib_dialect::Dialect;
use toolcrib_mediation::{
    CallId, ConnectionFailure, RecordStatus, ResultCode, RunnerError, TraceCall, TraceRound,
    TraceUsage, TurnRecord,
};
use toolcrib_record::{Line, ModelCallLine, TurnLine};

use crate::app::App;
use crate::history::TurnLines;
use crate::history::line::{Bodies, body, escaped, scrubbed};
use crate::metrics::usage::CallKind;
use crate::outbound::model::{Candidate, Operation};
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
    pub interventions: &'a [&'static str],
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
            interventions: &self.interventions,
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
    pub record: TurnRecord,
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
    let who = caller.who();
    let line = Line::ModelCall(ModelCallLine {
        request_id: who.request_id.into(),
        agent_id: who.agent_id.into(),
        namespace: Some(who.namespace.into()),
        pod: who.pod.into(),
        pod_uid: who.pod_uid.map(Into::into),
        timestamp: jiff::Timestamp::now().to_string().into(),
        dialect: request.dialect.name().into(),
        operation: request.operation.word(),
        model: prepared.first().map(|it| Candidate::reference(it).into()),
        token: caller.runner.token_id.as_str().into(),
        chain: None,
        after: None,
    });
    let line = scrubbed(&line, &app.current.scrubber());
    app.history.model_call(line).map_err(|error| {
        tracing::error!(
            request_id = caller.request_id,
            error = chain(&error),
            "record not written, model call refused"
        );
        unrecordable(&error)
    })
}

/// Writes the record of a request and counts it. A record that cannot be written is counted and
/// logged: every call with a side effect has its intent line already.
pub fn finish(app: &App, request: RequestSummary<'_>, mut end: RequestEnd<'_>) {
    let duration = request.caller.started.elapsed();
    let codes = request.interventions.iter().map(ToString::to_string);
    end.record.interventions.splice(0..0, codes);
    for TraceRound {
        round, tool_calls, ..
    } in &mut end.record.tool_trace
    {
        for call in tool_calls {
            let id = CallId {
                round: *round,
                index: call.index,
            };
            let request_id = &request.caller.request_id;
            call.call_id = id.in_request(request_id);
            let first = call.first_attempt;
            let first = first.map(|(round, index)| CallId { round, index });
            call.idempotency_key = first.map(|first| first.in_request(request_id));
        }
    }
    let lines = lines(app, request, &end, duration);
    if let Err(error) = app.history.turn(lines) {
        tracing::error!(
            request_id = request.caller.request_id,
            error = chain(&error),
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
    end: &'a RequestEnd<'_>,
    duration: Duration,
) -> TurnLines<'a> {
    let who = request.caller.who();
    let model = end.served_by.map(|(model, _)| model).or(request.model);
    let line = Line::Turn(Box::new(TurnLine {
        request_id: who.request_id.into(),
        agent_id: who.agent_id.into(),
        namespace: Some(who.namespace.into()),
        pod: who.pod.into(),
        pod_uid: who.pod_uid.map(Into::into),
        path: who.path.word(),
        timestamp: jiff::Timestamp::now().to_string().into(),
        dialect: request.dialect_name().into(),
        operation: request.operation.word(),
        model: model.map(Into::into),
        key: end.served_by.map(|(_, key)| key.into()),
        token: request.caller.runner.token_id.as_str().into(),
        http_status: end.http_status,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        connection: end.connection.map(Into::into),
        status: end.record.status,
        error: end.record.error.map(Into::into),
        usage: end.record.usage,
        tool_trace: Cow::Borrowed(&end.record.tool_trace),
        interventions: Cow::Borrowed(&end.record.interventions),
        undeclared_calls: Cow::Borrowed(&end.record.undeclared_calls),
        policies: Cow::Borrowed(&request.caller.agent.policies),
        chain: None,
        seq: None,
    }));
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
        without: scrubbed(&line, &scrubber),
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
    let record = &end.record;
    app.metrics
        .request(request.dialect_name(), end.http_status, duration);
    let calls = record.tool_trace.iter().flat_map(|round| &round.tool_calls);
    let mut calls = calls.peekable();
    if calls.peek().is_some() {
        let at = jiff::Timestamp::now().to_string();
        calls.for_each(|call| count_call(app, call, &at));
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
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
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
            )
        };
    }
    // A success has its line on stdout already, in the record.
    match record.error {
        None => log!(debug),
        Some(_) => log!(info),
    }
}

/// Notes a call whose request has ended at this time, and counts denials, whether the call reached its
/// dispatch or not. Other dispatched calls are counted when they end.
fn count_call(app: &App, call: &TraceCall, at: &str) {
    let code = call.error_code();
    app.history.recent().add(call, code.as_deref(), at);
    let denial = |code: &String| ResultCode::DENIALS.iter().any(|it| it.to_string() == *code);
    if !call.executed && code.as_ref().is_some_and(denial) {
        app.metrics.usage.call(CallKind::Denied, at.to_owned());
    }
    // A name that the model made up must not become a time series.
    if !call.compiled {
        return;
    }
    app.metrics.tool_call(&call.name, code.as_deref());
    if call.would_deny.is_some() && call.executed {
        app.metrics.would_deny(&call.name);
    }
    if let Some(service) = call.service.as_deref().filter(|_| call.executed) {
        let latency = Duration::from_millis(call.latency_ms);
        app.metrics.tool_answered(service, latency);
    }
}
