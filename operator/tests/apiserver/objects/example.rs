//! The trading-desk example: its compiled objects, and that nothing is written when nothing changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use toolcrib_crds::{Agent, Surface, ToolGrant};

use crate::support::harness::Harness;
use crate::{ALL, Files, READS, sorted, tools};

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
