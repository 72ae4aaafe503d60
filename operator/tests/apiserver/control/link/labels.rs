//! A label that is taken away, over the link.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use toolcrib_crds::Agent;

use super::{Mediator, has, ours};
use crate::support::accounts::{apply_all, remove};
use crate::support::harness::Harness;
use crate::support::pods;
use crate::support::selectors::{ROLE, policy, restrict};
use crate::tools;

/// The mediator never loads other files. A label changes no generation.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_label_reaches_a_pod_over_the_link() {
    let mut harness = Harness::new().await;
    let rights = restrict(&mut harness).await;
    let policy = policy();
    apply_all(&harness, &policy).await;
    harness.start("heron");
    let pond = harness.pond.clone();
    let tool = |name: &str| {
        json!({"name": name, "inputSchema": {"type": "object"},
            "http": {"method": "GET", "path": "/"}, "annotations": {"readOnly": true}})
    };
    let reed = json!({"url": "https://reed.example",
        "descriptor": {"version": 2, "tools": [tool("read"), tool("list")]}});
    let provider = json!({"endpoints": [{"dialect": "OpenAI", "url": "https://reef.example/v1"}],
        "auth": "None"});
    let mut otter = ours(
        "Agent",
        &pond,
        "otter",
        json!({"surfaces": [{"name": "reed"}]}),
    );
    otter["metadata"]["labels"] = json!({ROLE: "reader"});
    let gives = |tool: &str| json!([{"surface": {"name": "reed"}, "allow": [tool]}]);
    let named = json!({"agents": ["otter"], "tools": gives("list")});
    let selecting =
        json!({"agentSelector": {"matchLabels": {ROLE: "reader"}}, "tools": gives("read")});
    for object in [
        ours("Surface", &pond, "reed", reed),
        ours("ModelProvider", &pond, "reef", provider),
        otter,
        ours("ToolGrant", &pond, "named", named),
        ours("ToolGrant", &pond, "selecting", selecting),
    ] {
        harness.apply(object).await;
    }
    let files = harness
        .files("otter", "both tools", |files| {
            tools(files).len() == 2 && files["providers.json"]["providers"]["reef"].is_object()
        })
        .await;
    let pod = pods::create(&harness, "otter-1", "otter").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;

    let agents: Api<Agent> = harness.api(&pond);
    let label = async |value: serde_json::Value| {
        let patch = json!({"metadata": {"labels": {ROLE: value}}});
        let params = PatchParams::default();
        let patch = Patch::Merge(&patch);
        agents.patch("otter", &params, &patch).await.unwrap();
    };
    let begun = Instant::now();
    label(serde_json::Value::Null).await;
    mediator
        .until("the tool is denied", |now| !has(now, "reed.read"))
        .await;
    let took = begun.elapsed();
    println!("denied {took:?} after the patch began");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(has(&mediator.current.now(), "reed.list"));
    // The files of before give it again with the label.
    label(json!("reader")).await;
    mediator.whole().await;

    // Without the binding the label gives nothing, and pods hear it.
    remove(&harness, &policy[1..]).await;
    mediator
        .until("selectors are off", |now| !has(now, "reed.read"))
        .await;
    remove(&harness, &policy[..1]).await;
    remove(&harness, &rights).await;
    harness.end().await;
}
