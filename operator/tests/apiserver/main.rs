//! Tier 3: the controller against a real kube-apiserver and etcd.
//!
//! `TOOLCRIB_TEST_KUBECONFIG=… cargo test -p toolcrib-operator --test apiserver`; `e2e/run test`
//! does it with a cluster of its own. No Toolcrib may be installed there: two operators would report
//! on the same Agents.

mod chart;
mod control;
mod objects;
mod support;

use std::collections::BTreeMap;

use serde_json::Value;

type Files = BTreeMap<String, Value>;

fn tools(files: &Files) -> Vec<String> {
    let tools = files["tools.json"]["tools"].as_array().expect("tools");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

pub const READS: [&str; 1] = ["trading-api.get_market_context"];
const ALL: [&str; 2] = [
    "trading-api.execute_trade",
    "trading-api.get_market_context",
];

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
