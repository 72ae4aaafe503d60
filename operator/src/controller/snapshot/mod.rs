//! A consistent view of the stores for one compilation.
//!
//! Here: the objects that compile reads, from the stores and from the caller's facts about Secrets
//! and ConfigMaps. [`content_cache`] reads these from the API server, once per version; [`dns`] reads
//! the name servers from the stores. Not here: the watches that fill the stores.
//!
//! Invariants: each object is copied from its store once, at its first use, so a compilation never
//! mixes two versions of it. A key is reported before its answer is read. Objects that are not
//! used cost nothing, so a compilation costs the same among ten thousand agents.

pub mod content_cache;
pub mod dns;
#[cfg(test)]
pub mod tests;

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kube::Resource;
use toolcrib_compile::{
    AgentLabel, ConfigMapFacts, Inputs, Key, Kind, List, ObjectRef, Objects, Presence, SecretFacts,
    ServiceFacts, Settings, SyncProof, Unusable,
};
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use crate::objects::decode::{DecodedObject, note_undecodable};
use crate::objects::stores::Stores;

/// The known facts about Secrets and ConfigMaps.
pub trait Material {
    fn secret(&self, key: &ObjectRef) -> Presence<SecretFacts>;

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts;
}

/// Reads each key from the stores at its first use, and gives the same answer from then on.
pub struct Snapshot<'a> {
    stores: &'a Stores,
    material: &'a dyn Material,
    settings: Settings,
    look: &'a dyn Fn(&Key),
    /// The keys that were read.
    keys: RefCell<BTreeSet<Key>>,
    /// The objects that were read, even if absent.
    taken: RefCell<BTreeSet<(Kind, ObjectRef)>>,
    /// The objects that were read. Its settings are not used.
    inputs: RefCell<Inputs>,
}

impl<'a> Snapshot<'a> {
    /// Creates an empty snapshot. `look` is called with each key before its answer is read.
    pub fn new(
        stores: &'a Stores,
        synced: SyncProof,
        settings: Settings,
        material: &'a dyn Material,
        look: &'a dyn Fn(&Key),
    ) -> Self {
        Self {
            stores,
            material,
            settings,
            look,
            keys: RefCell::default(),
            taken: RefCell::default(),
            inputs: RefCell::new(Inputs::online(synced, Settings::default())),
        }
    }

    /// Inputs that contain the answer to `key`.
    fn with(&self, key: Key) -> Ref<'_, Inputs> {
        if self.keys.borrow_mut().insert(key.clone()) {
            (self.look)(&key);
            match &key {
                Key::Object(kind, key) => self.take(*kind, key),
                Key::GrantsFor(_)
                | Key::GrantsSelecting(_)
                | Key::AgentsLabelled(_)
                | Key::AgentsUsing(_)
                | Key::In(..)
                | Key::ServiceAt(_)
                | Key::AllAgents => self.take_list(&key),
            }
        }
        self.inputs.borrow()
    }

    fn with_object(&self, kind: Kind, key: &ObjectRef) -> Ref<'_, Inputs> {
        self.with(Key::Object(kind, key.clone()))
    }

    fn take(&self, kind: Kind, key: &ObjectRef) {
        let (stores, namespace, name) = (self.stores, &*key.namespace, &*key.name);
        match kind {
            Kind::Agent => {
                let found = stores.agents.get(namespace, name);
                self.put(kind, key, found.as_deref(), Inputs::set_agent);
                if let Some(Err(why)) = found.as_deref().map(|found| &found.object)
                    && let Some(bare) = why.bare_agent()
                {
                    self.inputs.borrow_mut().set_agent(Arc::new(bare));
                }
            }
            Kind::Surface => {
                let found = stores.surfaces.get(namespace, name);
                self.put(kind, key, found.as_deref(), Inputs::set_surface);
            }
            Kind::ToolGrant => {
                let found = stores.grants.get(namespace, name);
                self.put(kind, key, found.as_deref(), Inputs::set_grant);
            }
            Kind::ToolDefaults => {
                let found = stores.defaults.get(namespace, name);
                self.put(kind, key, found.as_deref(), Inputs::set_defaults);
            }
            Kind::ModelProvider => {
                let found = stores.providers.get(namespace, name);
                self.put(kind, key, found.as_deref(), Inputs::set_provider);
            }
            Kind::ClusterToolPolicy => {
                if let Some(found) = stores.policies.get(namespace, name) {
                    self.put_policy(key, &found);
                }
            }
            Kind::Service => {
                let found = stores.services.get(namespace, name);
                self.put(kind, key, found.as_deref(), |inputs, service| {
                    inputs.set_service(key.clone(), ServiceFacts::from_object(&service));
                });
            }
            Kind::Secret => {
                let facts = self.material.secret(key);
                self.inputs.borrow_mut().set_secret(key.clone(), facts);
            }
            Kind::ConfigMap => {
                let facts = self.material.config_map(key);
                self.inputs.borrow_mut().set_config_map(key.clone(), facts);
            }
            Kind::Namespace => {
                if let Some(found) = stores.namespaces.get("", name) {
                    let labels = found.meta().labels.clone().unwrap_or_default();
                    self.inputs
                        .borrow_mut()
                        .set_namespace(name.to_owned(), labels);
                }
            }
        }
    }

    /// Reads the decodable objects of a list.
    fn take_list(&self, list: &Key) {
        let stores = self.stores;
        match list {
            Key::GrantsFor(_) | Key::GrantsSelecting(_) => {
                self.put_all(Kind::ToolGrant, stores.grants.find(list), Inputs::set_grant);
            }
            Key::AgentsUsing(_) | Key::AgentsLabelled(_) => {
                self.put_all(Kind::Agent, stores.agents.find(list), Inputs::set_agent);
            }
            Key::In(Kind::Agent, namespace) => {
                let found = stores.agents.namespace(namespace);
                self.put_all(Kind::Agent, found, Inputs::set_agent);
            }
            Key::In(Kind::ModelProvider, namespace) => {
                let found = stores.providers.namespace(namespace);
                self.put_all(Kind::ModelProvider, found, Inputs::set_provider);
            }
            Key::ServiceAt(_) => {
                for found in stores.services.find(list) {
                    self.take(Kind::Service, &reference(&*found));
                }
            }
            Key::In(Kind::ClusterToolPolicy, _) => {
                for found in stores.policies.all() {
                    self.put_policy(&reference(&*found), &found);
                }
            }
            // Compile never reads these lists; the names of all agents are read from the store.
            Key::In(..) | Key::Object(..) | Key::AllAgents => {}
        }
    }

    fn put_all<K: Resource + Clone>(
        &self,
        kind: Kind,
        found: Vec<Arc<DecodedObject<K>>>,
        set: fn(&mut Inputs, Arc<K>),
    ) {
        for found in found.iter().filter(|found| found.object.is_ok()) {
            self.put(kind, &reference(&**found), Some(found), set);
        }
    }

    /// Adds a policy in the form that is in force, and the reason why it cannot be read.
    fn put_policy(&self, key: &ObjectRef, found: &DecodedObject<ClusterToolPolicy>) {
        let kind = Kind::ClusterToolPolicy;
        if found.object.is_err()
            && let Some(last) = self.stores.policy_in_force(found)
        {
            self.inputs.borrow_mut().set_policy(last);
        }
        self.put(kind, key, Some(found), Inputs::set_policy);
    }

    /// Adds an object to the inputs, unless a version of it was read before.
    fn put<K>(
        &self,
        kind: Kind,
        key: &ObjectRef,
        found: Option<&DecodedObject<K>>,
        set: impl Fn(&mut Inputs, Arc<K>),
    ) {
        if !self.taken.borrow_mut().insert((kind, key.clone())) {
            return;
        }
        let mut inputs = self.inputs.borrow_mut();
        match found.map(|found| &found.object) {
            None => {}
            Some(Ok(object)) => set(&mut inputs, Arc::clone(object)),
            Some(Err(why)) => note_undecodable(&mut inputs, kind, key.clone(), why),
        }
    }
}

impl Objects for Snapshot<'_> {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn agent(&self, key: &ObjectRef) -> Option<Arc<Agent>> {
        self.with_object(Kind::Agent, key).agent(key)
    }

    fn surface(&self, key: &ObjectRef) -> Option<Arc<Surface>> {
        self.with_object(Kind::Surface, key).surface(key)
    }

    fn grant(&self, key: &ObjectRef) -> Option<Arc<ToolGrant>> {
        self.with_object(Kind::ToolGrant, key).grant(key)
    }

    fn defaults(&self, key: &ObjectRef) -> Option<Arc<ToolDefaults>> {
        Objects::defaults(&*self.with_object(Kind::ToolDefaults, key), key)
    }

    fn provider(&self, key: &ObjectRef) -> Option<Arc<ModelProvider>> {
        self.with_object(Kind::ModelProvider, key).provider(key)
    }

    fn unusable(&self, kind: Kind, key: &ObjectRef) -> Option<Unusable> {
        self.with_object(kind, key).unusable(kind, key)
    }

    fn service(&self, key: &ObjectRef) -> Option<Arc<ServiceFacts>> {
        self.with_object(Kind::Service, key).service(key)
    }

    fn service_at(&self, address: IpAddr) -> Option<ObjectRef> {
        self.with(Key::ServiceAt(address)).service_at(address)
    }

    fn secret(&self, key: &ObjectRef) -> Presence<Arc<SecretFacts>> {
        self.with_object(Kind::Secret, key).secret(key)
    }

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts {
        self.with_object(Kind::ConfigMap, key).config_map(key)
    }

    fn namespace_labels(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.with(Key::namespace(name)).namespace_labels(name)
    }

    fn grants_for(&self, agent: &ObjectRef) -> List<ToolGrant> {
        self.with(Key::GrantsFor(agent.clone())).grants_for(agent)
    }

    fn grants_selecting(&self, label: &AgentLabel) -> List<ToolGrant> {
        self.with(Key::GrantsSelecting(label.clone()))
            .grants_selecting(label)
    }

    fn agents_labelled(&self, label: &AgentLabel) -> List<Agent> {
        self.with(Key::AgentsLabelled(label.clone()))
            .agents_labelled(label)
    }

    fn agents_using(&self, surface: &ObjectRef) -> List<Agent> {
        self.with(Key::AgentsUsing(surface.clone()))
            .agents_using(surface)
    }

    fn agents_in(&self, namespace: &str) -> List<Agent> {
        let list = Key::In(Kind::Agent, namespace.to_owned());
        self.with(list).agents_in(namespace)
    }

    fn providers_in(&self, namespace: &str) -> List<ModelProvider> {
        let list = Key::In(Kind::ModelProvider, namespace.to_owned());
        self.with(list).providers_in(namespace)
    }

    fn all_agents(&self) -> Vec<ObjectRef> {
        drop(self.with(Key::AllAgents));
        let agents = self.stores.agents.all();
        agents.iter().map(|agent| reference(&**agent)).collect()
    }

    fn policies(&self) -> List<ClusterToolPolicy> {
        Objects::policies(&*self.with(Key::policies()))
    }

    fn unreadable_policies(&self) -> Vec<(ObjectRef, String)> {
        self.with(Key::policies()).unreadable_policies()
    }

    /// Returns names for suggestions: of the objects that were read so far, and of all Agents of the
    /// namespace. The Agents are not recorded as read: otherwise each grant with a misspelt name would
    /// depend on all Agents of its namespace, and a namespace whose grants are created before its
    /// agents would cause a reconcile for each pair. So a suggestion can be missing or out of date,
    /// and a new grant whose agent is not found is checked again.
    fn names_in(&self, kind: Kind, namespace: &str) -> Vec<String> {
        if kind == Kind::Agent {
            let agents = self.stores.agents.namespace(namespace);
            return agents
                .iter()
                .map(|agent| reference(&**agent).name)
                .collect();
        }
        self.inputs.borrow().names_in(kind, namespace)
    }
}

fn reference(object: &impl Resource) -> ObjectRef {
    let meta = object.meta();
    ObjectRef::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}
