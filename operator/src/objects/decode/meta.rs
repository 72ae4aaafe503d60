//! The metadata that is kept of an object, and objects of which only the metadata is read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use toolcrib_bounds::cut;
use toolcrib_compile::{MAX_SUSPEND_REASON, grant_labels, names};

/// Most bytes of an annotation that is kept unchanged; a longer one is kept as a digest.
const ANNOTATION: usize = 256;

/// The metadata that the operator reads: identity, versions, deletion, two annotations, and the labels
/// that grants select by.
pub(super) fn slim(meta: ObjectMeta) -> ObjectMeta {
    let mut all = meta.annotations.unwrap_or_default();
    // The value is only compared and written into the identity Secret.
    let rotate = all
        .remove_entry(names::ROTATE_ANNOTATION)
        .map(|(name, value)| {
            let is_long = value.len() > ANNOTATION;
            (
                name,
                if is_long {
                    hex::encode(Sha256::digest(&value))
                } else {
                    value
                },
            )
        });
    // Longer than a reason may be, so that compile reports the cut.
    let reason = all.remove_entry(names::SUSPEND_REASON_ANNOTATION);
    let reason =
        reason.map(|(name, value)| (name, cut(&value, 2 * MAX_SUSPEND_REASON).into_owned()));
    let kept: BTreeMap<String, String> = rotate.into_iter().chain(reason).collect();
    let annotations = (!kept.is_empty()).then_some(kept);
    let labels = grant_labels(meta.labels.as_ref());
    let labels: BTreeMap<String, String> = labels
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        annotations,
        labels: (!labels.is_empty()).then_some(labels),
        ..ObjectMeta::default()
    }
}

#[derive(Deserialize)]
pub(super) struct OnlyMeta {
    pub(super) metadata: Meta,
}

/// Metadata without managed fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: meta.owner_references,
            ..ObjectMeta::default()
        }
    }
}

/// Forwards the type information of `Resource` to the wrapped kind.
macro_rules! of_the_kind {
    ($K:ident) => {
        type DynamicType = $K::DynamicType;
        type Scope = $K::Scope;

        fn kind(dt: &$K::DynamicType) -> Cow<'_, str> {
            $K::kind(dt)
        }

        fn group(dt: &$K::DynamicType) -> Cow<'_, str> {
            $K::group(dt)
        }

        fn version(dt: &$K::DynamicType) -> Cow<'_, str> {
            $K::version(dt)
        }

        fn plural(dt: &$K::DynamicType) -> Cow<'_, str> {
            $K::plural(dt)
        }
    };
}
pub(super) use of_the_kind;

/// The metadata of a `K` whose body is never fetched (Secrets, ConfigMaps, Pods).
#[derive(Clone, Debug)]
pub struct MetaOf<K> {
    meta: ObjectMeta,
    kind: PhantomData<fn() -> K>,
}

impl<K> MetaOf<K> {
    pub fn new(meta: ObjectMeta) -> Self {
        Self {
            meta,
            kind: PhantomData,
        }
    }
}

impl<'de, K> Deserialize<'de> for MetaOf<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let only = OnlyMeta::deserialize(deserializer)?;
        Ok(Self::new(only.metadata.into()))
    }
}

impl<K: Resource> Resource for MetaOf<K> {
    of_the_kind!(K);

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
