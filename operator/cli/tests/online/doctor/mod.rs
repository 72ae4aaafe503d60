//! `doctor` against a real API server: a healthy installation, faults one after the other, a user who may
//! read one namespace only, and the bundle of a cluster with hostile data.

mod faults;
mod installation;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use kube::Client;
use serde_json::{Value, json};

use self::faults::{Fault, OURS, RBAC, faults, target};
use self::installation::{POND, SYSTEM, install, pod, run_pods, uninstall};
use super::{DEADLINE, DEFINING, POLL, apply, client, define, kubeconfig, toolcrib};

/// In every place that no bundle may have.
const HOSTILE: &str = "s3cret-77ab";

fn doctor(arguments: &[&str]) -> Output {
    let mut all = vec!["doctor", "-n", POND, "--operator-namespace", SYSTEM];
    all.extend(arguments);
    toolcrib(&all)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs `doctor` until its exit code and its output are as expected: controllers of the control plane, and
/// caches of the API server, need a moment.
async fn until(client: &Client, arguments: &[&str], code: i32, expected: &[&str]) -> String {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let output = doctor(arguments);
        let said = text(&output.stdout);
        if output.status.code() == Some(code) && expected.iter().all(|it| said.contains(it)) {
            return said;
        }
        assert!(
            Instant::now() < deadline,
            "wanted {code} and {expected:?}: {:?}\n{said}{}",
            output.status,
            text(&output.stderr)
        );
        run_pods(client).await;
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn each_fault_is_named_with_its_cure() {
    let client = client().await;
    define(&client).await;
    install(&client).await;
    let healthy = until(&client, &[], 0, &["everything is in order"]).await;
    assert_eq!(
        healthy
            .lines()
            .filter(|line| line.starts_with("OK "))
            .count(),
        14,
        "{healthy}"
    );

    for (target, fault, code, expected) in faults() {
        let before = target.get(&client).await;
        match fault {
            Fault::Delete => target.delete(&client).await,
            Fault::Patch(patch) => target.patch(&client, patch).await,
            Fault::Status(patch) => target.patch_status(&client, patch).await,
            Fault::Create(object) => {
                let name = object["metadata"]["name"].as_str();
                assert_eq!(name, Some(target.name));
                installation::apply(&client, &object).await;
            }
        }
        until(&client, &[], code, &expected).await;
        target.restore(&client, before).await;
    }
    old_definition(&client).await;
    until(&client, &[], 0, &["everything is in order"]).await;

    one_namespace(&client).await;
    hostile_bundle(&client).await;
    uninstall(&client).await;
}

/// No other test uses this field. None of them defines the kinds meanwhile.
async fn old_definition(client: &Client) {
    let _defining = DEFINING.lock().await;
    let agents = target(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        "agents.toolcrib.dev",
    );
    let before = agents.get(client).await.unwrap();
    let mut older = before.clone();
    let version = &mut older.data["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let usage = &mut version["properties"]["status"]["properties"]["usage"]["properties"];
    usage.as_object_mut().unwrap().remove("lastCall").unwrap();
    older.metadata.managed_fields = None;
    let api = agents.api(client);
    api.replace(agents.name, &Default::default(), &older)
        .await
        .unwrap();
    let expected = [
        "CustomResourceDefinition agents.toolcrib.dev is older than this command: it has no status.usage.lastCall",
        "--set crds.install=true",
    ];
    until(client, &[], 1, &expected).await;
    agents.restore(client, Some(before)).await;
}

/// A user who may read the objects of one namespace, and nothing of the operator.
async fn one_namespace(client: &Client) {
    const USER: &str = "doctor-reader";
    let metadata = json!({"name": USER, "namespace": POND});
    let rule = |group: &str, resources: Value| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]});
    let rules = json!([
        rule("toolcrib.dev", json!(["*"])),
        rule("", json!(["pods", "secrets", "services", "configmaps"])),
        rule("networking.k8s.io", json!(["networkpolicies"])),
    ]);
    apply(
        client,
        POND,
        &json!({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules}),
    )
    .await;
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    apply(client, POND, &binding).await;
    let expected = [
        "NOT CHECKED  leader        you may not get leases doctor-system/toolcrib-controller",
        "-> ask for `get` on leases in namespace doctor-system",
        "OK           agents        1 agent in namespace doctor-pond",
        "OK           pods          1 pod, each with a mediator",
        "OK           secrets       1 Secret in use",
    ];
    let said = until(client, &["--as", USER], 3, &expected).await;
    assert!(!said.contains("ERROR"), "{said}");
}

async fn hostile_bundle(client: &Client) {
    let otter = target(OURS, "Agent", POND, "otter");
    let applied =
        json!({"kubectl.kubernetes.io/last-applied-configuration": HOSTILE, "note": HOSTILE});
    otter
        .patch(client, json!({"metadata": {"annotations": applied}}))
        .await;
    let secret = target("v1", "Secret", POND, "fish");
    secret
        .patch(client, json!({"stringData": {"token": HOSTILE}}))
        .await;
    let mut hostile = pod("otter-4", Some("docker.io/toolcrib/sidecar:0.0.1"));
    hostile["spec"]["containers"][0]["env"] = json!([{"name": "API_KEY", "value": HOSTILE}]);
    hostile["spec"]["containers"][0]["args"] = json!(["--token", HOSTILE]);
    hostile["metadata"]["annotations"] = json!({"note": HOSTILE});
    installation::apply(client, &hostile).await;
    run_pods(client).await;
    let approval = json!({
        "apiVersion": OURS, "kind": "ToolApproval",
        "metadata": {"name": "otter-dives", "namespace": POND},
        "spec": {
            "agent": {"name": "otter", "uid": "1"}, "pod": {"name": "otter-1", "uid": "2"},
            "tool": "fish.dive", "tier": "Elevated", "arguments": format!("{{\"depth\":\"{HOSTILE}\"}}"),
            "callDigest": "c1:otter-dives", "entryDigest": "v1:dive", "rules": [],
            "requestedAt": "2026-11-27T12:00:00Z", "expiresAt": "2100-01-01T00:00:00Z", "requestID": "otter-dives",
        },
    });
    installation::apply(client, &approval).await;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.tar");
    let file = path.to_str().unwrap();
    // Standard input is no terminal, so nobody could answer.
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
        .args([
            "doctor",
            "-n",
            POND,
            "--operator-namespace",
            SYSTEM,
            "--bundle",
            file,
        ])
        .env("KUBECONFIG", kubeconfig())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("add --yes"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    assert!(!path.exists());

    let output = doctor(&["--bundle", file, "--yes", "--logs"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("bundle.tar will contain:") && said.contains("objects/agent.json"),
        "{said}"
    );
    assert!(said.contains("wrote "), "{said}");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let bytes = fs::read(&path).unwrap();
    let whole = String::from_utf8_lossy(&bytes);
    for secret in [HOSTILE, "secret-path-4c1d"] {
        assert!(!whole.contains(secret), "{secret}");
    }
    let mut archive = tar::Archive::new(&*bytes);
    let mut files = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        files.insert(name, content);
    }
    let content = |name: &str| &files[&format!("toolcrib-bundle/{name}")];
    assert!(content("objects/agent.json").contains("observedGeneration"));
    assert!(content("objects/toolapproval.json").contains("fish.dive"));
    assert!(content("objects/pod.json").contains("API_KEY"));
    assert!(content("findings.txt").contains("otter-4"));
    // No node runs the pods.
    assert!(
        content("missing.txt").contains("get pods/log doctor-system/doctor-toolcrib-controller-")
    );

    // A file that exists is not replaced.
    let output = doctor(&["--bundle", file, "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
