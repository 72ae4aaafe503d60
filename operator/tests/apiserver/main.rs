//! Tier 3: the controller against a real kube-apiserver and etcd.
//!
//! `TOOLCRIB_TEST_KUBECONFIG=… cargo test -p toolcrib-operator --features cluster --test
//! apiserver`; `e2e/run test` does it with a cluster of its own. No Toolcrib may be
//! installed there: two operators would report on the same Agents.

mod alerts;
mod budgets;
mod chart;
mod claw;
mod definitions;
mod faults;
mod harness;
mod hostile;
mod link;
mod neighbours;
mod outcome;
mod rules;
mod sieve;
mod status;
mod validation;

use std::collections::BTreeMap;
use std::time::Duration;

use harness::Harness;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolcrib_crds::{Agent, Surface, ToolGrant};
use toolcrib_manifest::LONGEST_REPORT;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_lease_is_created_and_removed_with_the_installation() {
    let mut harness = Harness::new().await;
    let leases: Api<Lease> = harness.api(&harness.system);
    let gone = || async {
        let params = DeleteParams::default();
        leases.delete("controller", &params).await.expect("deleted");
    };
    let led = || async {
        let lease = leases.get_opt("controller").await.ok()??;
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        (holder == "heron").then_some(lease)
    };
    gone().await;
    harness.start("heron");
    let lease = harness.eventually("heron leads", led).await;
    let secrets: Api<Secret> = harness.api(&harness.system);
    let certificates = secrets.get("certificates").await.expect("the Secret");
    let owners = lease.metadata.owner_references.expect("an owner");
    let [owner] = &owners[..] else {
        panic!("{owners:?}")
    };
    assert_eq!(Some(&owner.uid), certificates.metadata.uid.as_ref());

    // If the Lease is deleted, the leader creates it again and keeps leading.
    gone().await;
    harness.eventually("heron leads again", led).await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_compiles_and_grants_are_added_and_revoked() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let analyst = harness
        .files("analyst", "one tool", |files| tools(files) == READS)
        .await;
    let executor = harness
        .files("executor", "all tools", |files| sorted(tools(files)) == ALL)
        .await;

    // Each agent has its own credential.
    let token = |files: &Files| {
        files["tools.json"]["tools"][0]["execution"]["auth"]["token"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(token(&analyst).as_deref(), Some("desk-reader-41d9b7a2"));
    assert_eq!(token(&executor).as_deref(), Some("desk-executor-e83c06f5"));

    // The runner's token opens this mediator.
    let secrets: Api<Secret> = harness.api(&harness.pond);
    let identity = secrets.get("toolcrib-analyst-identity").await.unwrap();
    let runner = &identity.data.as_ref().unwrap()["token"].0;
    assert!(runner.starts_with(b"analyst:"));
    let hash = hex::encode(Sha256::digest(runner));
    assert_eq!(analyst["agent.json"]["tokens"][0]["sha256"], json!(hash));
    assert_eq!(
        analyst["agent.json"]["link"]["audience"],
        "toolcrib.dev/link"
    );

    // Mediators and the API server trust the same authority, which signed the served certificate.
    let webhook = harness.webhooks().get(&harness.system).await.unwrap();
    let bundle = &webhook.webhooks.as_ref().unwrap()[0]
        .client_config
        .ca_bundle
        .as_ref()
        .unwrap()
        .0;
    assert_eq!(
        analyst["agent.json"]["link"]["ca"]
            .as_str()
            .unwrap()
            .as_bytes(),
        bundle
    );
    let certificates = harness
        .api::<Secret>(&harness.system)
        .get("certificates")
        .await
        .unwrap()
        .data
        .unwrap();
    assert_eq!(&certificates["ca.crt"].0, bundle);
    for key in ["tls.crt", "tls.key", "link.crt", "link.key"] {
        assert!(certificates[key].0.starts_with(b"-----BEGIN "), "{key}");
    }

    // The written objects belong to the Agent and do not have its labels.
    let agents: Api<Agent> = harness.api(&harness.pond);
    let agent = agents.get("analyst").await.unwrap();
    for name in ["toolcrib-analyst-mediator", "toolcrib-analyst-identity"] {
        let owners = secrets
            .get(name)
            .await
            .unwrap()
            .metadata
            .owner_references
            .unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(Some(&owners[0].uid), agent.metadata.uid.as_ref());
    }

    harness
        .condition::<Agent>("analyst", "Compiled", "True/Compiled")
        .await;
    harness
        .condition::<Agent>("analyst", "Ready", "True/NoPods")
        .await;
    let status = agents.get("analyst").await.unwrap().status.unwrap();
    assert_eq!(
        (status.tool_count, status.read_only_count),
        (Some(1), Some(1))
    );
    assert_eq!(status.tools[0].grant.name, "analyst-reads");
    assert!(
        !serde_json::to_string(&status)
            .unwrap()
            .contains("desk-reader")
    );
    harness
        .condition::<Surface>("trading-api", "Resolved", "True/Resolved")
        .await;
    harness
        .condition::<ToolGrant>("analyst-reads", "Resolved", "True/Resolved")
        .await;

    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    let grant = grants.get("analyst-reads").await.unwrap();
    grants
        .delete("analyst-reads", &DeleteParams::default())
        .await
        .unwrap();
    let after = harness
        .files("analyst", "no tools", |files| tools(files).is_empty())
        .await;
    assert_eq!(
        after["agent.json"]["tokens"],
        analyst["agent.json"]["tokens"]
    );

    let again = ToolGrant::new("analyst-reads", grant.spec);
    grants.create(&PostParams::default(), &again).await.unwrap();
    let back = harness
        .files("analyst", "the tool again", |files| tools(files) == READS)
        .await;
    assert_eq!(
        back["agent.json"]["digest"],
        analyst["agent.json"]["digest"]
    );

    // The Agent is deleted, and everything that was written for it.
    agents
        .delete("analyst", &DeleteParams::default())
        .await
        .unwrap();
    harness
        .eventually("its objects are gone", || async {
            let left = secrets.get_opt("toolcrib-analyst-mediator").await.unwrap();
            left.is_none().then_some(())
        })
        .await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_when_nothing_changes() {
    let mut harness = Harness::new().await;
    harness.resync = Duration::from_millis(500);
    harness.start("heron");
    harness.apply_example().await;
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    harness
        .condition::<Agent>("analyst", "Ready", "True/NoPods")
        .await;
    let before = harness.settled().await;
    let writes = harness.metric("writes").await;
    let after = harness.settled().await;
    assert_eq!(before, after);
    assert_eq!(writes, harness.metric("writes").await);

    // A successor finds everything in its final state: same tokens, no write.
    harness.stop().await;
    harness.start("newt");
    let begun = tokio::time::Instant::now();
    harness
        .eventually("the successor leads", || async {
            let answer = reqwest::get(format!("http://{}/readyz", harness.health))
                .await
                .ok()?;
            (answer.status() == 200 && harness.metric("reconciles").await > 0.0).then_some(())
        })
        .await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "handed over in {took:?}");
    assert_eq!(before, harness.settled().await);
    assert_eq!(harness.metric("writes").await, 0.0);
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_egress_creates_updates_and_deletes_a_network_policy() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let policies: Api<NetworkPolicy> = harness.api(&harness.pond);
    let spec = |found: &NetworkPolicy| serde_json::to_value(&found.spec).expect("a spec");
    let analyst = |egress: &str| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "analyst"},
            "spec": {"surfaces": [{"name": "trading-api"}], "egress": egress},
        })
    };
    harness.apply(analyst("Declared")).await;
    let declared = harness
        .eventually("a policy of the Service's pods", || async {
            let found = policies
                .get_opt("toolcrib-analyst")
                .await
                .expect("an answer")?;
            let text = spec(&found).to_string();
            // The Service's target port, which has a name in the pods.
            (text.contains(r#""port":"http""#) && text.contains(r#""toolcrib.dev/leader":"true""#))
                .then_some(found)
        })
        .await;
    assert_eq!(
        spec(&declared)["podSelector"],
        json!({"matchLabels": {"toolcrib.dev/agent": "analyst"}})
    );

    // Another writer changed the policy: it is restored.
    let edit =
        json!({"spec": {"egress": [{}], "podSelector": {"matchLabels": {"never": "there"}}}});
    policies
        .patch(
            "toolcrib-analyst",
            &PatchParams::default(),
            &Patch::Merge(&edit),
        )
        .await
        .expect("edited");
    harness
        .eventually("the policy as it was", || async {
            let found = policies
                .get_opt("toolcrib-analyst")
                .await
                .expect("an answer")?;
            (spec(&found) == spec(&declared)).then_some(())
        })
        .await;

    harness.apply(analyst("Unrestricted")).await;
    harness
        .eventually("no policy", || async {
            let found = policies
                .get_opt("toolcrib-analyst")
                .await
                .expect("an answer");
            found.is_none().then_some(())
        })
        .await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_object_with_our_name_is_a_conflict_and_is_not_changed() {
    let harness = Harness::running().await;
    harness
        .apply(harness.foreign_secret("toolcrib-analyst-mediator"))
        .await;
    harness.apply_example().await;
    let message = harness
        .condition::<Agent>("analyst", "Compiled", "False/Conflict")
        .await;
    assert!(message.contains("toolcrib-analyst-mediator"), "{message}");
    harness
        .condition::<Agent>("analyst", "Ready", "False/Conflict")
        .await;
    // The other agent is not affected.
    harness
        .condition::<Agent>("executor", "Ready", "True/NoPods")
        .await;

    let secrets: Api<Secret> = harness.api(&harness.pond);
    let theirs = secrets.get("toolcrib-analyst-mediator").await.unwrap();
    assert_eq!(
        theirs.data.unwrap().into_keys().collect::<Vec<_>>(),
        ["theirs"]
    );
    assert_eq!(theirs.metadata.owner_references, None);

    secrets
        .delete("toolcrib-analyst-mediator", &DeleteParams::default())
        .await
        .unwrap();
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    harness
        .condition::<Agent>("analyst", "Ready", "True/NoPods")
        .await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_object_is_reported_and_others_still_compile() {
    let harness = Harness::running().await;
    let pond = harness.pond.clone();
    // Deeper than any JSON tree is decoded, in the field that keeps any content.
    let depth = 1_000;
    let deep = format!(
        r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"deep","namespace":"{pond}"}},"spec":{{"url":"http://deep.example","descriptor":{{"version":2,"tools":[{{"name":"t","inputSchema":{}1{},"http":{{"method":"GET","path":"/"}}}}]}}}}}}"#,
        r#"{"a":"#.repeat(depth),
        "}".repeat(depth),
    );
    let request = http::Request::post(format!("{}?", Surface::url_path(&(), Some(&pond))))
        .header("content-type", "application/json")
        .body(kube::client::Body::from(deep.into_bytes()))
        .unwrap();
    let answer = harness.client.send(request).await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());

    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "crooked", "namespace": pond},
            "spec": {
                "url": "http://crooked.example",
                "descriptor": {"version": 2, "tools": [{
                    "name": "bend",
                    "inputSchema": {"type": "object", "properties": 5},
                    "http": {"method": "GET", "path": "/"},
                }]},
            },
        }))
        .await;
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "otter", "namespace": pond},
            "spec": {"surfaces": [{"name": "crooked"}, {"name": "deep"}]},
        }))
        .await;
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
            "metadata": {"name": "otter-all", "namespace": pond},
            "spec": {"agents": ["otter"], "tools": [
                {"surface": {"name": "crooked"}, "allow": ["bend", "missing"]},
                {"surface": {"name": "deep"}, "allow": ["*"]},
            ]},
        }))
        .await;
    harness.apply_example().await;
    harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    harness
        .files("otter", "no tools", |files| tools(files).is_empty())
        .await;

    // The objects' conditions name the mistake and its place.
    let message = harness
        .condition::<Surface>("crooked", "Accepted", "False/InvalidSchema")
        .await;
    assert!(
        message.contains("crooked") && message.contains("descriptor.tools[0]"),
        "{message}"
    );
    let message = harness
        .condition::<ToolGrant>("otter-all", "Resolved", "False/ToolNotFound")
        .await;
    assert!(message.contains("missing"), "{message}");
    let agents = harness.api::<Agent>(&pond);
    harness
        .eventually("the agent counts its withheld tools", || async {
            let status = agents.get("otter").await.unwrap().status;
            status
                .is_some_and(|status| status.withheld_count > Some(0))
                .then_some(())
        })
        .await;
    let events: Api<k8s_openapi::api::events::v1::Event> = harness.api(&pond);
    harness
        .eventually("an event names the tool", || async {
            let events = events.list(&Default::default()).await.unwrap();
            events
                .items
                .iter()
                .any(|event| {
                    event.reason.as_deref() == Some("ToolNotFound")
                        && event
                            .note
                            .as_ref()
                            .is_some_and(|note| note.contains("missing"))
                })
                .then_some(())
        })
        .await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_added_removed_and_rotated() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let first = harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    let secrets: Api<Secret> = harness.api(&harness.pond);
    let patch = |value: Value| {
        let secrets = secrets.clone();
        async move {
            secrets
                .patch(
                    "trading-api-reader",
                    &PatchParams::default(),
                    &Patch::Merge(&value),
                )
                .await
                .unwrap();
        }
    };

    patch(json!({"stringData": {"token": "rotated-77"}})).await;
    let rotated = harness
        .files("analyst", "the new credential", |files| {
            files["tools.json"]["tools"][0]["execution"]["auth"]["token"] == "rotated-77"
        })
        .await;
    let digest = |files: &Files, name: &str| files["agent.json"]["digest"][name].clone();
    assert_eq!(digest(&first, "manifest"), digest(&rotated, "manifest"));
    assert_ne!(
        digest(&first, "credentials"),
        digest(&rotated, "credentials")
    );

    // Its owner removes the label: the credential is sent nowhere any more.
    patch(json!({"metadata": {"labels": {"toolcrib.dev/credential": null}}})).await;
    harness
        .files("analyst", "withheld", |files| tools(files).is_empty())
        .await;
    let message = harness
        .condition::<Surface>("trading-api", "Resolved", "False/SecretNotLabelled")
        .await;
    assert!(message.contains("trading-api-reader"), "{message}");
    patch(json!({"metadata": {"labels": {"toolcrib.dev/credential": "true"}}})).await;
    harness
        .files("analyst", "back", |files| tools(files) == READS)
        .await;

    secrets
        .delete("trading-api-reader", &DeleteParams::default())
        .await
        .unwrap();
    harness
        .files("analyst", "withheld", |files| tools(files).is_empty())
        .await;
    harness
        .condition::<Surface>("trading-api", "Resolved", "False/SecretNotFound")
        .await;

    // A new runner token on request; the earlier token stays valid for a while.
    let agents: Api<Agent> = harness.api(&harness.pond);
    let rotate = json!({"metadata": {"annotations": {"toolcrib.dev/rotate": "1"}}});
    agents
        .patch("analyst", &PatchParams::default(), &Patch::Merge(&rotate))
        .await
        .unwrap();
    let files = harness
        .files("analyst", "two tokens", |files| {
            files["agent.json"]["tokens"]
                .as_array()
                .is_some_and(|tokens| tokens.len() == 2)
        })
        .await;
    let tokens = files["agent.json"]["tokens"].as_array().unwrap();
    let before = &first["agent.json"]["tokens"][0]["sha256"];
    assert!(tokens.iter().any(|token| token["sha256"] == *before));
    let note = harness.event("analyst", "TokenRotated").await;
    assert!(note.contains("toolcrib.dev/rotate"), "{note}");
    assert!(note.contains("delete them to end it"), "{note}");

    // Deleting the Secret invalidates its token.
    let tokens_before = tokens.clone();
    secrets
        .delete("toolcrib-analyst-identity", &DeleteParams::default())
        .await
        .unwrap();
    harness
        .files("analyst", "one new token", |files| {
            let tokens = files["agent.json"]["tokens"].as_array();
            tokens.is_some_and(|now| now.len() == 1 && !tokens_before.contains(&now[0]))
        })
        .await;
    let note = harness.event("analyst", "TokenRenewed").await;
    assert!(note.contains("401"), "{note}");
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mediators_report_the_manifest_in_force() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    let accounts: Api<ServiceAccount> = harness.api(&harness.pond);
    harness
        .eventually("the default ServiceAccount", || async {
            accounts.get_opt("default").await.unwrap()
        })
        .await;
    let pods: Api<Pod> = harness.api(&harness.pond);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "analyst-1",
            "labels": {"toolcrib.dev/agent": "analyst"},
            "annotations": {"toolcrib.dev/injected": "v1"},
        },
        // The pod is never scheduled: only the object is needed.
        "spec": {"schedulerName": "nobody", "containers": [{"name": "runner", "image": "none"}]},
    }))
    .unwrap();
    let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    harness
        .condition::<Agent>("analyst", "InForce", "Unknown/NoReport")
        .await;

    let ask = |audience: &str| {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![audience.to_owned()],
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(pod.name_any()),
                    uid: pod.meta().uid.clone(),
                }),
                expiration_seconds: Some(600),
            },
            ..TokenRequest::default()
        };
        let accounts = accounts.clone();
        async move {
            let answer = accounts
                .create_token_request("default", &PostParams::default(), &request)
                .await
                .unwrap();
            answer.status.unwrap().token
        }
    };
    let token = ask("toolcrib.dev/link").await;
    let other = ask("https://elsewhere.example").await;

    let link = &files["agent.json"]["link"];
    let host = format!("link.{}.svc", harness.system);
    assert_eq!(
        link["url"],
        format!("https://{host}:{}", harness.link.port())
    );
    let ca = reqwest::Certificate::from_pem(link["ca"].as_str().unwrap().as_bytes()).unwrap();
    let http = reqwest::Client::builder()
        .tls_certs_only([ca])
        .resolve(&host, harness.link)
        .no_proxy()
        .build()
        .unwrap();
    let url = format!("{}/v1/link", link["url"].as_str().unwrap());
    let send = |token: &str, body: Value| {
        let request = http.post(&url).bearer_auth(token).body(body.to_string());
        async move {
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            (
                status,
                serde_json::from_str::<Value>(&answer.text().await.unwrap()).unwrap_or_default(),
            )
        }
    };
    let digest = &files["agent.json"]["digest"];
    let up = |digest: &Value, calls: u64| {
        json!({
            "epoch": "e1", "version": "0", "understands": [],
            "loaded": {"manifest": digest["manifest"], "credentials": digest["credentials"], "at": "2026-01-01T00:00:00Z"},
            "usage": {"requests": 2, "calls": calls},
        })
    };

    // Strangers, a token of another audience, an invalid token, and too large a body.
    assert_eq!(send("nonsense", up(digest, 1)).await.0, 401);
    assert_eq!(send(&other, up(digest, 1)).await.0, 401);
    assert_eq!(send(&token, json!({"epoch": 5})).await.0, 400);
    // Small enough that the socket takes it before the answer comes.
    assert_eq!(
        send(&token, json!({"epoch": "x".repeat(LONGEST_REPORT)}))
            .await
            .0,
        413
    );

    let (status, down) = send(&token, up(digest, 3)).await;
    assert_eq!(status, 200);
    assert_eq!(down["want"], *digest);
    assert_eq!(down["agent"], "Present");
    let entry = &files["tools.json"]["tools"][0]["x-toolcrib"]["entry_digest"];
    assert_eq!(down["floor"]["tools"], json!({ READS[0]: entry }));
    assert_eq!(down["floor"]["providers"], json!(["scripted"]));
    harness
        .condition::<Agent>("analyst", "InForce", "True/InForce")
        .await;
    let agents: Api<Agent> = harness.api(&harness.pond);
    let status = harness
        .eventually("usage", || async {
            let status = agents.get("analyst").await.unwrap().status.unwrap();
            status.usage.is_some().then_some(status)
        })
        .await;
    assert_eq!(status.usage.unwrap().calls, 3);
    let shown = status.pods.unwrap();
    assert_eq!((shown.running, shown.in_force), (1, 1));

    // The mediator loads another manifest; it cannot load one; it is gone.
    let behind = json!({"manifest": "m0", "credentials": "c0"});
    assert_eq!(send(&token, up(&behind, 8)).await.0, 200);
    harness
        .condition::<Agent>("analyst", "InForce", "False/Pending")
        .await;
    // The status is written at once, its counters only after their five minutes.
    let status = agents.get("analyst").await.unwrap().status.unwrap();
    assert_eq!(status.usage.unwrap().calls, 3);
    let mut broken = up(digest, 8);
    broken["error"] = json!("tools.json: hash mismatch");
    assert_eq!(send(&token, broken).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "InForce", "False/ManifestRejected")
        .await;
    assert!(
        message.contains("analyst-1") && message.contains("hash mismatch"),
        "{message}"
    );

    // The Agent is deleted and created again: the pod's containers have the earlier token.
    let first_tokens = files["agent.json"]["tokens"].clone();
    let born = pod.creation_timestamp().unwrap().0;
    agents
        .delete("analyst", &DeleteParams::default())
        .await
        .unwrap();
    harness
        .eventually("the compiled Secret is gone", || async {
            let secrets: Api<Secret> = harness.api(&harness.pond);
            let name = "toolcrib-analyst-mediator";
            let gone = secrets.get_opt(name).await.unwrap().is_none();
            // Creation times have whole seconds.
            (gone && Timestamp::now().as_second() > born.as_second()).then_some(())
        })
        .await;
    harness.apply_example().await;
    let files = harness
        .files("analyst", "compiled again", |files| {
            tools(files) == READS && files["agent.json"]["tokens"] != first_tokens
        })
        .await;
    let digest = &files["agent.json"]["digest"];
    assert_eq!(send(&token, up(digest, 8)).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "InForce", "False/TokenReplaced")
        .await;
    assert!(
        message.contains("analyst-1") && message.contains("delete the pods"),
        "{message}"
    );
    harness
        .condition::<Agent>("analyst", "Ready", "False/TokenReplaced")
        .await;
    let events: Api<Event> = harness.api(&harness.pond);
    harness
        .eventually("an Event says so", || async {
            let listed = events.list(&ListParams::default()).await.unwrap();
            listed
                .iter()
                .any(|event| event.reason.as_deref() == Some("TokenReplaced"))
                .then_some(())
        })
        .await;
    // A container that was restarted since has the present token.
    let mut admitted = up(digest, 8);
    admitted["runner"] = json!("Admitted");
    assert_eq!(send(&token, admitted).await.0, 200);
    harness
        .condition::<Agent>("analyst", "InForce", "True/InForce")
        .await;
    let mut refused = up(digest, 8);
    refused["runner"] = json!("Refused");
    assert_eq!(send(&token, refused).await.0, 200);
    harness
        .condition::<Agent>("analyst", "Ready", "False/TokenReplaced")
        .await;

    pods.delete("analyst-1", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    harness
        .condition::<Agent>("analyst", "Ready", "True/NoPods")
        .await;
    // The token stays valid for a while, the pod does not.
    assert_eq!(send(&token, up(digest, 9)).await.0, 403);
    harness.end().await;
}
