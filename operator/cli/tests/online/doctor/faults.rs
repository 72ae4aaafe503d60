//! The faults, each with the line that names it and with its cure.

use serde_json::{Value, json};

use super::installation::{POND, SYSTEM, Target, bundle, dates, pod};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
pub const RBAC: &str = "rbac.authorization.k8s.io/v1";
pub const OURS: &str = "toolcrib.dev/v1alpha1";

/// A change that breaks the installation.
pub enum Fault {
    Delete,
    Patch(Value),
    Status(Value),
    Create(Value),
}

pub const fn target(
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
pub fn faults() -> Vec<(Target, Fault, i32, [&'static str; 2])> {
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
                "find out why no leader renews it",
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
                "shows why no controller leads",
            ],
        ),
        (
            target(RBAC, "RoleBinding", POND, "doctor-toolcrib-materials"),
            Fault::Delete,
            1,
            [
                "namespace doctor-pond has agents, and no RoleBinding gives ServiceAccount doctor-system/doctor-toolcrib-controller",
                "meta.helm.sh/release-namespace: doctor-system",
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
                "NetworkPolicy reeds in namespace doctor-pond blocks the operator's link for pods otter-1",
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
