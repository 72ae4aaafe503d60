//! Tests the mediator as an MCP server, for a third-party client and an agent framework.

use std::{
    fs,
    process::{Child, Command, Stdio},
    sync::mpsc,
};

use serde_json::{Value, json};
use toolcrib_e2e::packages;
use toolcrib_e2e::services::model::Script;

use crate::{
    machine::{self, DEADLINE, Laptop, example, example_files, market, repository},
    mediator::{Mediator, Version},
};

const TOOL: &str = "trading-api__get_market_context";

/// A script: the model calls the one tool that it is offered, and then quotes the result.
const MARKET: &str = "
steps:
- when: {round: 0, offers: get_market_context}
  reply: {calls: [{tool: {containing: get_market_context}}]}
- when: {round: 1}
  reply: {text: '{tool_result}'}
";

/// A running `native.py` in one of its modes, and its output by lines.
struct Client {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Client {
    fn start(mediator: &Mediator, what: &str) -> Self {
        let python = packages::python("requirements.txt").unwrap();
        let mut child = Command::new(python)
            .arg("-B")
            .arg(repository().join("e2e/sdk/native.py"))
            .arg(what)
            .envs(mediator.runner_environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = machine::lines(&mut child);
        Self { child, lines }
    }

    /// Waits for the next step that the program prints.
    fn next_step(&self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Err: the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn check_client(mode: &str, revision: &str) {
    let laptop = Laptop::start(Script::parse(MARKET).unwrap());
    let granted = Version::compiled(&laptop, &example(), "analyst").native("native", json!(true));
    let ungranted = tempfile::tempdir().unwrap();
    for (name, text) in example_files() {
        if !text.contains("kind: ToolGrant") {
            fs::write(ungranted.path().join(name), text).unwrap();
        }
    }
    let ungranted = Version::compiled(&laptop, ungranted.path(), "analyst");
    let ungranted = ungranted.native("native", json!(true));

    let mut mediator = Mediator::start(&granted);
    let client = Client::start(&mediator, mode);
    let expected = json!({"revision": revision, "tools": [TOOL], "error": false,
        "result": market("analyst", "reader")});
    assert_eq!(client.next_step(), expected);
    if mode == "auto" {
        assert_eq!(client.next_step(), json!({"listening": true}));
    }
    mediator.swap(&ungranted);
    let gone = client.next_step();
    assert_eq!(gone["tools"], json!([]));
    assert_eq!(gone["error"], true);
    assert_eq!(gone["result"]["error"]["code"], "permission_denied");
    assert_eq!(laptop.desk_log().len(), 1);
    assert_eq!(laptop.model_requests().len(), 0);
}

#[test]
fn the_official_client_lists_granted_tools_in_a_session_and_gets_changes() {
    check_client("legacy", "2025-11-25");
}

#[test]
fn the_official_client_lists_granted_tools_without_a_session_and_gets_changes() {
    check_client("auto", "2026-07-28");
}

#[test]
fn a_frameworks_agent_calls_tools_itself_and_its_model_requests_pass_unchanged() {
    let laptop = Laptop::start(Script::parse(MARKET).unwrap());
    let version = Version::compiled(&laptop, &example(), "analyst");
    let mediator = Mediator::start(&version.native("mode", json!("Native")));
    let said = Client::start(&mediator, "agent").next_step();
    assert_eq!(said["calls"], json!([TOOL]));
    let answer: Value = serde_json::from_str(said["answer"].as_str().unwrap()).unwrap();
    assert_eq!(answer, market("analyst", "reader"));
    assert_eq!(laptop.desk_log().len(), 1);
    assert_eq!(laptop.model_requests().len(), 2);
}
