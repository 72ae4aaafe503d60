//! Tests approvals on a node: the executor wants to make a large trade, the turn waits, and a person
//! with the approver's role and no other right decides with kubectl.
//!
//! Not here: forged decisions and faults of the leader (`operator/tests/apiserver`), and the waiting turn
//! in each dialect (`sidecar/tests/mediator`).

use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use toolcrib_e2e::approvals::{self, Person};
use toolcrib_e2e::platform::PollResult;

use crate::support::{Desk, START, condition};

const HERE: &str = "approvals";
const AGENT: &str = "executor";
const TRADE: &str = "trading-api.execute_trade";

#[test]
fn a_person_decides_a_large_trade() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.play(&script())?;
    desk.platform.apply(include_str!("objects.yaml"))?;
    desk.wait_in_force(AGENT)?;

    let small = desk.ask(AGENT, "a small trade")?;
    ensure!(small.contains("filled"), "{small}");
    let asked = approvals::all(&desk.platform, HERE)?;
    assert_eq!(asked.len(), 0, "nobody is asked");

    approved(&desk)?;
    denied(&desk)?;
    decided_later(&desk)?;
    withdrawn(&desk)?;
    // About nothing, so the controller deletes it after some time. The test of rights waits for that.
    let nothing = json!({
        "metadata": {"name": "nothing", "uid": "none", "namespace": HERE},
        "spec": {"callDigest": "c1:none"},
    });
    decide(&desk, &nothing, "carol", "Approve")?;
    desk.passed()
}

fn approved(desk: &Desk) -> Result<()> {
    let before = trades(desk)?;
    let (answer, name) = during(desk, "a large trade", |approval| {
        assert_eq!(trades(desk)?, before, "the trade waits");
        assert_eq!(approval["spec"]["tool"], TRADE);
        assert_eq!(approval["spec"]["agent"]["name"], AGENT);
        let arguments = approval["spec"]["arguments"]
            .as_str()
            .context("arguments")?;
        let arguments: Value = serde_json::from_str(arguments)?;
        assert_eq!(arguments["quantity"], 500, "{arguments}");
        // Not in the group: the decision is made, and does not count.
        let decision = decide(desk, &approval, "trainee", "Approve")?;
        wait_for(desk, "tooldecision", &decision, "Counted", "NotAnApprover")?;
        assert_eq!(trades(desk)?, before, "the trade still waits");
        let decision = decide(desk, &approval, "carol", "Approve")?;
        wait_for(desk, "tooldecision", &decision, "Counted", "Counted")?;
        Ok(())
    })?;
    ensure!(answer.contains("filled"), "{answer}");
    assert_eq!(trades(desk)?, before + 1, "the trade happened once");
    wait_for(desk, "toolapproval", &name, "Decided", "Approved")?;
    wait_for(desk, "toolapproval", &name, "Used", "Succeeded")?;
    let record = desk.record(AGENT)?;
    let names_carol = record.iter().any(|line| line.to_string().contains("carol"));
    ensure!(names_carol, "{record:?}");
    Ok(())
}

fn denied(desk: &Desk) -> Result<()> {
    let before = trades(desk)?;
    let (answer, name) = during(desk, "a second large trade", |approval| {
        decide(desk, &approval, "carol", "Deny").map(drop)
    })?;
    ensure!(answer.contains("approval_denied"), "{answer}");
    ensure!(answer.contains("too risky today"), "{answer}");
    assert_eq!(trades(desk)?, before, "nothing happened");
    wait_for(desk, "toolapproval", &name, "Decided", "Denied")
}

/// Nobody decides while the call waits. Later the same call meets the same question.
fn decided_later(desk: &Desk) -> Result<()> {
    let before = trades(desk)?;
    let wait = json!({"spec": {"policy": {"approvalWait": "5s"}}}).to_string();
    let patch = [
        "patch",
        "agent",
        AGENT,
        "--type=merge",
        "--namespace",
        HERE,
        "--patch",
        &wait,
    ];
    desk.platform.kubectl(&patch)?;
    // The change needs no time to arrive: without it the call waits longer, and ends alike.
    let answer = desk.ask(AGENT, "a third large trade")?;
    ensure!(answer.contains("approval_pending"), "{answer}");
    let approval = pending(desk)?;
    let name = approval["metadata"]["name"].as_str().context("a name")?;
    decide(desk, &approval, "carol", "Approve")?;
    wait_for(desk, "toolapproval", name, "Decided", "Approved")?;
    assert_eq!(trades(desk)?, before, "an approval alone makes no call");
    let answer = desk.ask(AGENT, "a third large trade")?;
    ensure!(answer.contains("filled"), "{answer}");
    assert_eq!(trades(desk)?, before + 1);
    wait_for(desk, "toolapproval", name, "Used", "Succeeded")
}

/// The rule for large trades goes while the call waits.
fn withdrawn(desk: &Desk) -> Result<()> {
    let before = trades(desk)?;
    let answer = desk.ask(AGENT, "a fourth large trade")?;
    ensure!(answer.contains("approval_pending"), "{answer}");
    let approval = pending(desk)?;
    let name = approval["metadata"]["name"].as_str().context("a name")?;
    let large = json!([{"op": "remove", "path": "/spec/tools/2"}]).to_string();
    let mut patch = vec!["patch", "toolgrant", "executor-trades", "--namespace", HERE];
    patch.extend(["--type=json", "--patch", &large]);
    desk.platform.kubectl(&patch)?;
    wait_for(desk, "toolapproval", name, "Decided", "Withdrawn")?;
    let answer = desk.ask(AGENT, "a fourth large trade")?;
    ensure!(answer.contains("condition_failed"), "{answer}");
    assert_eq!(trades(desk)?, before);
    Ok(())
}

/// Asks the agent, runs `meanwhile` with the ToolApproval that this makes, and returns the answer and
/// the approval's name.
fn during(
    desk: &Desk,
    question: &str,
    meanwhile: impl FnOnce(Value) -> Result<()>,
) -> Result<(String, String)> {
    thread::scope(|scope| {
        let asked = scope.spawn(|| desk.ask(AGENT, question));
        let approval = pending(desk)?;
        let name = approval["metadata"]["name"].as_str().context("a name")?;
        let name = name.to_owned();
        meanwhile(approval)?;
        let answer = asked
            .join()
            .map_err(|_| anyhow::anyhow!("the question"))??;
        Ok((answer, name))
    })
}

fn pending(desk: &Desk) -> Result<Value> {
    approvals::pending(&desk.platform, HERE, START)
}

/// Creates a ToolDecision as this user, who is a desk lead unless they are a trainee.
fn decide(desk: &Desk, approval: &Value, user: &str, verdict: &str) -> Result<String> {
    let groups: &[&str] = match user {
        "trainee" => &[],
        _ => &["desk-leads"],
    };
    let person = Person { name: user, groups };
    let reason = match verdict {
        "Deny" => "too risky today",
        _ => "",
    };
    let decision = approvals::decision(approval, person, verdict, reason);
    approvals::decide(&desk.platform, &decision, person)
}

/// Waits until the condition of an object has this reason.
fn wait_for(desk: &Desk, kind: &str, name: &str, condition_: &str, reason: &str) -> Result<()> {
    let words = format!("{kind} {name} to be {reason}");
    desk.platform.eventually(&words, START, || {
        let object = desk.platform.get(&[kind, name, "--namespace", HERE])?;
        let found = condition(&object, condition_);
        Ok(PollResult::when(
            found["reason"] == reason,
            object.to_string(),
        ))
    })?;
    Ok(())
}

/// The number of trades that the desk was asked for.
fn trades(desk: &Desk) -> Result<usize> {
    let asked = desk.asked()?;
    Ok(asked.iter().filter(|it| it["method"] == "POST").count())
}

/// Returns a script: the model makes the trade that the question names, and quotes the result.
fn script() -> String {
    let step = |words: &str, quantity: u32| {
        let arguments = json!({"symbol": "OTTR", "side": "buy", "quantity": quantity});
        json!({"when": {"user_contains": words, "round": 0},
            "reply": {"calls": [{"tool": {"named": "trading-api__execute_trade"}, "arguments": arguments}]}})
    };
    let steps = [
        step("a small trade", 5),
        step("a second large trade", 600),
        step("a third large trade", 700),
        step("a fourth large trade", 800),
        step("a large trade", 500),
        json!({"reply": {"text": "{tool_result}"}}),
    ];
    json!({ "steps": steps }).to_string()
}
