//! What is remembered of an object whose body is never fetched.
//!
//! Pods, Secrets, ConfigMaps and NetworkPolicies come by the ten thousand, four of them for
//! each agent alone. Kubernetes' type for metadata takes about 2 KiB for one (a map has room
//! for eleven entries before it has one, and a compiled Secret's annotations say where each
//! credential stands), so of each only the fields that somebody here reads are kept.
//!
//! Invariant: a label or annotation that is read is named in one of the lists below; any
//! other looks as if it were not there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use toolcrib_compile::names;

use super::decode::MetaOf;
use super::identity::REPLACED_ANNOTATION;
use super::tables::{Id, Stored};

const LABELS: [&str; 4] = [
    names::AGENT_LABEL,
    names::COMPILED_FOR_LABEL,
    names::CREDENTIAL_LABEL,
    names::MANAGED_BY_LABEL,
];
const ANNOTATIONS: [&str; 3] = [
    names::HOSTS_ANNOTATION,
    names::ROTATED_FOR_ANNOTATION,
    REPLACED_ANNOTATION,
];

/// The metadata of a `K`, as far as it is read.
#[derive(Clone, Debug)]
pub struct Kept<K> {
    namespace: Box<str>,
    name: Box<str>,
    uid: Option<Box<str>>,
    version: Option<Box<str>>,
    pub created: Option<Timestamp>,
    /// It is being deleted.
    pub ending: bool,
    /// Whose deletion deletes it.
    pub controller: Option<Box<Controller>>,
    labels: Chosen,
    annotations: Chosen,
    kind: PhantomData<fn() -> K>,
}

/// The owner that controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

type Chosen = Box<[(&'static str, Box<str>)]>;

impl<K> Kept<K> {
    pub fn of(meta: &ObjectMeta) -> Self {
        let boxed = |text: &Option<String>| text.as_deref().map(Box::from);
        let controller = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true));
        Self {
            namespace: boxed(&meta.namespace).unwrap_or_default(),
            name: boxed(&meta.name).unwrap_or_default(),
            uid: boxed(&meta.uid),
            version: boxed(&meta.resource_version),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            ending: meta.deletion_timestamp.is_some(),
            controller: controller.map(|owner| {
                Box::new(Controller {
                    kind: owner.kind.as_str().into(),
                    name: owner.name.as_str().into(),
                    uid: owner.uid.as_str().into(),
                })
            }),
            labels: chosen(&LABELS, meta.labels.as_ref()),
            annotations: chosen(&ANNOTATIONS, meta.annotations.as_ref()),
            kind: PhantomData,
        }
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        let (_, value) = self.labels.iter().find(|(label, _)| *label == name)?;
        Some(value)
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        map(&self.labels)
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        map(&self.annotations)
    }
}

fn chosen(names: &[&'static str], all: Option<&BTreeMap<String, String>>) -> Chosen {
    names
        .iter()
        .filter_map(|name| Some((*name, all?.get(*name)?.as_str().into())))
        .collect()
}

fn map(chosen: &Chosen) -> BTreeMap<String, String> {
    chosen
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.to_string()))
        .collect()
}

impl<K> From<MetaOf<K>> for Kept<K>
where
    K: Resource,
{
    fn from(watched: MetaOf<K>) -> Self {
        Self::of(watched.meta())
    }
}

impl<K: Resource<DynamicType = ()>> Stored for Kept<K> {
    fn kind_name() -> Cow<'static, str> {
        K::kind(&())
    }

    fn id(&self) -> Id<'_> {
        Id {
            namespace: &self.namespace,
            name: &self.name,
            uid: self.uid.as_deref(),
            version: self.version.as_deref(),
        }
    }
}

#[cfg(test)]
impl<'de, K: Resource> serde::Deserialize<'de> for Kept<K> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MetaOf::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;

    fn kept(meta: serde_json::Value) -> Kept<Secret> {
        Kept::of(&serde_json::from_value(meta).expect("metadata"))
    }

    #[test]
    fn what_is_read_is_kept_and_nothing_else() {
        let secret = kept(json!({
            "namespace": "pond", "name": "otter-key", "uid": "u-1", "resourceVersion": "7",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"toolcrib.dev/credential": "true", "team": "reeds"},
            "annotations": {
                "toolcrib.dev/hosts": "fish.pond.svc",
                "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\":{}}",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "heron", "uid": "u-2"},
                {"apiVersion": "v1", "kind": "Agent", "name": "newt", "uid": "u-3", "controller": true},
            ],
        }));
        let expected = Id {
            namespace: "pond",
            name: "otter-key",
            uid: Some("u-1"),
            version: Some("7"),
        };
        assert_eq!(secret.id(), expected);
        let created = secret.created.expect("a time");
        assert_eq!(created.to_string(), "2026-01-02T03:04:05Z");
        assert!(!secret.ending);
        let named = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(secret.labels(), named("toolcrib.dev/credential", "true"));
        assert_eq!(
            secret.annotations(),
            named("toolcrib.dev/hosts", "fish.pond.svc")
        );
        let controller = Controller {
            kind: "Agent".into(),
            name: "newt".into(),
            uid: "u-3".into(),
        };
        assert_eq!(secret.controller.as_deref(), Some(&controller));
    }

    #[test]
    fn an_object_that_is_being_deleted_says_so() {
        let secret = kept(json!({"name": "reed", "deletionTimestamp": "2026-01-02T03:04:05Z"}));
        assert!(secret.ending);
        assert_eq!(secret.controller, None);
    }
}
