//! A common trait of the kinds that contain compiled data: reads the content of an object, builds an
//! object from content, and computes the changes.

use std::collections::BTreeMap;
use std::fmt::Debug;

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::merge_patch::merge_patch;

/// A kind that contains compiled data.
pub trait ManagedObject:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    const KIND: &'static str;
    fn content(&self) -> BTreeMap<String, Vec<u8>>;
    fn with_content(metadata: ObjectMeta, content: &BTreeMap<String, Vec<u8>>) -> Self;
    /// A value in the object's JSON.
    fn value(bytes: &[u8]) -> Value;

    /// The field that contains the content.
    const FIELD: &'static str = "data";

    /// The merge patch of [`ManagedObject::FIELD`] to the desired content; empty if equal.
    fn changes(&self, desired: &BTreeMap<String, Vec<u8>>) -> Map<String, Value> {
        let content = self.content();
        let mut data = Map::new();
        for (key, bytes) in desired {
            if content.get(key) != Some(bytes) {
                data.insert(key.clone(), Self::value(bytes));
            }
        }
        for key in content.keys().filter(|key| !desired.contains_key(*key)) {
            data.insert(key.clone(), Value::Null);
        }
        data
    }
}

impl ManagedObject for Secret {
    const KIND: &'static str = "Secret";

    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let data = self.data.clone().unwrap_or_default();
        data.into_iter()
            .map(|(key, bytes)| (key, bytes.0))
            .collect()
    }

    fn with_content(metadata: ObjectMeta, content: &BTreeMap<String, Vec<u8>>) -> Self {
        let data = content
            .iter()
            .map(|(key, bytes)| (key.clone(), ByteString(bytes.clone())));
        Self {
            metadata,
            data: Some(data.collect()),
            ..Self::default()
        }
    }

    fn value(bytes: &[u8]) -> Value {
        Value::String(base64::engine::general_purpose::STANDARD.encode(bytes))
    }
}

impl ManagedObject for ConfigMap {
    const KIND: &'static str = "ConfigMap";

    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let data = self.data.clone().unwrap_or_default();
        data.into_iter()
            .map(|(key, text)| (key, text.into_bytes()))
            .collect()
    }

    fn with_content(metadata: ObjectMeta, content: &BTreeMap<String, Vec<u8>>) -> Self {
        let data = content
            .iter()
            .map(|(key, bytes)| (key.clone(), String::from_utf8_lossy(bytes).into_owned()));
        Self {
            metadata,
            data: Some(data.collect()),
            ..Self::default()
        }
    }

    fn value(bytes: &[u8]) -> Value {
        Value::String(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The only entry of a NetworkPolicy's content.
const SPEC: &str = "spec";

/// A NetworkPolicy's spec as content.
pub fn of_spec(spec: &NetworkPolicySpec) -> BTreeMap<String, Vec<u8>> {
    let text = toolcrib_compile::digest::canonical(spec);
    BTreeMap::from([(SPEC.to_owned(), text.into_bytes())])
}

impl ManagedObject for NetworkPolicy {
    const KIND: &'static str = "NetworkPolicy";
    const FIELD: &'static str = SPEC;

    fn content(&self) -> BTreeMap<String, Vec<u8>> {
        self.spec.as_ref().map(of_spec).unwrap_or_default()
    }

    fn with_content(metadata: ObjectMeta, content: &BTreeMap<String, Vec<u8>>) -> Self {
        let spec = content
            .get(SPEC)
            .and_then(|text| serde_json::from_slice(text).ok());
        Self { metadata, spec }
    }

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    fn changes(&self, desired: &BTreeMap<String, Vec<u8>>) -> Map<String, Value> {
        let tree = |content: &BTreeMap<String, Vec<u8>>| {
            content
                .get(SPEC)
                .map_or(Value::Null, |text| Self::value(text))
        };
        match merge_patch(&tree(&self.content()), &tree(desired)) {
            Some(Value::Object(changes)) => changes,
            Some(_) | None => Map::new(),
        }
    }
}
