//! Tests `kubectl toolcrib propose` on the record that the real mediator wrote.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::machine::{Laptop, built, demo, example, example_files, runner, stderr, stdout};

/// Number of calls: enough for `propose` to limit the arguments.
const TRADES: usize = 20;

fn toolcrib(arguments: &[&str]) -> Output {
    let output = Command::new(built("kubectl-toolcrib"))
        .args(arguments)
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    output
}

#[test]
fn the_grant_of_a_real_record_allows_it_and_nothing_near() {
    let laptop = Laptop::start(demo());
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history");
    let program = runner("agent_stdlib.py");
    let script = format!(
        "set -e; for n in $(seq {TRADES}); do python3 '{program}' --json 'Please trade.'; done; \
         python3 '{program}' --json 'How is my market?'"
    );
    let flags = ["--history-dir", history.to_str().unwrap()];
    let ran = laptop.run("executor", &flags, &["sh", "-c", &script]);
    assert!(ran.status.success(), "{}{}", stdout(&ran), stderr(&ran));
    assert_eq!(laptop.desk_log().len(), TRADES + 1);

    let record = history.join("history.jsonl");
    let objects = example();
    let proposed = toolcrib(&[
        "propose",
        "executor",
        "-f",
        record.to_str().unwrap(),
        "--against",
        objects.to_str().unwrap(),
    ]);
    let grant = stdout(&proposed);
    let read: Value = serde_yaml::from_str(&grant).unwrap();
    let tools = json!([
        {"surface": {"name": "trading-api"}, "allow": ["get_market_context"]},
        {
            "surface": {"name": "trading-api"},
            "allow": ["execute_trade"],
            "arguments": {"pin": {"quantity": 3, "side": "buy", "symbol": "OTTR"}},
        },
    ]);
    assert_eq!(
        read["spec"],
        json!({"agents": ["executor"], "tools": tools}),
        "{grant}"
    );

    let after = folder.path().join("after");
    fs::create_dir(&after).unwrap();
    for (name, text) in example_files() {
        if name != "50-grants.yaml" {
            fs::write(after.join(name), text).unwrap();
        }
    }
    fs::write(after.join("50-grants.yaml"), grant).unwrap();
    let case = |tool: &str, arguments: Value, result: &str| json!({"call": tool, "arguments": arguments, "expect": {"result": result}});
    let trade = "trading-api.execute_trade";
    let test = json!({
        "apiVersion": "cli.toolcrib.dev/v1alpha1",
        "kind": "ToolTest",
        "metadata": {"name": "record", "namespace": "trading"},
        "spec": {"agent": "executor", "cases": [
            case(trade, json!({"symbol": "OTTR", "side": "buy", "quantity": 3}), "Allowed"),
            case("trading-api.get_market_context", json!({}), "Allowed"),
            case(trade, json!({"symbol": "OTTR", "side": "sell", "quantity": 3}), "Denied"),
            case(trade, json!({"symbol": "OTTR", "side": "buy", "quantity": 4}), "Denied"),
            case(trade, json!({"symbol": "ottr", "side": "buy", "quantity": 3}), "Denied"),
        ]},
    });
    fs::write(after.join("test.json"), test.to_string()).unwrap();
    toolcrib(&["test", "-f", after.to_str().unwrap()]);
}
