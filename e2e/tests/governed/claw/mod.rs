//! claw-api, set up as documented: an agent with a token of its own queries the operator about
//! the agents of its namespace, through its mediator.
//!
//! Not here: the authority of tokens, and each refusal (the operator's tests against an API
//! server).

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::support::{Desk, offered};

const HERE: &str = "claw";
const TOKEN: &str = "auditor-2f6d90c41b7e85a3";

#[test]
fn an_agent_with_the_grant_lists_its_namespaces_agents() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.play(include_str!("script.yaml"))?;
    desk.platform.apply(include_str!("objects.yaml"))?;
    desk.platform.wait_ready(HERE, &["auditor"])?;
    desk.wait_in_force("auditor")?;
    desk.wait_in_force("executor")?;

    let listed = answer(&desk, "who is there")?;
    let agents = listed["data"]["agents"].as_array();
    let agents = agents.with_context(|| format!("a list: {listed}"))?;
    let seen: Vec<Value> = agents
        .iter()
        .map(|agent| json!([agent["namespace"], agent["name"], agent["tools"]]))
        .collect();
    assert_eq!(
        seen,
        [
            json!([HERE, "analyst", 1]),
            json!([HERE, "auditor", 3]),
            json!([HERE, "executor", 2])
        ]
    );

    let explained = answer(&desk, "may the analyst trade")?;
    assert_eq!(explained["data"]["given"], false, "{explained}");
    ensure!(explained["data"]["because"][0].is_string(), "{explained}");
    // Agents exist in the other namespace, but this agent may not see them.
    let elsewhere = answer(&desk, "elsewhere")?;
    assert_eq!(elsewhere["ok"], false, "{elsewhere}");
    ensure!(
        elsewhere.to_string().contains("no_such_agent"),
        "{elsewhere}"
    );
    // A model may call any name; this tool is not granted.
    let refused = answer(&desk, "who called")?;
    assert_eq!(refused["ok"], false, "{refused}");

    let requests = desk.model_requests()?;
    let mut tools = offered(requests.first().context("the model was asked")?);
    tools.sort();
    assert_eq!(
        tools,
        [
            "claw-api__explain_tool",
            "claw-api__get_agent",
            "claw-api__list_agents",
            "local_clock"
        ]
    );
    ensure!(!Value::from(requests).to_string().contains(TOKEN));
    desk.passed()
}

/// Returns the tool result that the model got for the call that these words trigger.
fn answer(desk: &Desk, words: &str) -> Result<Value> {
    let said = desk.ask("auditor", words)?;
    serde_json::from_str(&said).with_context(|| said)
}
