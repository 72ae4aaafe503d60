//! Suspensions and policies over the link.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_crds::{Agent, ClusterToolPolicy, ToolGrant};

use super::revocations::otter;
use super::{Mediator, has, ours};
use crate::support::harness::Harness;
use crate::support::pods;
use crate::{ALL, READS, sorted, tools};

/// The write workers are kept busy, and the mediator never loads other files.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_reaches_a_pod_while_others_are_compiled() {
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.start("heron");
    for way in otter(&harness.pond, &lake) {
        harness.apply(way.object).await;
    }
    let files = harness
        .files("otter", "all tools", |files| {
            tools(files).len() == 5 && files["providers.json"]["providers"]["reef"].is_object()
        })
        .await;
    let pod = pods::create(&harness, "otter-1", "otter").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;
    for number in 0..60 {
        let name = format!("newt-{number}");
        let spec = json!({"surfaces": [{"name": "default"}]});
        harness
            .apply(ours("Agent", &harness.pond, &name, spec))
            .await;
    }
    // Every agent of the namespace is compiled anew, by two at a time.
    let mut defaults = ours("ToolDefaults", &harness.pond, "default", json!({}));
    defaults["spec"] =
        json!({"mode": "Native", "tools": [{"surface": {"name": "default"}, "allow": ["*"]}]});
    harness.apply(defaults).await;

    let reason = "toolcrib.dev/suspend-reason";
    let agents: Api<Agent> = harness.api(&harness.pond);
    let suspend =
        json!({"metadata": {"annotations": {reason: "runaway loop"}}, "spec": {"suspend": true}});
    let begun = Instant::now();
    agents
        .patch("otter", &PatchParams::default(), &Patch::Merge(&suspend))
        .await
        .unwrap();
    mediator
        .until("everything is denied", |now| now.version().is_err())
        .await;
    let took = begun.elapsed();
    println!("denied {took:?} after the patch began");
    assert!(took < Duration::from_secs(10), "{took:?}");

    let message = harness
        .condition::<Agent>("otter", "Ready", "True/Suspended")
        .await;
    assert!(message.ends_with("suspended: runaway loop"), "{message}");
    let files = harness
        .files("otter", "the files say so", |files| {
            files["agent.json"]["suspension"] == json!({"reason": "runaway loop"})
        })
        .await;
    assert_eq!(tools(&files), [] as [String; 0]);
    assert_eq!(files["providers.json"]["providers"], json!({}));
    harness.event("otter", "AgentSuspended").await;
    // The reason alone changes the files too.
    let reworded = json!({"metadata": {"annotations": {reason: "leak"}}});
    agents
        .patch("otter", &PatchParams::default(), &Patch::Merge(&reworded))
        .await
        .unwrap();
    harness
        .files("otter", "the other reason", |files| {
            files["agent.json"]["suspension"] == json!({"reason": "leak"})
        })
        .await;

    let resume = json!({"metadata": {"annotations": {reason: null}}, "spec": {"suspend": null}});
    agents
        .patch("otter", &PatchParams::default(), &Patch::Merge(&resume))
        .await
        .unwrap();
    mediator.whole().await;
    harness
        .files("otter", "all tools again", |files| tools(files).len() == 5)
        .await;
    harness.end().await;
}

/// A policy of the cluster takes tools over the link, stops agents, also those that come later, and
/// gives back when it is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_restricts_and_stops_agents() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let executor = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &executor, &files).await;
    mediator.whole().await;
    // Tests share the cluster, so it selects this test's namespace.
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": harness.pond}});
    let name = format!("desk-{}", harness.pond);
    let deny = json!([{
        "host": format!("trading-api.{}.svc:4000", harness.pond),
        "tools": ["execute_*"],
    }]);
    let policy = |spec: Value| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterToolPolicy",
            "metadata": {"name": name}, "spec": spec,
        })
    };
    harness
        .apply(policy(json!({"namespaceSelector": here, "deny": deny})))
        .await;
    mediator
        .until("denied", |now| !has(now, "trading-api.execute_trade"))
        .await;
    assert!(has(&mediator.current.now(), READS[0]));
    let agents: Api<Agent> = harness.api(&harness.pond);
    let status = harness
        .eventually("the agent's status", || async {
            let status = agents.get("executor").await.unwrap().status?;
            (!status.policies.is_empty()).then_some(status)
        })
        .await;
    assert_eq!(status.policies, std::slice::from_ref(&name));
    assert_eq!(status.withheld[0].reason, "DeniedByPolicy");
    let policies: Api<ClusterToolPolicy> = Api::all(harness.client.clone());
    harness
        .eventually("the policy's status", || async {
            let status = policies.get(&name).await.unwrap().status?;
            let is_ready = |it: &Condition| it.type_ == "Ready" && it.status == "True";
            (status.matched_agents == Some(2) && status.conditions.iter().any(is_ready))
                .then_some(())
        })
        .await;

    harness
        .apply(policy(json!({"namespaceSelector": here, "suspend": true})))
        .await;
    mediator
        .until("everything is denied", |now| now.version().is_err())
        .await;
    let reason = format!("ClusterToolPolicy {name}");
    let message = harness
        .condition::<Agent>("executor", "Ready", "True/Suspended")
        .await;
    assert!(message.ends_with(&reason), "{message}");
    // It does not help to create an agent, or to write that it is not suspended.
    let spec = json!({"surfaces": [{"name": "trading-api"}], "suspend": false});
    harness
        .apply(ours("Agent", &harness.pond, "later", spec))
        .await;
    harness
        .condition::<Agent>("later", "Ready", "True/Suspended")
        .await;

    policies
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    mediator.whole().await;
    harness
        .files("executor", "all tools again", |files| {
            sorted(tools(files)) == ALL
        })
        .await;
    harness.end().await;
}

/// A policy on trial takes nothing and counts what it would take. A policy of models takes models
/// away and gives them back.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_on_trial_counts_and_a_policy_of_models_restricts() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let agents: Api<Agent> = harness.api(&harness.pond);
    let models = json!({"spec": {"models": {
        "default": "scripted/small", "allowed": ["scripted/large"],
    }}});
    agents
        .patch("executor", &PatchParams::default(), &Patch::Merge(models))
        .await
        .unwrap();
    let allowed =
        |files: &BTreeMap<String, Value>| files["agent.json"]["models"]["allowed"].clone();
    let files = harness
        .files("executor", "the other model", |files| {
            allowed(files) == json!(["scripted/large"])
        })
        .await;
    assert_eq!(sorted(tools(&files)), ALL);

    // Tests share the cluster, so it selects this test's namespace.
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": harness.pond}});
    let name = format!("desk-{}", harness.pond);
    let policy = |spec: Value| {
        let mut policy = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterToolPolicy",
            "metadata": {"name": name}, "spec": spec,
        });
        policy["spec"]["namespaceSelector"] = here.clone();
        policy
    };
    let deny = json!([{"surface": {"name": "trading-api", "namespace": harness.pond},
        "tools": ["execute_*"]}]);
    harness
        .apply(policy(json!({"deny": deny, "enforcement": "Audit"})))
        .await;
    let policies: Api<ClusterToolPolicy> = Api::all(harness.client.clone());
    harness
        .eventually("one tool would be denied", || async {
            let status = policies.get(&name).await.unwrap().status?;
            (status.would_deny_tools == Some(1)).then_some(())
        })
        .await;
    let status = agents.get("executor").await.unwrap().status.unwrap();
    let marked: Vec<&str> = status
        .tools
        .iter()
        .filter(|tool| tool.would_deny.as_ref() == Some(&name))
        .map(|tool| &*tool.name)
        .collect();
    assert_eq!(marked, ["trading-api.execute_trade"]);
    assert_eq!(status.withheld, []);

    harness
        .apply(policy(json!({"models": {"allowed": ["scripted/small"]}})))
        .await;
    let files = harness
        .files("executor", "the default alone", |files| {
            allowed(files) == json!([])
        })
        .await;
    assert_eq!(sorted(tools(&files)), ALL);
    harness.event("executor", "ModelDeniedByPolicy").await;
    policies
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    harness
        .files("executor", "the other model again", |files| {
            allowed(files) == json!(["scripted/large"])
        })
        .await;
    harness.end().await;
}

/// A grant is suspended, its time is over, or it is in force; status says which, and a suspension
/// is published like a deletion.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_grant_is_revoked_over_the_link_and_its_status_says_so() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "True/Active")
        .await;
    let executor = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &executor, &files).await;
    mediator.whole().await;
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    let patch = |spec: Value| {
        let grants = grants.clone();
        async move {
            let change = Patch::Merge(json!({ "spec": spec }));
            let name = "executor-all";
            grants
                .patch(name, &PatchParams::default(), &change)
                .await
                .unwrap();
        }
    };
    patch(json!({"suspend": true})).await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "False/Suspended")
        .await;
    patch(json!({"suspend": null})).await;
    mediator.whole().await;
    // Rules with conditions wait for the files, so the tools without conditions are gone.
    patch(json!({"notAfter": "2020-01-01T00:00:00Z"})).await;
    mediator.until("expired", |now| !has(now, READS[0])).await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "False/Expired")
        .await;
    patch(json!({"notAfter": null, "notBefore": "2999-01-01T00:00:00Z"})).await;
    harness
        .condition::<ToolGrant>("executor-all", "Active", "False/NotYet")
        .await;
    harness
        .eventually("limits in the agent's status", || async {
            let agent = harness.api::<Agent>(&harness.pond).get("executor").await;
            let tools = agent.unwrap().status.unwrap_or_default().tools;
            let limits = "from 2999-01-01T00:00:00Z";
            let limited = tools
                .iter()
                .any(|tool| tool.limits.as_deref() == Some(limits));
            limited.then_some(())
        })
        .await;
    drop(mediator);
    harness.end().await;
}
