//! Decides whether an answer and its line of the record are those that the request must get.
//!
//! Pure. Invariant: while the upstream served and the grants stood still, exactly one result is right.

use serde_json::Value;

use super::client::Answer;
use super::conditions::{Grant, Span};
use super::kind::Kind;

/// The codes of a request that found no upstream.
const UNREACHABLE: &str = "upstream_unreachable";
/// Ends a whole stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The line of the record of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    pub http_status: u16,
    pub error: Option<String>,
    pub calls: Vec<RecordedCall>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    pub executed: bool,
    /// The error code that the model read.
    pub code: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Expected,
    /// It failed as it must while the upstream is down.
    FailedWhileDown,
    Unexpected(String),
}

/// How the mediator records the requests of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// With the number, which is in the model's name.
    Numbered,
    /// Without the number: the mediator never got the model's name. These lines are counted.
    Counted,
    /// Not at all: strangers must not be able to fill an agent's record.
    None,
}

impl Recording {
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::WrongToken => Recording::None,
            Kind::InvalidBody | Kind::HalfBody => Recording::Counted,
            Kind::NoCall
            | Kind::Rounds { .. }
            | Kind::Revocable
            | Kind::Hung
            | Kind::HungUp
            | Kind::LongHistory
            | Kind::Streamed
            | Kind::CanceledStream
            | Kind::TwoAnswers => Recording::Numbered,
        }
    }
}

/// `recorded`: `None` if the requests of the kind have no line with their number.
pub fn judge(
    kind: Kind,
    span: Span,
    answer: &Answer,
    recorded: Option<&RecordedRequest>,
) -> Verdict {
    let Some(recorded) = recorded else {
        return match (kind, answer) {
            // There is nobody to answer.
            (Kind::HalfBody, Answer::Closed) => Verdict::Expected,
            (Kind::InvalidBody, _) => refused(answer, 400, "invalid_request"),
            _ => refused(answer, 401, "unauthorized"),
        };
    };
    if kind == Kind::TwoAnswers {
        let (status, code) = (400, "n_not_supported");
        let answered = refused(answer, status, code);
        return match answered == Verdict::Expected {
            true => one_of(recorded, &[(status, Some(code))]),
            false => answered,
        };
    }
    if !span.upstream_served() {
        return beside_a_kill(kind, answer, recorded);
    }
    if let Kind::CanceledStream | Kind::HungUp = kind {
        if *answer != Answer::Closed {
            return unexpected("an answer that ended early", answer, recorded);
        }
        // A stream may have ended before the mediator saw that the client had gone.
        let ended = [
            (499, Some("canceled")),
            (200, Some("canceled")),
            (200, None),
        ];
        let count = if kind == Kind::HungUp { 1 } else { ended.len() };
        return one_of(recorded, &ended[..count]);
    }
    let Answer::Whole { status: 200, body } = answer else {
        return unexpected("an answer other than 200", answer, recorded);
    };
    if kind == Kind::Streamed && !body.ends_with(DONE) {
        return unexpected("a stream without its end", answer, recorded);
    }
    if (recorded.http_status, &recorded.error) != (200, &None) {
        return unexpected("a record that differs from the answer", answer, recorded);
    }
    match calls_are_right(kind, span.grant(), &recorded.calls) {
        true => Verdict::Expected,
        false => unexpected("other calls than those of the model", answer, recorded),
    }
}

fn calls_are_right(kind: Kind, grant: Grant, calls: &[RecordedCall]) -> bool {
    let executed = |call: &RecordedCall| call.executed && call.code.is_none();
    let denied =
        |call: &RecordedCall| !call.executed && call.code.as_deref() == Some("permission_denied");
    match kind {
        Kind::Rounds { count, .. } => calls.len() == count as usize && calls.iter().all(executed),
        Kind::Revocable => match (calls, grant) {
            ([call], Grant::Given) => executed(call),
            ([call], Grant::Taken) => denied(call),
            ([call], Grant::Changing) => executed(call) || denied(call),
            ([] | [_, _, ..], _) => false,
        },
        Kind::Hung => {
            matches!(calls, [call] if call.executed && call.code.as_deref() == Some("timeout"))
        }
        Kind::NoCall
        | Kind::HungUp
        | Kind::LongHistory
        | Kind::Streamed
        | Kind::CanceledStream
        | Kind::WrongToken
        | Kind::InvalidBody
        | Kind::TwoAnswers
        | Kind::HalfBody => calls.is_empty(),
    }
}

/// Judges a request during which the upstream was down at some time. It may have been answered
/// before or after.
fn beside_a_kill(kind: Kind, answer: &Answer, recorded: &RecordedRequest) -> Verdict {
    let error = recorded.error.as_deref();
    let of_client = matches!(kind, Kind::CanceledStream | Kind::HungUp);
    match answer {
        Answer::Whole { status: 200, body } if error.is_none() || kind == Kind::Streamed => {
            let is_whole = kind != Kind::Streamed || body.ends_with(DONE);
            match (error, is_whole) {
                (None, true) => Verdict::Expected,
                (Some(UNREACHABLE), _) => Verdict::FailedWhileDown,
                (_, _) => unexpected(
                    "a stream that broke off without its error",
                    answer,
                    recorded,
                ),
            }
        }
        Answer::Whole { status: 200, .. } if of_client => Verdict::Expected,
        Answer::Whole { status, .. } => {
            let is_typed = refused(answer, 502, UNREACHABLE) == Verdict::Expected;
            match is_typed && error == Some(UNREACHABLE) && *status == recorded.http_status {
                true => Verdict::FailedWhileDown,
                false => unexpected("an error that is not the upstream's", answer, recorded),
            }
        }
        // The beginning of the answer had been passed on.
        Answer::Broken(_) if error == Some(UNREACHABLE) => Verdict::FailedWhileDown,
        Answer::Closed if of_client && error == Some(UNREACHABLE) => Verdict::FailedWhileDown,
        Answer::Closed if of_client && matches!(error, None | Some("canceled")) => {
            Verdict::Expected
        }
        Answer::Broken(_) | Answer::Closed => {
            unexpected("a connection that broke off", answer, recorded)
        }
    }
}

/// Checks for an error of the mediator with this status and code.
fn refused(answer: &Answer, status: u16, code: &str) -> Verdict {
    if let Answer::Whole { status: got, body } = answer
        && *got == status
        && let Ok(error) = serde_json::from_slice::<Value>(body)
        && error["error"]["code"] == code
    {
        return Verdict::Expected;
    }
    Verdict::Unexpected(format!("instead of {status} {code}: {}", shown(answer)))
}

fn one_of(recorded: &RecordedRequest, ends: &[(u16, Option<&str>)]) -> Verdict {
    let end = (recorded.http_status, recorded.error.as_deref());
    match ends.contains(&end) {
        true => Verdict::Expected,
        false => Verdict::Unexpected(format!("its record has {end:?}, not one of {ends:?}")),
    }
}

fn unexpected(what: &str, answer: &Answer, recorded: &RecordedRequest) -> Verdict {
    Verdict::Unexpected(format!(
        "{what}: {}; in the record: {} {:?}, calls {:?}",
        shown(answer),
        recorded.http_status,
        recorded.error,
        recorded.calls
    ))
}

/// Bytes of a body that a message shows.
const SHOWN: usize = 300;

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Whole { status, body } => {
            let begin = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
            format!("{status} {begin}")
        }
        Answer::Broken(error) => format!("broken: {error}"),
        Answer::Closed => "closed by the client".to_owned(),
    }
}

#[cfg(test)]
mod tests;
