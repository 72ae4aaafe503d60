//! The turn: one request of the runner with all its hidden rounds.
//!
//! [`Turn::step`] takes what happened and gives what is to be done. It waits for exactly
//! one thing at a time: the model, or one group of calls. An event that nothing waits
//! for changes nothing.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use toolcrib_dialect::{
    DialectError, Edits, Insertion, Live, MAX_REPLY, Reply, Request, SseEvent, StreamEdit,
    ToolChoice, ToolChoiceEdit, Usage, keepalive,
};
use toolcrib_manifest::{Policy, Streaming};

use crate::call::{CallId, ManagedCall};
use crate::claw_id::ClawId;
use crate::codes::{RunnerCode, RunnerError};
use crate::continuity::Hidden;
use crate::display::Display;
use crate::outcome::ToolOutcome;
use crate::partition::{Partition, partition};
use crate::presented::{Presented, Resolved};
use crate::trace::{TraceRound, TurnRecord};

mod finish;
mod past;
mod round;

use past::Past;
use round::Round;

/// Of one reply. No model means more, and each that is answered costs a result in the next
/// request.
const MAX_CALLS: usize = 512;

/// What a turn is made of; nothing of it changes while the turn runs.
#[derive(Debug)]
pub struct TurnConfig {
    pub request: Request,
    pub presented: Presented,
    pub policy: Policy,
    /// Whether a stream that the runner asked for comes as the model writes it.
    pub streaming: Streaming,
    pub claw_id: ClawId,
    /// Hidden rounds of earlier turns ([`crate::Continuity::insertions`]).
    pub insertions: Vec<Insertion>,
    /// The tools document, where the agent gets it with each request.
    pub prompt: Option<String>,
    /// The feeds as they stood when the turn began.
    pub context: Option<String>,
}

/// What happened. Times are since the turn began.
#[derive(Debug)]
pub enum Event {
    /// The model answered; this ends an [`Effect::CallModel`].
    Replied(Reply),
    /// Part of a streamed answer.
    Streamed(Vec<SseEvent>),
    /// The end of a streamed answer, which ends an [`Effect::CallModel`] too.
    StreamEnded,
    /// No candidate gave a usable answer; the other end of an [`Effect::CallModel`].
    ModelFailed(ModelFailure),
    /// One call of an [`Effect::CallTools`] has its outcome.
    ToolFinished {
        call: CallId,
        outcome: ToolOutcome,
        /// For people, where the tool gave one.
        display: Option<Display>,
        latency: Duration,
        /// The limit of results that was in force at its dispatch.
        max_result_bytes: u64,
    },
    /// Nothing was written to the runner for the keepalive interval.
    KeepaliveDue,
    /// [`Turn::deadline`] has passed.
    Deadline,
    /// The runner hung up.
    RunnerGone,
    /// Access ended meanwhile (token removed, files vanished).
    Ended(RunnerError),
}

/// Why a model call gave no reply.
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
    /// Not asked at all: no key, model withdrawn, overloaded.
    Refused(RunnerError),
    /// An answer that is not the dialect's.
    Malformed(DialectError),
}

/// What is to be done. Effects of one step are done in order.
#[derive(Debug)]
pub enum Effect {
    /// Ask the model with [`Turn::request_body`], then one `Replied` or `ModelFailed`; or,
    /// where the call is `streamed`, `Streamed` as often as something comes, and one
    /// `StreamEnded` or `ModelFailed`.
    CallModel(ModelCall),
    /// Run these at once (at most 8; more than one only where all are `parallel_safe`),
    /// then one `ToolFinished` each.
    CallTools(Vec<ManagedCall>),
    /// Bytes for the runner, at once; the first make the answer a stream.
    Emit(Vec<u8>),
    /// The end. Nothing follows, and whatever still runs is to be canceled.
    Answer(Box<Answer>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// From 1.
    pub number: u32,
    pub purpose: Purpose,
    pub streamed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The runner's own request: an upstream error passes as it is.
    First,
    /// After a hidden round.
    Continue,
    /// After the last round: text only.
    Finalize,
}

/// The response for the runner, and the rounds to keep for its next request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// `None`: the runner is gone.
    pub response: Option<Response>,
    pub record: TurnRecord,
    /// For [`crate::Continuity::remember`].
    pub hidden: Option<Hidden>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Counts only where nothing was emitted before.
    pub status: u16,
    pub content_type: String,
    pub retry_after: Option<String>,
    /// The whole body, or the rest of the stream.
    pub body: Vec<u8>,
    /// The runner's code, when this is our own error.
    pub error: Option<RunnerCode>,
    /// An error of a turn that called services. Repeating the request would repeat the calls, so
    /// clients are asked not to retry.
    pub after_calls: bool,
}

/// A running turn.
#[derive(Debug)]
pub struct Turn {
    request: Request,
    presented: Presented,
    policy: Policy,
    claw_id: ClawId,
    edits: Edits,
    state: State,
    rounds: u32,
    model_calls: u32,
    usage: Usage,
    /// Whether that has the reply that is heard in it already.
    usage_is_counted: bool,
    past: Past,
    /// Failed validations, by canonical name.
    failures: HashMap<String, u32>,
    /// Canonical items of the rounds that continuity keeps.
    hidden: Vec<String>,
    trace: Vec<TraceRound>,
    interventions: Vec<String>,
    stream_began: bool,
    /// When the event came that is being answered.
    now: Duration,
    /// The runner's stream, where it is not made of the last reply alone.
    live: Option<Live>,
}

#[derive(Debug)]
enum State {
    AwaitingModel(Purpose),
    Executing(Box<Round>),
    Done,
}

/// The edits of the first request to a model, but for the stream, which stays as it is. A request
/// that has its tokens counted gets the same. Errors: what makes this request impossible to
/// mediate.
pub fn first_edits(
    request: &Request,
    presented: &Presented,
    insertions: Vec<Insertion>,
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
    edits.spell_choice = spelled_choice(request, presented)?;
    edits.inserted = insertions;
    edits.prompt = prompt;
    edits.context = context;
    Ok(edits)
}

impl Turn {
    /// Begins a turn with tools to present. Errors: what makes this request impossible
    /// to mediate; nothing has been asked of anybody then.
    pub fn start(config: TurnConfig) -> Result<(Self, Vec<Effect>), RunnerError> {
        let TurnConfig {
            request,
            presented,
            policy,
            streaming,
            claw_id,
            insertions,
            prompt,
            context,
        } = config;
        let mut edits = first_edits(&request, &presented, insertions, prompt, context)?;
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
            past: Past::default(),
            failures: HashMap::new(),
            hidden: Vec::new(),
            trace: Vec::new(),
            interventions: Vec::new(),
            stream_began: false,
            now: Duration::ZERO,
            live,
        };
        let first = turn.call_model(Purpose::First);
        Ok((turn, vec![first]))
    }

    /// The body for the model call that is due, with this model's name. Errors: what is
    /// wrong with the runner's, which shows before anybody is asked.
    pub fn request_body(&self, model: &str) -> Result<Vec<u8>, RunnerError> {
        let mut edits = self.edits.clone();
        edits.model = model.to_string();
        Ok(self.request.encode(&edits)?)
    }

    /// When to send [`Event::Deadline`], since the turn began.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.policy.total_timeout_ms.max(1))
    }

    /// How long one call may take that begins now.
    pub fn tool_timeout(&self, now: Duration) -> Duration {
        Duration::from_millis(self.policy.timeout_per_tool_ms.max(1))
            .min(self.deadline().saturating_sub(now))
    }

    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Managed rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// What the reply that is being streamed says it costs, as far as it has said so.
    pub fn heard_usage(&self) -> Option<Usage> {
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
                latency,
                max_result_bytes,
            } => self.tool_finished(call, &outcome, display, latency, max_result_bytes),
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

    /// The deadline has passed: nothing begins.
    fn is_late(&self) -> bool {
        self.now >= self.deadline()
    }

    fn replied_whole(&mut self, reply: Reply) -> Vec<Effect> {
        let (State::AwaitingModel(_), Some(live)) = (&self.state, &mut self.live) else {
            return self.replied(reply);
        };
        let heard = live.hear_whole(&self.request, &reply);
        self.emit_then(heard, |turn| turn.replied(reply))
    }

    fn streamed(&mut self, events: Vec<SseEvent>) -> Vec<Effect> {
        let (State::AwaitingModel(_), Some(live)) = (&self.state, &mut self.live) else {
            return Vec::new();
        };
        let heard = live.hear(&self.request, events);
        self.emit_then(heard, |_| Vec::new())
    }

    fn stream_ended(&mut self) -> Vec<Effect> {
        let (State::AwaitingModel(_), Some(live)) = (&self.state, &self.live) else {
            return Vec::new();
        };
        match live.heard() {
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
            (_, Purpose::Finalize) => self.fail(RunnerError::new(
                RunnerCode::BudgetExhausted,
                "the tool budget is exhausted and the model did not come to an answer",
            )),
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

    /// For ids of calls that came without: other ones for each reply of a conversation,
    /// which grows from request to request, and the same for a retried request.
    fn call_seed(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.model_calls.to_be_bytes());
        hash.update(self.request.as_text());
        hex::encode(&hash.finalize()[..12])
    }

    fn tool_finished(
        &mut self,
        call: CallId,
        outcome: &ToolOutcome,
        display: Option<Display>,
        latency: Duration,
        max_result_bytes: u64,
    ) -> Vec<Effect> {
        let State::Executing(round) = &mut self.state else {
            return Vec::new();
        };
        // A limit that was raised meanwhile is the next turn's.
        let max_bytes = self.policy.max_tool_result_bytes.min(max_result_bytes);
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        if !round.finished(
            call,
            outcome,
            display,
            latency,
            max_bytes.max(1),
            &mut self.past,
        ) || round.running()
        {
            return Vec::new();
        }
        self.advance()
    }

    /// The next group of the round, or what follows it.
    fn advance(&mut self) -> Vec<Effect> {
        let is_late = self.is_late();
        let State::Executing(round) = &mut self.state else {
            return Vec::new();
        };
        // Before a call counts as dispatched: the record must not say that it may have run.
        if is_late && round.waits() {
            return self.fail(self.timed_out());
        }
        let group = round.next_group(&mut self.past, self.now);
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
        let spelled = round
            .reply
            .items(&results, |name| self.presented.spelling(name));
        let canonical = round
            .reply
            .items(&results, |name| self.presented.canonical(name));
        self.trace.push(round.trace());
        self.interventions.extend(round.intervention());
        let (Ok(spelled), Ok(canonical)) = (spelled, canonical) else {
            return self.fail(RunnerError::new(
                RunnerCode::UpstreamMalformed,
                "the model's answer could not be continued: the mediator has no form for it",
            ));
        };
        self.edits.appended.extend(spelled);
        if let Some(container) = round.reply.container() {
            self.edits.container = Some(container);
        }
        // The next turn has a budget of its own, and must not read that tools are gone.
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

    /// Whether `tool_choice` would make the model call for ever.
    fn forces_managed(&self) -> bool {
        match self.request.tool_choice() {
            ToolChoice::Required | ToolChoice::AllowedRequired(_) => true,
            ToolChoice::Named(name) => {
                matches!(self.presented.resolve(name), Resolved::Managed(_))
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

fn spelled_choice(
    request: &Request,
    presented: &Presented,
) -> Result<Vec<(String, String)>, RunnerError> {
    let mut spelled = Vec::new();
    for name in request.tool_choice().names() {
        match presented.resolve(name) {
            Resolved::Runner => {}
            Resolved::Managed(_) => {
                spelled.extend(presented.spelling(name).map(|alias| (name.clone(), alias)));
            }
            Resolved::Denied(..) | Resolved::Nobody => {
                return Err(RunnerError::new(
                    RunnerCode::UnknownToolChoice,
                    format!("tool_choice names `{name}`, which is not among the tools"),
                ));
            }
        }
    }
    Ok(spelled)
}
