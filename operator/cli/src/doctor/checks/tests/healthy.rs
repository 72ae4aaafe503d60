//! The objects of a healthy installation with one agent, and the facts that they give.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, Settings, load};
use toolcrib_crds::EgressRule;

use crate::cluster::Scope;
use crate::cluster::installation::{CONTROLLER, Cause, Facts, Gap, List, Object, Release};

/// The time of all facts.
pub const NOW: &str = "2026-11-27T12:00:00Z";
pub const SYSTEM: &str = "toolcrib-system";
pub const POND: &str = "pond";
const OWN: &str = env!("CARGO_PKG_VERSION");
/// A CA that is valid until 2126.
const CA: &str = include_str!("../../../../../../crds/bounds/tests/pond.pem");

/// Making them takes longer than a check.
static DEFINITIONS: LazyLock<BTreeMap<String, CustomResourceDefinition>> = LazyLock::new(|| {
    let all = toolcrib_crds::definitions().into_iter();
    all.map(|definition| (definition.name_any(), definition))
        .collect()
});

/// The objects of a cluster, before and after a test has broken them.
pub struct Cluster {
    pub objects: Vec<Value>,
    pub definitions: BTreeMap<String, CustomResourceDefinition>,
    /// Plurals that the user may not read.
    pub forbidden: Vec<&'static str>,
    pub server: &'static str,
    /// The operator's rules for name servers.
    pub dns: Vec<EgressRule>,
}

fn deployment(component: &str, arguments: &[String]) -> Value {
    json!({
        "kind": "Deployment",
        "metadata": {"name": format!("toolcrib-{component}"), "namespace": SYSTEM, "labels": {
            "app.kubernetes.io/component": component, "app.kubernetes.io/version": OWN,
            "app.kubernetes.io/instance": "crib",
        }},
        "spec": {"replicas": 2, "selector": {}, "template": {
            "metadata": {"labels": {"app.kubernetes.io/component": component}},
            "spec": {
                "serviceAccountName": format!("toolcrib-{component}"),
                "containers": [{"name": component, "args": arguments}],
            },
        }},
        "status": {"availableReplicas": 2},
    })
}

fn slice(service: &str, address: &str) -> Value {
    json!({
        "kind": "EndpointSlice",
        "metadata": {"name": service, "namespace": SYSTEM, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    })
}

fn configuration(kind: &str, webhook: &str) -> Value {
    json!({
        "kind": kind,
        "metadata": {"name": "toolcrib"},
        "webhooks": [{
            "name": webhook, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {
                "caBundle": base64(CA),
                "service": {"name": "toolcrib-webhook", "namespace": SYSTEM},
            },
        }],
    })
}

pub fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn policy(suffix: &str) -> [Value; 2] {
    let name = format!("toolcrib-{suffix}");
    [
        json!({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {"failurePolicy": "Fail"}}),
        json!({
            "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// The agent `otter`, its pod and the objects that it uses.
fn inhabitants() -> Vec<Value> {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": NOW});
    let rule = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    vec![
        json!({"kind": "Namespace", "metadata": {"name": POND, "labels": {"kubernetes.io/metadata.name": POND}}}),
        json!({"kind": "Namespace", "metadata": {"name": "kube-system", "labels": {"kubernetes.io/metadata.name": "kube-system", "team": "platform"}}}),
        json!({"kind": "Namespace", "metadata": {"name": SYSTEM, "labels": {"kubernetes.io/metadata.name": SYSTEM}}}),
        json!({
            "kind": "ClusterRole", "metadata": {"name": "toolcrib-materials"},
            "rules": [
                rule(&["secrets", "configmaps"], &["list", "create", "patch"]),
                rule(&["networkpolicies"], &["create"]),
                rule(&["pods"], &["patch"]),
            ],
        }),
        json!({
            "kind": "RoleBinding", "metadata": {"name": "toolcrib-materials", "namespace": POND},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "toolcrib-materials"},
            "subjects": [{"kind": "ServiceAccount", "name": "toolcrib-controller", "namespace": SYSTEM}],
        }),
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "otter", "namespace": POND, "generation": 2, "creationTimestamp": "2026-11-27T11:00:00Z"},
            "spec": {"surfaces": [{"name": "fish"}]},
            "status": {
                "observedGeneration": 2, "manifestDigest": "abcdef0123456789",
                "pods": {"running": 1, "inForce": 1},
                "conditions": [condition("InForce", "InForce"), condition("Ready", "Ready")],
            },
        }),
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "fish", "namespace": POND},
            "spec": {
                "url": "https://fish.test", "auth": {"type": "Bearer", "secretKeyRef": {"name": "fish", "key": "token"}},
                "descriptor": {"version": 2, "tools": []},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "fish", "namespace": POND, "labels": {"toolcrib.dev/credential": "true"},
                "annotations": {"toolcrib.dev/hosts": "fish.test"},
            },
            "stringData": {"token": "t"},
        }),
        json!({
            "kind": "Pod",
            "metadata": {"name": "otter-1", "namespace": POND, "labels": {"toolcrib.dev/agent": "otter"}},
            "spec": {
                "nodeName": "den", "containers": [],
                "initContainers": [{"name": "toolcrib-mediator", "image": "mirror.test/toolcrib/sidecar:9"}],
            },
            "status": {"phase": "Running"},
        }),
    ]
}

impl Cluster {
    pub fn healthy() -> Self {
        let controller = [
            "--webhook-config-name=toolcrib",
            "--secret-namespaces=pond",
            "--refresh-hints",
        ];
        let webhook = ["--mediator-image=docker.io/toolcrib/sidecar:9".to_owned()];
        let dates = json!({
            "webhook": {"not_after": "2027-02-01T00:00:00Z"}, "link": {"not_after": "2027-01-01T00:00:00Z"},
        });
        let mut objects = vec![
            deployment(CONTROLLER, &controller.map(str::to_owned)),
            deployment("webhook", &webhook),
            json!({
                "kind": "Lease", "metadata": {"name": "toolcrib-controller", "namespace": SYSTEM},
                "spec": {"holderIdentity": "heron", "leaseDurationSeconds": 12, "renewTime": "2026-11-27T11:59:55.000000Z"},
            }),
            slice("toolcrib-webhook", "10.1.0.7"),
            slice("toolcrib-link", "10.1.0.8"),
            configuration("MutatingWebhookConfiguration", "inject.toolcrib.dev"),
            configuration("ValidatingWebhookConfiguration", "validate.toolcrib.dev"),
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "toolcrib-certificates", "namespace": SYSTEM, "annotations": {"toolcrib.dev/certificates": dates.to_string()}},
            }),
        ];
        objects.extend(
            super::super::policies::POLICIES
                .iter()
                .flat_map(|(suffix, ..)| policy(suffix)),
        );
        objects.extend(inhabitants());
        Self {
            objects,
            definitions: DEFINITIONS.clone(),
            forbidden: Vec::new(),
            server: "v1.35.2",
            dns: Settings::default().network.dns,
        }
    }

    /// The object of this kind and name.
    pub fn get(&mut self, kind: &str, name: &str) -> &mut Value {
        let mut objects = self.objects.iter_mut();
        let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    pub fn remove(&mut self, kind: &str, name: &str) {
        let before = self.objects.len();
        self.objects
            .retain(|it| it["kind"] != kind || it["metadata"]["name"] != name);
        assert_eq!(self.objects.len(), before - 1, "{kind} {name}");
    }

    pub fn add(&mut self, object: Value) {
        self.objects.push(object);
    }

    fn gap(&self, question: &str) -> Result<(), Gap> {
        match self.forbidden.iter().find(|it| question.contains(*it)) {
            None => Ok(()),
            Some(_) => Err(Gap {
                question: question.to_owned(),
                why: Cause::Forbidden,
            }),
        }
    }

    fn list<T: DeserializeOwned>(&self, kind: &str, question: &str) -> List<T> {
        self.gap(question)?;
        let objects = self.objects.iter().filter(|it| it["kind"] == kind);
        Ok(objects
            .map(|it| serde_json::from_value(it.clone()).unwrap())
            .collect())
    }

    fn object<T: DeserializeOwned>(&self, kind: &str, name: &str, question: &str) -> Object<T> {
        self.gap(question)?;
        let mut objects = self.objects.iter();
        let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        Ok(found.map(|it| serde_json::from_value(it.clone()).unwrap()))
    }

    /// The facts about the namespace `pond`.
    pub fn facts(&self) -> Facts {
        let deployments: List<Deployment> = self.list(
            "Deployment",
            "list deployments in namespace toolcrib-system",
        );
        let controller = deployments
            .iter()
            .flatten()
            .find(|it| it.name_any().ends_with(CONTROLLER));
        let release = controller.map_or_else(|| Release::assumed(SYSTEM), Release::of);
        let ours = self.objects.iter().filter(|it| {
            let kind = it["kind"].as_str().unwrap();
            ["Agent", "Surface", "Secret"].contains(&kind) && it["metadata"]["namespace"] == POND
        });
        let ours = ours.map(|it| (String::new(), it.to_string()));
        let mut settings = Settings::default();
        settings.network.dns = self.dns.clone();
        let inputs = load(ours, settings).inputs;
        let agents = self.list("Agent", "list agents in namespace pond");
        let certificates: Object<Secret> = self.object(
            "Secret",
            "toolcrib-certificates",
            "get secrets toolcrib-system/toolcrib-certificates",
        );
        let definitions = DEFINITIONS.keys().map(|name| {
            let readable = self.gap(&format!("get customresourcedefinitions {name}"));
            let found = readable.map(|()| self.definitions.get(name).cloned());
            (name.clone(), found)
        });
        let namespaces = [POND, SYSTEM, "kube-system"].map(|name| {
            let found = self.object("Namespace", name, &format!("get namespaces {name}"));
            (name.to_owned(), found)
        });
        Facts {
            now: NOW.parse::<Timestamp>().unwrap(),
            scope: Scope::of(Some(POND.to_owned())),
            server: self.server.to_owned(),
            definitions: definitions.collect(),
            lease: self.object(
                "Lease",
                &release.lease,
                "get leases toolcrib-system/toolcrib-controller",
            ),
            mutating_webhooks: self.object(
                "MutatingWebhookConfiguration",
                &release.name,
                "get mutatingwebhookconfigurations toolcrib",
            ),
            validating_webhooks: self.object(
                "ValidatingWebhookConfiguration",
                &release.name,
                "get validatingwebhookconfigurations toolcrib",
            ),
            endpoints: self.list(
                "EndpointSlice",
                "list endpointslices in namespace toolcrib-system",
            ),
            certificates: certificates.map(|secret| secret.map(|it| it.metadata)),
            policies: self.list(
                "ValidatingAdmissionPolicy",
                "list validatingadmissionpolicies in all namespaces",
            ),
            bindings: self.list(
                "ValidatingAdmissionPolicyBinding",
                "list validatingadmissionpolicybindings in all namespaces",
            ),
            agents,
            undecodable: [].into(),
            pods: self.list("Pod", "list pods in namespace pond"),
            namespaces: namespaces.into(),
            network_policies: self.list("NetworkPolicy", "list networkpolicies in namespace pond"),
            role_bindings: self.list("RoleBinding", "list rolebindings in namespace pond"),
            agent_role: self.object(
                "ClusterRole",
                "toolcrib-materials",
                "get clusterroles toolcrib-materials",
            ),
            agent_role_binding: self.object(
                "ClusterRoleBinding",
                "toolcrib-materials",
                "get clusterrolebindings toolcrib-materials",
            ),
            objects: self.gap("list surfaces in namespace pond").map(|()| inputs),
            deployments,
            release,
        }
    }
}

/// The name of the agent of the pond.
pub fn otter() -> ObjectRef {
    ObjectRef::new(POND, "otter")
}
