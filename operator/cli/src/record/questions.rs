//! The questions about calls in a record: which of them wait for a decision.
//!
//! A question belongs to the call that asked first. Its end comes in one of three lines: the intent of
//! the call, a decision, or the turn of its request, after which the question may stay open. Invariant:
//! memory is bounded; the oldest question is given up first.

use std::collections::{HashMap, VecDeque};

use super::call::{Call, CallApproval, Entry, Outcome};

/// Most questions that are remembered. An agent may have 100 open.
const MAX_QUESTIONS: usize = 10_000;
/// Most bytes of the calls that are remembered.
const MAX_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Questions {
    /// By the id of the call that asked.
    by_call: HashMap<String, Question>,
    /// Ids of calls, by the id of their question.
    calls: HashMap<String, String>,
    /// Ids of the calls in the order of their lines. Those that are settled are still in it.
    order: VecDeque<String>,
    bytes: usize,
}

#[derive(Debug)]
struct Question {
    id: String,
    call: Call,
    decision: Option<CallApproval>,
    /// The request has ended, and its turn line has the call.
    is_answered: bool,
}

impl Questions {
    pub(super) fn ask(&mut self, id: String, call: Call, out: &mut impl FnMut(Entry)) {
        let call_id = call.call_id.clone();
        self.take(&call_id);
        self.bytes += call.weight();
        self.calls.insert(id.clone(), call_id.clone());
        self.order.push_back(call_id.clone());
        let question = Question {
            id,
            call,
            decision: None,
            is_answered: false,
        };
        self.by_call.insert(call_id, question);
        while self.order.len() > MAX_QUESTIONS || self.bytes > MAX_BYTES {
            self.give_up_oldest(out);
        }
    }

    pub(super) fn decide(&mut self, question: &str, decision: CallApproval) {
        let Some(call_id) = self.calls.get(question).cloned() else {
            return;
        };
        match self.by_call.get_mut(&call_id) {
            Some(question) if !question.is_answered => question.decision = Some(decision),
            Some(_) | None => self.settle(&call_id),
        }
    }

    /// The turn line of a call is read. Returns what persons decided about it until then.
    pub(super) fn answer(&mut self, call_id: &str) -> Option<CallApproval> {
        let question = self.by_call.get_mut(call_id)?;
        match question.decision.is_some() {
            true => self.take(call_id)?.decision,
            false => {
                question.is_answered = true;
                None
            }
        }
    }

    /// Forgets the question of a call.
    pub(super) fn settle(&mut self, call_id: &str) {
        self.take(call_id);
    }

    fn take(&mut self, call_id: &str) -> Option<Question> {
        let question = self.by_call.remove(call_id)?;
        self.calls.remove(&question.id);
        self.bytes = self.bytes.saturating_sub(question.call.weight());
        Some(question)
    }

    /// Emits what waits, and what persons decided about calls whose request has no turn line.
    pub(super) fn end(mut self, mut out: impl FnMut(Entry)) {
        while !self.order.is_empty() {
            self.give_up_oldest(&mut out);
        }
    }

    fn give_up_oldest(&mut self, out: &mut impl FnMut(Entry)) {
        let oldest = self.order.pop_front();
        let Some(question) = oldest.and_then(|call_id| self.take(&call_id)) else {
            return;
        };
        let mut call = Box::new(question.call);
        if let Some(decision) = question.decision {
            // Approved and not sent: its process ended in between.
            call.outcome = match decision.is_approval() {
                true => Outcome::Failed,
                false => Outcome::Denied,
            };
            call.message = None;
            call.approval = Some(decision);
        }
        out(match question.is_answered {
            true => Entry::Question(call),
            false => Entry::Call(call),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Joiner, Outcome};

    const QUESTION: &str = r#"{"kind":"question","request_id":"r1","call_id":"r1-1-0","agent_id":"otter","namespace":"pond","pod":"otter-0","timestamp":"2026-11-24T08:00:00Z","question":"q1","call_digest":"d","name":"desk.trade","entry":"e","tier":"System","arguments":{"n":1},"expires_at":"2026-11-24T09:00:00Z","chain":"c","seq":1,"prev":""}"#;
    const DECISION: &str = r#"{"kind":"decision","pod":"otter-0","timestamp":"2026-11-24T08:00:30Z","question":"q1","call_digest":"d","name":"desk.trade","verdict":"approved","approval":{"name":"otter-1","uid":"u"},"decided_by":["carol"],"reason":"fine","chain":"c","seq":2,"prev":""}"#;
    const INTENT: &str = r#"{"kind":"intent","request_id":"r1","call_id":"r1-1-0","agent_id":"otter","namespace":"pond","pod":"otter-0","timestamp":"2026-11-24T08:00:31Z","round":1,"name":"desk.trade","arguments":{"n":1},"service":"desk","tier":"System","read_only":false,"approval":{"question":"q1","name":"otter-1","uid":"u","decided_by":["carol"]},"chain":"c","seq":3,"prev":""}"#;
    const TURN: &str = r#"{"kind":"turn","request_id":"r1","agent_id":"otter","namespace":"pond","pod":"otter-0","timestamp":"2026-11-24T08:00:45Z","dialect":"openai","token":"t","http_status":200,"duration_ms":9,"status":"ok","usage":{"prompt_tokens":3,"completion_tokens":4},"tool_trace":[{"round":1,"round_usage":{"prompt_tokens":3,"completion_tokens":4},"tool_calls":[{"call_id":"r1-1-0","name":"desk.trade","arguments":{"n":1},"result":RESULT,"latency_ms":7,"executed":EXECUTED}]}],"chain":"c","seq":4,"prev":""}"#;

    fn turn(code: Option<&str>) -> String {
        let result = match code {
            None => r#"{"ok":true}"#.to_owned(),
            Some(code) => format!(r#"{{"ok":false,"error":{{"code":"{code}","message":"no"}}}}"#),
        };
        let executed = code.is_none().to_string();
        TURN.replace("RESULT", &result)
            .replace("EXECUTED", &executed)
    }

    /// The rows, as `call: outcome, approval` and `question: ...`.
    fn rows(lines: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let mut joiner = Joiner::default();
        let mut out = |entry| {
            let (what, call) = match entry {
                Entry::Call(call) => ("call", call),
                Entry::Question(call) => ("question", call),
                Entry::Request(_) | Entry::Rules(_) => return,
            };
            let approval = call.approval.as_ref().map(|it| it.words());
            let approval = approval.unwrap_or_default();
            found.push(format!("{what}: {} {approval}", call.outcome.name()));
        };
        for line in lines {
            joiner.push(line.as_bytes(), &mut out);
        }
        joiner.end(&mut out);
        found
    }

    #[test]
    fn a_question_without_a_decision_waits() {
        assert_eq!(rows(&[QUESTION]), ["call: waits for an approval "]);
        assert_eq!(
            rows(&[QUESTION, QUESTION]),
            ["call: waits for an approval "]
        );
    }

    #[test]
    fn an_approved_call_is_one_row_with_the_person() {
        let done = turn(None);
        let approved = ["call: ok approved by carol"];
        assert_eq!(rows(&[QUESTION, DECISION, INTENT, &done]), approved);
        let unknown = [format!(
            "call: {} approved by carol",
            Outcome::Unknown.name()
        )];
        assert_eq!(rows(&[QUESTION, DECISION, INTENT]), unknown);
        assert_eq!(
            rows(&[QUESTION, DECISION]),
            ["call: failed approved by carol"]
        );
    }

    #[test]
    fn a_denied_call_names_the_person() {
        let denied = DECISION.replace(r#""approved""#, r#""denied""#);
        let answered = turn(Some("approval_denied"));
        let row = ["call: denied denied by carol"];
        assert_eq!(rows(&[QUESTION, &denied, &answered]), row);
        assert_eq!(rows(&[QUESTION, &denied]), row);
    }

    #[test]
    fn a_question_may_outlive_its_request() {
        let pending = turn(Some("approval_pending"));
        assert_eq!(
            rows(&[QUESTION, &pending]),
            ["call: denied ", "question: waits for an approval "]
        );
        assert_eq!(rows(&[QUESTION, &pending, DECISION]), ["call: denied "]);
    }
}
