//! Tests every limit of a grant on a node: a model in each dialect, and the agent itself as an MCP
//! client, make calls within and beyond it. The record must name the rule, and a policy test of the
//! same cases must agree.
//!
//! Not here: limits that the link takes away (`sidecar/tests/mediator`), and windows that close without
//! the operator (`tests/outage`).

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::{Platform, PollResult};

use crate::offline::plugin;
use crate::support::{Desk, START};

const HERE: &str = "limits";
const AGENT: &str = "limited";
const WAYS: [&str; 4] = ["chat", "responses", "messages", "native"];
const TRADE: &str = "trading-api.execute_trade";

/// A call of `execute_trade`, and the error code that the model gets.
struct Case {
    words: &'static str,
    arguments: fn() -> Value,
    code: Option<&'static str>,
}

/// Calls beyond a limit. A refused call counts against no rate.
const REFUSED: [Case; 3] = [
    Case {
        words: "another pinned value",
        arguments: || json!({"symbol": "OTTR", "quantity": 5, "side": "sell"}),
        code: Some("condition_failed"),
    },
    Case {
        words: "too large a number",
        arguments: || json!({"symbol": "OTTR", "quantity": 500}),
        code: Some("condition_failed"),
    },
    Case {
        words: "a condition that does not hold",
        arguments: || json!({"symbol": "NEWT", "quantity": 5}),
        code: Some("condition_failed"),
    },
];

const WITHIN: Case = Case {
    words: "within all limits",
    arguments: || json!({"symbol": "OTTR", "quantity": 5}),
    code: None,
};

fn cases() -> impl Iterator<Item = &'static Case> {
    REFUSED.iter().chain([&WITHIN])
}

#[test]
fn each_limit_holds_in_each_way_to_call_a_tool() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.play(&script()?)?;
    desk.platform.apply(include_str!("objects.yaml"))?;
    desk.platform.apply(include_str!("pod.yaml"))?;
    desk.platform.wait_ready(HERE, &[AGENT])?;
    desk.wait_in_force(AGENT)?;

    for case in cases() {
        for way in WAYS {
            let answer = call(&desk, way, case)?;
            let found = answer["error"]["code"].as_str();
            assert_eq!(found, case.code, "{way}, {}: {answer}", case.words);
        }
    }
    // One call per way has used up the rate.
    for way in WAYS {
        let answer = call(&desk, way, &WITHIN)?;
        let error = &answer["error"];
        assert_eq!(error["code"], "rate_limited", "{way}: {answer}");
        let wait = error["details"]["retry_after_s"].as_u64();
        ensure!(wait.is_some_and(|wait| wait > 23 * 3600), "{way}: {answer}");
    }
    let trades = desk.asked()?;
    let trades: Vec<&Value> = trades.iter().filter(|it| it["method"] == "POST").collect();
    assert_eq!(trades.len(), WAYS.len(), "{trades:?}");

    for way in WAYS {
        let read = run_call(
            &desk,
            way,
            "read",
            "trading-api__get_market_context",
            &json!({}),
        )?;
        assert_eq!(read["ok"], true, "{way}: {read}");
    }
    the_record_names_the_rules(&desk)?;
    a_policy_test_says_the_same()?;
    desk.passed()
}

fn call(desk: &Desk, way: &str, case: &Case) -> Result<Value> {
    let arguments = (case.arguments)();
    run_call(
        desk,
        way,
        case.words,
        "trading-api__execute_trade",
        &arguments,
    )
}

/// Makes a call and returns its result. The words tell a model which call to make; an MCP client
/// makes the call itself.
fn run_call(desk: &Desk, way: &str, words: &str, tool: &str, arguments: &Value) -> Result<Value> {
    let arguments = arguments.to_string();
    let program = ["python3", "/agent/call.py", way, words, tool, &arguments];
    let said = desk.platform.exec(HERE, AGENT, &program)?;
    serde_json::from_str(&said).with_context(|| format!("{way}: {said}"))
}

/// Returns a script: the model makes the call that the words name, and then quotes its result.
fn script() -> Result<String> {
    let step = |words: &str, tool: &str, arguments: Value| {
        json!({"when": {"user_contains": words, "round": 0},
            "reply": {"calls": [{"tool": {"named": tool}, "arguments": arguments}]}})
    };
    let mut steps: Vec<Value> = cases()
        .map(|case| step(case.words, "trading-api__execute_trade", (case.arguments)()))
        .collect();
    steps.push(step("read", "trading-api__get_market_context", json!({})));
    steps.push(json!({"reply": {"text": "{tool_result}"}}));
    Ok(serde_json::to_string(&json!({ "steps": steps }))?)
}

/// Checks that each call is in the record: with its grant and rule if it ran, with its code if not.
fn the_record_names_the_rules(desk: &Desk) -> Result<()> {
    let of = |record: &[Value], name: &str| -> Vec<Value> {
        let rounds = record
            .iter()
            .filter_map(|line| line["tool_trace"].as_array());
        let calls = rounds
            .flatten()
            .filter_map(|it| it["tool_calls"].as_array());
        calls
            .flatten()
            .filter(|it| it["name"] == name)
            .cloned()
            .collect()
    };
    let expected = WAYS.len() * (cases().count() + 1);
    let (trades, reads) =
        desk.platform
            .eventually("the calls to be in the record", START, || {
                let record = desk.record(AGENT)?;
                let trades = of(&record, TRADE);
                let reads = of(&record, "trading-api.get_market_context");
                match trades.len() == expected && reads.len() == WAYS.len() {
                    true => Ok(PollResult::Yes((trades, reads))),
                    false => Ok(PollResult::NotYet(format!("{trades:?} {reads:?}"))),
                }
            })?;
    let ran = trades.iter().filter(|it| it["executed"] == true);
    let ran: Vec<&Value> = ran.collect();
    assert_eq!(ran.len(), WAYS.len(), "{trades:?}");
    for call in ran {
        assert_eq!(call["grant"]["name"], "limited-trades", "{call}");
        let rule = call["rule"].as_str();
        ensure!(rule.is_some_and(|rule| rule.starts_with("r1:")), "{call}");
        assert_eq!(call["arguments"]["side"], "buy", "{call}");
    }
    let with = |code: &str| {
        let of_code = |it: &&Value| it["result"]["error"]["code"] == code;
        trades.iter().filter(of_code).count()
    };
    assert_eq!(
        with("condition_failed"),
        REFUSED.len() * WAYS.len(),
        "{trades:?}"
    );
    assert_eq!(with("rate_limited"), WAYS.len(), "{trades:?}");
    for call in &reads {
        assert_eq!(call["grant"]["name"], "limited-reads", "{call}");
        let would_deny = call["would_deny"].as_str().unwrap_or_default();
        ensure!(would_deny.starts_with("condition_failed"), "{call}");
    }
    Ok(())
}

/// Checks that the command line decides the same calls alike, without a cluster.
fn a_policy_test_says_the_same() -> Result<()> {
    let mut tested: Vec<Value> = cases()
        .map(|case| {
            let expect = match case.code {
                None => json!({"result": "Allowed", "by": "ToolGrant/limited-trades"}),
                Some(code) => json!({"result": "Denied", "code": code}),
            };
            json!({"name": case.words, "call": TRADE, "arguments": (case.arguments)(), "expect": expect})
        })
        .collect();
    tested.push(
        json!({"call": TRADE, "arguments": (WITHIN.arguments)(), "previousCalls": WAYS.len(),
        "expect": {"result": "Denied", "code": "rate_limited"}}),
    );
    tested.push(json!({"call": "trading-api.get_market_context",
        "expect": {"result": "Allowed", "wouldDeny": "condition_failed"}}));
    let test = json!({"apiVersion": "cli.toolcrib.dev/v1alpha1", "kind": "ToolTest",
        "metadata": {"name": "limits", "namespace": HERE}, "spec": {"agent": AGENT, "cases": tested}});
    let folder = tempfile::tempdir()?;
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
    // The provider of the example has no endpoint for Anthropic: the other file replaces it.
    let example = Platform::example(Some(HERE))?;
    let without = example
        .split("\n---\n")
        .filter(|it| !it.contains("kind: ModelProvider"));
    write("example.yaml", &without.collect::<Vec<_>>().join("\n---\n"))?;
    write("objects.yaml", include_str!("objects.yaml"))?;
    write("test.yaml", &test.to_string())?;
    run(Command::new(plugin()?)
        .args(["test", "-f"])
        .arg(folder.path()))?;
    Ok(())
}
