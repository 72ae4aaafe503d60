use serde_json::{Value, json};
use toolcrib_record::Chain;

use super::*;

/// A ledger, and the chain of a mediator that writes to it.
struct TestLedger {
    ledger: Ledger,
    chain: Chain,
}

impl TestLedger {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(Arc::default()),
            chain: Chain::new("c0ffee".to_owned()),
        }
    }

    /// Writes a line of the record.
    fn line(&mut self, line: Value) {
        let mut text = line.to_string().into_bytes();
        let sealed = self.chain.seal(&mut text);
        self.chain.advance(sealed);
        self.ledger.line(&text);
    }

    fn intent(&mut self, number: u64) {
        self.line(
            json!({"kind": "intent", "request_id": "r", "agent_id": "otter", "pod": "otter-0",
            "timestamp": "2026-02-03T04:05:06Z", "round": 1, "name": "pond.depth_0",
            "arguments": {"spot": format!("reed-{number}-0")}, "service": "pond",
            "tier": "ReadOnly", "read_only": true}),
        );
    }

    fn turn(&mut self, number: u64, executed: bool) {
        self.turn_with(number, json!({"executed": executed}));
    }

    /// `call`: members of its call.
    fn turn_with(&mut self, number: u64, call: Value) {
        let mut members = json!({"name": "pond.depth_0",
            "arguments": {"spot": format!("reed-{number}-0")}, "result": {}, "latency_ms": 1});
        for (name, value) in call.as_object().unwrap() {
            members[name] = value.clone();
        }
        let call = members;
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
        self.line(
            json!({"kind": "turn", "request_id": "r", "agent_id": "otter", "pod": "otter-0",
            "timestamp": "2026-02-03T04:05:06Z", "dialect": "openai_chat",
            "model": format!("house/otter-r1-n{number}"), "token": "token", "http_status": 200,
            "duration_ms": 1, "status": "ok", "usage": usage,
            "tool_trace": [{"round": 1, "tool_calls": [call], "round_usage": usage}]}),
        );
    }

    fn found(self) -> Vec<String> {
        self.ledger.finish();
        let findings = self.ledger.findings.all();
        findings
            .into_iter()
            .map(|(kind, it)| format!("{kind}: {}", it.example))
            .collect()
    }
}

#[track_caller]
fn check(written: TestLedger, finding: Option<&str>) {
    let found = written.found();
    match finding {
        None => assert_eq!(found, [""; 0]),
        Some(finding) => assert!(
            matches!(&found[..], [only] if only.contains(finding)),
            "{found:?}"
        ),
    }
}

#[test]
fn a_request_with_its_call_and_its_lines_is_fine() {
    let mut written = TestLedger::new();
    let mut line = written.ledger.announce(17);
    written.intent(17);
    written.ledger.called("reed-17-0");
    written.turn(17, true);
    assert_eq!(line.try_recv().unwrap().calls.len(), 1);
    check(written, None);
}

#[test]
fn a_request_without_a_line_is_found() {
    let written = TestLedger::new();
    drop(written.ledger.announce(17));
    check(written, Some("1 requests without a line; the first is 17"));
}

#[test]
fn a_second_line_of_a_request_is_found() {
    let mut written = TestLedger::new();
    let _line = written.ledger.announce(17);
    written.turn(17, false);
    written.turn(17, false);
    check(written, Some("a second line of request 17"));
}

#[test]
fn a_line_of_another_request_is_found() {
    let mut written = TestLedger::new();
    written.turn(17, false);
    check(written, Some("a request that was not sent"));
}

#[test]
fn an_executed_call_without_an_intent_is_found() {
    let mut written = TestLedger::new();
    let _line = written.ledger.announce(17);
    written.turn(17, true);
    check(written, Some("rounds 1 attempted, 0 with an intent"));
}

#[test]
fn an_intent_without_its_call_is_found_unless_the_connection_failed() {
    let refused = json!({"cause": "refused", "address": "http://127.0.0.1:9"});
    for (call, finding) in [
        (
            json!({"executed": false}),
            Some("rounds 0 attempted, 1 with an intent"),
        ),
        (json!({"executed": false, "connection": refused}), None),
    ] {
        let mut written = TestLedger::new();
        let _line = written.ledger.announce(17);
        written.intent(17);
        written.turn_with(17, call);
        check(written, finding);
    }
}

#[test]
fn a_call_that_only_the_service_knows_is_found() {
    let mut written = TestLedger::new();
    let _line = written.ledger.announce(17);
    written.turn(17, false);
    written.ledger.called("reed-17-0");
    check(written, Some("the service got 1, of which 0 are recorded"));
    let written = TestLedger::new();
    written.ledger.called("reed-18-0");
    check(written, Some("of a request without a record"));
}

#[test]
fn a_missing_line_breaks_the_chain() {
    let mut written = TestLedger::new();
    let _line = written.ledger.announce(17);
    let mut lost = br#"{"kind":"start"}"#.to_vec();
    let sealed = written.chain.seal(&mut lost);
    written.chain.advance(sealed);
    written.turn(17, false);
    check(written, Some("line 1 does not continue the chain"));
}

#[test]
fn a_gap_is_found() {
    let written = TestLedger::new();
    written.ledger.line(br#"{"kind":"gap","lines":3}"#);
    let found = written.found();
    assert!(
        found.iter().any(|it| it.contains("unexpected line")),
        "{found:?}"
    );
}

#[test]
fn the_name_of_a_call_has_its_request_and_round() {
    assert_eq!(call_of("reed-17-0"), Some((17, 1)));
    assert_eq!(call_of(r#"{"spot":"reed-203-7"}"#), Some((203, 1 << 7)));
    for other in ["", "reed 0", "reed-x-1", "reed-1", "reed-1-", "reed-1-99"] {
        assert_eq!(call_of(other), None, "{other}");
    }
}
