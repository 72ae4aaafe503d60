//! The objects that compile reads, one question at a time.
//!
//! Here: the questions ([`Objects`]), their names ([`Key`]), the questions that an object is an
//! answer to ([`Keys`]), and a wrapper that records what was asked ([`Recorder`]). Not here: where
//! the objects come from. [`crate::Inputs`] holds them in memory.
//!
//! Invariant: every result of this crate is a function of the settings and of the answers to the
//! recorded keys. An object that answers none of them can change without changing the result.
//! Suggested names are the exception: the controller does not record them, so a suggestion can be out
//! of date.

pub(crate) mod agent_selector;
pub(crate) mod allowlist;
pub(crate) mod budget;
pub(crate) mod destination;
pub(crate) mod facts;
pub(crate) mod grants;
pub(crate) mod inputs;
pub(crate) mod range;
pub(crate) mod selector;
pub(crate) mod settings;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use self::agent_selector::{AgentLabel, labels_of, labels_selected};
use crate::reference::surface_key;
use crate::{Code, ConfigMapFacts, Kind, ObjectRef, Presence, SecretFacts, ServiceFacts, Settings};

/// Objects with their names, in order of name.
pub type List<T> = Vec<(ObjectRef, Arc<T>)>;

/// Answers questions about a set of objects.
///
/// `None` means that the object certainly does not exist, or that it is [`Unusable`]. Secrets and
/// ConfigMaps can be unknown besides.
pub trait Objects {
    fn settings(&self) -> &Settings;

    /// Returns an Agent. One over its budget has no spec here, and is [`Unusable`] as well.
    fn agent(&self, key: &ObjectRef) -> Option<Arc<Agent>>;

    fn surface(&self, key: &ObjectRef) -> Option<Arc<Surface>>;

    fn grant(&self, key: &ObjectRef) -> Option<Arc<ToolGrant>>;

    fn defaults(&self, key: &ObjectRef) -> Option<Arc<ToolDefaults>>;

    fn provider(&self, key: &ObjectRef) -> Option<Arc<ModelProvider>>;

    /// Why an object of Toolcrib's kinds gives nothing although it exists.
    fn unusable(&self, kind: Kind, key: &ObjectRef) -> Option<Unusable>;

    fn service(&self, key: &ObjectRef) -> Option<Arc<ServiceFacts>>;

    /// The Service that has this cluster address.
    fn service_at(&self, address: IpAddr) -> Option<ObjectRef>;

    fn secret(&self, key: &ObjectRef) -> Presence<Arc<SecretFacts>>;

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts;

    /// Labels of a namespace. `None`: they are not known, so no selector matches.
    fn namespace_labels(&self, name: &str) -> Option<BTreeMap<String, String>>;

    /// The grants that name an agent.
    fn grants_for(&self, agent: &ObjectRef) -> List<ToolGrant>;

    /// The grants that find agents by a label ([`agent_selector`]). Their selectors may require
    /// other labels too.
    fn grants_selecting(&self, label: &AgentLabel) -> List<ToolGrant>;

    /// The agents that have a label.
    fn agents_labelled(&self, label: &AgentLabel) -> List<Agent>;

    /// The agents that name a surface in their spec.
    fn agents_using(&self, surface: &ObjectRef) -> List<Agent>;

    fn agents_in(&self, namespace: &str) -> List<Agent>;

    fn providers_in(&self, namespace: &str) -> List<ModelProvider>;

    /// The names of all agents of the cluster.
    fn all_agents(&self) -> Vec<ObjectRef>;

    /// All policies of the cluster. A policy that cannot be read now is returned as it was last
    /// read.
    fn policies(&self) -> List<ClusterToolPolicy>;

    /// The policies that could never be read, with the reasons.
    fn unreadable_policies(&self) -> Vec<(ObjectRef, String)>;

    /// Names of a namespace's Agents or Surfaces, for "did you mean".
    fn names_in(&self, kind: Kind, namespace: &str) -> Vec<String>;
}

/// Why an object that exists gives nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// [`Code::Undecodable`] or [`Code::TooExpensive`].
    pub code: Code,
    /// The reason in words for the user; never the object's content.
    pub reason: String,
}

/// One question to [`Objects`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// One object, whether it exists or not. The namespace of a Namespace is empty.
    Object(Kind, ObjectRef),
    /// The grants that name an agent.
    GrantsFor(ObjectRef),
    /// The grants that find agents by a label.
    GrantsSelecting(AgentLabel),
    /// The agents that have a label.
    AgentsLabelled(AgentLabel),
    /// The agents that name a surface.
    AgentsUsing(ObjectRef),
    /// All objects of a kind in a namespace, or their names.
    In(Kind, String),
    /// The Service with a cluster address.
    ServiceAt(IpAddr),
    /// The names of all agents of the cluster.
    AllAgents,
}

impl Key {
    pub fn namespace(name: &str) -> Self {
        Self::Object(Kind::Namespace, ObjectRef::new("", name))
    }

    /// All policies of the cluster.
    pub fn policies() -> Self {
        Self::In(Kind::ClusterToolPolicy, String::new())
    }

    /// The keys that any object of this name answers, whatever it holds.
    pub fn of_object(kind: Kind, key: &ObjectRef) -> [Self; 2] {
        [
            Self::Object(kind, key.clone()),
            Self::In(kind, key.namespace.clone()),
        ]
    }
}

/// An object that is the answer to a question, or part of one.
pub trait Keys {
    /// The keys whose answers this object is in.
    fn keys(&self) -> BTreeSet<Key>;
}

fn key(object: &impl ResourceExt) -> ObjectRef {
    ObjectRef::new(object.namespace().unwrap_or_default(), object.name_any())
}

impl Keys for Agent {
    fn keys(&self) -> BTreeSet<Key> {
        let key = key(self);
        let surfaces = self.spec.surfaces.iter();
        let using = surfaces.map(|entry| Key::AgentsUsing(surface_key(&key, entry)));
        let labelled = labels_of(&key, self).into_iter().map(Key::AgentsLabelled);
        let using = using.chain(labelled).chain([Key::AllAgents]);
        Key::of_object(Kind::Agent, &key)
            .into_iter()
            .chain(using)
            .collect()
    }
}

impl Keys for Surface {
    fn keys(&self) -> BTreeSet<Key> {
        Key::of_object(Kind::Surface, &key(self)).into()
    }
}

impl Keys for ToolGrant {
    fn keys(&self) -> BTreeSet<Key> {
        let key = key(self);
        let agents = self.spec.agents.iter();
        let agents = agents.map(|agent| ObjectRef::new(key.namespace.clone(), agent.clone()));
        let named = agents.map(Key::GrantsFor);
        let labels = labels_selected(&key, self).into_iter();
        let selecting = labels.map(Key::GrantsSelecting);
        Key::of_object(Kind::ToolGrant, &key)
            .into_iter()
            .chain(named)
            .chain(selecting)
            .collect()
    }
}

impl Keys for ToolDefaults {
    fn keys(&self) -> BTreeSet<Key> {
        Key::of_object(Kind::ToolDefaults, &key(self)).into()
    }
}

impl Keys for ModelProvider {
    fn keys(&self) -> BTreeSet<Key> {
        Key::of_object(Kind::ModelProvider, &key(self)).into()
    }
}

impl Keys for ClusterToolPolicy {
    fn keys(&self) -> BTreeSet<Key> {
        Key::of_object(Kind::ClusterToolPolicy, &key(self)).into()
    }
}

impl Keys for Service {
    fn keys(&self) -> BTreeSet<Key> {
        let addresses = ServiceFacts::addresses(self).into_iter();
        Key::of_object(Kind::Service, &key(self))
            .into_iter()
            .chain(addresses.map(Key::ServiceAt))
            .collect()
    }
}

/// Forwards every question to other [`Objects`] and records it.
pub struct Recorder<'a> {
    objects: &'a dyn Objects,
    looked_at: RefCell<BTreeSet<Key>>,
    unread: RefCell<BTreeSet<(Kind, ObjectRef)>>,
}

impl<'a> Recorder<'a> {
    pub fn new(objects: &'a dyn Objects) -> Self {
        Self {
            objects,
            looked_at: RefCell::default(),
            unread: RefCell::default(),
        }
    }

    /// Returns every question that was asked.
    pub fn looked_at(self) -> BTreeSet<Key> {
        self.looked_at.into_inner()
    }

    /// Returns the requested Secrets and ConfigMaps that could not be read now.
    pub(crate) fn unread(self) -> BTreeSet<(Kind, ObjectRef)> {
        self.unread.into_inner()
    }

    fn look(&self, key: Key) {
        self.looked_at.borrow_mut().insert(key);
    }

    fn look_at(&self, kind: Kind, key: &ObjectRef) {
        self.look(Key::Object(kind, key.clone()));
    }

    fn note_unread(&self, kind: Kind, key: &ObjectRef) {
        self.unread.borrow_mut().insert((kind, key.clone()));
    }
}

impl Objects for Recorder<'_> {
    fn settings(&self) -> &Settings {
        self.objects.settings()
    }

    fn agent(&self, key: &ObjectRef) -> Option<Arc<Agent>> {
        self.look_at(Kind::Agent, key);
        self.objects.agent(key)
    }

    fn surface(&self, key: &ObjectRef) -> Option<Arc<Surface>> {
        self.look_at(Kind::Surface, key);
        self.objects.surface(key)
    }

    fn grant(&self, key: &ObjectRef) -> Option<Arc<ToolGrant>> {
        self.look_at(Kind::ToolGrant, key);
        self.objects.grant(key)
    }

    fn defaults(&self, key: &ObjectRef) -> Option<Arc<ToolDefaults>> {
        self.look_at(Kind::ToolDefaults, key);
        self.objects.defaults(key)
    }

    fn provider(&self, key: &ObjectRef) -> Option<Arc<ModelProvider>> {
        self.look_at(Kind::ModelProvider, key);
        self.objects.provider(key)
    }

    fn unusable(&self, kind: Kind, key: &ObjectRef) -> Option<Unusable> {
        self.look_at(kind, key);
        self.objects.unusable(kind, key)
    }

    fn service(&self, key: &ObjectRef) -> Option<Arc<ServiceFacts>> {
        self.look_at(Kind::Service, key);
        self.objects.service(key)
    }

    fn service_at(&self, address: IpAddr) -> Option<ObjectRef> {
        self.look(Key::ServiceAt(address));
        self.objects.service_at(address)
    }

    fn secret(&self, key: &ObjectRef) -> Presence<Arc<SecretFacts>> {
        self.look_at(Kind::Secret, key);
        let found = self.objects.secret(key);
        match &found {
            Presence::Unknown(_) => self.note_unread(Kind::Secret, key),
            Presence::Present(_) | Presence::Absent => {}
        }
        found
    }

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts {
        self.look_at(Kind::ConfigMap, key);
        let found = self.objects.config_map(key);
        match &found {
            ConfigMapFacts::LastGood { .. }
            | ConfigMapFacts::Unknown(_)
            | ConfigMapFacts::TooExpensive(_) => self.note_unread(Kind::ConfigMap, key),
            ConfigMapFacts::Present(_) | ConfigMapFacts::Absent => {}
        }
        found
    }

    fn namespace_labels(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.look(Key::namespace(name));
        self.objects.namespace_labels(name)
    }

    fn grants_for(&self, agent: &ObjectRef) -> List<ToolGrant> {
        self.look(Key::GrantsFor(agent.clone()));
        self.objects.grants_for(agent)
    }

    fn grants_selecting(&self, label: &AgentLabel) -> List<ToolGrant> {
        self.look(Key::GrantsSelecting(label.clone()));
        self.objects.grants_selecting(label)
    }

    fn agents_labelled(&self, label: &AgentLabel) -> List<Agent> {
        self.look(Key::AgentsLabelled(label.clone()));
        self.objects.agents_labelled(label)
    }

    fn agents_using(&self, surface: &ObjectRef) -> List<Agent> {
        self.look(Key::AgentsUsing(surface.clone()));
        self.objects.agents_using(surface)
    }

    fn agents_in(&self, namespace: &str) -> List<Agent> {
        self.look(Key::In(Kind::Agent, namespace.to_owned()));
        self.objects.agents_in(namespace)
    }

    fn providers_in(&self, namespace: &str) -> List<ModelProvider> {
        self.look(Key::In(Kind::ModelProvider, namespace.to_owned()));
        self.objects.providers_in(namespace)
    }

    fn all_agents(&self) -> Vec<ObjectRef> {
        self.look(Key::AllAgents);
        self.objects.all_agents()
    }

    fn policies(&self) -> List<ClusterToolPolicy> {
        self.look(Key::policies());
        self.objects.policies()
    }

    fn unreadable_policies(&self) -> Vec<(ObjectRef, String)> {
        self.look(Key::policies());
        self.objects.unreadable_policies()
    }

    fn names_in(&self, kind: Kind, namespace: &str) -> Vec<String> {
        self.look(Key::In(kind, namespace.to_owned()));
        self.objects.names_in(kind, namespace)
    }
}
