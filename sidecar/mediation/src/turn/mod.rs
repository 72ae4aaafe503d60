//! The turn: one request of the runner with all its hidden rounds.
//!
//! [`Turn::step`] takes an event and returns the effects to execute. A turn waits for one thing at
//! a time: the model, or one group of calls. An event that the turn does not wait for changes
//! nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use toolcrib_dialect::{
    DialectError, Edits, Live, MAX_REPLY, Reply, Request, SseEvent, StreamEdit, ToolChoice,
    ToolChoiceEdit, Usage, keepalive,
};
use toolcrib_manifest::{Policy, Streaming};

use crate::access::partition::{Partition, partition};
use crate::access::presented::{NameOwner, PresentedTools};
use crate::calls::call::{CallId, ManagedCall};
use crate::calls::call_state::CallFinish;
use crate::calls::claw_id::ClawId;
use crate::calls::outcome::ToolOutcome;
use crate::calls::trace::{TraceRound, TurnRecord};
use crate::codes::{RunnerCode, RunnerError};
use crate::text::display::Display;
use crate::tools::rules::AllowedBy;

pub(crate) mod continuity;
pub(crate) mod feeds;
mod finish;
mod repetition;
mod reply_key;
mod round;

use continuity::{HiddenRounds, HistoryEdits};
use repetition::Repetitions;
use round::Round;

/// Limits the calls of one reply. No model needs more, and each answered call adds a result to the
/// next request.
const MAX_CALLS: usize = 512;

/// The inputs of a turn; none of them changes while the turn runs.
#[derive(Debug)]
pub struct TurnConfig {
    pub request: Arc<Request>,
    pub presented: PresentedTools,
    pub policy: Policy,
    /// Whether a stream that the runner asked for is passed on while the model writes it.
    pub streaming: Streaming,
    pub claw_id: ClawId,
    /// Hidden rounds of earlier turns ([`crate::Continuity::history_edits`]).
    pub history: HistoryEdits,
    /// The tools document, if the agent gets it with each request.
    pub prompt: Option<String>,
    /// The feeds at the beginning of the turn.
    pub context: Option<String>,
}

/// An event of a turn. Times count from the beginning of the turn.
#[derive(Debug)]
pub enum Event {
    /// The model answered; this ends an [`Effect::CallModel`].
    Replied(Reply),
    /// Part of a streamed answer.
    Streamed(Vec<SseEvent>),
    /// The end of a streamed answer, which also ends an [`Effect::CallModel`].
    StreamEnded,
    /// No candidate gave a usable answer; this also ends an [`Effect::CallModel`].
    ModelFailed(ModelFailure),
    /// One call of an [`Effect::CallTools`] has its outcome.
    ToolFinished {
        call: CallId,
        outcome: ToolOutcome,
        /// A line for people, if the tool gave one.
        display: Option<Display>,
        /// The rule by which the dispatch was permitted, if the tool has rules.
        allowed_by: Option<AllowedBy>,
        latency: Duration,
        /// The limit of result bytes that was in force at its dispatch.
        max_result_bytes: u64,
    },
    /// Nothing was written to the runner for the keepalive interval.
    KeepaliveDue,
    /// [`Turn::deadline`] has passed.
    Deadline,
    /// The runner hung up.
    RunnerGone,
    /// Access has ended (token removed, files vanished).
    Ended(RunnerError),
}

/// The reason for a missing reply of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFailure {
    /// No HTTP answer from any candidate.
    Unreachable { message: String },
    /// The last candidate's HTTP error; `body` is scrubbed.
    Http {
        status: u16,
        content_type: String,
        body: Vec<u8>,
        retry_after: Option<String>,
    },
    /// The provider was not called: no key, model withdrawn, overloaded.
    Refused(RunnerError),
    /// The answer is not valid in the dialect.
    Malformed(DialectError),
}

/// An action for the caller. Effects of one step are executed in order.
#[derive(Debug)]
pub enum Effect {
    /// Call the model with [`Turn::request_body`], then send one `Replied` or `ModelFailed`. If the
    /// call is `streamed`, send one `Streamed` for each part, then one `StreamEnded` or
    /// `ModelFailed`.
    CallModel(ModelCall),
    /// Run these calls at once (at most 8; several only if all are `parallel_safe`), then send one
    /// `ToolFinished` for each.
    CallTools(Vec<ManagedCall>),
    /// Write these bytes to the runner at once; the first ones make the answer a stream.
    Emit(Vec<u8>),
    /// The end. No effect follows; the caller cancels whatever still runs.
    Answer(Box<TurnResult>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// Counts from 1.
    pub number: u32,
    pub purpose: Purpose,
    pub streamed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The runner's own request: an upstream error passes through unchanged.
    First,
    /// The request after a hidden round.
    Continue,
    /// The request after the last round: text only.
    Finalize,
}

/// The response for the runner, and the rounds to keep for its next request.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnResult {
    /// `None` if the runner has disconnected.
    pub response: Option<Response>,
    pub record: TurnRecord,
    /// For [`crate::Continuity::remember`].
    pub hidden: Option<HiddenRounds>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Used only if no bytes were emitted before.
    pub status: u16,
    pub content_type: String,
    pub retry_after: Option<String>,
    /// The whole body, or the rest of the stream.
    pub body: Vec<u8>,
    /// The code, if this is an error of the mediator.
    pub error: Option<RunnerCode>,
    /// An error of a turn that called services. Repeating the request would repeat the calls, so
    /// clients are asked not to retry.
    pub after_calls: bool,
}

/// A running turn.
#[derive(Debug)]
pub struct Turn {
    request: Arc<Request>,
    presented: PresentedTools,
    policy: Policy,
    claw_id: ClawId,
    edits: Edits,
    state: State,
    rounds: u32,
    model_calls: u32,
    usage: Usage,
    /// `usage` already includes the reply that is being streamed.
    usage_is_counted: bool,
    repetitions: Repetitions,
    /// Failed validations, by canonical name.
    failures: HashMap<String, u32>,
    /// Canonical items of the rounds that continuity keeps.
    hidden: Vec<String>,
    trace: Vec<TraceRound>,
    interventions: Vec<String>,
    /// The error of a turn that must end with its next reply, if the model calls a tool there.
    last_chance: Option<RunnerError>,
    stream_began: bool,
    /// Time of the event that is being handled.
    now: Duration,
    /// Time for which calls have waited for approvals, which the deadline does not count.
    stood: Duration,
    /// The runner's stream, unless it is built from the last reply alone.
    live: Option<Live>,
}

#[derive(Debug)]
enum State {
    AwaitingModel(Purpose),
    Executing(Box<Round>),
    Done,
}

/// Returns the edits of the first request to a model, without a change of streaming. A request to
/// count tokens gets the same edits. Errors: the request cannot be mediated.
pub fn first_edits(
    request: &Request,
    presented: &PresentedTools,
    history: HistoryEdits,
    prompt: Option<String>,
    context: Option<String>,
) -> Result<Edits, RunnerError> {
    if request.choices() != 1 {
        return Err(RunnerError::new(
            RunnerCode::NNotSupported,
            "one choice per request is possible while tools are managed",
        ));
    }
    let mut edits = Edits::new("");
    edits.normalize_legacy = request.legacy_functions();
    edits.tools = presented.declared(request.dialect());
    edits.choice_names = choice_names(request, presented)?;
    edits.inserted = history.inserted;
    edits.previous = history.previous;
    edits.prompt = prompt;
    edits.context = context;
    Ok(edits)
}

impl Turn {
    /// Begins a turn with tools to present. Errors: the request cannot be mediated; no model or
    /// tool has been called then.
    pub fn start(config: TurnConfig) -> Result<(Self, Vec<Effect>), RunnerError> {
        let TurnConfig {
            request,
            presented,
            policy,
            streaming,
            claw_id,
            history,
            prompt,
            context,
        } = config;
        let mut edits = first_edits(&request, &presented, history, prompt, context)?;
        let live = match (streaming, request.stream()) {
            (Streaming::Live, true) => Some(Live::new(&request, MAX_REPLY)),
            (Streaming::Live, false) | (Streaming::Buffered, _) => None,
        };
        edits.stream = match &live {
            Some(_) => StreamEdit::Stream,
            None => StreamEdit::Whole,
        };
        let mut turn = Self {
            request,
            presented,
            policy,
            claw_id,
            edits,
            state: State::Done,
            rounds: 0,
            model_calls: 0,
            usage: Usage::default(),
            usage_is_counted: false,
            repetitions: Repetitions::default(),
            failures: HashMap::new(),
            hidden: Vec::new(),
            trace: Vec::new(),
            interventions: Vec::new(),
            last_chance: None,
            stream_began: false,
            now: Duration::ZERO,
            stood: Duration::ZERO,
            live,
        };
        let first = turn.call_model(Purpose::First);
        Ok((turn, vec![first]))
    }

    /// Returns the body for the model call that is due, with this model's name. Errors: a fault of
    /// the runner's body, found before the model is called.
    pub fn request_body(&self, model: &str) -> Result<Vec<u8>, RunnerError> {
        let mut edits = self.edits.clone();
        edits.model = model.to_string();
        Ok(self.request.encode(&edits)?)
    }

    /// Makes the model call that is due the last one of the turn, without tools. If the model calls
    /// one all the same, the turn ends with this error. Changes nothing before the first round: the
    /// caller refuses the request then.
    pub fn finish_with_next_reply(&mut self, error: RunnerError) {
        if let State::AwaitingModel(purpose @ Purpose::Continue) = &mut self.state {
            *purpose = Purpose::Finalize;
            self.edits.tool_choice = ToolChoiceEdit::None;
            self.last_chance = Some(error);
        }
    }

    /// Time of [`Event::Deadline`], counted from the beginning of the turn.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.policy.total_timeout_ms.max(1)).saturating_add(self.stood)
    }

    /// Moves the deadline by the time for which calls have waited for approvals in all.
    pub fn stood_still(&mut self, stood: Duration) {
        self.stood = stood;
    }

    /// Notes, before an event that ends the turn, that these dispatched calls still wait for approvals.
    pub fn unsent(&mut self, calls: &[CallId]) {
        if let State::Executing(round) = &mut self.state {
            round.unsent(calls);
        }
    }

    /// Returns the timeout of a call that begins now.
    pub fn tool_timeout(&self, now: Duration) -> Duration {
        Duration::from_millis(self.policy.timeout_per_tool_ms.max(1))
            .min(self.deadline().saturating_sub(now))
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Number of managed rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Usage that the reply being streamed has reported so far.
    pub fn streamed_usage(&self) -> Option<Usage> {
        let usage = self.live.as_ref().map(Live::usage);
        usage.filter(|usage| *usage != Usage::default())
    }

    /// Takes an event at `now` and returns the effects to execute.
    pub fn step(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        if matches!(self.state, State::Done) {
            return Vec::new();
        }
        self.now = now;
        let effects = match event {
            Event::Replied(reply) => self.replied_whole(reply),
            Event::Streamed(events) => return self.streamed(events),
            Event::StreamEnded => self.stream_ended(),
            Event::ModelFailed(failure) => self.model_failed(failure),
            Event::ToolFinished {
                call,
                outcome,
                display,
                allowed_by,
                latency,
                max_result_bytes,
            } => {
                let finish = CallFinish {
                    outcome: &outcome,
                    display,
                    allowed_by,
                    latency,
                };
                self.tool_finished(call, finish, max_result_bytes)
            }
            Event::KeepaliveDue => return self.keepalive(),
            Event::Deadline => self.fail(self.timed_out()),
            Event::RunnerGone => self.abandon(),
            Event::Ended(error) => self.fail(error),
        };
        let asks = |effect: &Effect| matches!(effect, Effect::CallModel(_));
        if self.is_late() && effects.iter().any(asks) {
            return self.fail(self.timed_out());
        }
        effects
    }

    /// Returns true if the deadline has passed, so that nothing new begins.
    fn is_late(&self) -> bool {
        self.now >= self.deadline()
    }

    fn replied_whole(&mut self, reply: Reply) -> Vec<Effect> {
        let (State::AwaitingModel(_), Some(live)) = (&self.state, &mut self.live) else {
            return self.replied(reply);
        };
        let heard = live.push_whole(&self.request, &reply);
        self.emit_then(heard, |turn| turn.replied(reply))
    }

    fn streamed(&mut self, events: Vec<SseEvent>) -> Vec<Effect> {
        let (State::AwaitingModel(_), Some(live)) = (&self.state, &mut self.live) else {
            return Vec::new();
        };
        let heard = live.push(&self.request, events);
        self.emit_then(heard, |_| Vec::new())
    }

    fn stream_ended(&mut self) -> Vec<Effect> {
        let (State::AwaitingModel(_), Some(live)) = (&self.state, &self.live) else {
            return Vec::new();
        };
        match live.reply() {
            Ok(reply) => self.replied(reply),
            Err(error) => self.model_failed(ModelFailure::Malformed(error)),
        }
    }

    /// Emits the bytes that are due at once, and continues.
    fn emit_then(
        &mut self,
        frames: Result<String, DialectError>,
        then: impl FnOnce(&mut Self) -> Vec<Effect>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        match frames {
            Ok(frames) if frames.is_empty() => {}
            Ok(frames) => {
                self.stream_began = true;
                effects.push(Effect::Emit(frames.into_bytes()));
            }
            Err(error) => return self.fail(finish::broken(&error)),
        }
        effects.extend(then(self));
        effects
    }

    fn replied(&mut self, reply: Reply) -> Vec<Effect> {
        let State::AwaitingModel(purpose) = self.state else {
            return Vec::new();
        };
        self.usage += reply.usage();
        self.usage_is_counted = true;
        let reply = reply.identified(|| self.call_seed());
        let owned = round::owners(&reply, &self.presented);
        match (partition(owned), purpose) {
            (Partition::NoCalls, _) => self.answer(&reply),
            (_, Purpose::Finalize) => {
                let error = self.last_chance.take().unwrap_or_else(|| {
                    let what =
                        "the tool budget is exhausted and the model did not come to an answer";
                    RunnerError::new(RunnerCode::BudgetExhausted, what)
                });
                self.fail(error)
            }
            (Partition::RunnerOwned(calls), _)
                if calls.len() == 1 || !self.request.legacy_functions() =>
            {
                self.answer(&reply)
            }
            (_, Purpose::First | Purpose::Continue) if reply.calls().len() > MAX_CALLS => self
                .fail(RunnerError::new(
                    RunnerCode::UpstreamMalformed,
                    format!(
                        "the model's answer makes more than {MAX_CALLS} calls: ask for less at once"
                    ),
                )),
            (rest, Purpose::First | Purpose::Continue) => {
                self.rounds += 1;
                let round = self.begin_round(reply, rest);
                self.state = State::Executing(Box::new(round));
                self.advance()
            }
        }
    }

    /// Seed for ids of calls that came without one. It differs for each reply of a conversation,
    /// which grows from request to request, and is the same for a retried request.
    fn call_seed(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.model_calls.to_be_bytes());
        hash.update(self.request.as_text());
        hex::encode(&hash.finalize()[..12])
    }

    fn tool_finished(
        &mut self,
        call: CallId,
        finish: CallFinish<'_>,
        max_result_bytes: u64,
    ) -> Vec<Effect> {
        let State::Executing(round) = &mut self.state else {
            return Vec::new();
        };
        // A limit that was raised meanwhile applies from the next turn on.
        let max_bytes = self.policy.max_tool_result_bytes.min(max_result_bytes);
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let max_bytes = max_bytes.max(1);
        if !round.finished(call, finish, max_bytes, &mut self.repetitions) || round.running() {
            return Vec::new();
        }
        self.advance()
    }

    /// Starts the next group of the round, or ends the round.
    fn advance(&mut self) -> Vec<Effect> {
        let is_late = self.is_late();
        let State::Executing(round) = &mut self.state else {
            return Vec::new();
        };
        // Checked before a call counts as dispatched: otherwise the record would say that it may
        // have run.
        if is_late && round.waits() {
            return self.fail(self.timed_out());
        }
        let group = round.next_group(&mut self.repetitions, self.now);
        if !group.is_empty() {
            return vec![Effect::CallTools(group)];
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Executing(round) => self.end_round(*round),
            State::AwaitingModel(_) | State::Done => Vec::new(),
        }
    }

    fn end_round(&mut self, round: Round) -> Vec<Effect> {
        let results = round.results();
        let renamed = round
            .reply
            .items(&results, |name| self.presented.new_name(name));
        let canonical = round
            .reply
            .items(&results, |name| self.presented.canonical(name));
        self.trace.push(round.trace());
        self.interventions.extend(round.intervention());
        let (Ok(renamed), Ok(canonical)) = (renamed, canonical) else {
            return self.fail(RunnerError::new(
                RunnerCode::UpstreamMalformed,
                "the model's answer could not be continued: the mediator has no form for it",
            ));
        };
        self.edits.appended.extend(renamed);
        if let Some(container) = round.reply.container() {
            self.edits.container = Some(container);
        }
        // The next turn has a budget of its own, so the model must not read that no rounds are
        // left.
        if !round.exhausted {
            self.hidden.extend(canonical);
        }
        let closed = match &mut self.live {
            Some(live) => live.hide(&round.reply),
            None => Ok(String::new()),
        };
        self.emit_then(closed, |turn| turn.after_round(&round))
    }

    fn after_round(&mut self, round: &Round) -> Vec<Effect> {
        if round.ended_by_success() {
            return self.answer_empty(&round.reply);
        }
        if round.exhausted {
            self.edits.tool_choice = ToolChoiceEdit::None;
            return vec![self.call_model(Purpose::Finalize)];
        }
        if round.satisfied() && self.forces_managed() {
            self.edits.tool_choice = ToolChoiceEdit::Auto;
        }
        vec![self.call_model(Purpose::Continue)]
    }

    /// Returns true if `tool_choice` would make the model call a tool in every round.
    fn forces_managed(&self) -> bool {
        match self.request.tool_choice() {
            ToolChoice::Required | ToolChoice::AllowedRequired(_) => true,
            ToolChoice::Named(name) => {
                matches!(self.presented.resolve(name), NameOwner::Managed(_))
            }
            ToolChoice::Unset
            | ToolChoice::Auto
            | ToolChoice::None
            | ToolChoice::AllowedAuto(_)
            | ToolChoice::Other => false,
        }
    }

    fn call_model(&mut self, purpose: Purpose) -> Effect {
        self.state = State::AwaitingModel(purpose);
        self.usage_is_counted = false;
        self.model_calls += 1;
        Effect::CallModel(ModelCall {
            number: self.model_calls,
            purpose,
            streamed: self.live.is_some(),
        })
    }

    fn keepalive(&mut self) -> Vec<Effect> {
        if !self.request.stream() {
            return Vec::new();
        }
        self.stream_began = true;
        vec![Effect::Emit(keepalive().to_vec())]
    }
}

fn choice_names(
    request: &Request,
    presented: &PresentedTools,
) -> Result<Vec<(String, String)>, RunnerError> {
    let mut renamed = Vec::new();
    for name in request.tool_choice().names() {
        match presented.resolve(name) {
            NameOwner::Runner => {}
            NameOwner::Managed(_) => {
                renamed.extend(presented.new_name(name).map(|alias| (name.clone(), alias)));
            }
            NameOwner::Denied(..) | NameOwner::Unknown => {
                return Err(RunnerError::new(
                    RunnerCode::UnknownToolChoice,
                    format!("tool_choice names `{name}`, which is not among the tools"),
                ));
            }
        }
    }
    Ok(renamed)
}
