//! One watched object, decoded on its own.
//!
//! An object that cannot be read as its kind must not make its neighbours unreadable, so a
//! list or a watch line is read as raw text per object, and each is decoded from its own
//! bytes. That also holds for one nested deeper than serde_json goes (127 levels), which
//! kube's `DeserializeGuard` would not survive: the raw text is only skipped over, without
//! recursion.
//!
//! Of the metadata only what is read stays. Managed fields are half of a stored object's size,
//! and mirror its depth; an annotation may hold the whole object once more. Statuses are
//! packed: they are most of what is left, and each is read only when its own object's turn
//! comes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use toolcrib_compile::{Code, Inputs, Kind, ObjectRef, left_out, names, too_heavy_text};
use toolcrib_crds::{
    Agent, AgentSpec, AgentStatus, ModelProvider, ModelProviderStatus, Surface, SurfaceStatus,
    ToolDefaults, ToolDefaultsStatus, ToolGrant, ToolGrantStatus,
};

use super::budget::Shortage;
use super::store::BudgetedObject;
use crate::compressed::CompressedText;

/// Why an object of the store is not there as its kind; never the object's content.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// [`Code::Undecodable`], or [`Code::TooExpensive`].
    pub code: Code,
    /// Which field, and what to write there; or what it is over.
    pub reason: String,
    /// It has no room now. `None`: it is unreadable, or too heavy by itself.
    shortage: Option<Shortage>,
    meta: Box<ObjectMeta>,
}

impl Undecodable {
    pub fn is_too_expensive(&self) -> bool {
        self.code == Code::TooExpensive
    }

    /// An Agent that is over a budget, as it is compiled: to nothing, so that its older files do
    /// not stay in force.
    pub fn bare_agent(&self) -> Option<Agent> {
        self.is_too_expensive().then(|| Agent {
            metadata: (*self.meta).clone(),
            spec: AgentSpec::default(),
            status: None,
        })
    }
}

/// A kind that is decoded whole.
pub trait KindWithStatus:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned
{
    type Status: Serialize + DeserializeOwned;

    fn take_status(&mut self) -> Option<Self::Status>;
}

macro_rules! whole {
    ($($kind:ty => $status:ty),+ $(,)?) => {$(
        impl KindWithStatus for $kind {
            type Status = $status;

            fn take_status(&mut self) -> Option<$status> {
                self.status.take()
            }
        }
    )+};
}

whole! {
    Agent => AgentStatus,
    Surface => SurfaceStatus,
    ToolGrant => ToolGrantStatus,
    ToolDefaults => ToolDefaultsStatus,
    ModelProvider => ModelProviderStatus,
    Service => ServiceStatus,
}

/// An object as watched; `Err`: its metadata is all that can be decoded.
#[derive(Clone, Debug)]
pub struct DecodedObject<K> {
    /// Without its status.
    pub object: Result<Arc<K>, Undecodable>,
    status: Option<CompressedText>,
    /// An upper bound of the object's memory, in bytes.
    weight: usize,
}

/// The longest annotation that is kept as it is, in bytes.
const ANNOTATION: usize = 256;
/// What an object takes beside its spec: metadata, its packed status, its place in the stores.
pub const BASE_WEIGHT: usize = 1024;
/// The longest packed status that is kept of an object without a body, in bytes: room for its
/// conditions. The lists of a status that was written while the object had its body may be longer.
const BARE_STATUS: usize = 1024;

impl<K: Resource<DynamicType = ()> + Clone> DecodedObject<K> {
    /// The same object without its body, which there is no room for.
    fn bare(&self, why: Shortage) -> Self {
        let meta = match &self.object {
            Ok(object) => object.meta().clone(),
            Err(why) => (*why.meta).clone(),
        };
        Self {
            object: Err(Undecodable {
                code: Code::TooExpensive,
                reason: why.to_string(),
                shortage: Some(why),
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
        let status = object.take_status();
        let status = status.map(|status| CompressedText::of(&text(&status)));
        let packed = status.as_ref().map_or(0, CompressedText::len);
        Self {
            // A copy has no room to spare; what was read has a quarter.
            object: Ok(Arc::new(object.clone())),
            status,
            weight: BASE_WEIGHT + packed + spec,
        }
    }

    pub fn status(&self) -> Option<K::Status> {
        let text = self.status.as_ref()?.text();
        Some(serde_json::from_str(&text).expect("it was written from this type"))
    }

    /// Why the controller leaves the object out for want of memory, as its status says.
    pub fn left_out(&self) -> Option<String> {
        let status: WithConditions = serde_json::from_str(&self.status_text()).ok()?;
        left_out(&status.conditions, self.meta().generation).map(str::to_owned)
    }

    /// As JSON; what [`text`] says of an equal status.
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
            // As it was when it had a body: else it would make room for itself.
            Err(why) if why.shortage.is_some() => self.weight,
            Err(_) => BASE_WEIGHT,
        }
    }

    fn without_body(&self, why: Shortage) -> Option<Self> {
        let kept_so = match &self.object {
            Ok(_) => false,
            Err(known) => known.shortage.is_none() || known.shortage == Some(why),
        };
        (!kept_so).then(|| self.bare(why))
    }

    fn shortage(&self) -> Option<Shortage> {
        self.object.as_ref().err()?.shortage
    }
}

/// The part of a status that is kept of an object without a body: enough to see that it says so already.
fn kept_status(status: Option<CompressedText>) -> Option<CompressedText> {
    status.filter(|status| status.len() <= BARE_STATUS)
}

/// Names and versions, what decides about life and death, and the one annotation that is
/// read.
fn slim(meta: ObjectMeta) -> ObjectMeta {
    let annotations = meta.annotations.and_then(|mut all| {
        let (name, value) = all.remove_entry(names::ROTATE_ANNOTATION)?;
        // It is only compared, and is written into the identity Secret.
        let value = if value.len() > ANNOTATION {
            hex::encode(Sha256::digest(&value))
        } else {
            value
        };
        Some(BTreeMap::from([(name, value)]))
    });
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        generation: meta.generation,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        annotations,
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

/// Errs only when not even name and namespace can be read.
fn decode<K: KindWithStatus>(text: &str) -> Result<DecodedObject<K>, serde_json::Error> {
    let bare = |code, reason| {
        let meta = serde_json::from_str::<OnlyMeta>(text)?.metadata.into();
        Ok(DecodedObject {
            object: Err(Undecodable {
                code,
                reason,
                shortage: None,
                meta: Box::new(slim(meta)),
            }),
            status: kept_status(status_alone::<K>(text)),
            weight: BASE_WEIGHT,
        })
    };
    // Weighed as text: what is too heavy is never decoded.
    let spec = serde_json::from_str::<OnlySpec<'_>>(text)?.spec;
    let spec = spec.map_or("", RawValue::get);
    if let Some(reason) = too_heavy_text(spec) {
        return bare(Code::TooExpensive, reason);
    }
    let weight = toolcrib_bounds::weight(spec);
    if let Ok(object) = serde_json::from_str::<K>(text) {
        return Ok(DecodedObject::weighing(object, weight));
    }
    // Managed fields can be the part that is too deep.
    let text_of_rest = without_managed_fields(text)?;
    match toolcrib_crds::decode::<K>(&K::kind(&()), &text_of_rest) {
        Ok(object) => Ok(DecodedObject::weighing(object, weight)),
        Err(error) => bare(Code::Undecodable, error.to_string()),
    }
}

/// The status of an object whose spec is not read; `None`: it has none that can be decoded.
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

/// What every kind of ours has in its status.
#[derive(Deserialize)]
struct WithConditions {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// Notes in the inputs that an object gives nothing.
pub fn note_undecodable(inputs: &mut Inputs, kind: Kind, object: ObjectRef, why: &Undecodable) {
    if why.is_too_expensive() {
        inputs.set_too_expensive(kind, object, why.reason.clone());
    } else {
        inputs.set_undecodable(kind, object, why.reason.clone());
    }
}

fn without_managed_fields(text: &str) -> Result<String, serde_json::Error> {
    let mut object: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
    if let Some(metadata) = object.get("metadata") {
        let mut metadata: BTreeMap<String, Box<RawValue>> = serde_json::from_str(metadata.get())?;
        metadata.remove("managedFields");
        let metadata = RawValue::from_string(serde_json::to_string(&metadata)?)?;
        object.insert("metadata".to_owned(), metadata);
    }
    serde_json::to_string(&object)
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

/// All that a `Resource` says of its kind, from the one that is wrapped.
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

/// The metadata of a `K`, whose body is never fetched (Secrets, ConfigMaps, Pods).
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

    use super::*;

    fn service(name: &str, spec: &str, managed: &str) -> String {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"pond","uid":"u-{name}","managedFields":[{{"fieldsV1":{managed}}}]}},"spec":{spec}}}"#
        )
    }

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
    }

    /// Where text is expected; an unknown field would only be skipped.
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
    fn a_hostile_object_leaves_its_neighbours_readable() {
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
    fn of_an_object_what_is_read_stays() {
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
    fn a_watch_line_with_a_deep_object_is_an_event() {
        let line = format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            service("deep", &selecting(&deep(100_000)), "{}")
        );
        match serde_json::from_str::<WatchEvent<DecodedObject<Service>>>(&line).unwrap() {
            WatchEvent::Modified(object) => {
                assert_eq!(object.meta().name.as_deref(), Some("deep"));
                assert!(object.object.is_err());
            }
            other => panic!("{other:?}"),
        }
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
