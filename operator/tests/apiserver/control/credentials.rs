//! Credentials of services and tokens of runners: added, removed and rotated.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use toolcrib_crds::{Agent, Surface};

use crate::support::harness::Harness;
use crate::{Files, READS, tools};

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
    let note = harness.event("analyst", "CredentialsRotated").await;
    assert!(note.contains("a credential changed"), "{note}");

    // Its owner removes the label: the credential is sent nowhere any more.
    patch(json!({"metadata": {"labels": {"toolcrib.dev/credential": null}}})).await;
    harness
        .files("analyst", "withheld", |files| tools(files).is_empty())
        .await;
    let message = harness
        .condition::<Surface>("trading-api", "Resolved", "False/SecretNotLabelled")
        .await;
    assert!(message.contains("trading-api-reader"), "{message}");
    harness
        .condition::<Agent>("analyst", "Ready", "False/AllWithheld")
        .await;
    patch(json!({"metadata": {"labels": {"toolcrib.dev/credential": "true"}}})).await;
    harness
        .files("analyst", "back", |files| tools(files) == READS)
        .await;
    for (object, reason) in [
        ("analyst", "AllWithheld"),
        ("trading-api", "SecretNotLabelled"),
    ] {
        let note = harness.event(object, "Recovered").await;
        let expected = format!("Ready again; the previous reason was {reason}");
        assert_eq!(note, expected, "{object}");
    }

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
    assert!(note.contains("delete the pods to end it"), "{note}");

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
