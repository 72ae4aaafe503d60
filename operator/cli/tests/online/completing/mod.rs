//! Completion offers the names of a cluster's namespaces, agents, surfaces and tools, and fails
//! silently: a user who may not list gets no names and no error.

use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use toolcrib_crds::Agent;

use super::{apply, client, define, label, toolcrib};

const NAMESPACE: &str = "completed";

/// The words that are offered for a line; the last line is kubectl's directive.
fn offered(line: &str) -> Vec<String> {
    let words = std::iter::once("__complete").chain(line.split(' '));
    let output = toolcrib(&words.collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {output:?}");
    assert!(output.stderr.is_empty(), "{line}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.lines().map(|line| line.split('\t').next().unwrap());
    words.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_offers_the_cluster_s_names() {
    let client = client().await;
    define(&client).await;
    label(&client, NAMESPACE, &json!({})).await;
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        })
    };
    let descriptor = json!({"version": 2, "tools": [{
        "name": "look", "inputSchema": {"type": "object"},
        "http": {"method": "GET", "path": "/look"},
    }]});
    for object in [
        object(
            "Surface",
            "reed",
            json!({"url": "https://reed.test", "descriptor": descriptor}),
        ),
        object("Agent", "heron", json!({"surfaces": [{"name": "reed"}]})),
        object("Agent", "otter", json!({"native": true})),
    ] {
        apply(&client, NAMESPACE, &object).await;
    }
    // The operator writes the tools that an agent has.
    let grant = json!({"kind": "ToolGrant", "name": "g", "namespace": NAMESPACE});
    let tool =
        json!({"name": "reed.look", "tier": "ReadOnly", "grant": grant, "credential": "None"});
    let status = json!({"status": {"toolCount": 1, "tools": [tool]}});
    Api::<Agent>::namespaced(client.clone(), NAMESPACE)
        .patch_status("heron", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();

    let namespaces = offered("tree -n ");
    assert!(namespaces.contains(&NAMESPACE.to_owned()), "{namespaces:?}");
    for (line, words) in [
        ("explain -n completed ", &["heron", "otter", ":4"][..]),
        ("explain -n completed h", &["heron", ":4"]),
        ("suspend -n completed o", &["otter", ":4"]),
        ("inspect -n completed ", &["reed", ":4"]),
        ("explain -n completed heron ", &["reed.look", ":4"]),
        // A user without rights, and a kubeconfig that is absent: no name and no error.
        ("explain -n completed --as nobody ", &[":0"]),
        ("explain --kubeconfig /no/such/file ", &[":0"]),
    ] {
        assert_eq!(offered(line), words, "{line}");
    }
}
