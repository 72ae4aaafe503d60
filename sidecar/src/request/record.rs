//! What is left of a request: its line in the record, its share of the counters, and one
//! line in the log.

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
use crate::request::prepare::{Asked, Preparation};
use crate::telemetry::spans::Root;

/// A request, as far as its record and the counters speak of it.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    pub caller: &'a Caller,
    /// `None`: it was MCP.
    pub dialect: Option<Dialect>,
    pub operation: Operation,
    /// As the runner named it.
    pub model: Option<&'a str>,
    pub tools_count: usize,
    pub noticed: &'a [&'static str],
    pub waited_for_feeds: Duration,
}

impl Asked {
    pub fn recorded(&self) -> Recorded<'_> {
        Recorded {
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

impl Recorded<'_> {
    fn spoken(&self) -> &'static str {
        self.dialect.map_or(MCP, Dialect::name)
    }
}

/// What stands for a dialect where no model is asked.
pub const MCP: &str = "mcp";

/// How a request ended.
#[derive(Debug)]
pub struct Ended<'a> {
    pub record: &'a TurnRecord,
    /// Towards the runner; 499 where it had hung up.
    pub http_status: u16,
    /// `provider/model` that served, and its key's id.
    pub served_by: Option<(&'a str, &'a str)>,
    pub bodies: Bodies<'a>,
    /// Why no provider could be reached.
    pub connection: Option<&'a ConnectionFailure>,
    /// Time that was spent waiting for models and tools.
    pub waited: Duration,
}

/// The runner hung up; nobody sees the status, but a record wants one.
pub const HUNG_UP: u16 = 499;

/// A request that never got as far as a model.
pub fn refused(error: &RunnerError) -> TurnRecord {
    TurnRecord {
        status: RecordStatus::Error,
        error: Some(error.code.name()),
        usage: TraceUsage::default(),
        tool_trace: Vec::new(),
        interventions: Vec::new(),
    }
}

/// The line before a model is asked. Errors: nothing takes it, and no model may be asked.
pub fn model_call(app: &App, asked: &Asked, prepared: &Preparation) -> Result<(), RunnerError> {
    let caller = &asked.caller;
    let line = ModelCallLine::new(
        caller.who(),
        jiff::Timestamp::now().to_string(),
        asked.dialect,
        asked.operation,
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
            "a model is not asked, since its call cannot be recorded"
        );
        unrecordable()
    })
}

/// Writes and counts. A record that cannot be written is counted and logged: what had a
/// side effect has its intent line already.
pub fn finish(app: &App, asked: Recorded<'_>, ended: Ended<'_>) {
    let duration = asked.caller.started.elapsed();
    let mut noticed = None;
    if !asked.noticed.is_empty() {
        let mut record = ended.record.clone();
        let codes = asked.noticed.iter().map(ToString::to_string);
        record.interventions.splice(0..0, codes);
        noticed = Some(record);
    }
    let ended = Ended {
        record: noticed.as_ref().unwrap_or(ended.record),
        ..ended
    };
    let lines = lines(app, asked, &ended, duration);
    if let Err(error) = app.history.turn(lines) {
        tracing::error!(
            request_id = asked.caller.request_id,
            error = error.to_string(),
            "a request is not in the record"
        );
    }
    count(app, asked, &ended, duration);
    app.telemetry
        .export(&asked.caller.trace, |took| root(asked, &ended, took));
}

fn root(asked: Recorded<'_>, ended: &Ended<'_>, took: Duration) -> Root {
    Root {
        agent: asked.caller.agent.agent.clone(),
        agent_id: asked.caller.claw_id.clone(),
        namespace: asked.caller.agent.namespace.clone(),
        request_id: asked.caller.request_id.clone(),
        dialect: asked.dialect,
        model: ended.served_by.map(|(model, _)| model.to_string()),
        prompt_tokens: ended.record.usage.prompt_tokens,
        completion_tokens: ended.record.usage.completion_tokens,
        rounds: ended.record.tool_trace.len(),
        interventions: ended.record.interventions.clone(),
        http_status: ended.http_status,
        error: ended.record.error.map(str::to_string),
        took,
    }
}

fn lines<'a>(
    app: &App,
    asked: Recorded<'_>,
    ended: &Ended<'a>,
    duration: Duration,
) -> TurnLines<'a> {
    let line = TurnLine {
        kind: "turn",
        request_id: &asked.caller.request_id,
        agent_id: &asked.caller.claw_id,
        pod: &asked.caller.pod,
        path: asked.caller.via,
        timestamp: jiff::Timestamp::now().to_string(),
        dialect: asked.spoken(),
        operation: asked.operation,
        model: ended.served_by.map(|(model, _)| model).or(asked.model),
        key: ended.served_by.map(|(_, key)| key),
        token: &asked.caller.runner.token_id,
        http_status: ended.http_status,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        connection: ended.connection,
        turn: ended.record,
    };
    let text = serde_json::to_vec(&line).expect("texts, numbers and raw JSON always serialize");
    // Put together from parts that are looked through once each.
    let scrubber = app.current.scrubber();
    let mut bodies = Vec::with_capacity(4);
    for (key, said) in [
        (r#","request":"#, ended.bodies.request),
        (r#","response":"#, ended.bodies.response),
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

fn count(app: &App, asked: Recorded<'_>, ended: &Ended<'_>, duration: Duration) {
    let record = ended.record;
    app.metrics
        .request(asked.spoken(), ended.http_status, duration);
    for call in record.tool_trace.iter().flat_map(|round| &round.tool_calls) {
        count_call(app, call);
    }
    if asked.caller.via.is_mediated() {
        app.metrics.rounds(record.tool_trace.len() as u64);
    }
    app.metrics
        .tokens(record.usage.prompt_tokens, record.usage.completion_tokens);
    for code in &record.interventions {
        app.metrics.intervention(code);
    }
    let overhead = duration.saturating_sub(ended.waited + asked.waited_for_feeds);
    app.metrics.overhead(overhead);
    tracing::info!(
        request_id = asked.caller.request_id,
        agent_id = asked.caller.claw_id,
        dialect = asked.spoken(),
        model = asked.model,
        status = ended.http_status,
        error = record.error,
        manifest_present = app.current.now().version().is_ok(),
        tools_count = asked.tools_count,
        rounds = record.tool_trace.len(),
        interventions = record.interventions.join(","),
        duration_ms = duration.as_millis() as u64,
        overhead_us = overhead.as_micros() as u64,
        "request"
    );
}

/// Denials are counted here, whether the call came as far as its dispatch or not; what was
/// dispatched otherwise is counted when it ends.
fn count_call(app: &App, call: &TraceCall) {
    let code = error_code(&call.result);
    let denial = |code: &String| ResultCode::DENIALS.iter().any(|it| it.to_string() == *code);
    if !call.executed && code.as_ref().is_some_and(denial) {
        let at = jiff::Timestamp::now().to_string();
        app.metrics.usage.call(CallKind::Denied, at);
    }
    // A name that only the model knows is no time series.
    if !call.compiled {
        return;
    }
    app.metrics.tool_call(&call.name, code.as_deref());
    if let Some(service) = call.service.as_deref().filter(|_| call.executed) {
        let latency = Duration::from_millis(call.latency_ms);
        app.metrics.tool_answered(service, latency);
    }
}

/// Of a result as the model read it; `None`: it is a good one.
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
