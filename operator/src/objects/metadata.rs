//! A compact form of an object's metadata, for objects whose body is never fetched.
//!
//! A cluster has tens of thousands of Pods, Secrets, ConfigMaps and NetworkPolicies, four for each
//! agent alone. Kubernetes' type for metadata takes about 2 KiB per object: a map allocates room
//! for eleven entries, and the annotations of a compiled Secret locate each credential. So only the
//! fields that the operator reads are kept, with all their text in one allocation.
//!
//! Invariant: only the labels and annotations in the lists below are kept; any other appears to be
//! absent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use toolcrib_compile::names;

use super::decode::MetaOf;
use super::store::{Id, StoreObject};
use super::string_arena::StringArena;

const LABELS: [&str; 4] = [
    names::AGENT_LABEL,
    names::COMPILED_FOR_LABEL,
    names::CREDENTIAL_LABEL,
    names::MANAGED_BY_LABEL,
];
const ANNOTATIONS: [&str; 5] = [
    names::CA_ANNOTATION,
    names::HOSTS_ANNOTATION,
    names::INJECTED_ANNOTATION,
    names::ROTATED_FOR_ANNOTATION,
    names::REPLACED_ANNOTATION,
];

/// The metadata of a `K` that the operator reads.
#[derive(Clone, Debug)]
pub struct ObjectMetadata<K> {
    texts: StringArena<TEXTS>,
    pub created: Option<Timestamp>,
    /// Whether the object is being deleted.
    pub ending: bool,
    kind: PhantomData<fn() -> K>,
}

/// The controlling owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

// Positions in `texts`.
const NAMESPACE: usize = 0;
const NAME: usize = 1;
const UID: usize = 2;
const VERSION: usize = 3;
const CONTROLLER_KIND: usize = 4;
const CONTROLLER_NAME: usize = 5;
const CONTROLLER_UID: usize = 6;
const FIRST_LABEL: usize = 7;
const FIRST_ANNOTATION: usize = FIRST_LABEL + LABELS.len();
const TEXTS: usize = FIRST_ANNOTATION + ANNOTATIONS.len();

impl<K> ObjectMetadata<K> {
    pub fn of(meta: &ObjectMeta) -> Self {
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let mut texts = [None; TEXTS];
        texts[NAMESPACE] = meta.namespace.as_deref();
        texts[NAME] = meta.name.as_deref();
        texts[UID] = meta.uid.as_deref();
        texts[VERSION] = meta.resource_version.as_deref();
        texts[CONTROLLER_KIND] = controller.map(|owner| &*owner.kind);
        texts[CONTROLLER_NAME] = controller.map(|owner| &*owner.name);
        texts[CONTROLLER_UID] = controller.map(|owner| &*owner.uid);
        for (entry, name) in texts[FIRST_LABEL..].iter_mut().zip(LABELS) {
            *entry = text(meta.labels.as_ref(), name);
        }
        for (entry, name) in texts[FIRST_ANNOTATION..].iter_mut().zip(ANNOTATIONS) {
            *entry = text(meta.annotations.as_ref(), name);
        }
        Self {
            texts: StringArena::of(texts),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            ending: meta.deletion_timestamp.is_some(),
            kind: PhantomData,
        }
    }

    pub fn controller(&self) -> Option<Controller<'_>> {
        Some(Controller {
            kind: self.texts.get(CONTROLLER_KIND)?,
            name: self.texts.get(CONTROLLER_NAME)?,
            uid: self.texts.get(CONTROLLER_UID)?,
        })
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        let index = LABELS.iter().position(|label| *label == name)?;
        self.texts.get(FIRST_LABEL + index)
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        self.map(FIRST_LABEL, &LABELS)
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.map(FIRST_ANNOTATION, &ANNOTATIONS)
    }

    fn map(&self, first: usize, names: &[&str]) -> BTreeMap<String, String> {
        let named = (first..).zip(names);
        named
            .filter_map(|(index, name)| {
                Some(((*name).to_owned(), self.texts.get(index)?.to_owned()))
            })
            .collect()
    }
}

/// Most bytes of a label or annotation: enough for a hundred hosts. A longer one counts as absent,
/// which permits nothing.
const TEXT: usize = 8 * 1024;

fn text<'a>(all: Option<&'a BTreeMap<String, String>>, name: &str) -> Option<&'a str> {
    let text = all?.get(name)?;
    (text.len() <= TEXT).then_some(text)
}

impl<K> From<MetaOf<K>> for ObjectMetadata<K>
where
    K: Resource,
{
    fn from(watched: MetaOf<K>) -> Self {
        Self::of(watched.meta())
    }
}

impl<K: Resource<DynamicType = ()>> StoreObject for ObjectMetadata<K> {
    fn kind_name() -> Cow<'static, str> {
        K::kind(&())
    }

    fn id(&self) -> Id<'_> {
        Id {
            namespace: self.texts.get(NAMESPACE).unwrap_or_default(),
            name: self.texts.get(NAME).unwrap_or_default(),
            uid: self.texts.get(UID),
            version: self.texts.get(VERSION),
        }
    }
}

#[cfg(test)]
impl<'de, K: Resource> serde::Deserialize<'de> for ObjectMetadata<K> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MetaOf::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;

    fn metadata(meta: serde_json::Value) -> ObjectMetadata<Secret> {
        ObjectMetadata::of(&serde_json::from_value(meta).expect("metadata"))
    }

    #[test]
    fn only_known_labels_and_annotations_are_kept() {
        let secret = metadata(json!({
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
            kind: "Agent",
            name: "newt",
            uid: "u-3",
        };
        assert_eq!(secret.controller(), Some(controller));
    }

    #[test]
    fn a_deletion_timestamp_marks_the_object_as_ending() {
        let secret = metadata(json!({"name": "reed", "deletionTimestamp": "2026-01-02T03:04:05Z"}));
        assert!(secret.ending);
        assert_eq!(secret.controller(), None);
    }
}
