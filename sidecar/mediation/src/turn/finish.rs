//! The ends of a turn: an answer, an error, or a runner that has disconnected.

use toolcrib_dialect::{
    AnswerBody, DialectError, PreviousResponse, Reply, answer, stored_items, terminal_answer,
};

use super::continuity::{ContinuationPoint, HiddenRounds};
use super::{Effect, ModelFailure, Response, State, Turn, TurnResult};
use crate::calls::trace::{self, RecordStatus, TurnRecord};
use crate::codes::{ResultCode, RunnerCode, RunnerError};

/// Whether the answer adds anything to the text that hidden rounds have streamed.
#[derive(Clone, Copy)]
enum Addition {
    Words,
    Nothing,
}

impl Turn {
    /// Sends the reply to the runner.
    pub(super) fn answer(&mut self, reply: &Reply) -> Vec<Effect> {
        self.answer_with(reply, Addition::Words)
    }

    fn answer_with(&mut self, reply: &Reply, adds: Addition) -> Vec<Effect> {
        // With a single model call, its usage is the sum already.
        let usage = (self.model_calls > 1).then_some(self.usage);
        let answered = match &mut self.live {
            None => answer(&self.request, reply, usage),
            Some(live) => live
                .end(&self.request, reply, usage)
                .map(|rest| AnswerBody {
                    content_type: "text/event-stream",
                    body: rest.into_bytes(),
                }),
        };
        let Ok(answered) = answered else {
            return self.fail(unreadable());
        };
        let hidden = self.remembered(reply, adds).unwrap_or_default();
        let response = Response {
            status: 200,
            content_type: answered.content_type.to_string(),
            retry_after: None,
            body: answered.body,
            error: None,
            after_calls: false,
        };
        let (status, error) = match reply.has_failed() {
            false => (RecordStatus::Ok, None),
            true => (RecordStatus::Error, Some(RunnerCode::UpstreamError.name())),
        };
        self.end(Some(response), status, error, hidden)
    }

    /// A terminal tool has done its work: answers without text, except for text that the runner has
    /// already received.
    pub(super) fn answer_empty(&mut self, reply: &Reply) -> Vec<Effect> {
        self.interventions.push("terminal_on_success".into());
        let Ok(empty) = terminal_answer(reply) else {
            return self.fail(unreadable());
        };
        let heard = match &mut self.live {
            Some(live) if !live.has_sent_hidden() => live.push_whole(&self.request, &empty),
            Some(_) | None => Ok(String::new()),
        };
        self.emit_then(heard, |turn| turn.answer_with(&empty, Addition::Nothing))
    }

    /// The hidden rounds, keyed by the answer as the runner has it.
    fn remembered(
        &mut self,
        reply: &Reply,
        adds: Addition,
    ) -> Result<Option<HiddenRounds>, DialectError> {
        let items = std::mem::take(&mut self.hidden);
        if items.is_empty() {
            return Ok(None);
        }
        let stored = stored_items(&self.request, reply)?;
        let point = self.continuation(reply, adds)?;
        match self.live.as_ref().filter(|live| live.has_sent_hidden()) {
            None => HiddenRounds::of(&self.request, items, &stored, None, point),
            Some(live) => {
                let said = stored_items(&self.request, &live.answer()?)?;
                let reply = match adds {
                    Addition::Words => stored,
                    Addition::Nothing => Vec::new(),
                };
                HiddenRounds::of(&self.request, items, &said, Some(reply), point)
            }
        }
    }

    /// Returns how a later request continues this answer, if not after the id that the runner has.
    fn continuation(
        &self,
        reply: &Reply,
        adds: Addition,
    ) -> Result<Option<ContinuationPoint>, DialectError> {
        if !self.request.can_be_continued() {
            return Ok(None);
        }
        let shown = match &self.live {
            None => reply.response_id(),
            Some(live) => live.answer()?.response_id(),
        };
        let (Some(shown), Some(last)) = (shown, reply.response_id()) else {
            return Ok(None);
        };
        let (previous, items) = match adds {
            Addition::Words if shown == last => return Ok(None),
            Addition::Words => (Some(last), Vec::new()),
            // The provider has the last calls without their results, so it continues after the
            // response before the turn, and gets all items of the turn again.
            Addition::Nothing => {
                let previous = match &self.edits.previous {
                    PreviousResponse::Keep => self.request.previous_response(),
                    PreviousResponse::Set(id) => Some(id.clone()),
                    PreviousResponse::Drop => None,
                };
                (previous, self.request.input_items(&self.edits)?)
            }
        };
        Ok(Some(ContinuationPoint {
            shown,
            previous,
            items,
        }))
    }

    pub(super) fn model_failed(&mut self, failure: ModelFailure) -> Vec<Effect> {
        if !matches!(self.state, State::AwaitingModel(_)) {
            return Vec::new();
        }
        match failure {
            ModelFailure::Http {
                status,
                content_type,
                body,
                retry_after,
            } if self.rounds == 0 && !self.stream_began => {
                let response = Response {
                    status,
                    content_type,
                    retry_after,
                    body,
                    error: None,
                    after_calls: false,
                };
                let code = RunnerCode::UpstreamError.name();
                self.end(Some(response), RecordStatus::Error, Some(code), None)
            }
            ModelFailure::Http { status, .. } => self.fail(RunnerError::upstream_error(status)),
            ModelFailure::Unreachable { message } => {
                self.fail(RunnerError::new(RunnerCode::UpstreamUnreachable, message))
            }
            ModelFailure::Refused(error) => self.fail(error),
            ModelFailure::Malformed(error) => self.fail(broken(&error)),
        }
    }

    /// Ends the turn with an error of ours: a body, or an event on a stream that has begun.
    pub(super) fn fail(&mut self, error: RunnerError) -> Vec<Effect> {
        self.cut_short();
        let mut calls = self.trace.iter().flat_map(|round| &round.tool_calls);
        let after_calls = calls.any(|call| call.executed);
        let error = if after_calls {
            error.after_calls()
        } else {
            error
        };
        let dialect = self.request.dialect();
        let (content_type, body) = if self.stream_began {
            let events = match &self.live {
                Some(live) => error.shaped(|shape| live.error(shape)),
                None => error.events(dialect),
            };
            ("text/event-stream", events)
        } else {
            ("application/json", error.body(dialect))
        };
        let response = Response {
            status: error.status(),
            content_type: content_type.to_string(),
            retry_after: None,
            body,
            error: Some(error.code),
            after_calls,
        };
        let code = error.code.name();
        self.end(Some(response), RecordStatus::Error, Some(code), None)
    }

    pub(super) fn abandon(&mut self) -> Vec<Effect> {
        self.cut_short();
        self.end(None, RecordStatus::Error, Some("canceled"), None)
    }

    pub(super) fn timed_out(&self) -> RunnerError {
        RunnerError::total_timeout(self.policy.total_timeout_ms)
    }

    /// Records the round that was still running, with its results so far.
    fn cut_short(&mut self) {
        if let State::Executing(round) = std::mem::replace(&mut self.state, State::Done) {
            let mut round = *round;
            round.cut_short(ResultCode::Canceled, self.now);
            self.trace.push(round.trace());
        }
    }

    fn end(
        &mut self,
        response: Option<Response>,
        status: RecordStatus,
        error: Option<&'static str>,
        hidden: Option<HiddenRounds>,
    ) -> Vec<Effect> {
        self.state = State::Done;
        // A reply that broke off cost the tokens that it has reported so far.
        if !self.usage_is_counted {
            self.usage += self.streamed_usage().unwrap_or_default();
        }
        vec![Effect::Answer(Box::new(TurnResult {
            response,
            record: TurnRecord {
                status,
                error,
                usage: trace::usage(self.usage, Some(self.model_calls)),
                tool_trace: std::mem::take(&mut self.trace),
                interventions: std::mem::take(&mut self.interventions),
                // A turn answers each call that the runner did not declare.
                undeclared_calls: Vec::new(),
            },
            hidden,
        }))]
    }
}

/// Texts of the provider are not repeated: they may hold anything.
pub(super) fn broken(error: &DialectError) -> RunnerError {
    let (code, message) = match error {
        DialectError::StreamCut => (
            RunnerCode::UpstreamUnreachable,
            "the model's answer broke off",
        ),
        DialectError::StreamError(_) => (
            RunnerCode::UpstreamError,
            "the provider ended its answer with an error: look at the provider's status",
        ),
        DialectError::ReplyTooLarge { .. } => (
            RunnerCode::UpstreamMalformed,
            "the model's answer is too large: ask for less at once",
        ),
        DialectError::NotUtf8
        | DialectError::NotJson(_)
        | DialectError::Missing(_)
        | DialectError::WrongType { .. }
        | DialectError::Repeated(_)
        | DialectError::FieldRefused(_)
        | DialectError::FieldReadsAs { .. }
        | DialectError::ProviderSide(_)
        | DialectError::HeldElsewhere(_)
        | DialectError::StreamTooLarge { .. } => return unreadable(),
    };
    RunnerError::new(code, message)
}

fn unreadable() -> RunnerError {
    RunnerError::new(
        RunnerCode::UpstreamMalformed,
        "the model's answer could not be read: check that the provider's address serves this \
         API; the mediator's log has the cause",
    )
}
