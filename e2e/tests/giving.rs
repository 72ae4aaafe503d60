//! Measures the time from `kubectl apply` of a grant to the first successful call in running pods.
//!
//! `./e2e/run bench-giving [GRANTS [PODS]]` brings a node up and runs this; its figures are in
//! docs/performance.md. `./e2e/run test` runs a short form.
//!
//! Each grant gives another tool, so none of them is in the files before. The pods are MCP clients
//! that call the tool in a loop, and log the time of the first success. Their node has the clock of
//! this machine.

#[path = "governed/support.rs"]
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use support::Desk;
use toolcrib_e2e::platform::PollResult;

const HERE: &str = "giving";
/// `GRANTS PODS`: the grants to give one after the other, and the pods that get one at once.
const NUMBERS: &str = "TOOLCRIB_GIVING";
const SHORT: &str = "2 3";
/// Timeout for one grant. It is half of the kubelet's own interval, so a longer time means that no
/// refresh hint had an effect.
const HINTED: Duration = Duration::from_secs(30);

#[test]
fn a_grant_reaches_running_pods_within_seconds() -> Result<()> {
    let numbers = std::env::var(NUMBERS).unwrap_or_else(|_| SHORT.to_owned());
    let (grants, pods) = numbers.split_once(' ').context(NUMBERS)?;
    let (grants, pods): (usize, usize) = (grants.parse()?, pods.parse()?);
    ensure!(
        (1..=100).contains(&grants) && pods > 0,
        "{NUMBERS}: {numbers}"
    );

    let desk = Desk::open(HERE)?;
    desk.platform.apply(&surface(grants + 1))?;
    desk.platform.apply(include_str!("giving/objects.yaml"))?;
    println!("from kubectl apply to the first successful call:");
    println!("| | n | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|");
    start(&desk, 1, 1)?;
    let mut took = Vec::new();
    for tool in 1..=grants {
        took.extend(give(&desk, tool, 1)?);
    }
    row("one pod, one grant after the other", took);
    start(&desk, pods, grants + 1)?;
    row(
        &format!("{pods} pods, one grant"),
        give(&desk, grants + 1, pods)?,
    );
    // Their probes and calls would slow the tests that follow.
    let none = [
        "scale",
        "deployment/given",
        "--replicas=0",
        "--namespace",
        HERE,
    ];
    desk.platform.kubectl(&none)?;
    desk.passed()
}

/// A surface of the desk with tools `t1`, `t2`, …
fn surface(tools: usize) -> String {
    let tools: Vec<_> = (1..=tools)
        .map(|number| {
            json!({
                "name": format!("t{number}"),
                "inputSchema": {"type": "object", "required": ["claw_id"],
                    "properties": {"claw_id": {"type": "string"}}},
                "http": {"method": "GET", "path": "/api/v1/market_context/{claw_id}"},
                "annotations": {"readOnly": true},
            })
        })
        .collect();
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": "given", "namespace": HERE},
        "spec": {
            "service": {"name": "trading-api", "port": 4000},
            "auth": {"type": "Bearer",
                "secretKeyRef": {"name": "trading-api-reader", "key": "token"}},
            "descriptor": {"version": 2, "auth": {"type": "bearer"}, "tools": tools},
        },
    })
    .to_string()
}

/// Starts the pods, which call this tool first. Those of before end.
fn start(desk: &Desk, pods: usize, tool: usize) -> Result<()> {
    let text = include_str!("giving/pods.yaml")
        .replace("PODS", &pods.to_string())
        .replace("TOOL", &tool.to_string());
    desk.platform.apply(&text)?;
    let rollout = ["rollout", "status", "deployment/given", "--timeout=15m"];
    let here = ["--namespace", HERE];
    desk.platform.kubectl(&[&rollout[..], &here].concat())?;
    desk.wait_in_force("given").map(drop)
}

/// Applies a grant of the tool; returns the time until its first success in each of the pods.
fn give(desk: &Desk, tool: usize, pods: usize) -> Result<Vec<Duration>> {
    let begun = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let grant = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": format!("given-{tool}"), "namespace": HERE},
        "spec": {"agents": ["given"],
            "tools": [{"surface": {"name": "given"}, "allow": [format!("t{tool}")]}]},
    });
    desk.platform.apply(&grant.to_string())?;
    let most = format!("--max-log-requests={pods}");
    let logs = [
        "logs",
        "--namespace",
        HERE,
        "--selector=app=given",
        "--tail=-1",
    ];
    let logs = [&logs[..], &["--container=runner", &most]].concat();
    let all = format!("t{tool} to be called in {pods} pods");
    desk.platform.eventually(&all, HINTED, || {
        let logs = desk.platform.kubectl(&logs)?;
        let took = successes(&logs, tool)
            .map(|at| Ok(Duration::try_from_secs_f64(at)?.saturating_sub(begun)))
            .collect::<Result<Vec<_>>>()?;
        Ok(match took.len() == pods {
            true => PollResult::Yes(took),
            false => PollResult::NotYet(logs),
        })
    })
}

/// The times of the first success of this tool, one of each pod, in seconds since 1970.
fn successes(logs: &str, tool: usize) -> impl Iterator<Item = f64> {
    let lines = logs.lines().filter_map(|line| line.split_once(' '));
    let name = tool.to_string();
    lines.filter_map(move |(called, at)| (called == name).then(|| at.parse().ok())?)
}

fn row(title: &str, mut took: Vec<Duration>) {
    took.sort();
    let last = took.len() - 1;
    let figures: Vec<String> = [0.5, 0.9, 0.99, 1.0]
        .map(|share| {
            format!(
                "{:.1} s",
                took[(share * last as f64).round() as usize].as_secs_f64()
            )
        })
        .into();
    println!("| {title} | {} | {} |", took.len(), figures.join(" | "));
}
