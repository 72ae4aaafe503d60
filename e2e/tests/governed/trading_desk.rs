//! The example, as described in the README.

use anyhow::{Result, ensure};

use crate::support::Desk;

#[test]
fn a_governed_call_succeeds_without_a_credential_of_the_agent() -> Result<()> {
    let desk = Desk::open("trading")?;
    desk.wait_in_force("analyst")?;
    desk.wait_in_force("executor")?;

    // The analyst's model sees the granted tool and the agent's own. A call of the granted one
    // reaches the service with the mediator's credential and identity.
    let answer = desk.ask("analyst", "What is my market context?")?;
    ensure!(
        answer.contains("analyst"),
        "the answer quotes the service's data: {answer}"
    );
    let requests = desk.model_requests()?;
    let first = requests.first().expect("the model was asked");
    assert_eq!(
        crate::support::offered(first),
        ["local_clock", "trading-api__get_market_context"]
    );
    let asked = desk.asked()?;
    let call = asked.last().expect("the service was asked");
    assert_eq!(call["principal"], "reader");
    assert_eq!(call["target"], "/api/v1/market_context/analyst");
    assert_eq!(call["claw_id"], "analyst");

    // Calling the tool that was not granted executes nothing, whatever the model writes.
    let before = desk.asked()?.len();
    let answer = desk.ask("analyst", "Make a trade: buy 3 OTTR")?;
    ensure!(
        answer.contains("\"ok\":false"),
        "a structured error: {answer}"
    );
    assert_eq!(desk.asked()?.len(), before, "nothing was executed");

    // The executor's call succeeds with its own credential.
    let answer = desk.ask("executor", "Make a trade: buy 3 OTTR")?;
    ensure!(answer.contains("filled"), "{answer}");
    let asked = desk.asked()?;
    let trade = asked.last().expect("the service was asked");
    assert_eq!(trade["principal"], "executor");
    assert_eq!(trade["target"], "/api/v1/trades");
    assert_eq!(trade["status"], 201);

    // The agent's own tool is left to the agent.
    let answer = desk.ask("analyst", "What does your clock say?")?;
    ensure!(answer.contains("seconds"), "{answer}");

    the_table(&desk)?;
    desk.passed()
}

/// Checks `kubectl get agents`, the first command of an admin.
fn the_table(desk: &Desk) -> Result<()> {
    let table = desk
        .platform
        .kubectl(&["get", "agents", "--namespace", &desk.namespace])?;
    // Finds cells by position and not by word: usage is empty until it is first written.
    let lines: Vec<&str> = table.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    let cell = |row: usize, name: &str| {
        let place = lines[0].find(name).expect("a column of that name");
        lines[row][place..].split("  ").next().unwrap_or_default()
    };
    for column in [
        "NAME",
        "MODE",
        "TOOLS",
        "READ-ONLY",
        "PODS",
        "IN-FORCE",
        "CALLS",
        "DENIED",
        "READY",
    ] {
        ensure!(head.contains(&column), "no column {column} in\n{table}");
    }
    assert_eq!(
        [
            "NAME",
            "MODE",
            "TOOLS",
            "READ-ONLY",
            "PODS",
            "IN-FORCE",
            "READY"
        ]
        .map(|name| cell(1, name)),
        ["analyst", "Mediated", "1", "1", "1", "1", "True"],
        "{table}"
    );
    assert_eq!(
        [
            "NAME",
            "MODE",
            "TOOLS",
            "READ-ONLY",
            "PODS",
            "IN-FORCE",
            "READY"
        ]
        .map(|name| cell(2, name)),
        ["executor", "Mediated", "2", "1", "1", "1", "True"],
        "{table}"
    );
    Ok(())
}

#[test]
fn the_official_sdk_streams_through_the_mediator() -> Result<()> {
    let desk = Desk::open("streams")?;
    desk.wait_in_force("analyst")?;
    let program = r#"
from openai import OpenAI
parts = []
for chunk in OpenAI().chat.completions.create(
        model="scripted/trader", stream=True,
        messages=[{"role": "user", "content": "What is my market context?"}]):
    for choice in chunk.choices:
        parts.append(choice.delta.content or "")
print("".join(parts))
"#;
    let answer = desk
        .platform
        .exec(&desk.namespace, "analyst", &["python3", "-c", program])?;
    ensure!(answer.contains("analyst"), "{answer}");
    assert_eq!(
        desk.asked()?.last().expect("the service was asked")["claw_id"],
        "analyst"
    );
    desk.passed()
}
