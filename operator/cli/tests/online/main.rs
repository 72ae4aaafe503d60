//! Offline equals online: the compiler's golden cases are applied to a real API server and read
//! back with the cluster loader. They give the same bytes as their files.
//!
//! A document that the API server refuses is left out on both sides. The test needs a cluster's
//! kubeconfig in TOOLCRIB_TEST_KUBECONFIG, and uses the namespaces of the cases there.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod approving;
mod completing;
mod doctor;
mod in_cluster;
#[path = "../authoring/scripted/mod.rs"]
mod scripted;
mod suspending;
mod why;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config, ResourceExt as _};
use serde_json::{Value, json};

/// Limit on waiting until the API server serves new kinds.
const DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

const KUBECONFIG: &str = "TOOLCRIB_TEST_KUBECONFIG";

const API_SERVER: &str = "kubernetes";

/// Kinds that compile reads, and their plurals.
const KINDS: [(&str, &str); 9] = [
    ("Surface", "surfaces"),
    ("Agent", "agents"),
    ("ToolGrant", "toolgrants"),
    ("ToolDefaults", "tooldefaults"),
    ("ModelProvider", "modelproviders"),
    ("ClusterToolPolicy", "clustertoolpolicies"),
    ("Service", "services"),
    ("Secret", "secrets"),
    ("ConfigMap", "configmaps"),
];

fn kubeconfig() -> PathBuf {
    let path = std::env::var_os(KUBECONFIG);
    PathBuf::from(path.unwrap_or_else(|| panic!("{KUBECONFIG} must name a kubeconfig")))
}

async fn client() -> Client {
    let provider = rustls::crypto::ring::default_provider();
    // Another test may have installed it.
    provider.install_default().ok();
    let kubeconfig = Kubeconfig::read_from(kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Held while a test defines the kinds, or a kind as an older release had it.
static DEFINING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Creates the definitions of our kinds, as the chart does.
async fn define(client: &Client) {
    let _defining = DEFINING.lock().await;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in toolcrib_crds::definitions() {
        let name = definition.name_any();
        let apply = PatchParams::apply("toolcrib-test").force();
        api.patch(&name, &apply, &Patch::Apply(&definition))
            .await
            .unwrap();
        let deadline = Instant::now() + DEADLINE;
        while !established(&api.get(&name).await.unwrap()) {
            assert!(Instant::now() < deadline, "{name} is not established");
            tokio::time::sleep(POLL).await;
        }
    }
}

fn established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Applies an object of a namespace, as a GitOps tool does.
async fn apply(client: &Client, namespace: &str, object: &Value) {
    let text = |field: &Value| field.as_str().unwrap().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let name = text(&object["metadata"]["name"]);
    api.patch(
        &name,
        &PatchParams::apply("gitops").force(),
        &Patch::Apply(object),
    )
    .await
    .unwrap();
}

/// Returns the documents of a case: its own, and those of the files that its `include` lists.
fn documents(case: &Path) -> Vec<Value> {
    let include = fs::read_to_string(case.join("include")).unwrap_or_default();
    let included = include.lines().filter(|line| !line.is_empty());
    let mut files: Vec<PathBuf> = included
        .map(|line| case.join(line))
        .chain([case.to_path_buf()])
        .flat_map(yaml_files)
        .collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            // A text that is no YAML cannot be applied.
            toolcrib_compile::yaml::documents(&text)
                .into_iter()
                .map_while(|document| document.value.ok())
        })
        .flat_map(|document| match document["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![document],
        })
        .collect()
}

fn yaml_files(path: PathBuf) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path];
    }
    fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == "yaml"))
        .collect()
}

fn namespace(document: &Value) -> &str {
    document["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default")
}

/// Whether this is the Service of the API server, which each cluster has with its own address.
fn is_its_own(document: &Value) -> bool {
    document["kind"] == "Service"
        && document["metadata"]["name"] == API_SERVER
        && namespace(document) == "default"
}

fn api(client: &Client, document: &Value) -> Option<Api<DynamicObject>> {
    let kind = document["kind"].as_str()?;
    let (_, plural) = KINDS.iter().find(|(known, _)| *known == kind)?;
    let version = document["apiVersion"].as_str()?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    Some(Api::namespaced_with(
        client.clone(),
        namespace(document),
        &resource,
    ))
}

/// Creates a namespace if it is missing, and adds these labels.
async fn label(client: &Client, name: &str, labels: &Value) {
    let api: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("namespace {name}: {error}"),
    }
    let patch = json!({"metadata": {"labels": labels}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// Creates the documents that the API server accepts, and returns them as stored.
async fn create(client: &Client, documents: &[Value]) -> Vec<Value> {
    let mut accepted = Vec::new();
    for document in documents {
        if document["kind"] == "Namespace" {
            let name = document["metadata"]["name"].as_str().unwrap();
            label(client, name, &document["metadata"]["labels"]).await;
            accepted.push(document.clone());
            continue;
        }
        let Some(api) = api(client, document) else {
            continue;
        };
        label(client, namespace(document), &json!({})).await;
        if is_its_own(document) {
            let found = api.get(API_SERVER).await.unwrap();
            accepted.push(serde_json::to_value(found).unwrap());
            continue;
        }
        let mut document = document.clone();
        if let Some(metadata) = document["metadata"].as_object_mut() {
            // The API server sets this field, no client does.
            metadata.remove("resourceVersion");
            metadata.remove("uid");
        }
        let Ok(object) = serde_json::from_value::<DynamicObject>(document.clone()) else {
            continue;
        };
        // The object may be left from an aborted run, or be declared twice: the last one counts.
        remove(&api, &object.name_any()).await;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => accepted.push(document),
            // The schema or its rules refuse it.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404 | 422) => {}
            Err(error) => panic!("{}: {error}", document["metadata"]["name"]),
        }
    }
    accepted
}

async fn remove(api: &Api<DynamicObject>, name: &str) {
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => {}
        Err(error) => panic!("{name}: {error}"),
    }
}

async fn delete(client: &Client, documents: &[Value]) {
    for document in documents {
        let name = document["metadata"]["name"].as_str().unwrap();
        if document["kind"] == "Namespace" {
            let labels = document["metadata"]["labels"].as_object();
            let none: serde_json::Map<String, Value> = labels
                .into_iter()
                .flatten()
                .map(|(label, _)| (label.clone(), Value::Null))
                .collect();
            label(client, name, &Value::Object(none)).await;
        } else if let Some(api) = api(client, document).filter(|_| !is_its_own(document)) {
            remove(&api, name).await;
        }
    }
}

fn toolcrib(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig())
        .output()
        .unwrap()
}

/// Returns the program's output as text.
fn answer(arguments: &[&str]) -> String {
    let output = toolcrib(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code().is_some_and(|code| code <= 1),
        "{arguments:?}: {stderr}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Explains one agent, without the parts that only a cluster knows.
fn explained(arguments: &[&str]) -> Value {
    let mut value: Value = serde_json::from_str(&answer(arguments)).unwrap();
    value.as_object_mut().unwrap().remove("cluster");
    value
}

#[tokio::test]
async fn golden_cases_compile_to_the_same_online() {
    let client = client().await;
    define(&client).await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compile/tests/cases");
    // One test for all cases, one after the other: each one uses the whole API server, and the test
    // counts the cases that it accepts.
    let cases = toolcrib_golden::cases(&root, None);
    let mut whole = 0;
    let mut differences = Vec::new();
    for case in &cases {
        let written = documents(case);
        let accepted = create(&client, &written).await;
        let ours = written
            .iter()
            .filter(|one| api(&client, one).is_some())
            .count();
        let taken = accepted
            .iter()
            .filter(|one| api(&client, one).is_some())
            .count();
        whole += usize::from(ours == taken);
        differences.extend(compare(case, &accepted));
        delete(&client, &accepted).await;
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // Most cases concern objects that the API server accepts.
    assert!(
        whole * 2 > cases.len(),
        "{whole} of {} cases are taken whole",
        cases.len()
    );
}

/// Returns the differences between the objects' files and the cluster.
fn compare(case: &Path, accepted: &[Value]) -> Vec<String> {
    let mut differences = Vec::new();
    let mut same = |command: &str, offline: String, online: String| {
        if offline != online {
            differences.push(format!(
                "{}: {command}\n    offline: {offline}\n    online:  {online}",
                case.display()
            ));
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": accepted});
    fs::write(&file, list.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let namespaces: BTreeSet<&str> = accepted
        .iter()
        .filter(|document| document["kind"] == "Agent")
        .map(namespace)
        .collect();
    for namespace in namespaces {
        let offline = answer(&["compile", "-f", file, "-n", namespace]);
        let online = answer(&["compile", "-n", namespace]);
        same(&format!("compile -n {namespace}"), offline, online);
    }
    for agent in accepted
        .iter()
        .filter(|document| document["kind"] == "Agent")
    {
        let name = agent["metadata"]["name"].as_str().unwrap();
        let asked = ["explain", name, "-n", namespace(agent), "-o", "json"];
        let offline = explained(&[&asked[..], &["-f", file]].concat());
        let online = explained(&asked);
        same(
            &format!("explain {name}"),
            offline.to_string(),
            online.to_string(),
        );
    }
    // Applying the same objects again changes nothing for any agent.
    let unchanged = "nothing changes for any agent\n".to_string();
    same("plan", unchanged, answer(&["plan", "-f", file]));
    differences
}

/// Objects of the cluster that no object there refers to yet.
const LAKE: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: fish, namespace: lake-of-plans}, spec: {ports: [{port: 80}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: lake-of-plans, labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: fish.lake-of-plans.svc}}
stringData: {token: t}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fish, namespace: lake-of-plans}
data:
  describe.json: '{"version": 2, "tools": [{"name": "list", "inputSchema": {"type": "object"}, "http": {"method": "GET", "path": "/"}}]}'
---
{apiVersion: v1, kind: Namespace, metadata: {name: pond-of-plans, labels: {team: otters}}}
"#;

const NEW: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: fish, namespace: lake-of-plans}
spec:
  service: {name: fish, port: 80}
  auth: {secretKeyRef: {name: creds, key: token}}
  descriptorFrom: {configMapKeyRef: {name: fish, key: describe.json}}
  consumers: {namespaces: {from: Selector, selector: {matchLabels: {team: otters}}}, credentials: Share}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond-of-plans}
spec: {surfaces: [{name: fish, namespace: lake-of-plans}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: otter, namespace: pond-of-plans}
spec: {agents: [otter], tools: [{surface: {name: fish, namespace: lake-of-plans}, allow: [list]}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {name: house, namespace: pond-of-plans}
spec: {endpoints: [{dialect: OpenAI, url: "https://model.test/v1"}], auth: None}
"#;

fn values(text: &str) -> Vec<Value> {
    let documents = toolcrib_compile::yaml::documents(text).into_iter();
    documents.map(|document| document.value.unwrap()).collect()
}

#[tokio::test]
async fn objects_of_other_namespaces_count() {
    let client = client().await;
    define(&client).await;
    let lake = create(&client, &values(LAKE)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.yaml");
    fs::write(&file, NEW).unwrap();

    let planned = answer(&["plan", "-f", file.to_str().unwrap(), "-o", "json"]);
    let planned: Value = serde_json::from_str(&planned).unwrap();
    let otter = &planned["agents"][0];
    let gained: Vec<&str> = otter["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|change| change["item"]["name"].as_str())
        .collect();
    assert!(gained.contains(&"fish.list"), "{planned:#}");
    assert_eq!(otter["unknown"], Value::Null, "{planned:#}");

    let new = create(&client, &values(NEW)).await;
    let seen = answer(&["inspect", "fish", "-n", "lake-of-plans", "-o", "json"]);
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let granted = &seen["tools"][0]["grantedTo"][0]["agent"]["namespace"];
    assert_eq!(*granted, "pond-of-plans", "{seen:#}");
    let tree = answer(&["tree", "-n", "lake-of-plans"]);
    assert!(
        tree.contains("Agent pond-of-plans/otter: has list"),
        "{tree}"
    );

    delete(&client, &new).await;
    delete(&client, &lake).await;
}

#[tokio::test]
async fn unreadable_objects_are_reported() {
    let output = toolcrib(&["explain", "otter", "-n", "default", "--as", "nobody"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("you may not list surfaces in namespace default"),
        "{stderr}"
    );
}

/// A user that may read all but the policies. It has no group to which the chart gives that.
#[tokio::test]
async fn without_the_policies_there_is_no_answer() {
    const USER: &str = "system:anonymous";
    const NAME: &str = "online-reads-all-but-policies";
    let client = client().await;
    define(&client).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME},
        "rules": [{
            "apiGroups": ["toolcrib.dev"], "verbs": ["get", "list"],
            "resources": ["surfaces", "agents", "toolgrants", "tooldefaults", "modelproviders"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    let roles = Api::<ClusterRole>::all(client.clone());
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    let mine = PatchParams::apply("online").force();
    roles
        .patch(NAME, &mine, &Patch::Apply(&role))
        .await
        .unwrap();
    bindings
        .patch(NAME, &mine, &Patch::Apply(&binding))
        .await
        .unwrap();

    // The authorizer learns of a binding by its watch.
    let begin = Instant::now();
    let stderr = loop {
        let output = toolcrib(&["explain", "otter", "-n", "default", "--as", USER]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        if !stderr.contains("you may not list surfaces") || begin.elapsed() > DEADLINE {
            break stderr;
        }
    };
    assert!(
        stderr.contains("you may not list the ClusterToolPolicies")
            && stderr.contains("policies.readable"),
        "{stderr}"
    );
    let deletion = DeleteParams::default();
    bindings.delete(NAME, &deletion).await.unwrap();
    roles.delete(NAME, &deletion).await.unwrap();
}
