//! While the webhook is down, agents' pods are denied with our message and other pods are not
//! affected. While the controller is down, a grant still ends in time.
//!
//! A separate target, since it disturbs all tests at the same time; its tests run one by one.

mod closing;
#[path = "../governed/support.rs"]
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use anyhow::{Result, ensure};
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::{NAMESPACE, PollResult};

#[test]
fn without_the_webhook_a_labelled_pod_is_denied_and_others_are_not() -> Result<()> {
    let platform = support::platform()?;
    let evidence = Evidence::of(&platform, &["outage"]);
    let webhook = platform.get(&[
        "deployments",
        "--namespace",
        NAMESPACE,
        "--selector=app.kubernetes.io/component=webhook",
    ])?;
    let name = webhook["items"][0]["metadata"]["name"]
        .as_str()
        .expect("the webhook's Deployment")
        .to_string();
    let replicas = webhook["items"][0]["spec"]["replicas"].to_string();
    let scale = |count: &str| {
        platform.kubectl(&[
            "scale",
            "--namespace",
            NAMESPACE,
            "deployment",
            &name,
            &format!("--replicas={count}"),
        ])
    };
    platform.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: outage}\n")?;
    scale("0")?;
    platform.eventually("the webhook's pods to be gone", support::START, || {
        let pods = platform.get(&[
            "pods",
            "--namespace",
            NAMESPACE,
            "--selector=app.kubernetes.io/component=webhook",
        ])?;
        Ok(PollResult::when(
            pods["items"].as_array().is_some_and(Vec::is_empty),
            pods["items"].to_string(),
        ))
    })?;

    let refusal = platform.refused(&pod("agents", "  labels: {toolcrib.dev/agent: analyst}\n"))?;
    ensure!(
        refusal.contains("ValidatingAdmissionPolicy"),
        "the policy denies it: {refusal}"
    );
    ensure!(refusal.contains("mediator"), "in our words: {refusal}");
    ensure!(
        refusal.contains("webhook"),
        "and says what to look at: {refusal}"
    );
    platform.apply(&pod("nobody", ""))?;

    scale(&replicas)?;
    platform.kubectl(&[
        "rollout",
        "status",
        "--timeout=120s",
        "--namespace",
        NAMESPACE,
        &format!("deployment/{name}"),
    ])?;
    // The webhook recovers by itself: now it answers, and reports the missing Agent.
    platform.eventually("the webhook to answer", support::START, || {
        let refusal =
            platform.refused(&pod("agents", "  labels: {toolcrib.dev/agent: analyst}\n"))?;
        Ok(PollResult::when(
            !refusal.contains("ValidatingAdmissionPolicy"),
            refusal,
        ))
    })?;
    platform.kubectl(&["delete", "namespace", "outage", "--wait=false"])?;
    evidence.passed()
}

fn pod(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: outage
{labels}spec:
  containers:
  - name: runner
    image: docker.io/toolcrib/runner-python:dev
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
"
    )
}
