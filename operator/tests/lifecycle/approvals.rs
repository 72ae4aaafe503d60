//! A question to persons, from the request of a mediator to the deletion of what was written for it: the
//! rights that the controller has for that.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use toolcrib_crds::{ToolApproval, ToolDecision, ToolGrant};
use toolcrib_e2e::audit::was_used;
use toolcrib_manifest::{Question, Tool, ToolsFile, names};
use toolcrib_rules::CallIdentity;

use crate::install::POND;
use crate::wait::{DEADLINE, eventually};
use crate::world::{DIVE, FILES, LOOK, World, grant};

const ASKS: &str = "otter-asks";

/// Asks about a call, denies it, and waits until the approval and its decision are deleted.
pub async fn asked(world: &World) -> Result<()> {
    let client = &world.plane.client;
    let mark = world.mark()?;
    let mut asking = grant(POND, ASKS, "dive");
    asking["spec"]["tools"][0]["approval"] = json!({});
    world.plane.apply(&[asking])?;
    world.compiled(&[DIVE, LOOK]).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), POND);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": ASKS, "labels": {"toolcrib.dev/agent": "otter"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "runner", "image": "example.test/runner:1"}]},
    }))?;
    let pod = pods.create(&PostParams::default(), &pod).await?;

    let approval = ask(world, &pod).await?;
    let approvals: Api<ToolApproval> = Api::namespaced(client.clone(), POND);
    let approval = approvals.get(&approval).await?;
    let me: Api<SelfSubjectReview> = Api::all(client.clone());
    let me = me
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let me = me.status.and_then(|it| it.user_info).context("a user")?;
    let decisions: Api<ToolDecision> = Api::namespaced(client.clone(), POND);
    for (name, about) in [
        ("otter-denied", approval.name_any()),
        ("otter-astray", "nothing".into()),
    ] {
        let decision = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "approval": {"name": about, "uid": approval.uid()},
                "callDigest": approval.spec.call_digest, "verdict": "Deny",
                "decidedBy": {"username": me.username, "uid": me.uid},
            },
        }))?;
        decisions.create(&PostParams::default(), &decision).await?;
    }
    for (verb, resource) in [
        ("patch", "tooldecisions"),
        ("delete", "tooldecisions"),
        ("delete", "toolapprovals"),
    ] {
        let what = format!("{verb} {resource} is used");
        eventually(&what, DEADLINE, async || {
            Ok(was_used(&world.uses()?[mark..], verb, resource).then_some(()))
        })
        .await?;
    }
    let now = DeleteParams::default().grace_period(0);
    pods.delete(ASKS, &now).await?;
    let grants: Api<ToolGrant> = Api::namespaced(client.clone(), POND);
    grants.delete(ASKS, &DeleteParams::default()).await?;
    world.compiled(&[LOOK]).await
}

/// Asks as the pod's mediator does; returns the name of the ToolApproval.
async fn ask(world: &World, pod: &Pod) -> Result<String> {
    let uid = pod.uid().context("a uid")?;
    let token = token(world, &uid).await?;
    let secret = world.secrets().get(FILES).await?;
    let tool = dive(secret.data.context("files")?)?;
    let entry = tool.extension.entry_digest.context("a digest")?;
    let id = format!("{:032x}", 7);
    let call = CallIdentity {
        question: &id,
        namespace: POND,
        agent: "otter",
        pod: &uid,
        tool: DIVE,
        entry: &entry,
        arguments: "{}",
    };
    let rules = tool.extension.rules.iter();
    let rules = rules.map(|rule| json!({"grant": rule.grant, "rule": rule.digest}));
    let question: Question = serde_json::from_value(json!({
        "id": id, "call_digest": call.digest(), "tool": DIVE, "entry": entry, "arguments": "{}",
        "rules": rules.collect::<Vec<Value>>(), "asked_at": "2026-11-27T09:00:00Z", "open_for_ms": 600_000,
    }))?;
    let body = serde_json::to_string(&question)?;
    let leader = &world.controllers[world.leader().await?];
    let http = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .no_proxy()
        .build()?;
    let url = format!("https://{}{}", leader.address, names::QUESTIONS_PATH);
    eventually("the question is taken", DEADLINE, async || {
        let request = http.post(&url).bearer_auth(&token).body(body.clone());
        let answer = request.send().await?;
        // The controller knows the pod a moment later.
        if !answer.status().is_success() {
            return Ok(None);
        }
        let answer: Value = serde_json::from_str(&answer.text().await?)?;
        let name = answer["Asked"]["name"].as_str();
        name.map(|name| Some(name.to_owned()))
            .with_context(|| answer.to_string())
    })
    .await
}

fn dive(mut files: BTreeMap<String, ByteString>) -> Result<Tool> {
    let tools = files.remove(names::TOOLS_FILE).context("tools")?;
    let tools: ToolsFile = serde_json::from_slice(&tools.0)?;
    let mut tools = tools.tools.into_iter();
    tools.find(|tool| tool.name == DIVE).context("the tool")
}

/// Requests a token for the link as a kubelet does: nobody else may.
async fn token(world: &World, pod: &str) -> Result<String> {
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [names::LINK_AUDIENCE], "expirationSeconds": 600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": ASKS, "uid": pod}},
    });
    let request = http::Request::post(format!(
        "/api/v1/namespaces/{POND}/serviceaccounts/default/token"
    ))
    .header("content-type", "application/json")
    .header("impersonate-user", "kubelet")
    .header("impersonate-group", "system:masters")
    .header("impersonate-group", "system:nodes")
    .body(serde_json::to_vec(&body)?)?;
    let answer: Value = world.plane.client.request(request).await?;
    let token = answer["status"]["token"].as_str().context("a token")?;
    Ok(token.to_owned())
}
