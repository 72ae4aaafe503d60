//! The chart's policies and role for approvals, and the accounts that they tell apart.

use serde_json::{Value, json};

use super::accounts::as_user;
use super::harness::rendered;
use kube::Client;

/// The account of the controller in the chart as it is rendered here.
pub const CONTROLLER: &str = "system:serviceaccount:default:toolcrib-controller";
/// The role of people who may decide.
pub const APPROVER: &str = "toolcrib-approver";

/// The policies, their bindings and the role. The guard is off, and they stand all the same.
pub fn objects(settings: &[&str]) -> Vec<Value> {
    let mut all = vec!["--set=guard.enabled=false"];
    all.extend(settings);
    let mut objects = rendered(&all);
    let names = ["toolcrib-approvals", "toolcrib-decisions", APPROVER];
    objects.retain(|object| names.iter().any(|name| object["metadata"]["name"] == *name));
    assert_eq!(objects.len(), 5);
    objects
}

/// A client of the chart's controller. Its rights are the caller's to give.
pub async fn controller() -> Client {
    as_user(CONTROLLER).await
}

/// A ToolApproval of `pond`, as the controller makes it; its one rule asks `wardens`.
pub fn approval(pond: &str, name: &str) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolApproval",
        "metadata": {"name": name, "namespace": pond},
        "spec": {
            "agent": {"name": "otter", "uid": "8c9f4b51-0a1b-4a0e-8d7b-3f2f6b0a1c2d"},
            "pod": {"name": "otter-0", "uid": "1b7e2a55-5f0c-4f6b-9a51-6d1e8f9b0c3e"},
            "tool": "kelp.dive",
            "tier": "System",
            "arguments": r#"{"depth":40}"#,
            "callDigest": format!("c1:{name}"),
            "entryDigest": "v1:dive",
            "rules": [{
                "kind": "ToolGrant", "grant": "deep", "rule": "r1:deep",
                "approval": {"approvers": {"groups": ["wardens"]}},
            }],
            "requestedAt": "2026-11-27T09:00:00Z",
            "expiresAt": "2099-01-01T00:00:00Z",
            "requestID": format!("{name:0>32}"),
        },
    })
}

/// A decision about that ToolApproval; `by` is its `decidedBy`.
pub fn decision(approval: &Value, name: &str, uid: &str, by: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
        "metadata": {"name": name, "namespace": approval["metadata"]["namespace"]},
        "spec": {
            "approval": {"name": approval["metadata"]["name"], "uid": uid},
            "callDigest": approval["spec"]["callDigest"],
            "verdict": "Approve",
            "decidedBy": by,
        },
    })
}
