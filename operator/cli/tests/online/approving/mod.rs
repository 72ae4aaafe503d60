//! `approvals`, `approve` and `deny`, with the rights of an approver. The tests do what the operator does
//! with a decision.

mod watching;

use std::process::Output;
use std::time::Instant;

use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use toolcrib_crds::{ToolApproval, ToolDecision};

use super::{DEADLINE, POLL, apply, client, define, label, toolcrib};

const NAMESPACE: &str = "approved";
const TIME: &str = "2026-11-27T09:00:00Z";

/// A user with the rights of the chart's role for approvers.
async fn approver(client: &Client, name: &str) {
    let rbac = "rbac.authorization.k8s.io";
    let api_version = format!("{rbac}/v1");
    let rules = json!([
        {"apiGroups": ["toolcrib.dev"], "resources": ["toolapprovals"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["toolcrib.dev"], "resources": ["tooldecisions"], "verbs": ["get", "list", "watch", "create"]},
    ]);
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    for object in [
        json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
        }),
    ] {
        apply(client, NAMESPACE, &object).await;
    }
}

/// A call of agent otter, about which heron and pike may decide.
async fn ask(client: &Client, namespace: &str, name: &str, minimum: u32) {
    let approval = json!({"approvers": {"users": ["heron", "pike"]}, "minimum": minimum});
    ask_for(client, namespace, name, &approval).await;
}

/// A call of agent otter, about which these may decide.
async fn ask_for(client: &Client, namespace: &str, name: &str, approval: &Value) {
    let object = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolApproval",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "agent": {"name": "otter", "uid": "a"}, "pod": {"name": "otter-0", "uid": "p"},
            "tool": "kelp.dive", "tier": "System",
            "arguments": r#"{"depth":40,"note":"r\u0435d"}"#,
            "callDigest": format!("c1:{name}"), "entryDigest": "v1:dive",
            "rules": [{
                "kind": "ToolGrant", "grant": "deep", "rule": "r1:deep",
                "approval": approval,
            }],
            "requestedAt": TIME, "expiresAt": "2099-01-01T00:00:00Z", "requestID": name,
        },
    });
    apply(client, namespace, &object).await;
}

/// What the operator answers to the next decision about this approval, and the phase that follows.
#[derive(Clone, Copy)]
struct Answer {
    counts: bool,
    reason: &'static str,
    phase: Option<&'static str>,
}

/// Waits for a decision about `name`, answers it, and returns it.
async fn answer(client: Client, name: &'static str, answer: Answer) -> ToolDecision {
    let decisions: Api<ToolDecision> = Api::namespaced(client.clone(), NAMESPACE);
    let approvals: Api<ToolApproval> = Api::namespaced(client, NAMESPACE);
    let deadline = Instant::now() + DEADLINE;
    let decision = loop {
        let list = decisions.list(&ListParams::default()).await.unwrap();
        let mut open = list.items.into_iter();
        let open = open.find(|it| it.spec.approval.name == name && it.status.is_none());
        match open {
            Some(found) => break found,
            None => assert!(Instant::now() < deadline, "no decision about {name}"),
        }
        tokio::time::sleep(POLL).await;
    };
    let condition = |type_: &str, is_true: bool, reason: &str| {
        let status = if is_true { "True" } else { "False" };
        json!({"status": {"conditions": [{
            "type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": TIME,
        }]}})
    };
    if let Some(phase) = answer.phase {
        let mut status = condition("Decided", true, phase);
        status["status"]["phase"] = phase.into();
        status["status"]["decidedBy"] = "heron".into();
        write_status(&approvals, name, &status).await;
    }
    let status = condition("Counted", answer.counts, answer.reason);
    write_status(&decisions, &decision.name_any(), &status).await;
    decision
}

async fn write_status<K>(api: &Api<K>, name: &str, status: &Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// Runs the program beside the test, which answers meanwhile.
async fn run(line: &str) -> (Option<i32>, String, String) {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let output = tokio::task::spawn_blocking(move || -> Output {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        toolcrib(&words)
    });
    let output = output.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

const SHOWN: &str = r#"approval    approved/otter-one
agent       otter
pod         otter-0: the approval ends with this pod
tool        kelp.dive (System)
phase       Pending
asked       2026-11-27T09:00:00Z
expires     2099-01-01T00:00:00Z, in MINUTES
needs       1 of users heron, pike (ToolGrant deep)
arguments
  {
    "depth": 40,
    "note": "r\u0435d"
  }
"#;

/// Replaces the minutes that are left.
fn without_minutes(text: &str) -> String {
    let Some((before, after)) = text.split_once("Z, in ") else {
        return text.to_owned();
    };
    let (_, rest) = after.split_once('\n').unwrap();
    format!("{before}Z, in MINUTES\n{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn approvers_see_calls_and_decide_about_them() {
    let client = client().await;
    define(&client).await;
    label(&client, NAMESPACE, &json!({})).await;
    for kind in ["toolapprovals", "tooldecisions"] {
        clear(&client, NAMESPACE, kind).await;
    }
    for user in ["heron", "newt"] {
        approver(&client, user).await;
    }
    for (name, minimum) in [
        ("otter-one", 1),
        ("otter-two", 2),
        ("otter-three", 1),
        ("otter-four", 1),
    ] {
        ask(&client, NAMESPACE, name, minimum).await;
    }
    let one = "otter-one -n approved --as heron";
    // Rights are known to the API server a moment later.
    let deadline = Instant::now() + DEADLINE;
    let (code, stdout, stderr) = loop {
        let found = run(&format!("approvals {one}")).await;
        if found.0 == Some(0) || Instant::now() > deadline {
            break found;
        }
        tokio::time::sleep(POLL).await;
    };
    assert_eq!(
        (code, without_minutes(&stdout), &*stderr),
        (Some(0), SHOWN.to_owned(), "")
    );
    let (_, stdout, _) = run("approvals -n approved --as heron").await;
    let line = stdout.lines().find(|line| line.starts_with("otter-two "));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["otter-two", "otter", "kelp.dive", "Pending"]);
    assert_eq!(words.last(), Some(&r#"{"depth":40,"note":"r\u0435d"}"#));

    // A user who has the role, and whom the rule does not name.
    let (code, _, stderr) = run("approve otter-one -n approved --as newt").await;
    assert_eq!(code, Some(1));
    let expected = "error: you are newt, and may not decide about ToolApproval approved/otter-one, which needs 1 of users heron, pike (ToolGrant deep); nothing is written\n";
    assert_eq!(stderr, expected);
    // A user without the role.
    let (code, _, stderr) = run("approve otter-one -n approved --as otter").await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("ClusterRole NAME-approver"), "{stderr}");

    for (line, name, operator, expected) in [
        (
            format!("approve {one}"),
            "otter-one",
            Answer {
                counts: true,
                reason: "Counted",
                phase: Some("Approved"),
            },
            (
                Some(0),
                "your approval counts: ToolApproval approved/otter-one is Approved",
            ),
        ),
        (
            "approve otter-two -n approved --as heron".to_owned(),
            "otter-two",
            Answer {
                counts: true,
                reason: "Counted",
                phase: None,
            },
            (
                Some(0),
                "your approval counts, and others are needed besides: ToolApproval approved/otter-two needs 2 of users heron, pike (ToolGrant deep)",
            ),
        ),
        (
            "deny otter-two -n approved --as heron --reason INC-7".to_owned(),
            "otter-two",
            Answer {
                counts: true,
                reason: "Counted",
                phase: Some("Denied"),
            },
            (
                Some(0),
                "your denial counts: ToolApproval approved/otter-two is Denied",
            ),
        ),
        (
            "approve toolapproval/otter-three -n approved --as heron".to_owned(),
            "otter-three",
            Answer {
                counts: false,
                reason: "AlreadyDecided",
                phase: None,
            },
            (
                Some(1),
                "your decision about ToolApproval approved/otter-three does not count: AlreadyDecided",
            ),
        ),
    ] {
        let (decision, (code, stdout, stderr)) =
            tokio::join!(answer(client.clone(), name, operator), run(&line));
        assert_eq!(
            (code, stdout.lines().last().unwrap(), &*stderr),
            (expected.0, expected.1, "")
        );
        let spec = decision.spec;
        assert_eq!(spec.decided_by.username, "heron");
        assert_eq!(spec.call_digest, format!("c1:{name}"));
        let is_denial = line.starts_with("deny");
        assert_eq!(spec.reason, if is_denial { "INC-7" } else { "" });
    }
    let (code, _, stderr) = run(&format!("deny {one}")).await;
    assert_eq!(code, Some(1));
    let expected =
        "error: ToolApproval approved/otter-one is Approved already; nothing is written\n";
    assert_eq!(stderr, expected);
    // A member of a group that the rule names.
    let keepers = json!({"approvers": {"groups": ["keepers"]}, "minimum": 1});
    ask_for(&client, NAMESPACE, "otter-five", &keepers).await;
    let counted = Answer {
        counts: true,
        reason: "Counted",
        phase: Some("Approved"),
    };
    let line = "approve otter-five -n approved --as newt --as-group divers --as-group keepers";
    let (decision, (code, ..)) =
        tokio::join!(answer(client.clone(), "otter-five", counted), run(line));
    assert_eq!(code, Some(0));
    let by = decision.spec.decided_by;
    assert_eq!(
        (&*by.username, by.groups),
        ("newt", vec!["keepers".to_owned()])
    );
    // No operator answers.
    let (code, stdout, _) = run("approve otter-four -n approved --as heron").await;
    assert_eq!(code, Some(1));
    assert!(
        stdout.contains("has not said in 10 s whether it counts"),
        "{stdout}"
    );
    let (code, _, stderr) = run("approve otter-fuor -n approved --as heron").await;
    assert_eq!(code, Some(1));
    assert!(stderr.contains("did you mean otter-four?"), "{stderr}");
    let (_, stdout, _) = run("__complete approve -n approved --as heron otter-t").await;
    let offered: Vec<&str> = stdout
        .lines()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert_eq!(offered, ["otter-three", "otter-two", ":4"]);
}

/// Removes what an aborted run has left.
async fn clear(client: &Client, namespace: &str, plural: &str) {
    let path = format!("/apis/toolcrib.dev/v1alpha1/namespaces/{namespace}/{plural}");
    let request = http::Request::delete(path).body(Vec::new()).unwrap();
    client.request::<Value>(request).await.unwrap();
}
