//! Pods without a node, and their mediators' tokens and reports.

// clippy.toml allows unwrap in test functions, but not in their helpers.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::support::harness::Harness;

/// Audience of the tokens for the link.
pub const AUDIENCE: &str = "toolcrib.dev/link";

/// Creates a pod that is never scheduled: only the object is needed.
pub async fn create(harness: &Harness, name: &str, agent: &str) -> Pod {
    let accounts: Api<ServiceAccount> = harness.api(&harness.pond);
    harness
        .eventually("the default ServiceAccount", || async {
            accounts.get_opt("default").await.unwrap()
        })
        .await;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {"toolcrib.dev/agent": agent},
            "annotations": {"toolcrib.dev/injected": "v1"},
        },
        "spec": {"schedulerName": "nobody", "containers": [{"name": "runner", "image": "none"}]},
    }))
    .unwrap();
    let pods: Api<Pod> = harness.api(&harness.pond);
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

/// Deletes a pod at once.
pub async fn remove(harness: &Harness, pod: &Pod) {
    let pods: Api<Pod> = harness.api(&harness.pond);
    pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
}

/// Requests a token as the kubelet projects it.
pub async fn token(harness: &Harness, pod: &Pod, audience: &str) -> String {
    let accounts: Api<ServiceAccount> = harness.api(&harness.pond);
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
    accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap()
        .status
        .unwrap()
        .token
}

/// Sends a report of the pod's mediator until it is accepted; returns the answer.
pub async fn answered(harness: &Harness, pod: &Pod, agent: &str, report: Value) -> Value {
    let files = harness.files(agent, "its files", |_| true).await;
    let token = token(harness, pod, AUDIENCE).await;
    let link = &files["agent.json"]["link"];
    let http = harness.https("link", harness.link, &link["ca"]);
    let url = format!("{}/v1/link", link["url"].as_str().unwrap());
    let body = report.to_string();
    harness
        .eventually("the report is taken", || async {
            let request = http.post(&url).bearer_auth(&token).body(body.clone());
            // A controller that has just begun does not listen yet.
            let answer = request.send().await.ok()?;
            if answer.status() != 200 {
                return None;
            }
            serde_json::from_str(&answer.text().await.unwrap()).unwrap()
        })
        .await
}
