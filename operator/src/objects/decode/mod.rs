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

mod meta;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use toolcrib_compile::{Code, Inputs, Kind, ObjectRef, left_out, too_heavy_text};
use toolcrib_crds::{
    Agent, AgentSpec, AgentStatus, ClusterToolPolicy, ClusterToolPolicyStatus, ModelProvider,
    ModelProviderStatus, Surface, SurfaceStatus, ToolDefaults, ToolDefaultsStatus, ToolGrant,
    ToolGrantStatus,
};

pub use self::meta::MetaOf;
use self::meta::{OnlyMeta, of_the_kind, slim};
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
