//! Mistakes of users: an object with a name of ours, and objects that are invalid.

use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use toolcrib_crds::{Agent, Surface, ToolGrant};

use crate::support::harness::Harness;
use crate::{READS, tools};

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
