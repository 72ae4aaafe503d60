//! `propose`: a grant from a record allows the calls of the record, and refuses near misses.
//!
//! The calls are decided by `test`, which compiles the grant and asks the mediator's own code.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::fs;
use std::path::Path;

use common::{folder, run, text};
use serde_json::{Value, json};
use toolcrib_golden::{expect, here};

/// One call of the record.
struct RecordedCall {
    namespace: &'static str,
    agent: &'static str,
    tool: String,
    arguments: Value,
    outcome: Outcome,
}

enum Outcome {
    Succeeded,
    Failed,
    Denied,
}

fn otter(tool: &str, arguments: Value) -> RecordedCall {
    RecordedCall {
        namespace: "pond",
        agent: "otter",
        tool: tool.to_owned(),
        arguments,
        outcome: Outcome::Succeeded,
    }
}

/// A thousand calls of the otter that succeeded.
fn thousand() -> Vec<RecordedCall> {
    let call = |n: usize| match n % 10 {
        0..7 => otter("bank.pay", payment(n)),
        7 => otter(
            "bank.rate",
            json!({"pair": (["EUR USD", "EUR GBP"][n / 10 % 2])}),
        ),
        8 if n < 50 => otter("bank.balance", json!({"account": "A-17"})),
        _ => otter(
            "news.search",
            json!({"query": format!("otters {n}"), "limit": 10}),
        ),
    };
    (0..1000).map(call).collect()
}

fn payment(n: usize) -> Value {
    let mut arguments = json!({
        "claw_id": "otter",
        "account": "A-17",
        "amount": 10 + n % 90,
        "currency": (["EUR", "USD"][n % 2]),
        "day": format!("2026-11-0{}", 1 + n % 5),
        "memo": format!("invoice {n}"),
        "reference": format!("R-{n}"),
        "tags": ["otter"],
        "urgent": false,
    });
    if n.is_multiple_of(3) {
        arguments["approver"] = ["ann", "bob"][n % 2].into();
    }
    arguments
}

/// Calls that must not widen the grant.
fn others() -> Vec<RecordedCall> {
    let mut calls = Vec::new();
    for n in 0..40 {
        let mut stolen = payment(n);
        stolen["account"] = json!("A-66");
        calls.push(RecordedCall {
            outcome: Outcome::Failed,
            ..otter("bank.pay", stolen.clone())
        });
        calls.push(RecordedCall {
            outcome: Outcome::Denied,
            ..otter("bank.pay", stolen.clone())
        });
        calls.push(RecordedCall {
            outcome: Outcome::Failed,
            ..otter("bank.refund", json!({"account": "A-17"}))
        });
        calls.push(RecordedCall {
            outcome: Outcome::Denied,
            ..otter("bank.close_account", json!({"account": "A-17"}))
        });
        calls.push(RecordedCall {
            agent: "heron",
            ..otter("bank.list_accounts", json!({}))
        });
        calls.push(RecordedCall {
            namespace: "sea",
            ..otter("bank.pay", stolen)
        });
    }
    calls
}

fn line(n: usize, call: &RecordedCall) -> String {
    let error = |code: &str| json!({"ok": false, "error": {"code": code, "message": "no"}});
    let (result, executed) = match call.outcome {
        Outcome::Succeeded => (json!({"ok": true}), true),
        Outcome::Failed => (error("request_failed"), true),
        Outcome::Denied => (error("condition_failed"), false),
    };
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
    let time = format!("2026-11-24T{:02}:{:02}:00Z", n / 60 % 24, n % 60);
    json!({
        "kind": "turn", "request_id": format!("r{n}"), "agent_id": call.agent,
        "namespace": call.namespace, "pod": format!("{}-0", call.agent), "timestamp": time,
        "dialect": "openai_chat", "token": "t1", "http_status": 200, "duration_ms": 9,
        "status": "ok", "usage": usage,
        "tool_trace": [{"round": 1, "round_usage": usage, "tool_calls": [{
            "call_id": format!("r{n}-1-0"), "name": call.tool, "arguments": call.arguments,
            "result": result, "latency_ms": 7, "executed": executed,
        }]}],
    })
    .to_string()
}

fn record(calls: &[RecordedCall]) -> Vec<String> {
    let lines = calls.iter().enumerate();
    lines.map(|(n, call)| line(n, call)).collect()
}

/// Proposes from a record in `folder`.
fn propose(folder: &Path, lines: &[String], flags: &[&str]) -> String {
    fs::write(folder.join("history.jsonl"), lines.join("\n") + "\n").unwrap();
    let objects = common::folder("propose/objects.yaml");
    let mut arguments = vec!["propose", "otter", "-n", "pond", "-f", "history.jsonl"];
    arguments.extend(["--against", objects.to_str().unwrap()]);
    arguments.extend(flags);
    let output = run(folder, &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Decides calls with the objects whose grants are replaced by `grant`.
fn decide(grant: &str, cases: &[Value]) {
    let files = tempfile::tempdir().unwrap();
    let objects = fs::read_to_string(folder("propose/objects.yaml")).unwrap();
    let kept: Vec<&str> = objects
        .split("\n---\n")
        .filter(|part| !part.contains("kind: ToolGrant"))
        .collect();
    let test = json!({
        "apiVersion": "cli.toolcrib.dev/v1alpha1", "kind": "ToolTest",
        "metadata": {"name": "record", "namespace": "pond"},
        "spec": {"agent": "otter", "cases": cases},
    });
    fs::write(files.path().join("objects.yaml"), kept.join("\n---\n")).unwrap();
    fs::write(files.path().join("grant.yaml"), grant).unwrap();
    fs::write(files.path().join("test.json"), test.to_string()).unwrap();
    let output = run(files.path(), &["test", "-f", "."]);
    let said = text(&output.stdout);
    let failed: Vec<&str> = said.lines().filter(|it| !it.starts_with("ok ")).collect();
    let expected = format!("{} passed, 0 failed", cases.len());
    assert_eq!(failed, [expected], "{}", text(&output.stderr));
}

fn case(tool: &str, arguments: &Value, result: &str) -> Value {
    json!({"name": format!("{tool} {arguments}"), "call": tool, "arguments": arguments,
        "expect": {"result": result}})
}

/// Calls that are near those of the record: a tool, and a merge patch over a recorded call of it, in
/// which null removes an argument.
const NEAR_MISSES: [(&str, &str); 50] = [
    ("bank.pay", r#"{"account": "A-18"}"#),
    ("bank.pay", r#"{"account": "A-66"}"#),
    ("bank.pay", r#"{"account": "A-1"}"#),
    ("bank.pay", r#"{"account": "A-177"}"#),
    ("bank.pay", r#"{"account": "a-17"}"#),
    ("bank.pay", r#"{"account": "A-17 "}"#),
    ("bank.pay", r#"{"account": " A-17"}"#),
    ("bank.pay", r#"{"account": "A-17\u0000"}"#),
    ("bank.pay", r#"{"account": "A\u201117"}"#),
    ("bank.pay", r#"{"account": ""}"#),
    ("bank.pay", r#"{"account": 17}"#),
    ("bank.pay", r#"{"account": ["A-17"]}"#),
    ("bank.pay", r#"{"account": {"is": "A-17"}}"#),
    ("bank.pay", r#"{"Account": "A-18"}"#),
    ("bank.pay", r#"{"currency": "GBP"}"#),
    ("bank.pay", r#"{"currency": "eur"}"#),
    ("bank.pay", r#"{"currency": "EURO"}"#),
    ("bank.pay", r#"{"currency": ""}"#),
    ("bank.pay", r#"{"currency": ["EUR"]}"#),
    ("bank.pay", r#"{"currency": null}"#),
    ("bank.pay", r#"{"currency": "usd"}"#),
    ("bank.pay", r#"{"currency": "USD "}"#),
    ("bank.pay", r#"{"approver": "ANN"}"#),
    ("bank.pay", r#"{"approver": "bob "}"#),
    ("bank.pay", r#"{"approver": ["ann"]}"#),
    ("bank.pay", r#"{"approver": "carol"}"#),
    ("bank.pay", r#"{"approver": "Ann"}"#),
    ("bank.pay", r#"{"approver": "ann bob"}"#),
    ("bank.pay", r#"{"approver": ""}"#),
    ("bank.pay", r#"{"approver": 3}"#),
    ("bank.pay", r#"{"urgent": true}"#),
    ("bank.pay", r#"{"urgent": "false"}"#),
    ("bank.pay", r#"{"urgent": 0}"#),
    ("bank.pay", r#"{"amount": -1}"#),
    ("bank.pay", r#"{"force": true}"#),
    ("bank.rate", r#"{"pair": "USD GBP"}"#),
    ("bank.rate", r#"{"pair": "EUR-USD"}"#),
    ("bank.rate", r#"{"pair": "EUR  USD"}"#),
    ("bank.rate", r#"{"pair": null}"#),
    ("news.search", r#"{"limit": 11}"#),
    ("news.search", r#"{"limit": 9}"#),
    ("news.search", r#"{"limit": 1000}"#),
    ("news.search", r#"{"limit": -10}"#),
    ("news.search", r#"{"limit": "10"}"#),
    ("news.search", r#"{"query": null}"#),
    ("news.publish", r#"{}"#),
    ("bank.refund", r#"{}"#),
    ("bank.close_account", r#"{}"#),
    ("bank.list_accounts", r#"{}"#),
    ("bank.payment", r#"{}"#),
];

fn near_misses(calls: &[RecordedCall]) -> Vec<Value> {
    let cases = NEAR_MISSES.iter().map(|(tool, patch)| {
        let recorded = calls.iter().find(|call| call.tool == *tool);
        let mut arguments = recorded.map_or(json!({}), |call| call.arguments.clone());
        let patch: Value = serde_json::from_str(patch).unwrap();
        json_patch::merge(&mut arguments, &patch);
        case(tool, &arguments, "Denied")
    });
    cases.collect()
}

#[test]
fn the_grant_of_a_thousand_calls_allows_them_and_refuses_near_misses() {
    let files = tempfile::tempdir().unwrap();
    let calls = thousand();
    let lines = [record(&calls), record(&others())].concat();
    let grant = propose(files.path(), &lines, &[]);
    expect(here!(), &folder("propose/thousand.yaml"), &grant);

    let recorded = calls
        .iter()
        .map(|call| case(&call.tool, &call.arguments, "Allowed"));
    let mut cases: Vec<Value> = recorded.collect();
    assert_eq!(cases.len(), 1000);
    cases.extend(near_misses(&calls));
    decide(&grant, &cases);
}

#[test]
fn bounds_refuse_numbers_outside_of_the_record() {
    let files = tempfile::tempdir().unwrap();
    let calls = thousand();
    let grant = propose(files.path(), &record(&calls), &["--bounds"]);
    let with = |amount: Value, result: &str| {
        let mut arguments = calls[0].arguments.clone();
        arguments["amount"] = amount;
        case("bank.pay", &arguments, result)
    };
    let mut cases = vec![
        with(json!(10), "Allowed"),
        with(json!(96), "Allowed"),
        with(json!(10.5), "Allowed"),
        with(json!(9.99), "Denied"),
        with(json!(96.01), "Denied"),
        with(json!(1e9), "Denied"),
    ];
    cases.extend(
        calls
            .iter()
            .map(|call| case(&call.tool, &call.arguments, "Allowed")),
    );
    decide(&grant, &cases);
}

#[test]
fn any_order_of_the_record_gives_the_same_bytes() {
    let files = tempfile::tempdir().unwrap();
    let mut lines = [record(&thousand()), record(&others())].concat();
    for output in ["yaml", "tests", "json"] {
        let flags = ["-o", output, "--arguments"];
        let first = propose(files.path(), &lines, &flags);
        lines.reverse();
        assert_eq!(first, propose(files.path(), &lines, &flags));
    }
}

/// The grant and its tests are files for `test`.
#[test]
fn the_proposed_tests_pass() {
    let files = tempfile::tempdir().unwrap();
    let lines = record(&thousand());
    let grant = propose(files.path(), &lines, &[]);
    for flags in [&["-o", "tests"][..], &["-o", "tests", "--arguments"]] {
        let tests = propose(files.path(), &lines, flags);
        let read: Value = serde_yaml::from_str(&tests).unwrap();
        let cases = read["spec"]["cases"].as_array().unwrap();
        let of = |result: &str| {
            let cases = cases.iter();
            cases.filter(|it| it["expect"]["result"] == result).count()
        };
        assert!(of("Allowed") >= 4 && of("Denied") >= 8, "{tests}");
        decide(&grant, cases);
    }
}

#[test]
fn recorded_texts_are_written_on_request_only() {
    let files = tempfile::tempdir().unwrap();
    let lines = record(&thousand());
    let has_memo = |flags: &[&str]| propose(files.path(), &lines, flags).contains("invoice ");
    assert!(!has_memo(&[]));
    assert!(!has_memo(&["-o", "tests"]));
    assert!(!has_memo(&["-o", "json"]));
    assert!(has_memo(&["-o", "tests", "--arguments"]));
}

/// Nineteen calls are too few, and twenty are enough.
#[test]
fn limits_need_twenty_calls() {
    let files = tempfile::tempdir().unwrap();
    let calls = |number: usize| {
        let rate = |_| otter("bank.rate", json!({"pair": "EUR USD"}));
        record(&(0..number).map(rate).collect::<Vec<_>>())
    };
    let pins = |number| propose(files.path(), &calls(number), &[]).contains("pin:");
    assert!(!pins(19));
    assert!(pins(20));
}

/// A pin is filled in by the mediator, so it would change calls that lack the argument.
#[test]
fn an_argument_that_some_calls_lack_is_not_pinned() {
    let files = tempfile::tempdir().unwrap();
    let call = |n: usize| match n {
        0 => otter("bank.rate", json!({})),
        _ => otter("bank.rate", json!({"pair": "EUR USD"})),
    };
    let calls: Vec<RecordedCall> = (0..30).map(call).collect();
    let grant = propose(files.path(), &record(&calls), &[]);
    assert!(
        !grant.contains("pin:") && !grant.contains("required:"),
        "{grant}"
    );
    decide(
        &grant,
        &[
            case("bank.rate", &json!({}), "Allowed"),
            case("bank.rate", &json!({"pair": "EUR USD"}), "Allowed"),
            case("bank.rate", &json!({"pair": "EUR GBP"}), "Denied"),
        ],
    );
}

#[test]
fn arguments_that_the_record_lacks_stay_open() {
    let files = tempfile::tempdir().unwrap();
    let call = |n: usize| match n {
        0 => otter("bank.rate", Value::Null),
        _ => otter("bank.rate", json!({"pair": "EUR USD"})),
    };
    let calls: Vec<RecordedCall> = (0..30).map(call).collect();
    let grant = propose(files.path(), &record(&calls), &[]);
    assert!(
        grant.contains("# rate: open arguments: pair (not in the record of every call)"),
        "{grant}"
    );
    decide(
        &grant,
        &[case("bank.rate", &json!({"pair": "EUR GBP"}), "Allowed")],
    );
}

/// A limit beside such a number would refuse the call, since the check compares rounded values.
#[test]
fn a_number_with_too_many_digits_keeps_its_tool_open() {
    let files = tempfile::tempdir().unwrap();
    let calls: Vec<RecordedCall> = (0..30).map(|n| otter("bank.rate", payment(n))).collect();
    let mut lines = record(&calls);
    let long = r#""pair":"EUR USD","amount":0.1234567890123456789012345"#;
    lines[0] = lines[0].replace(r#""account":"A-17""#, long);
    let grant = propose(files.path(), &lines, &[]);
    assert!(
        grant.contains("a call has a number with too many digits"),
        "{grant}"
    );
}

/// Values of the record cannot add to the file, and memory and output are bounded.
#[test]
fn a_hostile_record_adds_nothing() {
    let files = tempfile::tempdir().unwrap();
    let hostile = [
        "x\nspec: {agents: [heron]}",
        "x # y",
        "a: b",
        "- a",
        "'",
        "\"",
        "*a",
        "\u{2028}kind: Secret",
        "\u{1b}[2J",
        "\u{202e}",
        "yes",
        "",
    ];
    for value in hostile {
        let call = |n: usize| {
            let mut arguments = payment(n);
            arguments["account"] = json!(value);
            arguments["note"] = json!(value);
            arguments[value] = json!(value);
            otter("bank.pay", arguments)
        };
        let mut calls: Vec<RecordedCall> = (0..30).map(call).collect();
        calls.push(otter(&format!("bank.{value}"), json!({})));
        let grant = propose(files.path(), &record(&calls), &[]);
        let bad = |c: char| c.is_control() && c != '\n' || ['\u{2028}', '\u{202e}'].contains(&c);
        assert!(!grant.contains(bad), "{grant}");
        let read: Value = serde_yaml::from_str(&grant).unwrap();
        assert_eq!(read["spec"]["agents"], json!(["otter"]));
        assert_eq!(read["spec"]["tools"].as_array().unwrap().len(), 1);
        let pin = &read["spec"]["tools"][0]["arguments"]["pin"]["account"];
        assert!(pin.is_null() || pin == value, "{grant}");
    }
    let many = |n: usize| otter(&format!("bank.x{n}"), json!({}));
    let mut calls: Vec<RecordedCall> = (0..5_000).map(many).collect();
    calls.push(otter("bank.balance", json!({})));
    let grant = propose(files.path(), &record(&calls), &[]);
    assert!(grant.len() < 4096, "{grant}");
}
