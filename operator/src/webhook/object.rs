//! One version of an object of our kinds, decoded from a review.
//!
//! Invariant: an object is decoded only if compile accepts its nesting and its estimated memory, so
//! later code neither recurses nor allocates without bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolcrib_bounds::json::nests_within;
use toolcrib_compile::normalize::MAX_DEPTH;
use toolcrib_compile::{
    Code, Inputs, Key, Keys as _, Kind, grant_labels, left_out, too_heavy_text,
};
use toolcrib_crds::{
    Agent, ClusterToolPolicy, HasConditions, ModelProvider, Surface, ToolDefaults, ToolGrant,
};

#[derive(Clone, Debug)]
pub enum Object {
    Surface(Arc<Surface>),
    Agent(Arc<Agent>),
    ToolGrant(Arc<ToolGrant>),
    ToolDefaults(Arc<ToolDefaults>),
    ModelProvider(Arc<ModelProvider>),
    ClusterToolPolicy(Arc<ClusterToolPolicy>),
}

/// Reasons why an object is not decoded. The texts quote none of its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error(
        "it is nested deeper than {MAX_DEPTH} levels, the most that Toolcrib reads: make it flatter"
    )]
    TooDeep,
    #[error("it cannot be read as a {kind} of this release: see `kubectl explain {kind}`")]
    Undecodable { kind: &'static str },
    #[error("{}: {reason}", Code::TooExpensive)]
    TooExpensive { reason: String },
}

/// Returns the kind of that name, if the webhook validates it.
pub fn kind(name: &str) -> Option<Kind> {
    [
        Kind::Surface,
        Kind::Agent,
        Kind::ToolGrant,
        Kind::ToolDefaults,
        Kind::ModelProvider,
        Kind::ClusterToolPolicy,
    ]
    .into_iter()
    .find(|kind| kind.name() == name)
}

impl Object {
    pub fn read(kind: Kind, text: &str) -> Result<Self, Unreadable> {
        if !nests_within(text, MAX_DEPTH) {
            return Err(Unreadable::TooDeep);
        }
        // The memory is estimated from the text: an object over the limit is never decoded.
        let spec = serde_json::from_str::<OnlySpec<'_>>(text).ok();
        let spec = spec.and_then(|object| object.spec);
        if let Some(reason) = spec.and_then(|spec| too_heavy_text(spec.get())) {
            return Err(Unreadable::TooExpensive { reason });
        }
        fn parse<K: DeserializeOwned>(kind: Kind, text: &str) -> Result<Arc<K>, Unreadable> {
            // serde's error quotes values, and a credential may stand in a wrong field.
            serde_json::from_str(text)
                .map(Arc::new)
                .map_err(|_| Unreadable::Undecodable { kind: kind.name() })
        }
        match kind {
            Kind::Surface => parse(kind, text).map(Self::Surface),
            Kind::Agent => parse(kind, text).map(Self::Agent),
            Kind::ToolGrant => parse(kind, text).map(Self::ToolGrant),
            Kind::ToolDefaults => parse(kind, text).map(Self::ToolDefaults),
            Kind::ModelProvider => parse(kind, text).map(Self::ModelProvider),
            Kind::ClusterToolPolicy => parse(kind, text).map(Self::ClusterToolPolicy),
            Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => {
                Err(Unreadable::Undecodable { kind: kind.name() })
            }
        }
    }

    /// True if both specs are equal, and the labels that grants select by. Other metadata and status
    /// are not compared.
    pub fn same_spec(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Surface(one), Self::Surface(other)) => one.spec == other.spec,
            (Self::Agent(one), Self::Agent(other)) => {
                let [one_labels, other_labels] =
                    [one, other].map(|agent| grant_labels(agent.metadata.labels.as_ref()));
                one.spec == other.spec && one_labels.eq(other_labels)
            }
            (Self::ToolGrant(one), Self::ToolGrant(other)) => one.spec == other.spec,
            (Self::ToolDefaults(one), Self::ToolDefaults(other)) => one.spec == other.spec,
            (Self::ModelProvider(one), Self::ModelProvider(other)) => one.spec == other.spec,
            (Self::ClusterToolPolicy(one), Self::ClusterToolPolicy(other)) => {
                one.spec == other.spec
            }
            (
                Self::Surface(_)
                | Self::Agent(_)
                | Self::ToolGrant(_)
                | Self::ToolDefaults(_)
                | Self::ModelProvider(_)
                | Self::ClusterToolPolicy(_),
                _,
            ) => false,
        }
    }

    pub fn put(&self, inputs: &mut Inputs) {
        match self {
            Self::Surface(object) => inputs.set_surface(Arc::clone(object)),
            Self::Agent(object) => inputs.set_agent(Arc::clone(object)),
            Self::ToolGrant(object) => inputs.set_grant(Arc::clone(object)),
            Self::ToolDefaults(object) => inputs.set_defaults(Arc::clone(object)),
            Self::ModelProvider(object) => inputs.set_provider(Arc::clone(object)),
            Self::ClusterToolPolicy(object) => inputs.set_policy(Arc::clone(object)),
        }
    }

    /// Returns why the controller leaves this version out for lack of memory, from its status.
    pub fn left_out(&self) -> Option<&str> {
        match self {
            Self::Surface(it) => left_out(it.conditions(), it.metadata.generation),
            Self::Agent(it) => left_out(it.conditions(), it.metadata.generation),
            Self::ToolGrant(it) => left_out(it.conditions(), it.metadata.generation),
            Self::ToolDefaults(it) => left_out(it.conditions(), it.metadata.generation),
            Self::ModelProvider(it) => left_out(it.conditions(), it.metadata.generation),
            Self::ClusterToolPolicy(it) => left_out(it.conditions(), it.metadata.generation),
        }
    }

    /// Returns the keys of compile whose answers contain this object.
    pub fn keys(&self) -> BTreeSet<Key> {
        match self {
            Self::Surface(object) => object.keys(),
            Self::Agent(object) => object.keys(),
            Self::ToolGrant(object) => object.keys(),
            Self::ToolDefaults(object) => object.keys(),
            Self::ModelProvider(object) => object.keys(),
            Self::ClusterToolPolicy(object) => object.keys(),
        }
    }
}

#[derive(Deserialize)]
struct OnlySpec<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}
