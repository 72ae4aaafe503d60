//! The result of the controller in a namespace, in a form in which two runs can be compared.
//!
//! Invariant: values that differ in each run (tokens, certificates, uids, versions, times) are
//! checked for consistency, and then left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use crate::support::harness::Harness;

/// Objects by `Kind name`.
pub type Outcome = BTreeMap<String, Value>;

const MANAGED: &str = "app.kubernetes.io/managed-by=toolcrib";

/// Reads the outcome; `None` while its parts are inconsistent, so it is not final.
pub async fn outcome(harness: &Harness) -> Option<Outcome> {
    let agents: Vec<Agent> = list(harness, "").await;
    let uids: BTreeMap<String, String> = agents
        .iter()
        .map(|agent| (agent.name_any(), agent.uid().unwrap_or_default()))
        .collect();
    let authority = harness
        .api::<Secret>(&harness.system)
        .get("certificates")
        .await
        .expect("certificates")
        .data?
        .get("ca.crt")?
        .0
        .clone();
    let authority = String::from_utf8(authority).expect("PEM");

    let mut outcome = Outcome::new();
    let mut volatile: BTreeSet<String> = BTreeSet::new();
    let secrets: Vec<Secret> = list(harness, MANAGED).await;
    let mut valid: BTreeSet<String> = BTreeSet::new();
    let mut shown: BTreeSet<String> = BTreeSet::new();
    for secret in &secrets {
        let mut data = BTreeMap::new();
        for (key, bytes) in secret.data.iter().flatten() {
            let text = String::from_utf8(bytes.0.clone()).expect("text");
            if secret.name_any().ends_with("-identity") {
                valid.insert(hex::encode(Sha256::digest(&text)));
                data.insert(key.clone(), json!("a token"));
                continue;
            }
            let mut file: Value = serde_json::from_str(&text).expect("JSON");
            if key == "agent.json" {
                if file["link"]["ca"] != authority.as_str() {
                    return None;
                }
                file["link"]["ca"] = json!("the authority");
                volatile.insert(file["digest"]["credentials"].as_str()?.to_owned());
                for token in file["tokens"].as_array()? {
                    shown.insert(token["sha256"].as_str()?.to_owned());
                    volatile.insert(token["sha256"].as_str()?.to_owned());
                    volatile.insert(token["id"].as_str()?.to_owned());
                }
            }
            data.insert(key.clone(), file);
        }
        let content = serde_json::to_value(data).expect("JSON");
        outcome.insert(name(secret), described(secret, content, &uids)?);
    }
    if valid != shown {
        return None;
    }
    for config_map in list::<ConfigMap>(harness, MANAGED).await {
        let content = serde_json::to_value(&config_map.data).expect("JSON");
        outcome.insert(name(&config_map), described(&config_map, content, &uids)?);
    }
    add_status(&mut outcome, &agents)?;
    add_status(&mut outcome, &list::<Surface>(harness, "").await)?;
    add_status(&mut outcome, &list::<ToolGrant>(harness, "").await)?;
    add_status(&mut outcome, &list::<ToolDefaults>(harness, "").await)?;
    add_status(&mut outcome, &list::<ModelProvider>(harness, "").await)?;

    let mut text = serde_json::to_string(&outcome).expect("JSON");
    for value in volatile.iter().filter(|value| value.len() >= 8) {
        text = text.replace(value.as_str(), "of this run");
    }
    serde_json::from_str(&text).ok()
}

/// Names of the tools in an agent's compiled files; `None` if there are no files.
pub fn tools(outcome: &Outcome, agent: &str) -> Option<Vec<String>> {
    let files = outcome.get(&format!("Secret toolcrib-{agent}-mediator"))?;
    let tools = files["content"]["tools.json"]["tools"].as_array()?;
    Some(
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap_or_default().to_owned())
            .collect(),
    )
}

/// Describes where two outcomes differ, for a panic's message.
pub fn difference(expected: &Outcome, found: Option<&Outcome>) -> String {
    let Some(found) = found else {
        return "its parts are inconsistent".to_owned();
    };
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    names
        .into_iter()
        .filter(|name| expected.get(*name) != found.get(*name))
        .map(|name| {
            let side = |of: &Outcome| of.get(name).map(Value::to_string).unwrap_or_default();
            format!("{name}\n  - {}\n  + {}\n", side(expected), side(found))
        })
        .collect()
}

async fn list<K>(harness: &Harness, labels: &str) -> Vec<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    harness
        .api::<K>(&harness.pond)
        .list(&ListParams::default().labels(labels))
        .await
        .expect("list")
        .items
}

fn name(object: &impl Resource<DynamicType = ()>) -> String {
    fn kind<K: Resource<DynamicType = ()>>(_: &K) -> String {
        K::kind(&()).into_owned()
    }
    format!("{} {}", kind(object), object.name_any())
}

/// Describes an object; `None` if it belongs to an Agent that no longer exists.
fn described(
    object: &impl Resource,
    content: Value,
    uids: &BTreeMap<String, String>,
) -> Option<Value> {
    let owner = object.owner_references().first()?;
    if uids.get(&owner.name) != Some(&owner.uid) {
        return None;
    }
    let mut annotations = object.annotations().clone();
    // These name uid and resourceVersion of the sources.
    annotations.retain(|key, _| key != "toolcrib.dev/references" && key != "toolcrib.dev/replaced");
    Some(json!({
        "owner": owner.name,
        "labels": object.labels(),
        "annotations": annotations,
        "content": content,
    }))
}

/// Adds statuses; `None` if a status describes another generation.
fn add_status<K>(outcome: &mut Outcome, objects: &[K]) -> Option<()>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    for object in objects {
        let generation = object.meta().generation;
        let mut status = serde_json::to_value(object).expect("JSON")["status"].take();
        let of = |value: &Value| value["observedGeneration"].as_i64() == generation;
        if !of(&status) {
            return None;
        }
        status["observedGeneration"] = json!("its own");
        for condition in status["conditions"].as_array_mut()? {
            if !of(condition) {
                return None;
            }
            condition["observedGeneration"] = json!("its own");
            condition["lastTransitionTime"] = json!("a time");
        }
        outcome.insert(name(object), status);
    }
    Some(())
}
