//! The drive loop: executes the effects of the turn's state machine, and feeds it their events.
//!
//! Nothing is decided here. Pending work is dropped, and so cancelled, when the turn has its
//! answer; every call that was sent to a service is on record by then.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use http::header::{CACHE_CONTROL, RETRY_AFTER};
use jiff::Timestamp;
use tokio::sync::mpsc::{self, error::SendError};
use tokio::time::Instant as TokioInstant;
use toolcrib_dialect::{Reply, SseEvent, keepalive};
use toolcrib_mediation::{
    ConnectionFailure, Effect, Event, ManagedCall, ModelCall, ModelFailure, Purpose, RunnerCode,
    RunnerError, Turn, TurnResult,
};

use crate::app::App;
use crate::app::budgets::ModelCallDenial;
use crate::config::EffectiveConfig;
use crate::history::{Bodies, Body, RecordBody};
use crate::outbound::model::{
    AwaitedProvider, Candidate, EventStream, ModelError, ModelReply, ModelStream, ModelTimeouts,
    ProviderRequest, ReplyBody, StreamError, headers,
};
use crate::request::prepare::{ModelRequest, prepare};
use crate::request::record::{self, HUNG_UP, RequestEnd};
use crate::request::response::{Head, ResponsePart, SHOULD_RETRY};
use crate::request::room::BodyRoom;
use crate::request::stop::{AccessWatch, StopReason, stopped};
use crate::turn::dispatch::{DispatchResult, cut_off, dispatch};
use crate::turn::spending::Spending;
use crate::turn::waits::ApprovalWaits;

/// Longest time that an answer waits for a runner that does not read it.
pub const DELIVERY: Duration = Duration::from_secs(60);

/// A finished piece of work: a model call, a read of a stream, or a tool call.
enum WorkEvent {
    Model(Box<Result<ModelReply, ModelError>>),
    Opened(Box<Result<StreamedReply, ModelError>>),
    Read(Box<EventStream>, Result<Option<Vec<SseEvent>>, StreamError>),
    Refused(RunnerError),
    Tool(Event),
}

/// The reason why the loop wakes up.
enum Wakeup {
    By(Event),
    ByWork(WorkEvent),
    /// An event that does not concern the turn.
    ByNothing,
}

/// A reply whose first bytes have arrived.
struct StreamedReply {
    served_by: ServedBy,
    opened: ReplyBody,
}

/// The candidate that answered: `provider/model`, its provider, and its key's id.
struct ServedBy {
    candidate: Candidate,
    key: String,
}

pub struct Drive {
    app: Arc<App>,
    request: Arc<ModelRequest>,
    turn: Box<Turn>,
    to_runner: mpsc::Sender<ResponsePart>,
    head_sent: bool,
    /// Parts that the connection has not taken yet. The model's stream is not read while there are
    /// any, so the outbox never holds more than one read gives.
    outbox: VecDeque<ResponsePart>,
    /// The model's stream while no read is running.
    stream: Option<Box<EventStream>>,
    /// The bytes of a stream that has begun, for the record.
    sent: RecordBody,
    /// Room for the bodies that are sent to models.
    room: BodyRoom,
    served_by: Option<(String, String)>,
    /// Number of dispatched calls without an outcome.
    calling: usize,
    /// The calls that wait for approvals.
    waits: Arc<ApprovalWaits>,
    retry_after: Option<Duration>,
    /// The model call that runs.
    spending: Spending,
    awaited: Arc<AwaitedProvider>,
    /// The reason why no provider could be reached, or why a provider interrupted its answer.
    connection: Option<ConnectionFailure>,
    waited: Duration,
}

impl Drive {
    /// On the heap: this is large, and tasks are moved.
    pub fn new(
        app: Arc<App>,
        request: Arc<ModelRequest>,
        turn: Box<Turn>,
        to_runner: mpsc::Sender<ResponsePart>,
    ) -> Box<Self> {
        let started = request.caller.started;
        let waits = ApprovalWaits::of_turn(started, turn.request().stream());
        Box::new(Self {
            room: BodyRoom::new(app.bodies.clone()),
            waits: Arc::new(waits),
            app,
            request,
            turn,
            to_runner,
            head_sent: false,
            outbox: VecDeque::new(),
            stream: None,
            sent: RecordBody::default(),
            served_by: None,
            calling: 0,
            retry_after: None,
            spending: Spending::default(),
            awaited: Arc::default(),
            connection: None,
            waited: Duration::ZERO,
        })
    }

    /// Runs the turn from its first effects to the answer and its record.
    pub async fn run(mut self: Box<Self>, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        let mut running: FuturesUnordered<BoxFuture<'static, WorkEvent>> = FuturesUnordered::new();
        let mut access = AccessWatch::new(&self.app.current);
        let mut waits = self.waits.subscribe();
        let mut silent_since = TokioInstant::now();
        loop {
            while let Some(effect) = effects.pop_front() {
                match effect {
                    Effect::CallModel(call) => running.push(self.call_model(call)),
                    Effect::CallTools(calls) => {
                        self.calling += calls.len();
                        running.extend(calls.into_iter().map(|call| self.call_tool(call)));
                    }
                    Effect::Emit(bytes) => {
                        silent_since = TokioInstant::now();
                        self.emit(bytes.into());
                    }
                    Effect::Answer(answer) => {
                        drop(running);
                        return self.finish(answer).await;
                    }
                }
            }
            if self.outbox.is_empty()
                && let Some(stream) = self.stream.take()
            {
                running.push(self.read(stream));
            }
            // The clock of the total timeout stands still while a call waits for its approval.
            self.turn.stood_still(self.waits.stood());
            let deadline = self.request.caller.started + self.turn.deadline();
            let deadline = Some(deadline).filter(|_| !self.waits.is_waiting());
            let waiting = Instant::now();
            let keepalive = silent_since + self.app.settings.keepalive;
            let woke = tokio::select! {
                biased;
                why = stopped(
                    &mut access,
                    &self.app.current,
                    &self.request.caller,
                    deadline,
                    self.to_runner.closed(),
                    pending(),
                ) => Wakeup::By(match why {
                    StopReason::RunnerGone | StopReason::Cancelled => Event::RunnerGone,
                    StopReason::Ended(error) => Event::Ended(error),
                    StopReason::Late => {
                        self.connection = self.awaited.timed_out();
                        Event::Deadline
                    }
                }),
                Ok(room) = self.to_runner.reserve(), if !self.outbox.is_empty() => {
                    if let Some(next) = self.outbox.pop_front() {
                        room.send(next);
                    }
                    Wakeup::ByNothing
                }
                Some(done) = running.next() => Wakeup::ByWork(done),
                () = waits.next() => Wakeup::ByNothing,
                // A runner that has not read the earlier parts needs no keepalive.
                () = tokio::time::sleep_until(keepalive), if self.outbox.is_empty() => {
                    // Also if the turn sends nothing: the next keepalive is due later.
                    silent_since = TokioInstant::now();
                    Wakeup::By(Event::KeepaliveDue)
                }
            };
            self.waited += waiting.elapsed();
            let event = match woke {
                Wakeup::By(event) => Some(event),
                Wakeup::ByWork(done) => self.event(done),
                Wakeup::ByNothing => None,
            };
            if let Some(event) = event {
                self.turn.stood_still(self.waits.stood());
                if let Event::RunnerGone | Event::Ended(_) | Event::Deadline = event {
                    let unsent = self.waits.calls();
                    self.calling -= unsent.len();
                    self.turn.unsent(&unsent);
                }
                effects.extend(self.turn.step(self.request.caller.started.elapsed(), event));
            }
        }
    }

    fn call_model(&mut self, call: ModelCall) -> BoxFuture<'static, WorkEvent> {
        let now = self.app.current.now();
        let admitted = self.admit(&now, call.purpose);
        let (app, request) = (self.app.clone(), self.request.clone());
        let awaited = self.awaited.clone();
        let (turn, model) = (&self.turn, request.model.as_deref());
        let room = &mut self.room;
        let prepared = admitted.and_then(|()| {
            let body = |model: &str| turn.request_body(model);
            prepare(&now, request.dialect, model, room, body)
        });
        let prepared = match &self.served_by {
            Some((reference, _)) => prepared.map(|it| it.stay_with(reference)),
            None => prepared,
        };
        let prepared = prepared.and_then(|prepared| match call.number {
            1 => record::model_call(&app, &request, &prepared).map(|()| prepared),
            _ => Ok(prepared),
        });
        let deadline = request.caller.started + self.turn.deadline();
        let ready = prepared.as_ref().ok();
        let begun = ready.map(|prepared| Spending::begin(&app, &request, prepared));
        self.spending = begun.unwrap_or_default();
        async move {
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return WorkEvent::Refused(error),
            };
            let headers = match call.number {
                1 => Cow::Borrowed(&request.headers),
                _ => Cow::Owned(headers::of_a_later_round(&request.headers)),
            };
            let first_byte = app.settings.limits.first_byte;
            let timeouts = if call.streamed {
                ModelTimeouts::of_stream(first_byte, deadline)
            } else {
                ModelTimeouts::of_whole(first_byte, deadline, prepared.candidates.len())
            };
            let provider_request = ProviderRequest {
                operation: request.operation,
                dialect: request.dialect,
                candidates: &prepared.candidates,
                providers: prepared.providers(),
                headers: &headers,
                timeouts,
                awaited: &awaited,
            };
            let span = request.caller.trace.chat(prepared.first());
            if call.streamed {
                let opened = match app.models.stream(&app.outbound, provider_request).await {
                    Ok(stream) => opened_by(stream).await,
                    Err(error) => Err(error),
                };
                span.replied(opened.as_ref().map(|it| &it.served_by.candidate));
                WorkEvent::Opened(Box::new(opened))
            } else {
                let result = app.models.whole(&app.outbound, provider_request).await;
                span.replied(result.as_ref().map(|reply| &reply.candidate));
                WorkEvent::Model(Box::new(result))
            }
        }
        .boxed()
    }

    /// Checks the agent's budgets of tokens. The first request is refused if one is used up; a later
    /// one becomes the last of its turn.
    fn admit(&mut self, now: &EffectiveConfig, purpose: Purpose) -> Result<(), RunnerError> {
        let version = now.version()?;
        let at = Timestamp::now();
        let admitted = self
            .app
            .budgets
            .admit_model_call(&version.agent.budgets, at);
        match (admitted, purpose) {
            (Ok(()), _) => Ok(()),
            (Err(ModelCallDenial::Exhausted(exhaustion)), Purpose::First) => {
                self.retry_after = exhaustion.short_wait(at);
                Err(ModelCallDenial::Exhausted(exhaustion).into())
            }
            (
                Err(denial @ ModelCallDenial::Exhausted(_)),
                Purpose::Continue | Purpose::Finalize,
            ) => {
                self.turn.finish_with_next_reply(denial.into());
                Ok(())
            }
            (Err(denial @ ModelCallDenial::Unwritten), _) => Err(denial.into()),
        }
    }

    fn read(&self, mut stream: Box<EventStream>) -> BoxFuture<'static, WorkEvent> {
        let silence = self.app.settings.limits.silence;
        async move {
            let read = stream.next(silence).await;
            WorkEvent::Read(stream, read)
        }
        .boxed()
    }

    fn call_tool(&self, call: ManagedCall) -> BoxFuture<'static, WorkEvent> {
        let (app, request) = (self.app.clone(), self.request.clone());
        let timeout = self.turn.tool_timeout(request.caller.started.elapsed());
        let waits = self.waits.clone();
        async move {
            let DispatchResult {
                outcome,
                display,
                allowed_by,
                latency,
                max_result_bytes,
            } = dispatch(&app, &request.caller, &call, timeout, &waits).await;
            WorkEvent::Tool(Event::ToolFinished {
                call: call.id(),
                outcome,
                display,
                allowed_by,
                latency,
                max_result_bytes,
            })
        }
        .boxed()
    }

    /// The turn's event for finished work; `None`: it does not concern the turn.
    fn event(&mut self, done: WorkEvent) -> Option<Event> {
        Some(match done {
            WorkEvent::Tool(event) => {
                self.calling -= 1;
                event
            }
            WorkEvent::Refused(error) => Event::ModelFailed(ModelFailure::Refused(error)),
            WorkEvent::Model(result) => match *result {
                Ok(reply) => {
                    let (candidate, key) = (reply.candidate, reply.key);
                    self.replied(ServedBy { candidate, key }, reply.body)
                }
                Err(error) => self.failed(error),
            },
            WorkEvent::Opened(result) => match *result {
                Ok(StreamedReply { served_by, opened }) => match opened {
                    ReplyBody::Whole(body) => self.replied(served_by, body),
                    ReplyBody::Events(stream) => {
                        self.served(&served_by);
                        self.stream = Some(stream);
                        return None;
                    }
                },
                Err(error) => self.failed(error),
            },
            WorkEvent::Read(stream, read) => {
                if let Err(broken) = &read {
                    let model = self.served_by.as_ref().map(|(model, _)| model.as_str());
                    self.connection = broken.logged(provider_of(model.unwrap_or_default()));
                }
                match &read {
                    Ok(Some(events)) => {
                        let bytes = events.iter().map(|event| event.data.len()).sum();
                        self.spending.received(bytes);
                        self.stream = Some(stream);
                    }
                    // Only at the end: usage is searched for in all events.
                    Ok(None) | Err(_) => {
                        let used = self.turn.streamed_usage();
                        if let Some(used) = used {
                            self.request.caller.trace.used(used);
                        }
                        let spending = std::mem::take(&mut self.spending);
                        match &read {
                            Ok(_) => spending.answered(used),
                            Err(_) => spending.interrupted(used),
                        }
                    }
                }
                read_event(read)
            }
        })
    }

    fn served(&mut self, by: &ServedBy) {
        self.spending.served_by(&by.candidate);
        self.served_by = Some((by.candidate.reference(), by.key.clone()));
    }

    fn replied(&mut self, by: ServedBy, body: Vec<u8>) -> Event {
        self.served(&by);
        self.spending.received(body.len());
        let spending = std::mem::take(&mut self.spending);
        match Reply::decode(self.request.dialect, body) {
            Ok(reply) => {
                self.request.caller.trace.used(reply.usage());
                spending.answered(Some(reply.usage()));
                Event::Replied(reply)
            }
            Err(error) => {
                let provider = &by.candidate.provider;
                self.app.metrics.model_call(provider, "malformed", None);
                spending.malformed();
                tracing::warn!(
                    provider,
                    key = by.key,
                    error = error.to_string(),
                    "model reply not decoded"
                );
                Event::ModelFailed(ModelFailure::Malformed(error))
            }
        }
    }

    fn failed(&mut self, error: ModelError) -> Event {
        self.retry_after = error.retry_after().or(self.retry_after);
        self.connection = error.connection().cloned();
        std::mem::take(&mut self.spending).failed(&error);
        Event::ModelFailed(failure(&self.app, error))
    }

    fn emit(&mut self, bytes: Bytes) {
        if !std::mem::replace(&mut self.head_sent, true) {
            self.outbox.push_back(ResponsePart::Head(stream_head()));
        }
        if bytes != keepalive() {
            self.sent.push(&bytes);
        }
        self.outbox.push_back(ResponsePart::Chunk(bytes));
    }

    async fn finish(mut self: Box<Self>, answer: Box<TurnResult>) {
        // The calls that the end of the turn cut off.
        for _ in 0..self.calling {
            cut_off(&self.app);
        }
        // Does nothing unless a model call still runs.
        std::mem::take(&mut self.spending).canceled(self.turn.streamed_usage());
        if let Some(hidden) = answer.hidden {
            self.app.continuity.remember(hidden);
        }
        let response = answer.response.as_ref();
        let rest = response.map(|it| it.body.as_slice()).unwrap_or_default();
        // A streamed answer is whole in the record.
        let said = if self.sent.is_empty() {
            Body::Bytes(rest)
        } else {
            self.sent.push(rest);
            Body::Kept(&self.sent)
        };
        let end = RequestEnd {
            record: answer.record,
            http_status: match response {
                None => HUNG_UP,
                Some(_) if self.head_sent => 200,
                Some(response) => response.status,
            },
            served_by: self
                .served_by
                .as_ref()
                .map(|(model, key)| (model.as_str(), key.as_str())),
            bodies: Bodies {
                request: self.request.body.recorded(),
                response: said,
            },
            connection: self.connection.as_ref(),
            waited: self.waited,
        };
        // Before the answer: a runner that has the answer finds its record.
        record::finish(&self.app, self.request.summary(), end);
        let Some(response) = answer.response else {
            return;
        };
        let outgoing = if self.head_sent {
            ResponsePart::Chunk(response.body.into())
        } else {
            let mut head = Head::new(response.status, &response.content_type);
            if response.content_type.starts_with("text/event-stream") {
                head = head.with(CACHE_CONTROL, "no-cache");
            }
            head = match response.retry_after {
                _ if response.after_calls => head.with(SHOULD_RETRY, "false"),
                Some(wait) => head.with(RETRY_AFTER, &wait),
                None => head.retry(response.error, self.retry_after),
            };
            ResponsePart::Whole(head, response.body.into())
        };
        self.outbox.push_back(outgoing);
        let outbox = std::mem::take(&mut self.outbox);
        let delivered = async {
            for outgoing in outbox {
                self.to_runner.send(outgoing).await?;
            }
            Ok::<(), SendError<ResponsePart>>(())
        };
        if !matches!(tokio::time::timeout(DELIVERY, delivered).await, Ok(Ok(()))) {
            tracing::debug!(
                request_id = self.request.caller.request_id,
                "answer not delivered: the runner disconnected or read too slowly"
            );
        }
    }
}

/// The provider's name in `provider/model`.
fn provider_of(model: &str) -> &str {
    model
        .split_once('/')
        .map_or(model, |(provider, _)| provider)
}

fn read_event(read: Result<Option<Vec<SseEvent>>, StreamError>) -> Event {
    match read {
        Ok(Some(events)) => Event::Streamed(events),
        Ok(None) => Event::StreamEnded,
        Err(StreamError::Unreadable(error)) => Event::ModelFailed(ModelFailure::Malformed(error)),
        Err(broken @ (StreamError::Off(_) | StreamError::Silent(_))) => {
            let message = broken.to_string();
            Event::ModelFailed(ModelFailure::Unreachable { message })
        }
    }
}

async fn opened_by(stream: ModelStream) -> Result<StreamedReply, ModelError> {
    let served_by = ServedBy {
        candidate: stream.candidate.clone(),
        key: stream.key.clone(),
    };
    let opened = stream.open().await?;
    Ok(StreamedReply { served_by, opened })
}

pub fn stream_head() -> Head {
    Head::new(200, "text/event-stream").with(CACHE_CONTROL, "no-cache")
}

/// Turns an error of the model client into the failure that the turn knows.
pub fn failure(app: &App, error: ModelError) -> ModelFailure {
    let message = error.to_string();
    match error {
        ModelError::NoUsableKey(_) => {
            ModelFailure::Refused(RunnerError::new(RunnerCode::NoUsableKey, message))
        }
        ModelError::Http(failure) => {
            let text = |value: http::HeaderValue| value.to_str().ok().map(str::to_string);
            ModelFailure::Http {
                status: failure.status,
                content_type: failure
                    .content_type
                    .and_then(text)
                    .unwrap_or_else(|| "application/json".to_string()),
                body: app.current.scrubber().scrub(failure.body.to_vec()),
                retry_after: failure.retry_after.and_then(text),
            }
        }
        ModelError::TooLarge => {
            let what = format!("{message}: ask for less at once");
            ModelFailure::Refused(RunnerError::new(RunnerCode::UpstreamMalformed, what))
        }
        ModelError::Unreachable { .. } | ModelError::Timeout { .. } => {
            ModelFailure::Unreachable { message }
        }
    }
}
