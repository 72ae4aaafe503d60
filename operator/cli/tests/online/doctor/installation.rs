//! The chart on a control plane alone, made healthy by hand: its Deployments, Services and certificates
//! are real objects, and this file writes what kubelets and the controller would write.
//!
//! The other tests of this program use the same API server. So the policies select no namespace, and the
//! webhooks only the agent's.

use std::process::Command;

use k8s_openapi::jiff::Timestamp;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};
use toolcrib_e2e::cluster::{Home, Progress, kube_binary};
use toolcrib_e2e::platform::repository;

use crate::{label, values};

pub const SYSTEM: &str = "doctor-system";
pub const POND: &str = "doctor-pond";
/// Helm's release, and the prefix of the chart's objects.
const RELEASE: &str = "doctor-toolcrib";
/// A node without a kubelet: Services lead to pods of nodes alone.
const NODE: &str = "doctor-node";
/// The agent and what it uses.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Secret
metadata:
  {name: fish, namespace: doctor-pond, labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: fish.test}}
stringData: {token: t}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: fish, namespace: doctor-pond}
spec:
  url: https://fish.test
  auth: {type: Bearer, secretKeyRef: {name: fish, key: token}}
  descriptor: {version: 2, tools: []}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: doctor-pond}
spec: {surfaces: [{name: fish}]}
"#;

/// An object, by the name of its kind.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub version: &'static str,
    pub kind: &'static str,
    /// Empty: the kind has no namespaces.
    pub namespace: &'static str,
    pub name: &'static str,
}

impl Target {
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        dynamic(client, self.version, self.kind, self.namespace)
    }

    pub async fn get(&self, client: &Client) -> Option<DynamicObject> {
        self.api(client).get_opt(self.name).await.unwrap()
    }

    pub async fn patch(&self, client: &Client, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        self.api(client)
            .patch(self.name, &params, &patch)
            .await
            .unwrap();
    }

    pub async fn patch_status(&self, client: &Client, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let api = self.api(client);
        api.patch_status(self.name, &params, &patch).await.unwrap();
    }

    pub async fn delete(&self, client: &Client) {
        let params = DeleteParams::default().grace_period(0);
        self.api(client).delete(self.name, &params).await.unwrap();
    }

    /// Makes the object again what it was.
    pub async fn restore(&self, client: &Client, before: Option<DynamicObject>) {
        let api = self.api(client);
        let Some(mut before) = before else {
            return self.delete(client).await;
        };
        before.metadata.managed_fields = None;
        match self.get(client).await {
            None => {
                before.metadata.resource_version = None;
                before.metadata.uid = None;
                api.create(&PostParams::default(), &before).await.unwrap();
            }
            Some(now) => {
                before.metadata.resource_version = now.resource_version();
                let restored = api
                    .replace(self.name, &PostParams::default(), &before)
                    .await
                    .unwrap();
                // Only Toolcrib's kinds among the targets have a status that nobody else writes.
                if self.version == "toolcrib.dev/v1alpha1" {
                    before.metadata.resource_version = restored.resource_version();
                    api.replace_status(self.name, &PostParams::default(), &before)
                        .await
                        .unwrap();
                }
            }
        }
    }
}

fn dynamic(client: &Client, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

pub async fn apply(client: &Client, object: &Value) {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let api = dynamic(
        client,
        &text(&object["apiVersion"]),
        &text(&object["kind"]),
        &text(&object["metadata"]["namespace"]),
    );
    let params = PatchParams::apply("helm").force();
    let name = text(&object["metadata"]["name"]);
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{object}: {error}"));
}

/// The objects of the chart.
fn rendered() -> Vec<Value> {
    let kube = kube_binary(&Home::find().unwrap(), &Progress::stderr()).unwrap();
    let output = Command::new(kube)
        .args(["helm", "template", RELEASE])
        .arg(repository().join("charts/toolcrib"))
        .args(["--namespace", SYSTEM, "--set"])
        .arg(format!("secretNamespaces={{{POND}}},crds.install=false"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let documents = serde_yaml::Deserializer::from_slice(&output.stdout);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

/// A CA that is valid until then, as PEM in base64.
pub fn bundle(year: i32) -> String {
    use base64::Engine as _;
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    base64::engine::general_purpose::STANDARD.encode(pem)
}

/// What the controller writes beside its certificates.
pub fn dates(webhook: &str) -> Value {
    let dates = json!({
        "authorities": [],
        "webhook": {"signed_by": "ca", "not_after": webhook, "hosts": []},
        "link": {"signed_by": "ca", "not_after": "2100-01-01T00:00:00Z", "hosts": []},
    });
    json!({"metadata": {"annotations": {"toolcrib.dev/certificates": dates.to_string()}}})
}

/// Adds what the controller writes, and keeps the other tests' objects out of the policies' reach.
fn edit(object: &mut Value, bundle: &str) {
    let nowhere = json!({"matchLabels": {"kubernetes.io/metadata.name": "doctor-nowhere"}});
    let pond = json!({"matchLabels": {"kubernetes.io/metadata.name": POND}});
    match object["kind"].as_str().unwrap_or_default() {
        "ValidatingAdmissionPolicy" => {
            object["spec"]["matchConstraints"]["namespaceSelector"] = nowhere
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            for webhook in object["webhooks"].as_array_mut().unwrap() {
                webhook["clientConfig"]["caBundle"] = json!(bundle);
                webhook["clientConfig"]["service"]["path"] = json!("/secret-path-4c1d");
                webhook["namespaceSelector"] = pond.clone();
                webhook["timeoutSeconds"] = json!(1);
                let rules = webhook["rules"].as_array_mut().unwrap();
                // The selector of namespaces leaves out no object that has none.
                rules.retain(|rule| rule["scope"] == "Namespaced");
            }
        }
        "Secret" => {
            object["metadata"]["annotations"] =
                dates("2100-01-01T00:00:00Z")["metadata"]["annotations"].clone()
        }
        // Octal in YAML 1.1, and a text for this reader.
        "Deployment" => {
            let pod = &mut object["spec"]["template"]["spec"];
            pod["nodeName"] = json!(NODE);
            let volumes = pod["volumes"].as_array_mut();
            for volume in volumes.into_iter().flatten() {
                volume["secret"]["defaultMode"] = json!(0o444);
            }
        }
        _ => {}
    }
}

/// A pod of the agent. No node runs it.
pub fn pod(name: &str, mediator: Option<&str>) -> Value {
    let mediators = mediator.map(
        |image| json!({"name": "toolcrib-mediator", "image": image, "restartPolicy": "Always"}),
    );
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": POND, "labels": {"toolcrib.dev/agent": "otter"}},
        "spec": {
            "schedulerName": "nobody", "initContainers": mediators.into_iter().collect::<Vec<_>>(),
            "containers": [{"name": "agent", "image": "otter"}],
        },
    })
}

/// Installs everything. Cluster-wide objects come last: the webhooks do not answer.
pub async fn install(client: &Client) {
    for namespace in [SYSTEM, POND] {
        label(client, namespace, &json!({})).await;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    apply(client, &node).await;
    for object in values(OBJECTS) {
        apply(client, &object).await;
    }
    let mut chart = rendered();
    let bundle = bundle(2100);
    for object in &mut chart {
        edit(object, &bundle);
    }
    let webhook = chart.iter().find(|it| {
        it["kind"] == "Deployment" && it["metadata"]["name"] == format!("{RELEASE}-webhook")
    });
    let arguments = &webhook.unwrap()["spec"]["template"]["spec"]["containers"][0]["args"];
    let mut arguments = arguments
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str);
    let image = arguments
        .find_map(|it| it.strip_prefix("--mediator-image="))
        .unwrap();
    apply(client, &pod("otter-1", Some(image))).await;
    apply(client, &lease(Timestamp::now())).await;
    chart.sort_by_key(|it| {
        it["kind"]
            .as_str()
            .unwrap()
            .contains("WebhookConfiguration")
    });
    for object in &chart {
        apply(client, object).await;
    }
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": Timestamp::now().to_string()});
    let agent = Target {
        version: "toolcrib.dev/v1alpha1",
        kind: "Agent",
        namespace: POND,
        name: "otter",
    };
    let generation = agent.get(client).await.unwrap().metadata.generation;
    let status = json!({"status": {
        "observedGeneration": generation, "pods": {"running": 1, "inForce": 1},
        "conditions": [condition("InForce", "InForce"), condition("Ready", "Ready")],
    }});
    agent.patch_status(client, status).await;
}

fn lease(renewed: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": format!("{RELEASE}-controller"), "namespace": SYSTEM},
        // Longer than the test.
        "spec": {"holderIdentity": "heron", "leaseDurationSeconds": 3600, "renewTime": format!("{renewed:.6}")},
    })
}

/// Marks the pods of both namespaces as running, as kubelets do, and the first controller as the leader.
/// From time to time the node's silence makes them not ready, so this is done again.
pub async fn run_pods(client: &Client) {
    for namespace in [SYSTEM, POND] {
        let pods = dynamic(client, "v1", "Pod", namespace);
        let mut leader = None;
        for (index, pod) in pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .enumerate()
        {
            let name = pod.name_any();
            if name.starts_with(&format!("{RELEASE}-controller")) && leader.is_none() {
                leader = Some(name.clone());
            }
            let conditions = pod.data["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            if conditions.any(|it| it["type"] == "Ready" && it["status"] == "True") {
                continue;
            }
            let address = format!("10.99.7.{}", index + 1);
            let status = json!({"status": {
                "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now().to_string()}],
            }});
            accepted(
                pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
                    .await,
            );
        }
        if let Some(leader) = leader {
            let label = json!({"metadata": {"labels": {"toolcrib.dev/leader": "true"}}});
            accepted(
                pods.patch(&leader, &PatchParams::default(), &Patch::Merge(&label))
                    .await,
            );
        }
    }
}

/// A pod of a Deployment that shrinks may be gone in the meantime.
fn accepted(patched: Result<DynamicObject, kube::Error>) {
    match patched {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Removes what other tests could see. The namespaces' own objects go with them.
pub async fn uninstall(client: &Client) {
    for object in rendered() {
        let metadata = &object["metadata"];
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let api = dynamic(client, &version, &kind, &text(&metadata["namespace"]));
        match api
            .delete(&text(&metadata["name"]), &DeleteParams::default())
            .await
        {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{metadata}: {error}"),
        }
    }
    // Without a node, its pods are collected.
    let nodes = dynamic(client, "v1", "Node", "");
    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    let namespaces = dynamic(client, "v1", "Namespace", "");
    for namespace in [SYSTEM, POND] {
        namespaces
            .delete(namespace, &DeleteParams::background())
            .await
            .unwrap();
    }
}
