//! `propose` reads the record from the logs of running pods, with the user's own rights.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::PollResult;

use crate::offline::plugin;
use crate::support::{Desk, START};

const HERE: &str = "proposed";
const AGENT: &str = "executor";

#[test]
fn a_grant_is_proposed_from_the_logs_of_pods() -> Result<()> {
    let desk = Desk::open(HERE)?;
    desk.wait_in_force(AGENT)?;
    let filled = desk.ask(AGENT, "Make a trade")?;
    ensure!(filled.contains("filled"), "{filled}");
    // Calls of another agent, which are in no answer about this one.
    let context = desk.ask("analyst", "What is my market context?")?;
    ensure!(context.contains("analyst"), "{context}");
    let denied = desk.ask("analyst", "Make a trade")?;
    ensure!(denied.contains("\"ok\":false"), "{denied}");

    let plugin = plugin()?;
    let toolcrib = |arguments: &[&str]| {
        run(Command::new(&plugin)
            .args(arguments)
            .args(["--namespace", HERE])
            .env("KUBECONFIG", desk.platform.cluster().kubeconfig()))
    };
    // A container's log is a moment behind its output.
    desk.platform
        .eventually("the trade to be in the log", START, || {
            let calls = toolcrib(&["audit", AGENT, "--output", "json"])?;
            let is_shown = calls.contains("trading-api.execute_trade");
            Ok(PollResult::when(is_shown, calls))
        })?;
    let proposed = toolcrib(&["propose", AGENT, "--output", "json"])?;
    let proposed: Value = serde_json::from_str(&proposed).context("the proposal")?;
    let tools = json!([{"surface": {"name": "trading-api"}, "allow": ["execute_trade"]}]);
    assert_eq!(
        proposed["grants"][0]["spec"],
        json!({"agents": [AGENT], "tools": tools}),
        "{proposed}"
    );

    // The API server accepts the grant as it is written.
    let grant = toolcrib(&["propose", AGENT])?;
    let apply = [
        "apply",
        "--dry-run=server",
        "--namespace",
        HERE,
        "--filename=-",
    ];
    let applied = desk.platform.try_kubectl(&apply, &grant)?;
    ensure!(applied.status.success(), "{grant}: {applied:?}");
    desk.passed()
}
