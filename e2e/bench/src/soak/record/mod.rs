//! Compares the record on a mediator's standard output with the requests that were sent and the calls
//! that the tool service got.
//!
//! Lines are counted, not kept. Invariants: each request that was announced has exactly one line;
//! each call that the service got has a line that was written before it; each line continues the
//! chain.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::oneshot;
use toolcrib_record::{Digest, Head, Line, LinkKind, TurnLine, UnreadLine, short_form};

use super::findings::Findings;
use super::judge::{RecordedCall, RecordedRequest};
use super::kind::number_of;

/// Time for which an ended request is remembered: calls that the service reports late are still
/// compared. Longer than the pipes of both programs ever take.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The record of one mediator.
#[derive(Debug)]
pub struct Ledger {
    findings: Arc<Findings>,
    state: std::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: HashMap<u64, Request>,
    /// Ended requests, the oldest first.
    ended: VecDeque<(Instant, u64)>,
    head: Option<Head>,
    counts: Counts,
}

#[derive(Debug)]
struct Request {
    recorded: Option<oneshot::Sender<RecordedRequest>>,
    /// Rounds whose call has an intent line, a bit for each.
    intents: u32,
    /// Rounds whose call the service got.
    served: u32,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests whose line is awaited.
    pub announced: u64,
    pub turns: u64,
    /// Lines of requests whose model the mediator never got.
    pub unnumbered: u64,
    pub intents: u64,
    /// Calls that the tool service got.
    pub served: u64,
    pub lines: u64,
}

impl Ledger {
    pub fn new(findings: Arc<Findings>) -> Self {
        Self {
            findings,
            state: std::sync::Mutex::default(),
        }
    }

    /// Announces a request. The receiver gets its line.
    pub fn announce(&self, number: u64) -> oneshot::Receiver<RecordedRequest> {
        let (recorded, line) = oneshot::channel();
        let mut state = self.state();
        state.counts.announced += 1;
        let request = Request {
            recorded: Some(recorded),
            intents: 0,
            served: 0,
        };
        state.requests.insert(number, request);
        line
    }

    /// Reads the record to its end.
    pub fn read(&self, output: impl Read) {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            match output.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => self.line(line.trim_ascii_end()),
                Err(error) => {
                    return self.fail("read", format!("the record is unreadable: {error}"));
                }
            }
        }
    }

    /// Counts a call that the service got: `reed-REQUEST-ROUND`.
    pub fn called(&self, name: &str) {
        let mut state = self.state();
        state.counts.served += 1;
        let known = call_of(name).and_then(|(number, round)| {
            state.requests.get_mut(&number).map(|it| it.served |= round)
        });
        if known.is_none() {
            self.fail(
                "call",
                format!("the service got {name}, of a request without a record"),
            );
        }
    }

    fn line(&self, text: &[u8]) {
        let mut state = self.state();
        state.counts.lines += 1;
        self.chain(&mut state, text);
        match Line::parse(text) {
            Ok(Line::Turn(turn)) => self.turn(&mut state, &turn),
            Ok(Line::Intent(intent)) => {
                state.counts.intents += 1;
                let call = call_of(intent.arguments.get());
                let request = call
                    .and_then(|(number, round)| Some((state.requests.get_mut(&number)?, round)));
                match request {
                    // A second intent for the call of a round would be a second call.
                    Some((request, round))
                        if request.recorded.is_some() && request.intents & round == 0 =>
                    {
                        request.intents |= round;
                    }
                    Some(_) | None => self.unexpected("intent", text),
                }
            }
            Ok(Line::Start(_) | Line::Rules(_)) => {}
            // `model_call` is on standard output only if the disk is full, and a gap if lines are
            // missing; this run has no approvals.
            Ok(Line::ModelCall(_) | Line::Question(_) | Line::Decision(_) | Line::Gap(_))
            | Err(UnreadLine::OtherKind | UnreadLine::Broken) => self.unexpected("line", text),
        }
    }

    fn turn(&self, state: &mut State, turn: &TurnLine<'_>) {
        state.counts.turns += 1;
        if turn.model.is_none() && turn.error.as_deref() == Some("invalid_request") {
            state.counts.unnumbered += 1;
            return;
        }
        let number = turn.model.as_deref().and_then(number_of);
        let request = number.and_then(|number| Some((number, state.requests.get_mut(&number)?)));
        let Some((number, request)) = request else {
            let model = &turn.model;
            return self.fail(
                "record",
                format!("a line of a request that was not sent: {model:?}"),
            );
        };
        let Some(recorded) = request.recorded.take() else {
            return self.fail("record", format!("a second line of request {number}"));
        };
        let calls = turn.tool_trace.iter().flat_map(|round| &round.tool_calls);
        // A call whose connection was refused was not executed, but its intent was written before.
        let attempted = calls
            .clone()
            .filter(|call| call.executed || call.connection.is_some());
        let attempted = attempted.fold(0, |rounds, call| {
            rounds | call_of(call.arguments.get()).map_or(0, |(_, round)| round)
        });
        if attempted != request.intents {
            let intents = request.intents;
            self.fail(
                "intent",
                format!(
                    "request {number}: rounds {attempted:b} attempted, {intents:b} with an intent"
                ),
            );
        }
        let calls = calls.map(|call| RecordedCall {
            executed: call.executed,
            code: call.error_code(),
        });
        let line = RecordedRequest {
            http_status: turn.http_status,
            error: turn.error.as_deref().map(str::to_owned),
            calls: calls.collect(),
        };
        // Err: its client gave up, which is a finding of its own.
        recorded.send(line).ok();
        state.ended.push_back((Instant::now(), number));
        self.forget(state, REMEMBERED);
    }

    /// Compares and forgets the requests that ended this long ago.
    fn forget(&self, state: &mut State, age: Duration) {
        while let Some((ended, number)) = state.ended.front()
            && ended.elapsed() >= age
        {
            let number = *number;
            state.ended.pop_front();
            let Some(request) = state.requests.remove(&number) else {
                continue;
            };
            let (intents, served) = (request.intents, request.served);
            if served & !intents != 0 {
                self.fail(
                    "call",
                    format!("request {number}: the service got {served:b}, of which {intents:b} are recorded"),
                );
            }
        }
    }

    /// Checks that the line is the next one of the chain.
    fn chain(&self, state: &mut State, text: &[u8]) {
        let link = short_form(text);
        let (Some(link), expected) = (link, state.head.as_ref()) else {
            return self.unexpected("chain", text);
        };
        let LinkKind::Chained { seq, .. } = link.kind else {
            return self.unexpected("chain", text);
        };
        let continues = match expected {
            Some(head) => {
                *head.chain == *link.chain && head.seq + 1 == seq && head.hash == link.prev
            }
            None => seq == 0 && link.prev == Digest::NONE,
        };
        if !continues {
            self.fail("chain", format!("line {seq} does not continue the chain"));
        }
        state.head = Some(Head {
            chain: link.chain.into_owned(),
            seq,
            hash: link.digest,
            aside: None,
        });
    }

    /// Ends the comparison: no request may be without its line. Returns the counts, and the last line.
    pub fn finish(&self) -> (Counts, Option<Head>) {
        let mut state = self.state();
        self.forget(&mut state, Duration::ZERO);
        let left = state.requests.len();
        if let Some(number) = state.requests.keys().min() {
            self.fail(
                "record",
                format!("{left} requests without a line; the first is {number}"),
            );
        }
        (state.counts, state.head.clone())
    }

    fn unexpected(&self, kind: &str, text: &[u8]) {
        let begin = String::from_utf8_lossy(&text[..text.len().min(300)]);
        self.fail(kind, format!("an unexpected line of the record: {begin}"));
    }

    fn fail(&self, kind: &str, what: String) {
        self.findings.add(&format!("record ({kind})"), what);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

/// Reads the request's number and the round's bit from a text with `reed-REQUEST-ROUND`.
fn call_of(text: &str) -> Option<(u64, u32)> {
    let rest = &text[text.find("reed-")? + "reed-".len()..];
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at(digits(rest));
    let rest = rest.strip_prefix('-')?;
    let round: u32 = rest[..digits(rest)].parse().ok()?;
    Some((number.parse().ok()?, 1u32.checked_shl(round)?))
}

#[cfg(test)]
mod tests;
