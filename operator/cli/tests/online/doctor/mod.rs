//! `doctor` against a real API server: a healthy installation, faults one after the other, a user who may
//! read one namespace only, and the bundle of a cluster with hostile data.

mod installation;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use kube::Client;
use serde_json::{Value, json};

use self::installation::{POND, SYSTEM, Target, bundle, dates, install, pod, run_pods, uninstall};
use super::{DEADLINE, DEFINING, POLL, apply, client, define, kubeconfig, toolcrib};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const OURS: &str = "toolcrib.dev/v1alpha1";
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

/// A change that breaks the installation.
enum Fault {
    Delete,
    Patch(Value),
    Status(Value),
    Create(Value),
}

const fn target(
    version: &'static str,
    kind: &'static str,
    namespace: &'static str,
    name: &'static str,
) -> Target {
    Target {
        version,
        kind,
        namespace,
        name,
    }
}

/// Each fault with the line that names it, and with its cure.
fn faults() -> Vec<(Target, Fault, i32, [&'static str; 2])> {
    let webhooks = |change: Value| {
        let mut webhook = json!({
            "name": "inject.toolcrib.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "timeoutSeconds": 1,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": POND}},
            "objectSelector": {"matchExpressions": [{"key": "toolcrib.dev/agent", "operator": "Exists"}]},
            "clientConfig": {"caBundle": bundle(2100), "service": {"name": "doctor-toolcrib-webhook", "namespace": SYSTEM, "port": 443}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}],
        });
        for (field, value) in change.as_object().unwrap() {
            webhook[field] = value.clone();
        }
        json!({"webhooks": [webhook]})
    };
    let expired = json!({"caBundle": bundle(2021), "service": {"name": "doctor-toolcrib-webhook", "namespace": SYSTEM, "port": 443}});
    let elsewhere = json!({"matchLabels": {"kubernetes.io/metadata.name": "doctor-nowhere"}});
    let injecting = target(
        ADMISSION,
        "MutatingWebhookConfiguration",
        "",
        "doctor-toolcrib",
    );
    let otter = target(OURS, "Agent", POND, "otter");
    let ready = |status: &str, reason: &str| {
        json!({"status": {"conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": "every tool is withheld",
            "lastTransitionTime": "2026-11-27T12:00:00Z",
        }]}})
    };
    let upgrade = "helm upgrade doctor-toolcrib CHART -n doctor-system --reset-then-reuse-values";
    vec![
        (
            target(
                ADMISSION,
                "ValidatingAdmissionPolicy",
                "",
                "doctor-toolcrib-guard",
            ),
            Fault::Delete,
            1,
            [
                "ERROR        policies      ValidatingAdmissionPolicy doctor-toolcrib-guard does not exist",
                upgrade,
            ],
        ),
        (
            target(
                ADMISSION,
                "ValidatingAdmissionPolicyBinding",
                "",
                "doctor-toolcrib-approvals",
            ),
            Fault::Delete,
            1,
            [
                "ValidatingAdmissionPolicy doctor-toolcrib-approvals has no binding",
                upgrade,
            ],
        ),
        (
            target(
                ADMISSION,
                "ValidatingAdmissionPolicyBinding",
                "",
                "doctor-toolcrib-selectors",
            ),
            Fault::Patch(json!({"spec": {"validationActions": ["Audit"]}})),
            1,
            [
                "Binding of doctor-toolcrib-selectors does not deny",
                "set its spec.validationActions to [Deny]",
            ],
        ),
        (
            injecting,
            Fault::Delete,
            1,
            [
                "MutatingWebhookConfiguration doctor-toolcrib does not exist",
                upgrade,
            ],
        ),
        (
            injecting,
            Fault::Patch(webhooks(json!({"clientConfig": expired}))),
            1,
            [
                "the caBundle of MutatingWebhookConfiguration doctor-toolcrib expired at 2021-01-01T00:00:00Z",
                "`kubectl logs -n doctor-system deployment/doctor-toolcrib-controller`",
            ],
        ),
        (
            injecting,
            Fault::Patch(webhooks(json!({"namespaceSelector": elsewhere}))),
            1,
            [
                "leaves out namespace doctor-pond, which has agents",
                "`kubectl get namespace doctor-pond --show-labels`",
            ],
        ),
        (
            target("v1", "Secret", SYSTEM, "doctor-toolcrib-certificates"),
            Fault::Patch(dates("2026-01-01T00:00:00Z")),
            1,
            [
                "the certificate of the webhook expired at 2026-01-01T00:00:00Z",
                "look why no leader renews it",
            ],
        ),
        (
            target(
                "coordination.k8s.io/v1",
                "Lease",
                SYSTEM,
                "doctor-toolcrib-controller",
            ),
            Fault::Patch(json!({"spec": {"holderIdentity": ""}})),
            1,
            [
                "Lease doctor-system/doctor-toolcrib-controller has no holder",
                "says why none leads",
            ],
        ),
        (
            target(RBAC, "RoleBinding", POND, "doctor-toolcrib-materials"),
            Fault::Delete,
            1,
            [
                "namespace doctor-pond has agents, and no RoleBinding gives ServiceAccount doctor-system/doctor-toolcrib-controller",
                "metadata: {name: doctor-toolcrib-materials, namespace: doctor-pond}",
            ],
        ),
        (
            target(RBAC, "ClusterRole", "", "doctor-toolcrib-materials"),
            Fault::Patch(json!({"rules": [
                {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list", "create", "patch"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create"]},
            ]})),
            0,
            [
                "does not give the controller `patch` on pods",
                "--set hints.enabled=true",
            ],
        ),
        (
            target("v1", "Secret", POND, "fish"),
            Fault::Patch(json!({"metadata": {"labels": {"toolcrib.dev/credential": null}}})),
            1,
            ["[SecretNotLabelled]", "kubectl label secret"],
        ),
        (
            target("v1", "Secret", POND, "fish"),
            Fault::Patch(json!({"metadata": {"annotations": {"toolcrib.dev/hosts": "reed.test"}}})),
            1,
            ["[SecretHostNotAllowed]", "kubectl annotate secret"],
        ),
        (
            target("networking.k8s.io/v1", "NetworkPolicy", POND, "reeds"),
            Fault::Create(json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "reeds", "namespace": POND},
                "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]},
            })),
            1,
            [
                "NetworkPolicy reeds in namespace doctor-pond lets these pods not reach the operator's link: otter-1",
                "kubernetes.io/metadata.name: doctor-system",
            ],
        ),
        (
            target("v1", "Pod", POND, "otter-2"),
            Fault::Create(pod("otter-2", None)),
            1,
            [
                "no mediator: doctor-pond/otter-2",
                "kubectl delete pod otter-2 -n doctor-pond",
            ],
        ),
        (
            target("v1", "Pod", POND, "otter-3"),
            Fault::Create(pod("otter-3", Some("docker.io/toolcrib/sidecar:0.0.1"))),
            0,
            [
                "these pods run another mediator: doctor-pond/otter-3 (docker.io/toolcrib/sidecar:0.0.1)",
                "delete the pods",
            ],
        ),
        (
            otter,
            Fault::Status(ready("False", "AllWithheld")),
            1,
            [
                "Agent doctor-pond/otter is not ready: AllWithheld: every tool is withheld",
                "`kubectl describe agent otter -n doctor-pond`",
            ],
        ),
        (
            otter,
            Fault::Status(
                json!({"status": {"pods": {"running": 1, "inForce": 0, "stale": ["otter-1"]}}}),
            ),
            1,
            [
                "these pods have not reported, or have not loaded the current files, for over two minutes: otter-1",
                "let the pods reach port 8443",
            ],
        ),
        (
            target("apps/v1", "Deployment", SYSTEM, "doctor-toolcrib-webhook"),
            Fault::Patch(json!({"spec": {"replicas": 0}})),
            1,
            [
                "Service doctor-system/doctor-toolcrib-webhook has no ready pod",
                "kubectl scale deployment/doctor-toolcrib-webhook -n doctor-system --replicas=2",
            ],
        ),
    ]
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
    // Nobody answers the question.
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
    assert!(
        said.contains("bundle.tar will have:") && said.contains("objects/agent.json"),
        "{said}"
    );
    assert!(said.contains("nothing is written"), "{said}");
    assert!(!path.exists());

    let output = doctor(&["--bundle", file, "--yes", "--logs"]);
    let said = text(&output.stderr);
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
