//! What another namespace, and an object with a foreign or forged name, cannot do.

use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use toolcrib_crds::{Agent, Surface, ToolGrant};
use toolcrib_operator::leadership::lease::Timing;

use crate::support::faults::Faults;
use crate::support::harness::Harness;
use crate::{READS, tools};

fn secret(name: &str, namespace: &str, host: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"toolcrib.dev/credential": "true"},
            "annotations": {"toolcrib.dev/hosts": host},
        },
        "stringData": {"token": token},
    })
}

/// The lake's surface `news`, with its own credentials and those of one agent of each namespace.
fn news(lake: &str, pond: &str, consumers: Value) -> Value {
    let key = |name: &str| json!({"name": name, "key": "token"});
    let mut spec = json!({
        "url": "https://news.example",
        "auth": {
            "type": "Bearer", "secretKeyRef": key("news-own"),
            "perAgent": [
                // The lake's own otter, and the pond's heron.
                {"agent": {"name": "otter"}, "secretKeyRef": key("news-lake-otter")},
                {"agent": {"name": "heron", "namespace": pond}, "secretKeyRef": key("news-pond-heron")},
            ],
        },
        "descriptor": {"version": 2, "tools": [{
            "name": "read", "inputSchema": {"type": "object"},
            "http": {"method": "GET", "path": "/news/{claw_id}"},
            "annotations": {"readOnly": true},
        }]},
    });
    if !consumers.is_null() {
        spec["consumers"] = consumers;
    }
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": "news", "namespace": lake}, "spec": spec,
    })
}

fn agent(name: &str, pond: &str, entry: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": name, "namespace": pond},
        "spec": {"surfaces": [entry]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_grants_access_and_removing_it_revokes() {
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.start("heron");
    let h = &harness;
    let pond = h.pond.clone();
    h.apply_example().await;
    for (name, token) in [
        ("news-own", "lake-own-1f0a"),
        ("news-lake-otter", "lake-otter-2b7c"),
        ("news-pond-heron", "pond-heron-3d9e"),
    ] {
        h.apply(secret(name, &lake, "news.example", token)).await;
    }
    h.apply(secret("brought", &pond, "news.example", "brought-4e1d"))
        .await;
    let plain = json!({"name": "news", "namespace": lake});
    let mut own = plain.clone();
    own["secretKeyRef"] = json!({"name": "brought", "key": "token"});
    // One agent has the name of an agent of the lake, one is named in the surface, one has its
    // own credential.
    h.apply(agent("otter", &pond, plain.clone())).await;
    h.apply(agent("heron", &pond, plain)).await;
    h.apply(agent("newt", &pond, own)).await;
    h.apply(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": "news", "namespace": pond},
        "spec": {"agents": ["otter", "heron", "newt"], "tools": [
            {"surface": {"name": "news", "namespace": lake}, "allow": ["*"]},
        ]},
    }))
    .await;

    // The credential of each agent; `-`: no tool, empty: a tool without credential.
    let check = async |what: &str, consumers: Value, expected: [&str; 3]| {
        h.apply(news(&lake, &pond, consumers)).await;
        for (agent, expected) in ["otter", "heron", "newt"].into_iter().zip(expected) {
            let files = h
                .files(
                    agent,
                    &format!("{what}: {agent} has {expected:?}"),
                    |files| {
                        let found = match files["tools.json"]["tools"].get(0) {
                            None => "-",
                            Some(tool) => tool["execution"]["auth"]["token"].as_str().unwrap_or(""),
                        };
                        found == expected
                    },
                )
                .await;
            if expected != "-" {
                // For another namespace's surface the identity is otter.pond, never otter.
                let entry = &files["tools.json"]["tools"][0];
                assert_eq!(entry["x-toolcrib"]["foreign"], true, "{entry}");
                assert_eq!(files["agent.json"]["claw_id"], agent);
            }
        }
    };
    let all =
        |credentials: &str| json!({"namespaces": {"from": "All"}, "credentials": credentials});
    let nothing = ["-", "-", "-"];
    check("no consent", Value::Null, nothing).await;
    check("None", all("None"), ["-", "-", "brought-4e1d"]).await;
    check(
        "PerAgent",
        all("PerAgent"),
        ["-", "pond-heron-3d9e", "brought-4e1d"],
    )
    .await;
    check(
        "Share",
        all("Share"),
        ["lake-own-1f0a", "pond-heron-3d9e", "brought-4e1d"],
    )
    .await;
    check("withdrawn", Value::Null, nothing).await;
    let selected = json!({
        "namespaces": {"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": pond}}},
        "credentials": "PerAgent",
    });
    check(
        "selected",
        selected,
        ["-", "pond-heron-3d9e", "brought-4e1d"],
    )
    .await;
    let other = json!({
        "namespaces": {"from": "Selector", "selector": {"matchLabels": {"kubernetes.io/metadata.name": lake}}},
        "credentials": "Share",
    });
    check("another is selected", other, nothing).await;
    let message = h
        .condition::<toolcrib_crds::ToolGrant>("news", "Resolved", "False/ConsentMissing")
        .await;
    assert!(message.contains("news"), "{message}");
    harness.end().await;
}

/// A Surface names a Secret that it may not send: the Secret is not even read.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_without_consent_is_not_read() {
    let harness = Harness::new().await;
    let pond = harness.pond.clone();
    let mut unlabelled = secret("unlabelled", &pond, "reed.example", "unlabelled-5a2b");
    unlabelled["metadata"]["labels"] = json!({});
    harness.apply(unlabelled).await;
    harness
        .apply(secret(
            "elsewhere",
            &pond,
            "other.example",
            "elsewhere-6c3d",
        ))
        .await;
    harness
        .apply(secret("usable", &pond, "reed.example", "usable-7e4f"))
        .await;
    let surface = |name: &str, secret: &str| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": name, "namespace": pond},
            "spec": {
                "url": "https://reed.example",
                "auth": {"type": "Bearer", "secretKeyRef": {"name": secret, "key": "token"}},
                "descriptor": {"version": 2, "tools": [{
                    "name": "look", "inputSchema": {"type": "object"},
                    "http": {"method": "GET", "path": "/"},
                }]},
            },
        })
    };
    let names = ["unlabelled", "elsewhere", "usable"];
    for name in names {
        harness.apply(surface(&format!("with-{name}"), name)).await;
    }
    let entries: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": format!("with-{name}")}))
        .collect();
    harness.apply_example().await;
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "otter", "namespace": pond}, "spec": {"surfaces": entries},
        }))
        .await;
    let rules: Vec<Value> = names
        .iter()
        .map(|name| json!({"surface": {"name": format!("with-{name}")}, "allow": ["*"]}))
        .collect();
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
            "metadata": {"name": "otter", "namespace": pond},
            "spec": {"agents": ["otter"], "tools": rules},
        }))
        .await;
    let faults = Faults::new(harness.client.clone());
    let controller = harness.launch(faults.client(), "heron", Timing::default(), harness.health);
    harness
        .files("otter", "the one that may be sent", |files| {
            tools(files) == ["with-usable.look"]
        })
        .await;
    for (name, code) in [
        ("with-unlabelled", "False/SecretNotLabelled"),
        ("with-elsewhere", "False/SecretHostNotAllowed"),
    ] {
        harness.condition::<Surface>(name, "Resolved", code).await;
    }
    let read = |name: &str| {
        let path = format!("/api/v1/namespaces/{pond}/secrets/{name}");
        faults.log().iter().any(|seen| seen.path == path)
    };
    assert_eq!(names.map(read), [false, false, true]);
    controller.kill().await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_object_with_our_name_is_not_adopted() {
    let harness = Harness::running().await;
    // A Secret with our label and no owner; and a ConfigMap with an owner of another kind.
    let mut forged = harness.foreign_secret("toolcrib-analyst-mediator");
    forged["metadata"]["labels"] = json!({
        "app.kubernetes.io/managed-by": "toolcrib", "toolcrib.dev/compiled-for": "analyst",
    });
    harness.apply(forged).await;
    let mut identity = harness.foreign_secret("toolcrib-executor-identity");
    identity["stringData"] = json!({"token": "executor:chosen-by-somebody"});
    harness.apply(identity).await;
    harness.apply_example().await;
    for (agent, name) in [
        ("analyst", "toolcrib-analyst-mediator"),
        ("executor", "toolcrib-executor-identity"),
    ] {
        let message = harness
            .condition::<Agent>(agent, "Compiled", "False/Conflict")
            .await;
        assert!(message.contains(name), "{message}");
    }
    let secrets: Api<Secret> = harness.api(&harness.pond);
    let theirs = secrets.get("toolcrib-analyst-mediator").await.expect("it");
    let keys: Vec<String> = theirs.data.expect("data").into_keys().collect();
    assert_eq!(keys, ["theirs"]);
    // A token of another author opens nothing.
    let files = harness
        .files("executor", "nobody is let in", |files| {
            files["agent.json"]["tokens"]
                .as_array()
                .is_some_and(Vec::is_empty)
        })
        .await;
    assert!(!files.is_empty());
    harness.end().await;
}

/// A user who may create Secrets can make one that looks like the operator's own, but has no
/// valid token.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_secret_older_than_its_agent_is_replaced() {
    let mut harness = Harness::new().await;
    harness.apply_example().await;
    let planted = planted(&harness).await;
    harness.apply(planted).await;
    harness.start("heron");
    harness
        .condition::<Agent>("executor", "Compiled", "True/Compiled")
        .await;
    let made = tokens(&harness).await;
    assert_eq!(made.len(), 1, "{made:?}");
    assert_ne!(made[0].1, PLANTED);

    // The operator's own tokens stay, also with the next leader.
    harness.stop().await;
    harness.start("otter");
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    grants
        .delete("executor-all", &DeleteParams::default())
        .await
        .expect("deleted");
    harness
        .files("executor", "revoked by the next leader", |files| {
            tools(files).is_empty()
        })
        .await;
    assert_eq!(tokens(&harness).await, made);
    harness.end().await;
}

/// A first write that failed leaves a condition, which does not make a later Secret the operator's.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_planted_after_a_failed_first_write_is_replaced() {
    let mut harness = Harness::new().await;
    harness.apply_example().await;
    harness
        .apply(harness.foreign_secret(IDENTITY_OF_EXECUTOR))
        .await;
    harness.start("heron");
    harness
        .condition::<Agent>("executor", "Compiled", "False/Conflict")
        .await;
    harness.apply(planted(&harness).await).await;
    harness
        .condition::<Agent>("executor", "Compiled", "True/Compiled")
        .await;
    let made = tokens(&harness).await;
    assert!(made.iter().all(|(_, token)| token != PLANTED), "{made:?}");
    harness.end().await;
}

/// A leader that missed the deletion remembers the earlier Agent's Secret, which does not make a
/// Secret of the new Agent the operator's.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_planted_for_a_recreated_agent_is_replaced() {
    const KINDS: [&str; 4] = ["agents", "secrets", "configmaps", "networkpolicies"];
    let harness = Harness::new().await;
    harness.apply_example().await;
    let faults = Faults::new(harness.client.clone());
    let controller = harness.launch(faults.client(), "heron", Timing::default(), harness.health);
    harness
        .condition::<Agent>("executor", "Compiled", "True/Compiled")
        .await;

    faults.lose_events(KINDS);
    let delete = DeleteParams::default();
    let agents: Api<Agent> = harness.api(&harness.pond);
    agents.delete("executor", &delete).await.expect("deleted");
    // Not left to the garbage collector, which may be late.
    let compiled = ListParams::default().labels("toolcrib.dev/compiled-for=executor");
    let secrets: Api<Secret> = harness.api(&harness.pond);
    let config_maps: Api<ConfigMap> = harness.api(&harness.pond);
    let policies: Api<NetworkPolicy> = harness.api(&harness.pond);
    let deleted = tokio::try_join!(
        secrets.delete_collection(&delete, &compiled),
        config_maps.delete_collection(&delete, &compiled),
        policies.delete_collection(&delete, &compiled),
    );
    deleted.expect("deleted");
    harness.apply_example().await;
    harness.apply(planted(&harness).await).await;
    faults.gone(&KINDS.map(str::to_owned).into());

    harness
        .condition::<Agent>("executor", "Compiled", "True/Compiled")
        .await;
    let made = tokens(&harness).await;
    assert!(made.iter().all(|(_, token)| token != PLANTED), "{made:?}");
    controller.kill().await;
    harness.end().await;
}

const IDENTITY_OF_EXECUTOR: &str = "toolcrib-executor-identity";
const PLANTED: &str = "executor:chosen-by-somebody";

/// An identity Secret of the example's executor that looks like the operator's own.
async fn planted(harness: &Harness) -> Value {
    let agents: Api<Agent> = harness.api(&harness.pond);
    let executor = agents.get("executor").await.expect("the agent");
    let mut planted = harness.foreign_secret(IDENTITY_OF_EXECUTOR);
    planted["metadata"]["labels"] = json!({
        "app.kubernetes.io/managed-by": "toolcrib", "toolcrib.dev/compiled-for": "executor",
    });
    planted["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent", "name": "executor",
        "uid": executor.metadata.uid, "controller": true,
    }]);
    planted["metadata"]["annotations"] =
        json!({"toolcrib.dev/replaced": r#"{"token-1":"2100-01-01T00:00:00Z"}"#});
    planted["stringData"] = json!({"token": PLANTED, "token-1": PLANTED});
    planted
}

/// The entries of the executor's identity Secret.
async fn tokens(harness: &Harness) -> Vec<(String, String)> {
    let secrets: Api<Secret> = harness.api(&harness.pond);
    let found = secrets.get(IDENTITY_OF_EXECUTOR).await.expect("it");
    let data = found.data.unwrap_or_default().into_iter();
    data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()))
        .collect()
}

/// A flood of objects in one namespace delays another namespace's change by a few objects.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_in_one_namespace_does_not_delay_another() {
    const FLOOD: usize = 150;
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.workers = 1;
    harness.apply_example().await;
    let faults = Faults::new(harness.client.clone());
    let controller = harness.launch(faults.client(), "heron", Timing::default(), harness.health);
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    let agents: Api<Agent> = harness.api(&lake);
    for n in 0..FLOOD {
        let one = Agent::new(&format!("flood-{n}"), Default::default());
        agents
            .create(&Default::default(), &one)
            .await
            .expect("one of many");
    }
    let lakes = |log: &[crate::support::faults::RequestLog]| {
        let path = format!("/namespaces/{lake}/secrets");
        let made = log
            .iter()
            .filter(|seen| seen.write.is_some() && seen.path.ends_with(&path));
        // Two for each agent.
        made.count() / 2
    };
    let before = lakes(&faults.log());
    assert!(before < FLOOD - 50, "the flood is over already: {before}");
    harness
        .api::<toolcrib_crds::ToolGrant>(&harness.pond)
        .delete("analyst-reads", &Default::default())
        .await
        .expect("deleted");
    harness
        .files("analyst", "revoked", |files| tools(files).is_empty())
        .await;
    let meanwhile = lakes(&faults.log()) - before;
    assert!(meanwhile < 25, "{meanwhile} others were served first");
    controller.kill().await;
    harness.end().await;
}

/// Searches everything that the API server stores, except Secrets, after each failure that
/// concerns them.
#[tokio::test(flavor = "multi_thread")]
async fn secret_values_are_stored_in_secrets_only() {
    let harness = Harness::running().await;
    let pond = harness.pond.clone();
    harness.apply_example().await;
    // Two values in wrong places: a credential as host, and one with an invalid header.
    harness
        .apply(secret("broken", &pond, "reed.example", "bro\nken-8a5c"))
        .await;
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "reed", "namespace": pond},
            "spec": {
                "url": "https://reed.example",
                "auth": {"type": "Bearer", "secretKeyRef": {"name": "broken", "key": "token"}},
                "descriptor": {"version": 2, "tools": [{
                    "name": "look", "inputSchema": {"type": "object"},
                    "http": {"method": "GET", "path": "/"},
                }]},
            },
        }))
        .await;
    harness
        .apply(agent("otter", &pond, json!({"name": "reed"})))
        .await;
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
            "metadata": {"name": "otter", "namespace": pond},
            "spec": {"agents": ["otter"], "tools": [
                {"surface": {"name": "reed"}, "allow": ["look", "missing"]},
            ]},
        }))
        .await;
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    harness
        .condition::<Agent>("otter", "Ready", "True/NoPods")
        .await;
    // A source that is deleted, for the messages about it.
    harness
        .api::<Secret>(&pond)
        .patch(
            "trading-api-reader",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"labels": null}})),
        )
        .await
        .expect("patched");
    harness
        .files("analyst", "withheld", |files| tools(files).is_empty())
        .await;
    harness
        .condition::<Surface>("trading-api", "Resolved", "False/SecretNotLabelled")
        .await;

    let mut values: Vec<String> = Vec::new();
    for secret in harness
        .api::<Secret>(&pond)
        .list(&ListParams::default())
        .await
        .expect("list")
    {
        let compiled = secret.name_any().ends_with("-mediator");
        for bytes in secret.data.into_iter().flatten().filter(|_| !compiled) {
            let text = String::from_utf8_lossy(&bytes.1.0).into_owned();
            values.extend(text.split('\n').map(str::to_owned));
            if let Some((_, token)) = text.split_once(':') {
                values.push(token.to_owned());
            }
        }
    }
    values.retain(|value| value.len() >= 4);
    assert!(values.len() > 6, "{}", values.len());
    let mut held = String::new();
    for resource in [
        kube::api::ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
        kube::api::ApiResource::erase::<CoreEvent>(&()),
        kube::api::ApiResource::erase::<Event>(&()),
        kube::api::ApiResource::erase::<Agent>(&()),
        kube::api::ApiResource::erase::<Surface>(&()),
        kube::api::ApiResource::erase::<toolcrib_crds::ToolGrant>(&()),
        kube::api::ApiResource::erase::<toolcrib_crds::ToolDefaults>(&()),
        kube::api::ApiResource::erase::<toolcrib_crds::ModelProvider>(&()),
        kube::api::ApiResource::erase::<k8s_openapi::api::coordination::v1::Lease>(&()),
    ] {
        for namespace in [&pond, &harness.system] {
            let api: Api<DynamicObject> =
                Api::namespaced_with(harness.client.clone(), namespace, &resource);
            for object in api.list(&ListParams::default()).await.expect("list") {
                held += &serde_json::to_string(&object).expect("JSON");
            }
        }
    }
    assert!(held.contains("SecretNotLabelled"));
    for value in values {
        assert!(
            !held.contains(&value),
            "a secret of {} characters",
            value.len()
        );
    }
    harness.end().await;
}
