//! Approvals on a cluster, decided with kubectl as a person decides them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::platform::{Platform, PollResult};

/// A user as the API server sees them.
#[derive(Clone, Copy, Debug)]
pub struct Person<'a> {
    pub name: &'a str,
    pub groups: &'a [&'a str],
}

/// All ToolApprovals of a namespace.
pub fn all(platform: &Platform, namespace: &str) -> Result<Vec<Value>> {
    let list = platform.get(&["toolapprovals", "--namespace", namespace])?;
    Ok(list["items"].as_array().context("a list")?.clone())
}

/// Waits until exactly one ToolApproval of the namespace is not decided, and returns it.
pub fn pending(
    platform: &Platform,
    namespace: &str,
    timeout: std::time::Duration,
) -> Result<Value> {
    platform.eventually("an approval", timeout, || {
        let all = all(platform, namespace)?;
        let mut open = all.iter().filter(|it| !is_decided(it));
        Ok(match (open.next(), open.next()) {
            (Some(approval), None) => PollResult::Yes(approval.clone()),
            _ => PollResult::NotYet(format!("{all:?}")),
        })
    })
}

fn is_decided(approval: &Value) -> bool {
    let conditions = approval["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Decided"))
}

/// Returns a ToolDecision of this person about the ToolApproval.
pub fn decision(approval: &Value, person: Person<'_>, verdict: &str, reason: &str) -> Value {
    let metadata = &approval["metadata"];
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "ToolDecision",
        "metadata": {
            "generateName": format!("{}-", person.name),
            "namespace": metadata["namespace"],
        },
        "spec": {
            "approval": {"name": metadata["name"], "uid": metadata["uid"]},
            "callDigest": approval["spec"]["callDigest"],
            "verdict": verdict,
            "reason": reason,
            "decidedBy": {"username": person.name, "groups": person.groups},
        },
    })
}

/// Creates a ToolDecision as this person. Returns its name.
pub fn decide(platform: &Platform, decision: &Value, person: Person<'_>) -> Result<String> {
    let mut create = vec!["create", "--filename=-", "--output=json"];
    create.extend(["--as", person.name, "--as-group=system:authenticated"]);
    for group in person.groups {
        create.extend(["--as-group", group]);
    }
    let created = platform.try_kubectl(&create, &decision.to_string())?;
    ensure!(created.status.success(), "{created:?}");
    let created: Value = serde_json::from_slice(&created.stdout)?;
    let name = created["metadata"]["name"].as_str().context("a name")?;
    Ok(name.to_owned())
}
