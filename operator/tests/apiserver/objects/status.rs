//! The status of every kind: the grant and credential of each tool, withheld tools with reasons,
//! counts, and lists that are cut at their bound.
//!
//! The objects are in `status/objects.yaml`, their statuses in `status/expected.yaml`. After an
//! intended change run [`COMMAND`], then read the difference.

use std::fmt::Debug;
use std::path::Path;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use crate::support::harness::Harness;

/// The command that writes `status/expected.yaml`.
const COMMAND: &str = "UPDATE_EXPECT=1 cargo test -p toolcrib-operator --test apiserver \
    status_says (with TOOLCRIB_TEST_KUBECONFIG set)";

/// More than a list of status can have.
const TOOLS: usize = 70;

#[tokio::test(flavor = "multi_thread")]
async fn status_lists_each_agents_tools_with_reasons() {
    let mut harness = Harness::new().await;
    harness.resync = std::time::Duration::from_millis(500);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apiserver/objects/status");
    let objects = std::fs::read_to_string(folder.join("objects.yaml")).expect("objects");
    harness.apply_yaml(&objects).await;
    harness.apply(shoal()).await;
    // The API server gives a new object `observedGeneration: -1`, so kstatus does not take it for ready.
    let surface = harness.api::<Surface>(&harness.pond).get("shoal").await;
    let status = surface.expect("the surface").status.expect("a status");
    assert_eq!(status.observed_generation, Some(-1), "{status:?}");
    harness.start("heron");
    harness
        .condition::<Agent>("otter", "Compiled", "True/Compiled")
        .await;
    harness.settled().await;

    let mut said = Map::new();
    add::<Surface>(&harness, &mut said).await;
    add::<Agent>(&harness, &mut said).await;
    add::<ToolGrant>(&harness, &mut said).await;
    add::<ToolDefaults>(&harness, &mut said).await;
    add::<ModelProvider>(&harness, &mut said).await;
    let said = serde_yaml::to_string(&said)
        .expect("plain data")
        .replace(&harness.pond, "pond");
    assert!(!said.contains("secret-"), "{said}");

    let file = folder.join("expected.yaml");
    toolcrib_golden::compare(&file, &said, COMMAND).unwrap_or_else(|error| panic!("{error}"));
    harness.end().await;
}

fn shoal() -> Value {
    let tools: Vec<Value> = (1..=TOOLS)
        .map(|number| {
            json!({
                "name": format!("fish_{number:02}"),
                "inputSchema": {"type": "object"},
                "http": {"method": "GET", "path": format!("/{number}")},
                "annotations": {"readOnly": true},
            })
        })
        .collect();
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": "shoal"},
        "spec": {"url": "https://shoal.test", "descriptor": {"version": 2, "tools": tools}},
    })
}

/// Adds the status of all objects of a kind, without the fields that differ each time.
async fn add<K>(harness: &Harness, said: &mut Map<String, Value>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = harness.api(&harness.pond);
    for object in api.list(&ListParams::default()).await.expect("list") {
        let mut value = serde_json::to_value(&object).expect("JSON");
        let generation = value["metadata"]["generation"].clone();
        let mut status = value["status"].take();
        assert_eq!(status["observedGeneration"], generation);
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            let condition = condition.as_object_mut().expect("a condition");
            assert_eq!(
                condition.remove("observedGeneration"),
                Some(generation.clone())
            );
            assert!(condition.remove("lastTransitionTime").is_some());
        }
        for digest in ["manifestDigest", "credentialsRevision", "descriptorDigest"] {
            if let Some(Value::String(text)) = status.get_mut(digest) {
                let hex = text.strip_prefix("sha256:").unwrap_or(text);
                assert!(hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
                "a digest".clone_into(text);
            }
        }
        let name = object.meta().name.clone().unwrap_or_default();
        said.insert(format!("{} {name}", K::kind(&())), status);
    }
}
