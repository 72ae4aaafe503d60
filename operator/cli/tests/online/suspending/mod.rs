//! `suspend` and `resume` write two fields of an Agent, with the rights of a responder.

use std::process::Output;
use std::time::Instant;

use kube::api::Api;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use toolcrib_crds::Agent;

use super::{DEADLINE, POLL, apply, client, define, label, toolcrib};

const NAMESPACE: &str = "suspended";
const REASON: &str = "toolcrib.dev/suspend-reason";

/// A user with these rights on Agents of the namespace.
async fn user(client: &Client, name: &str, verbs: Value) {
    let rbac = "rbac.authorization.k8s.io";
    let api_version = format!("{rbac}/v1");
    let rules = json!([{"apiGroups": ["toolcrib.dev"], "resources": ["agents"], "verbs": verbs}]);
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    apply(
        client,
        NAMESPACE,
        &json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules}),
    )
    .await;
    apply(
        client,
        NAMESPACE,
        &json!({
            "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
        }),
    )
    .await;
}

async fn agent(client: &Client, name: &str) {
    apply(
        client,
        NAMESPACE,
        &json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"note": "kept"}},
            "spec": {"native": true},
        }),
    )
    .await;
}

fn run(verb: &str, user: &str, arguments: &[&str]) -> Output {
    let mut all = vec![verb, "-n", NAMESPACE, "--as", user];
    all.extend(arguments);
    toolcrib(&all)
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// `suspend`, the reason, the other field and the other annotation.
async fn fields(client: &Client, name: &str) -> (Option<bool>, Option<String>, Option<bool>, bool) {
    let agents: Api<Agent> = Api::namespaced(client.clone(), NAMESPACE);
    let agent = agents.get(name).await.unwrap();
    let annotations = agent.annotations();
    (
        agent.spec.suspend,
        annotations.get(REASON).cloned(),
        agent.spec.native,
        annotations.contains_key("note"),
    )
}

#[tokio::test]
async fn the_responder_role_suffices_and_missing_rights_are_named() {
    let client = client().await;
    define(&client).await;
    label(&client, NAMESPACE, &json!({})).await;
    for name in ["otter", "newt"] {
        agent(&client, name).await;
    }
    user(&client, "responder", json!(["get", "list", "patch"])).await;
    user(&client, "reader", json!(["get", "list"])).await;

    let because = ["agent/otter", "--reason", "runaway loop"];
    // Rights are known to the API server a moment later.
    let deadline = Instant::now() + DEADLINE;
    let output = loop {
        let output = run("suspend", "responder", &because);
        if output.status.success() || Instant::now() > deadline {
            break output;
        }
        tokio::time::sleep(POLL).await;
    };
    let (code, stdout, stderr) = said(&output);
    assert_eq!((code, &*stderr), (Some(0), ""));
    // No operator runs here.
    let unconfirmed = "agent suspended/otter is suspended; the operator has not confirmed it in 3 s; until it does, the agent's pods go on as before";
    assert!(stdout.starts_with(unconfirmed), "{stdout}");
    assert!(stdout.contains("`kubectl get pods -A -l "), "{stdout}");
    let expected = (
        Some(true),
        Some("runaway loop".to_owned()),
        Some(true),
        true,
    );
    assert_eq!(fields(&client, "otter").await, expected);

    let (code, stdout, _) = said(&run("suspend", "responder", &["--all-agents"]));
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines[0].starts_with("agent suspended/newt is suspended; ")
            && lines[1]
                == "agent suspended/otter is suspended already (runaway loop); nothing is written",
        "{stdout}"
    );
    assert_eq!(fields(&client, "otter").await, expected);

    // The command needs what the message names.
    let (code, stdout, stderr) = said(&run("resume", "reader", &["otter"]));
    assert_eq!((code, &*stdout), (Some(1), ""));
    for words in [
        "you may not patch Agent suspended/otter",
        "cannot patch resource \"agents\"",
        "the verbs get, list and patch on agents.toolcrib.dev are needed",
    ] {
        assert!(stderr.contains(words), "{stderr}");
    }
    let (code, _, stderr) = said(&run("suspend", "stranger", &["--all-agents"]));
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("you may not list agents in namespace suspended"),
        "{stderr}"
    );
    for (name, near) in [
        ("oter", "did you mean otter?"),
        ("heron", "there is newt, otter"),
    ] {
        let (code, _, stderr) = said(&run("suspend", "responder", &[name]));
        let expected = format!("there is no Agent suspended/{name}: {near}");
        assert_eq!(code, Some(1));
        assert!(stderr.contains(&expected), "{stderr}");
    }

    let (code, stdout, _) = said(&run("resume", "responder", &["--all-agents"]));
    assert_eq!((code, stdout.matches("is resumed").count()), (Some(0), 2));
    for name in ["otter", "newt"] {
        let resumed = (None, None, Some(true), true);
        assert_eq!(fields(&client, name).await, resumed);
    }
    let (_, stdout, _) = said(&run("resume", "responder", &["agent/otter"]));
    assert_eq!(
        stdout,
        "agent suspended/otter is not suspended; nothing is written\n"
    );
}
