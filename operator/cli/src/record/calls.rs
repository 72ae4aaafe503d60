//! Joins the lines of a record into calls.
//!
//! Invariants: memory is bounded; a call is given once, although several sources may have its
//! lines; an intent without an outcome counts as unknown, never as done.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::Timestamp;
use toolcrib_bounds::cut;
use toolcrib_record::{Line, TurnLine, UnreadLine};

use super::MAX_NAME;
use super::call::{
    Call, Entry, of_decision, of_intent, of_question, of_rules, of_trace, of_turn, received, short,
};
use super::questions::Questions;

/// Most bytes of intents that wait for their outcome. A mediator runs at most 256 requests at once.
const MAX_WAITING: usize = 64 * 1024 * 1024;
/// Most chains whose repeated lines are recognized, and most pods whose first line is remembered.
const MAX_KNOWN: usize = 100_000;

/// Counts of the lines that were read, and how far back they reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lines of the record that could not be read.
    pub broken: u64,
    /// Lines that the record itself counts as missing.
    pub missed: u64,
    /// The earliest time of each pod, and whether its record begins there.
    pub pods: BTreeMap<String, Reach>,
}

/// How far back the lines of a pod reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub earliest: Timestamp,
    /// The pod had no record before its first line.
    pub is_whole: bool,
}

/// The intents of one request whose turn line has not been read yet.
#[derive(Debug)]
struct PendingIntents {
    /// Key of the request in [`Joiner::order`].
    place: u64,
    calls: Vec<Call>,
}

/// Joins lines into calls.
#[derive(Debug, Default)]
pub struct Joiner {
    /// Intents by their request.
    pending: HashMap<String, PendingIntents>,
    /// The requests with pending intents, the oldest first.
    order: BTreeMap<u64, String>,
    next: u64,
    weight: usize,
    questions: Questions,
    seen: HashMap<String, Ranges>,
    statistics: Statistics,
}

impl Joiner {
    /// Reads one line.
    pub fn push(&mut self, line: &[u8], mut out: impl FnMut(Entry)) {
        match Line::parse(line) {
            Ok(Line::Start(start)) => {
                self.reach(&start.pod, &start.timestamp, start.previous.is_none());
            }
            Ok(Line::Rules(rules)) => {
                self.reach(&rules.pod, &rules.timestamp, false);
                if self.is_new(rules.chain.as_deref(), rules.seq)
                    && let Some(rules) = of_rules(&rules)
                {
                    out(Entry::Rules(Box::new(rules)));
                }
            }
            Ok(Line::ModelCall(call)) => self.reach(&call.pod, &call.timestamp, false),
            Ok(Line::Question(question)) => {
                self.reach(&question.pod, &question.timestamp, false);
                if self.is_new(question.chain.as_deref(), question.seq) {
                    let id = short(&question.question);
                    self.questions.ask(id, of_question(question), &mut out);
                }
            }
            Ok(Line::Decision(decision)) => {
                self.reach(&decision.pod, &decision.timestamp, false);
                let question = cut(&decision.question, MAX_NAME);
                self.questions.decide(&question, of_decision(&decision));
            }
            Ok(Line::Intent(intent)) => {
                self.reach(&intent.pod, &intent.timestamp, false);
                if self.is_new(intent.chain.as_deref(), intent.seq) {
                    let call = of_intent(intent);
                    self.questions.settle(&call.call_id);
                    self.wait(call, &mut out);
                }
            }
            Ok(Line::Turn(turn)) => {
                self.reach(&turn.pod, &turn.timestamp, false);
                if self.is_new(turn.chain.as_deref(), turn.seq) {
                    self.turn(&turn, &mut out);
                }
            }
            Ok(Line::Gap(gap)) => {
                self.statistics.missed = self.statistics.missed.saturating_add(gap.lines);
            }
            // The mediator's log, which `kubectl logs` mixes in, and blank lines.
            Err(UnreadLine::OtherKind) => {}
            Err(UnreadLine::Broken) => {
                self.statistics.broken += u64::from(!line.trim_ascii().is_empty());
            }
        }
    }

    /// Ends the reading: emits the calls that have no outcome, and those that wait for an approval.
    pub fn end(mut self, mut out: impl FnMut(Entry)) -> Statistics {
        while self.give_up_oldest(&mut out) {}
        self.questions.end(out);
        self.statistics
    }

    fn is_new(&mut self, chain: Option<&str>, seq: Option<u64>) -> bool {
        let (Some(chain), Some(seq)) = (chain, seq) else {
            return true;
        };
        let chain = cut(chain, MAX_NAME);
        if let Some(seen) = self.seen.get_mut(&*chain) {
            return seen.insert(seq);
        }
        if self.seen.len() < MAX_KNOWN {
            let mut seen = Ranges::default();
            seen.insert(seq);
            self.seen.insert(chain.into_owned(), seen);
        }
        true
    }

    fn reach(&mut self, pod: &str, timestamp: &str, is_whole: bool) {
        let Ok(earliest) = timestamp.parse::<Timestamp>() else {
            return;
        };
        let pod = &*cut(pod, MAX_NAME);
        let pods = &mut self.statistics.pods;
        let has_room = pods.len() < MAX_KNOWN;
        match pods.get_mut(pod) {
            Some(reach) => {
                reach.earliest = reach.earliest.min(earliest);
                reach.is_whole |= is_whole;
            }
            None if has_room => {
                pods.insert(pod.to_owned(), Reach { earliest, is_whole });
            }
            None => {}
        }
    }

    fn wait(&mut self, call: Call, out: &mut impl FnMut(Entry)) {
        self.weight += call.weight();
        match self.pending.get_mut(&call.request_id) {
            Some(pending) => pending.calls.push(call),
            None => {
                let place = self.next;
                self.next += 1;
                self.order.insert(place, call.request_id.clone());
                let request = call.request_id.clone();
                let calls = vec![call];
                self.pending
                    .insert(request, PendingIntents { place, calls });
            }
        }
        while self.weight > MAX_WAITING && self.give_up_oldest(out) {}
    }

    fn give_up_oldest(&mut self, out: &mut impl FnMut(Entry)) -> bool {
        let Some((_, request)) = self.order.first_key_value() else {
            return false;
        };
        let request = request.clone();
        for call in self.take(&request) {
            out(Entry::Call(Box::new(call)));
        }
        true
    }

    /// Takes the intents of a request.
    fn take(&mut self, request: &str) -> Vec<Call> {
        let Some(PendingIntents { place, calls }) = self.pending.remove(request) else {
            return Vec::new();
        };
        self.order.remove(&place);
        let weight: usize = calls.iter().map(Call::weight).sum();
        self.weight = self.weight.saturating_sub(weight);
        calls
    }

    fn turn(&mut self, turn: &TurnLine<'_>, out: &mut impl FnMut(Entry)) {
        let mut intents: Vec<Option<Call>> = self
            .take(&cut(&turn.request_id, MAX_NAME))
            .into_iter()
            .map(Some)
            .collect();
        let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
        for (place, intent) in intents.iter().enumerate() {
            let key = intent.iter().map(|it| it.key().to_owned());
            key.for_each(|key| places.entry(key).or_default().push_back(place));
        }
        let succeeded = succeeded(turn);
        let mut calls = 0;
        let rounds = turn.tool_trace.iter();
        for (round, call) in
            rounds.flat_map(|round| round.tool_calls.iter().map(move |it| (round, it)))
        {
            calls += 1;
            let mut row = of_trace(turn, call);
            // A call that was not sent has no intent with its time.
            if let Some(at) = received(turn, round) {
                row.when = at.to_string();
            }
            let place = places.get_mut(row.key()).and_then(VecDeque::pop_front);
            let intent = place.and_then(|place| intents.get_mut(place)?.take());
            match intent {
                Some(intent) => {
                    row.when = intent.when;
                    row.approval = intent.approval;
                    row.policies = intent.policies;
                }
                None => row.approval = self.questions.answer(&row.call_id),
            }
            let key = call.idempotency_key.as_deref();
            let later = key.and_then(|key| succeeded.get(key));
            row.settled_by = later
                .filter(|later| ***later != row.call_id)
                .map(|it| short(it));
            out(Entry::Call(Box::new(row)));
        }
        for intent in intents.into_iter().flatten() {
            out(Entry::Call(Box::new(intent)));
        }
        out(Entry::Request(Box::new(of_turn(turn, calls))));
    }
}

/// The ids of the calls of a turn that succeeded, by their idempotency keys. Another clear outcome, such as
/// 503, says nothing of an earlier attempt.
fn succeeded<'t>(turn: &'t TurnLine<'_>) -> HashMap<&'t str, &'t str> {
    let calls = turn.tool_trace.iter().flat_map(|round| &round.tool_calls);
    let succeeded = calls.filter(|call| call.executed && call.error_code().is_none());
    let keyed = succeeded.map(|call| Some((call.idempotency_key.as_deref()?, &*call.call_id)));
    keyed.flatten().collect()
}

/// A set of mostly consecutive numbers.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

/// Most ranges of a set; beyond, numbers are not remembered.
const MAX_RANGES: usize = 10_000;

impl Ranges {
    /// Returns false if the number is in the set.
    fn insert(&mut self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back();
        let before = before.map(|(from, to)| (*from, *to));
        if before.is_some_and(|(_, to)| to >= number) {
            return false;
        }
        let joined = before.filter(|(_, to)| to.checked_add(1) == Some(number));
        let from = joined.map_or(number, |(from, _)| from);
        let next = number.checked_add(1).and_then(|next| self.0.remove(&next));
        if joined.is_some() || next.is_some() || self.0.len() < MAX_RANGES {
            self.0.insert(from, next.unwrap_or(number));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    const INTENT: &str = r#"{"kind":"intent","request_id":"r1","call_id":"r1-1-0","agent_id":"otter","namespace":"pond","pod":"otter-0","timestamp":"2026-11-24T08:00:00Z","round":1,"name":"desk.quote","arguments":{"n":1},"service":"desk","tier":"ReadOnly","read_only":true,"grant":{"name":"readers","namespace":"pond"},"chain":"c","seq":1,"prev":""}"#;
    const TURN: &str = r#"{"kind":"turn","request_id":"r1","agent_id":"otter","namespace":"pond","pod":"otter-0","timestamp":"2026-11-24T08:00:01Z","dialect":"openai","token":"t","http_status":200,"duration_ms":9,"status":"ok","usage":{"prompt_tokens":3,"completion_tokens":4},"tool_trace":[{"round":1,"round_usage":{"prompt_tokens":3,"completion_tokens":4},"tool_calls":[{"call_id":"r1-1-0","name":"desk.quote","arguments":{"n":1},"result":{"ok":true},"latency_ms":7,"executed":true},{"call_id":"r1-1-1","name":"desk.order","arguments":{},"result":{"ok":false,"error":{"code":"permission_denied","message":"no"}},"latency_ms":0,"executed":false}]}],"chain":"c","seq":2,"prev":""}"#;
    /// As an earlier release wrote them.
    const OLD_INTENT: &str = r#"{"kind":"intent","request_id":"r0","agent_id":"otter","pod":"otter-0","timestamp":"2026-11-23T08:00:00Z","round":1,"name":"desk.quote","arguments":{},"service":"desk","tier":"ReadOnly","read_only":true}"#;

    fn check(lines: &[&str], expected: &[(&str, &str, Outcome)]) -> Statistics {
        let mut found = Vec::new();
        let mut joiner = Joiner::default();
        let mut out = |entry| {
            if let Entry::Call(call) = entry {
                found.push((call.call_id, call.when, call.outcome));
            }
        };
        for line in lines {
            joiner.push(line.as_bytes(), &mut out);
        }
        let statistics = joiner.end(&mut out);
        let found: Vec<_> = found
            .iter()
            .map(|(id, when, outcome)| (&**id, &**when, *outcome))
            .collect();
        assert_eq!(found, expected);
        statistics
    }

    const AT: &str = "2026-11-24T08:00:00Z";
    const BOTH: [(&str, &str, Outcome); 2] = [
        ("r1-1-0", AT, Outcome::Ok),
        ("r1-1-1", "2026-11-24T08:00:01Z", Outcome::Denied),
    ];

    #[test]
    fn an_intent_gets_its_outcome_from_the_turn() {
        check(&[INTENT, TURN], &BOTH);
    }

    #[test]
    fn a_call_that_was_not_sent_has_the_time_of_its_reply() {
        let turn = TURN.replace(r#""round":1,"#, r#""round":1,"received_ms":4,"#);
        let denied = ("r1-1-1", "2026-11-24T08:00:00.995Z", Outcome::Denied);
        check(&[INTENT, &turn], &[BOTH[0], denied]);
        // A line that contradicts itself is ignored.
        let turn = TURN.replace(r#""round":1,"#, r#""round":1,"received_ms":999,"#);
        check(&[INTENT, &turn], &BOTH);
    }

    #[test]
    fn an_intent_without_an_outcome_is_unknown() {
        check(&[INTENT], &[("r1-1-0", AT, Outcome::Unknown)]);
        let at = "2026-11-23T08:00:00Z";
        check(&[OLD_INTENT], &[("", at, Outcome::Unknown)]);
    }

    #[test]
    fn only_a_successful_repetition_with_the_same_key_settles_an_attempt() {
        let call = |index: u32, key: &str, result: &str| {
            format!(
                r#"{{"call_id":"r1-{index}-0","idempotency_key":"{key}","name":"desk.order","arguments":{{}},"result":{result},"latency_ms":7,"executed":true}}"#
            )
        };
        let late = r#"{"ok":false,"error":{"code":"timeout","message":"late"}}"#;
        let calls = [
            call(1, "r1-1-0", late),
            call(2, "r1-1-0", r#"{"ok":true}"#),
            call(3, "r1-3-0", late),
            call(
                4,
                "r1-3-0",
                r#"{"ok":false,"error":{"code":"http_503","message":"busy"}}"#,
            ),
        ];
        let rounds = TURN.find("[{\"call_id\"").unwrap();
        let end = TURN.find("}],\"chain\"").unwrap();
        let turn = format!("{}[{}]{}", &TURN[..rounds], calls.join(","), &TURN[end..]);
        let mut found = Vec::new();
        let mut joiner = Joiner::default();
        joiner.push(turn.as_bytes(), &mut |entry| {
            if let Entry::Call(call) = entry {
                found.push((
                    call.call_id.clone(),
                    call.settled_by.clone(),
                    call.is_unsettled(),
                ));
            }
        });
        let row = |id: &str, by: Option<&str>, unsettled| {
            (id.to_owned(), by.map(str::to_owned), unsettled)
        };
        let expected = [
            row("r1-1-0", Some("r1-2-0"), false),
            row("r1-2-0", None, false),
            row("r1-3-0", None, true),
            row("r1-4-0", None, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_of_two_sources_are_one_call() {
        check(&[INTENT, INTENT, TURN, TURN], &BOTH);
        check(&[INTENT, TURN, INTENT, TURN], &BOTH);
    }

    #[test]
    fn unreadable_lines_are_counted() {
        let gap = r#"{"kind":"gap","lines":4}"#;
        let log = r#"{"level":"INFO","message":"serving"}"#;
        let statistics = check(&[gap, log, "", "{\"kind\":\"turn\"", "{torn"], &[]);
        assert_eq!((statistics.missed, statistics.broken), (4, 2));
    }

    #[test]
    fn ranges_join() {
        let mut ranges = Ranges::default();
        for number in [3, 5, 4, 0, u64::MAX] {
            assert!(ranges.insert(number));
            assert!(!ranges.insert(number));
        }
        assert_eq!(
            ranges.0.into_iter().collect::<Vec<_>>(),
            [(0, 0), (3, 5), (u64::MAX, u64::MAX)]
        );
    }
}
