//! How a turn ends: an answer, an error, or nobody left to answer.

use toolcrib_dialect::{Reply, answer, stored_items, terminal_answer};

use super::{Answer, Effect, ModelFailure, Response, State, Turn};
use crate::codes::{ResultCode, RunnerCode, RunnerError};
use crate::continuity::Hidden;
use crate::trace::{RecordStatus, TraceUsage, TurnRecord};

impl Turn {
    /// The reply goes to the runner.
    pub(super) fn answer(&mut self, reply: &Reply) -> Vec<Effect> {
        // The only model call: its usage is the sum already.
        let usage = (self.model_calls > 1).then_some(self.usage);
        let Ok(answered) = answer(&self.request, reply, usage) else {
            return self.fail(&unreadable());
        };
        let items = std::mem::take(&mut self.hidden);
        let hidden = stored_items(&self.request, reply)
            .and_then(|stored| Hidden::of(&self.request, items, &stored))
            .unwrap_or_default();
        let response = Response {
            status: 200,
            content_type: answered.content_type.to_string(),
            retry_after: None,
            body: answered.body,
            error: None,
        };
        self.end(Some(response), RecordStatus::Ok, None, hidden)
    }

    /// A terminal tool has done its work: an answer without words.
    pub(super) fn answer_empty(&mut self, reply: &Reply) -> Vec<Effect> {
        self.interventions.push("terminal_on_success".into());
        match terminal_answer(reply) {
            Ok(empty) => self.answer(&empty),
            Err(_) => self.fail(&unreadable()),
        }
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
                };
                let code = RunnerCode::UpstreamUnreachable.name();
                self.end(Some(response), RecordStatus::Error, Some(code), None)
            }
            ModelFailure::Http { status, .. } => self.fail(&RunnerError::new(
                RunnerCode::UpstreamUnreachable,
                format!("the model's provider answered with status {status}"),
            )),
            ModelFailure::Unreachable { message } => {
                self.fail(&RunnerError::new(RunnerCode::UpstreamUnreachable, message))
            }
            ModelFailure::Refused(error) => self.fail(&error),
            ModelFailure::Malformed(_) => self.fail(&unreadable()),
        }
    }

    /// Our own error: a body, or an event of the stream that has begun.
    pub(super) fn fail(&mut self, error: &RunnerError) -> Vec<Effect> {
        self.cut_short();
        let dialect = self.request.dialect();
        let (content_type, body) = if self.stream_began {
            ("text/event-stream", error.events(dialect))
        } else {
            ("application/json", error.body(dialect))
        };
        let response = Response {
            status: error.status(),
            content_type: content_type.to_string(),
            retry_after: None,
            body,
            error: Some(error.code),
        };
        let code = error.code.name();
        self.end(Some(response), RecordStatus::Error, Some(code), None)
    }

    pub(super) fn abandon(&mut self) -> Vec<Effect> {
        self.cut_short();
        self.end(None, RecordStatus::Error, Some("canceled"), None)
    }

    pub(super) fn timed_out(&self) -> RunnerError {
        RunnerError::new(
            RunnerCode::TotalTimeout,
            format!(
                "the turn took longer than {} ms",
                self.policy.total_timeout_ms
            ),
        )
    }

    /// A round that was still running goes on record with what had happened by then.
    fn cut_short(&mut self) {
        if let State::Executing(round) = std::mem::replace(&mut self.state, State::Done) {
            let mut round = *round;
            round.cut_short(ResultCode::Canceled);
            self.trace.push(round.trace());
        }
    }

    fn end(
        &mut self,
        response: Option<Response>,
        status: RecordStatus,
        error: Option<&'static str>,
        hidden: Option<Hidden>,
    ) -> Vec<Effect> {
        self.state = State::Done;
        vec![Effect::Answer(Box::new(Answer {
            response,
            record: TurnRecord {
                status,
                error,
                usage: TraceUsage::of(self.usage, Some(self.model_calls)),
                tool_trace: std::mem::take(&mut self.trace),
                interventions: std::mem::take(&mut self.interventions),
            },
            hidden,
        }))]
    }
}

fn unreadable() -> RunnerError {
    RunnerError::new(
        RunnerCode::UpstreamUnreachable,
        "the model's answer could not be read",
    )
}
