//! Passes a request of an agent without managed tools through: only the model's name is changed,
//! and the answer is streamed as it comes. Requests that count tokens pass too, with any tools:
//! no model answers them, so they have no rounds.
//!
//! A copy of the answer is read for its usage and for calls that the runner did not declare
//! ([`super::answer_reader`]), and kept for the record up to a bound. Neither delays a byte.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use jiff::Timestamp;
use tokio::sync::mpsc;
use toolcrib_mediation::{
    ConnectionFailure, ModelFailure, RecordStatus, RunnerCode, RunnerError, TraceUsage, TurnRecord,
};

use crate::app::App;
use crate::app::budgets::ModelCallDenial;
use crate::history::{Bodies, Body};
use crate::outbound::model::{
    AwaitedProvider, ModelError, ModelStream, ModelTimeouts, ProviderRequest, headers, next_chunk,
};
use crate::request::prepare::{ModelRequest, Preparation};
use crate::request::record::{self, HUNG_UP, RequestEnd};
use crate::request::response::{Head, ResponsePart};
use crate::request::room::BodyRoom;
use crate::request::stop::{AccessWatch, StopReason, stopped};
use crate::turn::answer_reader::{AnswerReader, AnswerSummary, undeclared};
use crate::turn::drive::{DELIVERY, failure};
use crate::turn::spending::Spending;

/// The code of an answer with calls that the runner did not declare: the model remembers a tool
/// that was withdrawn, or invents one.
const UNDECLARED: &str = "undeclared_calls";

/// A request that is passed through: the calls to send.
#[derive(Debug)]
pub struct Passage {
    pub streamed: bool,
    /// The tools that the runner declares; `None`: too many to compare.
    pub declared: Option<Vec<String>>,
    pub prepared: Preparation,
    /// Room for the bodies that are sent.
    pub room: BodyRoom,
}

/// The result of a passage.
struct PassageEnd {
    http_status: u16,
    error: Option<&'static str>,
    served_by: Option<(String, String)>,
    answer: AnswerReader,
    waited: Duration,
    connection: Option<ConnectionFailure>,
}

/// The time by which the whole request must be over.
#[derive(Clone, Copy)]
struct Bounds {
    deadline: Instant,
    total_ms: u64,
}

impl Bounds {
    fn late(self) -> RunnerError {
        RunnerError::total_timeout(self.total_ms)
    }
}

pub async fn pass(
    app: Arc<App>,
    request: Arc<ModelRequest>,
    passage: Box<Passage>,
    to_runner: mpsc::Sender<ResponsePart>,
) {
    let prepared = &passage.prepared;
    let mut access = AccessWatch::new(&app.current);
    let total_ms = prepared.version.catalog.policy().total_timeout_ms;
    let bounds = Bounds {
        deadline: request.caller.started + Duration::from_millis(total_ms),
        total_ms,
    };
    let awaited = AwaitedProvider::default();
    let first_byte_request = FirstByteRequest {
        app: &app,
        request: &request,
        passage: &passage,
        bounds,
        to_runner: &to_runner,
    };
    if let Err(denial) = admit(&app, &request, prepared) {
        let (passed, last) = denied(&request, denial);
        record_end(&app, &request, &passage, passed, Spending::default());
        return deliver(&request, last, &to_runner).await;
    }
    let mut spending = match request.operation.is_answer() {
        true => Spending::begin(&app, &request, prepared),
        false => Spending::default(),
    };
    let (answered, waited) = first_byte_request.send(&awaited, &mut access).await;
    match &answered {
        Ok(Ok(stream)) => spending.served_by(&stream.candidate),
        Ok(Err(error)) => std::mem::take(&mut spending).failed(error),
        Err(_) => {}
    }
    let (passed, last) = match answered {
        Ok(Ok(stream)) => {
            let mut relay = Relay {
                app: &app,
                request: &request,
                bounds,
                to_runner: &to_runner,
                waited,
                connection: None,
            };
            relay.run(stream, &mut access).await
        }
        Ok(Err(error)) => unanswered(&app, &request, error, waited),
        Err(StopReason::Ended(error)) => own_error(&request, &error, None, waited),
        Err(StopReason::Late) => {
            let (passed, last) = own_error(&request, &bounds.late(), None, waited);
            let connection = awaited.timed_out();
            (
                PassageEnd {
                    connection,
                    ..passed
                },
                last,
            )
        }
        Err(StopReason::RunnerGone | StopReason::Cancelled) => {
            let passed = PassageEnd {
                http_status: HUNG_UP,
                error: Some("canceled"),
                served_by: None,
                answer: AnswerReader::new(request.dialect, false),
                waited,
                connection: None,
            };
            (passed, None)
        }
    };
    record_end(&app, &request, &passage, passed, spending);
    deliver(&request, last, &to_runner).await;
}

/// Sends the last part of an answer.
async fn deliver(
    request: &ModelRequest,
    last: Option<ResponsePart>,
    to_runner: &mpsc::Sender<ResponsePart>,
) {
    if let Some(last) = last
        && !matches!(
            tokio::time::timeout(DELIVERY, to_runner.send(last)).await,
            Ok(Ok(()))
        )
    {
        tracing::debug!(
            request_id = request.caller.request_id,
            "answer not delivered: the runner disconnected or read too slowly"
        );
    }
}

/// Checks the agent's budgets of tokens.
fn admit(app: &App, request: &ModelRequest, prepared: &Preparation) -> Result<(), ModelCallDenial> {
    if !request.operation.is_answer() {
        return Ok(());
    }
    let budgets = &prepared.version.agent.budgets;
    app.budgets.admit_model_call(budgets, Timestamp::now())
}

/// Answers for a request that a budget refuses.
fn denied(request: &ModelRequest, denial: ModelCallDenial) -> (PassageEnd, Option<ResponsePart>) {
    let wait = match denial {
        ModelCallDenial::Exhausted(exhaustion) => exhaustion.short_wait(Timestamp::now()),
        ModelCallDenial::Unwritten => None,
    };
    own_error(request, &denial.into(), wait, Duration::ZERO)
}

/// A request that no provider has answered yet.
struct FirstByteRequest<'a> {
    app: &'a App,
    request: &'a ModelRequest,
    passage: &'a Passage,
    bounds: Bounds,
    to_runner: &'a mpsc::Sender<ResponsePart>,
}

impl FirstByteRequest<'_> {
    /// Sends the request to one candidate after the other, until one answers with a first byte. Also
    /// returns the time that this took.
    async fn send(
        &self,
        awaited: &AwaitedProvider,
        access: &mut AccessWatch,
    ) -> (
        Result<Result<ModelStream, ModelError>, StopReason>,
        Duration,
    ) {
        let Self { app, request, .. } = *self;
        let (prepared, deadline) = (&self.passage.prepared, self.bounds.deadline);
        let limit = app.settings.limits.first_byte;
        let timeouts = if self.passage.streamed {
            ModelTimeouts::of_stream(limit, deadline)
        } else {
            ModelTimeouts::of_whole(limit, deadline, prepared.candidates.len())
        };
        let provider_request = ProviderRequest {
            operation: request.operation,
            dialect: request.dialect,
            candidates: &prepared.candidates,
            providers: prepared.providers(),
            headers: &request.headers,
            timeouts,
            awaited,
        };
        // Counts as overhead, unlike the wait that follows.
        let recorded = record::model_call(app, request, prepared);
        let waiting = Instant::now();
        let span = request
            .operation
            .is_answer()
            .then(|| request.caller.trace.chat(prepared.first()));
        let answered = match recorded {
            Err(error) => Err(StopReason::Ended(error)),
            Ok(()) => tokio::select! {
                biased;
                stopped = stopped(
                    access,
                    &app.current,
                    &request.caller,
                    Some(deadline),
                    self.to_runner.closed(),
                    pending(),
                ) => Err(stopped),
                answered = app.models.stream(&app.outbound, provider_request) => Ok(answered),
            },
        };
        let waited = waiting.elapsed();
        match (&answered, span) {
            (Ok(answered), Some(span)) => {
                span.replied(answered.as_ref().map(|stream| &stream.candidate));
            }
            (_, span) => drop(span),
        }
        (answered, waited)
    }
}

/// Writes the record of a request that has passed.
fn record_end(
    app: &App,
    request: &ModelRequest,
    passage: &Passage,
    passed: PassageEnd,
    mut spending: Spending,
) {
    spending.received(passed.answer.received());
    let AnswerSummary {
        usage,
        called,
        kept,
        reply,
        has_failed,
    } = passed.answer.finish();
    match passed.error {
        None => spending.answered(Some(usage)),
        Some("canceled") => spending.canceled(Some(usage)),
        Some(_) => spending.interrupted(Some(usage)),
    }
    let undeclared_calls = match &passage.declared {
        Some(declared) => undeclared(called, declared),
        None => Vec::new(),
    };
    request.caller.trace.used(usage);
    let of_provider = has_failed.then(|| RunnerCode::UpstreamError.name());
    let error = passed.error.or(of_provider);
    let turn = TurnRecord {
        status: match error {
            None => RecordStatus::Ok,
            Some(_) => RecordStatus::Error,
        },
        error,
        usage: TraceUsage {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            total_rounds: request.operation.is_answer().then_some(1),
        },
        tool_trace: Vec::new(),
        interventions: match undeclared_calls.is_empty() {
            true => Vec::new(),
            false => vec![UNDECLARED.to_owned()],
        },
        undeclared_calls,
    };
    let served_by = passed.served_by.as_ref();
    let end = RequestEnd {
        record: turn,
        http_status: passed.http_status,
        served_by: served_by.map(|(model, key)| (model.as_str(), key.as_str())),
        bodies: Bodies {
            request: request.body.recorded(),
            response: match &reply {
                Some(reply) => Body::Json(reply.as_text()),
                None => Body::Kept(&kept),
            },
        },
        connection: passed.connection.as_ref(),
        waited: passed.waited,
    };
    record::finish(app, request.summary(), end);
}

struct Relay<'a> {
    app: &'a App,
    request: &'a ModelRequest,
    bounds: Bounds,
    to_runner: &'a mpsc::Sender<ResponsePart>,
    waited: Duration,
    /// The reason why the provider interrupted its answer.
    connection: Option<ConnectionFailure>,
}

impl Relay<'_> {
    /// Passes chunks. Returns the result, and the part to send after the record is written.
    async fn run(
        &mut self,
        mut stream: ModelStream,
        access: &mut AccessWatch,
    ) -> (PassageEnd, Option<ResponsePart>) {
        let streamed = is_event_stream(&stream.headers);
        let mut answer = AnswerReader::new(self.request.dialect, streamed);
        let head = Head {
            status: stream.status,
            headers: headers::downstream(&stream.headers),
        };
        let mut error = None;
        let mut next = Some(std::mem::take(&mut stream.first)).filter(|first| !first.is_empty());
        let mut last = None;
        if self.to_runner.send(ResponsePart::Head(head)).await.is_err() {
            error = Some("canceled");
        }
        while error.is_none() {
            if let Some(chunk) = next.take() {
                answer.read(&chunk);
                // Bounds how long a runner that does not read can hold its request.
                let sent = self.to_runner.send(ResponsePart::Chunk(chunk));
                if !matches!(tokio::time::timeout(DELIVERY, sent).await, Ok(Ok(()))) {
                    error = Some("canceled");
                    break;
                }
            }
            let mut refused = None;
            match self.chunk(&mut stream, access).await {
                Ok(Some(chunk)) => next = Some(chunk),
                Ok(None) => break,
                Err(StopReason::RunnerGone | StopReason::Cancelled) => error = Some("canceled"),
                Err(StopReason::Ended(refusal)) => refused = Some(refusal),
                Err(StopReason::Late) => refused = Some(self.bounds.late()),
            }
            if let Some(refusal) = refused {
                error = Some(refusal.code.name());
                last = Some(if streamed {
                    ResponsePart::Chunk(refusal.events(self.request.dialect).into())
                } else {
                    ResponsePart::Abort
                });
            }
        }
        let passed = PassageEnd {
            http_status: stream.status,
            error,
            served_by: Some((stream.candidate.reference(), stream.key)),
            answer,
            waited: self.waited,
            connection: self.connection.take(),
        };
        (passed, last)
    }

    async fn chunk(
        &mut self,
        stream: &mut ModelStream,
        access: &mut AccessWatch,
    ) -> Result<Option<Bytes>, StopReason> {
        let waiting = Instant::now();
        let silence = self.app.settings.limits.silence;
        let chunk = tokio::select! {
            biased;
            stopped = stopped(
                access,
                &self.app.current,
                &self.request.caller,
                Some(self.bounds.deadline),
                self.to_runner.closed(),
                pending(),
            ) => Err(stopped),
            chunk = next_chunk(&mut stream.rest, silence) => chunk.map_err(|broken| {
                self.connection = broken.logged(&stream.candidate.provider);
                let message = broken.to_string();
                StopReason::Ended(RunnerError::new(RunnerCode::UpstreamUnreachable, message))
            }),
        };
        self.waited += waiting.elapsed();
        chunk
    }
}

/// Answers for a call that got no first byte from any candidate.
fn unanswered(
    app: &App,
    request: &ModelRequest,
    error: ModelError,
    waited: Duration,
) -> (PassageEnd, Option<ResponsePart>) {
    let wait = error.retry_after();
    let connection = error.connection().cloned();
    let (passed, last) = match failure(app, error) {
        ModelFailure::Http {
            status,
            content_type,
            body,
            retry_after,
        } => {
            let mut head = Head::new(status, &content_type);
            if let Some(wait) = retry_after {
                head = head.with(RETRY_AFTER, &wait);
            }
            let code = RunnerCode::UpstreamError.name();
            last_word(request, status, code, head, body, waited)
        }
        ModelFailure::Refused(error) => own_error(request, &error, wait, waited),
        ModelFailure::Unreachable { message } => {
            let error = RunnerError::new(RunnerCode::UpstreamUnreachable, message);
            own_error(request, &error, None, waited)
        }
        ModelFailure::Malformed(error) => own_error(request, &error.into(), None, waited),
    };
    let passed = PassageEnd {
        connection,
        ..passed
    };
    (passed, last)
}

fn own_error(
    request: &ModelRequest,
    error: &RunnerError,
    retry_after: Option<Duration>,
    waited: Duration,
) -> (PassageEnd, Option<ResponsePart>) {
    let head = Head::new(error.status(), "application/json").retry(Some(error.code), retry_after);
    let body = error.body(request.dialect);
    last_word(
        request,
        error.status(),
        error.code.name(),
        head,
        body,
        waited,
    )
}

fn last_word(
    request: &ModelRequest,
    http_status: u16,
    code: &'static str,
    head: Head,
    body: Vec<u8>,
    waited: Duration,
) -> (PassageEnd, Option<ResponsePart>) {
    let mut answer = AnswerReader::new(request.dialect, false);
    answer.read(&body);
    let passed = PassageEnd {
        http_status,
        error: Some(code),
        served_by: None,
        answer,
        waited,
        connection: None,
    };
    (passed, Some(ResponsePart::Whole(head, body.into())))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("text/event-stream"))
}
