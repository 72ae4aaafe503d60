//! Decodes each watched object on its own.
//!
//! An object that cannot be decoded must not break the rest of a list, so a list or a watch line is
//! read as raw text per object, and each object is decoded from its own bytes. This works even for
//! an object that is nested deeper than serde_json's limit (127 levels), where kube's
//! `DeserializeGuard` fails: raw text is skipped without recursion.
//!
//! Only the metadata that the operator reads is kept. Managed fields are half of a stored object's
//! size, and mirror its depth; an annotation may contain the whole object a second time. Statuses
//! are compressed: they are most of the remaining size, and are read only when their own object is
//! reconciled.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use kube::{Api, Client, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use toolcrib_bounds::cut;
use toolcrib_compile::{
    Code, Inputs, Kind, MAX_SUSPEND_REASON, ObjectRef, grant_labels, left_out, names,
    too_heavy_text,
};
use toolcrib_crds::{
    Agent, AgentSpec, AgentStatus, ClusterToolPolicy, ClusterToolPolicyStatus, ModelProvider,
    ModelProviderStatus, Surface, SurfaceStatus, ToolDefaults, ToolDefaultsStatus, ToolGrant,
    ToolGrantStatus,
};

use super::budget::Shortage;
use super::store::BudgetedObject;
use crate::compressed::CompressedText;

/// Reason why a stored object has no body. It never contains the object's content.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// [`Code::Undecodable`], or [`Code::TooExpensive`].
    pub code: Code,
    /// The field and how to correct it, or the bound that the object exceeds.
    pub reason: String,
    /// The budget that it exceeds. `None` if it cannot be decoded, or is too large by itself.
    shortage: Option<Shortage>,
    /// `spec.suspend` is true, whatever else cannot be read.
    is_suspended: bool,
    meta: Box<ObjectMeta>,
}

impl Undecodable {
    pub fn is_too_expensive(&self) -> bool {
        self.code == Code::TooExpensive
    }

    /// An empty Agent to compile in place of one that is too expensive or suspended, so that its
    /// earlier files do not stay in force. `None`: its compiled files stand.
    pub fn bare_agent(&self) -> Option<Agent> {
        (self.is_too_expensive() || self.is_suspended).then(|| Agent {
            metadata: (*self.meta).clone(),
            spec: AgentSpec {
                suspend: self.is_suspended.then_some(true),
                ..AgentSpec::default()
            },
            status: None,
        })
    }
}

/// A kind of which body and status are decoded.
pub trait KindWithStatus:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned
{
    type Status: Serialize + DeserializeOwned;

    fn take_status(&mut self) -> Option<Self::Status>;

    /// The API of its objects in a namespace. A kind of the whole cluster has no namespaces.
    fn api(client: &Client, namespace: &str) -> Api<DecodedObject<Self>>;
}

macro_rules! whole {
    ($($kind:ty => $status:ty, |$client:ident, $namespace:ident| $api:expr;)+) => {$(
        impl KindWithStatus for $kind {
            type Status = $status;

            fn take_status(&mut self) -> Option<$status> {
                self.status.take()
            }

            fn api($client: &Client, $namespace: &str) -> Api<DecodedObject<Self>> {
                $api
            }
        }
    )+};
}

whole! {
    Agent => AgentStatus, |client, namespace| Api::namespaced(client.clone(), namespace);
    Surface => SurfaceStatus, |client, namespace| Api::namespaced(client.clone(), namespace);
    ToolGrant => ToolGrantStatus, |client, namespace| Api::namespaced(client.clone(), namespace);
    ToolDefaults => ToolDefaultsStatus, |client, namespace| Api::namespaced(client.clone(), namespace);
    ModelProvider => ModelProviderStatus, |client, namespace| Api::namespaced(client.clone(), namespace);
    ClusterToolPolicy => ClusterToolPolicyStatus, |client, _namespace| Api::all(client.clone());
    Service => ServiceStatus, |client, namespace| Api::namespaced(client.clone(), namespace);
}

/// A watched object. `Err` if only its metadata can be decoded.
#[derive(Clone, Debug)]
pub struct DecodedObject<K> {
    /// The object without its status.
    pub object: Result<Arc<K>, Undecodable>,
    status: Option<CompressedText>,
    /// An upper bound of the object's memory, in bytes.
    weight: usize,
}

/// Most bytes of an annotation that is kept unchanged; a longer one is kept as a digest.
const ANNOTATION: usize = 256;
/// Bytes of a label beside its texts: its places in the map and in the index of a store.
const LABEL_WEIGHT: usize = 256;
/// Bytes of an object beside spec and status: metadata, and the entries in the stores.
pub const BASE_WEIGHT: usize = 1024;
/// Most compressed bytes of the status of an object without a body: enough for its conditions. A
/// status from before the body was left out may be longer.
const BARE_STATUS: usize = 1024;

impl<K: Resource<DynamicType = ()> + Clone> DecodedObject<K> {
    /// The same object without its body, which is over the budget.
    fn bare(&self, why: Shortage) -> Self {
        let (meta, is_suspended) = match &self.object {
            Ok(object) => (object.meta().clone(), false),
            Err(why) => ((*why.meta).clone(), why.is_suspended),
        };
        Self {
            object: Err(Undecodable {
                code: Code::TooExpensive,
                reason: why.to_string(),
                shortage: Some(why),
                is_suspended,
                meta: Box::new(meta),
            }),
            status: kept_status(self.status.clone()),
            weight: self.weight,
        }
    }
}

impl<K: KindWithStatus> DecodedObject<K> {
    pub fn of(object: K) -> Self {
        let weight = toolcrib_bounds::weight(&text(&object));
        Self::weighing(object, weight)
    }

    fn weighing(mut object: K, spec: usize) -> Self {
        let meta = std::mem::take(object.meta_mut());
        *object.meta_mut() = slim(meta);
        let labels = object.meta().labels.iter().flatten();
        let labels = labels.map(|(name, value)| LABEL_WEIGHT + name.len() + value.len());
        let labels: usize = labels.sum();
        let status = object.take_status();
        let status = status.map(|status| CompressedText::of(&text(&status)));
        let compressed = status.as_ref().map_or(0, CompressedText::len);
        Self {
            // A clone has no spare capacity; a decoded object has a quarter.
            object: Ok(Arc::new(object.clone())),
            status,
            weight: BASE_WEIGHT + labels + compressed + spec,
        }
    }

    pub fn status(&self) -> Option<K::Status> {
        let text = self.status.as_ref()?.text();
        Some(serde_json::from_str(&text).expect("it was written from this type"))
    }

    /// The reason in the object's status why the controller leaves it out for lack of memory.
    pub fn left_out(&self) -> Option<String> {
        let status: WithConditions = serde_json::from_str(&self.status_text()).ok()?;
        left_out(&status.conditions, self.meta().generation).map(str::to_owned)
    }

    /// The status as JSON, equal to [`text`] of the same status.
    pub fn status_text(&self) -> String {
        self.status
            .as_ref()
            .map_or_else(|| "null".to_owned(), CompressedText::text)
    }
}

impl<K: Resource<DynamicType = ()> + Clone> BudgetedObject for DecodedObject<K> {
    fn created(&self) -> Option<Timestamp> {
        self.meta().creation_timestamp.as_ref().map(|time| time.0)
    }

    fn weight(&self) -> usize {
        match &self.object {
            Ok(_) => self.weight,
            // The weight with its body. Otherwise the object would free its own budget.
            Err(why) if why.shortage.is_some() => self.weight,
            Err(_) => BASE_WEIGHT,
        }
    }

    fn without_body(&self, why: Shortage) -> Option<Self> {
        let is_bare = match &self.object {
            Ok(_) => false,
            Err(known) => known.shortage.is_none() || known.shortage == Some(why),
        };
        (!is_bare).then(|| self.bare(why))
    }

    fn shortage(&self) -> Option<Shortage> {
        self.object.as_ref().err()?.shortage
    }
}

/// The status that is kept of an object without a body: enough to see whether it must be written
/// again.
fn kept_status(status: Option<CompressedText>) -> Option<CompressedText> {
    status.filter(|status| status.len() <= BARE_STATUS)
}

impl DecodedObject<Agent> {
    /// Whether the Agent says `suspend: true`, also if nothing else of it can be read.
    pub fn is_suspended(&self) -> bool {
        match &self.object {
            Ok(agent) => agent.spec.is_suspended(),
            Err(why) => why.is_suspended,
        }
    }
}

/// The metadata that the operator reads: identity, versions, deletion, two annotations, and the labels
/// that grants select by.
fn slim(meta: ObjectMeta) -> ObjectMeta {
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

/// A status as JSON.
pub fn text(status: &impl Serialize) -> String {
    serde_json::to_string(status).expect("status types are JSON")
}

impl<'de, K: KindWithStatus> Deserialize<'de> for DecodedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        decode(raw.get()).map_err(D::Error::custom)
    }
}

/// Decodes an object. Fails only if not even its metadata can be decoded.
fn decode<K: KindWithStatus>(text: &str) -> Result<DecodedObject<K>, serde_json::Error> {
    // Weighed as text: what is too heavy is never decoded.
    let spec = serde_json::from_str::<OnlySpec<'_>>(text)?.spec;
    let spec = spec.map_or("", RawValue::get);
    let bare = |code, reason| {
        let meta = serde_json::from_str::<OnlyMeta>(text)?.metadata.into();
        Ok(DecodedObject {
            object: Err(Undecodable {
                code,
                reason,
                shortage: None,
                // `Err`: the field is not a boolean, or is repeated.
                is_suspended: serde_json::from_str::<OnlySuspend>(spec)
                    .is_ok_and(|spec| spec.suspend == Some(true)),
                meta: Box::new(slim(meta)),
            }),
            status: kept_status(status_alone::<K>(text)),
            weight: BASE_WEIGHT,
        })
    };
    if let Some(reason) = too_heavy_text(spec) {
        return bare(Code::TooExpensive, reason);
    }
    let weight = toolcrib_bounds::weight(spec);
    if let Ok(object) = serde_json::from_str::<K>(text) {
        return Ok(DecodedObject::weighing(object, weight));
    }
    // Only the managed fields may be nested too deep.
    let text_of_rest = toolcrib_crds::without_managed_fields(text)?;
    match toolcrib_crds::decode::<K>(&K::kind(&()), &text_of_rest) {
        Ok(object) => Ok(DecodedObject::weighing(object, weight)),
        Err(error) => bare(Code::Undecodable, error.to_string()),
    }
}

/// The status of an object whose spec is not decoded; `None` if absent or not decodable.
fn status_alone<K: KindWithStatus>(text: &str) -> Option<CompressedText> {
    let raw = serde_json::from_str::<OnlyStatus<'_>>(text).ok()?.status?;
    let status: K::Status = serde_json::from_str(raw.get()).ok()?;
    Some(CompressedText::of(&self::text(&status)))
}

#[derive(Deserialize)]
struct OnlyStatus<'a> {
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OnlySpec<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OnlySuspend {
    suspend: Option<bool>,
}

/// The part of the status that all of Toolcrib's kinds have.
#[derive(Deserialize)]
struct WithConditions {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Adds an object without a body to the inputs, with the reason.
pub fn note_undecodable(inputs: &mut Inputs, kind: Kind, object: ObjectRef, why: &Undecodable) {
    if why.is_too_expensive() {
        inputs.set_too_expensive(kind, object, why.reason.clone());
    } else {
        inputs.set_undecodable(kind, object, why.reason.clone());
    }
}

#[derive(Deserialize)]
struct OnlyMeta {
    metadata: Meta,
}

/// Metadata without managed fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
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

impl<K: Resource + Clone> Resource for DecodedObject<K> {
    of_the_kind!(K);

    fn meta(&self) -> &ObjectMeta {
        match &self.object {
            Ok(object) => object.meta(),
            Err(why) => &why.meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.object {
            Ok(object) => Arc::make_mut(object).meta_mut(),
            Err(why) => &mut why.meta,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::core::ObjectList;
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    fn service(name: &str, spec: &str, managed: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"pond","uid":"u-{name}","managedFields":[{{"fieldsV1":{managed}}}]}},"spec":{spec}}}"#
        )
    }

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
    }

    /// A spec with `value` in a field that must be text. An unknown field would only be skipped.
    fn selecting(value: &str) -> String {
        format!(r#"{{"selector":{{"a":{value}}}}}"#)
    }

    fn list(items: &[String]) -> ObjectList<DecodedObject<Service>> {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            items.join(",")
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_undecodable_object_does_not_affect_the_rest_of_a_list() {
        let items = [
            service("heron", r#"{"type":"ClusterIP"}"#, "{}"),
            service("deep", &selecting(&deep(100_000)), &deep(100_000)),
            service("wrong", r#"{"ports":"hunter2"}"#, "{}"),
            service("newt", "{}", "{}"),
        ];
        let list = list(&items);
        let outcome: Vec<_> = list
            .items
            .iter()
            .map(|o| (o.meta().name.clone().unwrap(), o.object.is_ok()))
            .collect();
        assert_eq!(
            outcome,
            [
                ("heron", true),
                ("deep", false),
                ("wrong", false),
                ("newt", true)
            ]
            .map(|(name, ok)| (name.to_owned(), ok))
        );
        assert_eq!(list.items[1].meta().uid.as_deref(), Some("u-deep"));
        let reason = &list.items[2].object.as_ref().unwrap_err().reason;
        assert_eq!(
            reason,
            "spec.ports: is a text: `kubectl explain service --recursive` shows what it takes"
        );
    }

    #[test]
    fn deep_managed_fields_do_not_make_an_object_undecodable() {
        let list = list(&[service("heron", r#"{"type":"ClusterIP"}"#, &deep(5_000))]);
        let heron = list.items[0].object.as_ref().unwrap();
        assert_eq!(
            heron.spec.as_ref().unwrap().type_.as_deref(),
            Some("ClusterIP")
        );
        assert_eq!(heron.metadata.managed_fields, None);
    }

    #[test]
    fn only_the_metadata_that_is_read_is_kept() {
        let text = r#"{
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {
                "name": "otter", "namespace": "pond", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": {"team": "reeds"}, "finalizers": ["pond/drain"],
                "annotations": {"toolcrib.dev/rotate": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
            },
            "spec": {"surfaces": [{"name": "reed"}]},
            "status": {"toolCount": 5}
        }"#;
        let otter = decode::<Agent>(text).unwrap();
        let agent = otter.object.as_ref().unwrap();
        let read = ObjectMeta {
            name: Some("otter".into()),
            namespace: Some("pond".into()),
            uid: Some("u".into()),
            resource_version: Some("7".into()),
            generation: Some(3),
            annotations: Some([("toolcrib.dev/rotate".into(), "1".into())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(agent.metadata, read);
        assert_eq!(agent.spec.surfaces.len(), 1);
        assert!(agent.status.is_none());
        let status = AgentStatus {
            tool_count: Some(5),
            ..AgentStatus::default()
        };
        assert_eq!(otter.status_text(), super::text(&status));
        assert_eq!(
            otter.status().map(|status| super::text(&status)),
            Some(super::text(&status))
        );
    }

    #[test]
    fn a_suspension_reason_is_cut_at_its_bound() {
        let text = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "otter", "namespace": "pond", "annotations": {
                "toolcrib.dev/suspend-reason": "loop ".repeat(10_000), "team": "reeds"}},
            "spec": {"suspend": true},
        });
        let otter = decode::<Agent>(&text.to_string()).unwrap();
        assert!(otter.is_suspended());
        let kept = otter.meta().annotations.as_ref().unwrap();
        let lengths: Vec<_> = kept.iter().map(|(name, it)| (&**name, it.len())).collect();
        assert_eq!(
            lengths,
            [("toolcrib.dev/suspend-reason", 2 * MAX_SUSPEND_REASON)]
        );
    }

    #[test]
    fn a_watch_event_with_a_deeply_nested_object_is_decoded() {
        let line = format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            service("deep", &selecting(&deep(100_000)), "{}")
        );
        let event = serde_json::from_str::<WatchEvent<DecodedObject<Service>>>(&line).unwrap();
        let WatchEvent::Modified(object) = event else {
            panic!("{event:?}");
        };
        assert_eq!(object.meta().name.as_deref(), Some("deep"));
        assert!(object.object.is_err());
    }

    #[test]
    fn metadata_is_read_without_the_body() {
        let text = format!(
            r#"{{"kind":"PartialObjectMetadata","metadata":{{"name":"keys","namespace":"pond","labels":{{"a":"b"}},"managedFields":[{{"fieldsV1":{}}}]}}}}"#,
            deep(5_000)
        );
        let secret: MetaOf<Secret> = serde_json::from_str(&text).unwrap();
        assert_eq!(secret.meta().name.as_deref(), Some("keys"));
        assert_eq!(secret.meta().managed_fields, None);
    }
}
