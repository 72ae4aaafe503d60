//! From tables to the inputs of one compilation.
//!
//! A [`Scope`] holds the objects that matter to one piece of work, picked from the tables
//! at one moment; [`Scope::inputs`] adds what is known of Secrets and ConfigMaps. Only what
//! can change the answer is in a scope, so that one agent of ten thousand costs what its own
//! objects cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use toolcrib_compile::{
    ConfigMapFacts, Inputs, Kind, Leads, ObjectRef, Presence, SecretFacts, ServiceFacts, Settings,
    Synced, names,
};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::work::{Work, WorkKind};
use crate::objects::decode::{Decoded, Undecodable, note_undecodable};
use crate::objects::names_in;
use crate::objects::stores::Tables;

/// The objects of one piece of work.
#[derive(Debug, Default)]
pub struct Scope {
    agents: BTreeMap<ObjectRef, Arc<Agent>>,
    surfaces: BTreeMap<ObjectRef, Arc<Surface>>,
    grants: BTreeMap<ObjectRef, Arc<ToolGrant>>,
    defaults: BTreeMap<ObjectRef, Arc<ToolDefaults>>,
    providers: BTreeMap<ObjectRef, Arc<ModelProvider>>,
    undecodable: BTreeMap<(Kind, ObjectRef), Undecodable>,
    /// Names whose facts the answer depends on.
    pub secrets: BTreeSet<ObjectRef>,
    pub config_maps: BTreeSet<ObjectRef>,
}

/// Reads one object of a table; an unreadable one is noted.
macro_rules! take {
    ($scope:expr, $kind:ident, $field:ident, $table:expr, $key:expr) => {
        match $table.get(&$key.namespace, &$key.name).as_deref() {
            Some(Decoded {
                object: Ok(object), ..
            }) => {
                $scope.$field.insert($key.clone(), Arc::clone(object));
                Some(Arc::clone(object))
            }
            Some(Decoded {
                object: Err(why), ..
            }) => {
                $scope
                    .undecodable
                    .insert((Kind::$kind, $key.clone()), why.clone());
                None
            }
            None => None,
        }
    };
}

impl Scope {
    pub fn of(work: &Work, tables: &Tables) -> Self {
        let mut scope = Self::default();
        let key = &work.key;
        match work.kind {
            WorkKind::Agent => scope.agent(key, tables),
            WorkKind::Surface => {
                scope.surface(key, tables);
                for agent in readable(&tables.agents.all()) {
                    if names_in::agent_surfaces(&agent).contains(key) {
                        scope.agents.insert(reference(&*agent), agent);
                    }
                }
            }
            WorkKind::ToolGrant => {
                if let Some(grant) = take!(scope, ToolGrant, grants, tables.grants, key) {
                    scope.grant_names(&grant, tables);
                }
            }
            WorkKind::ToolDefaults => {
                let defaults = take!(scope, ToolDefaults, defaults, tables.defaults, key);
                scope.all_agents(&key.namespace, tables);
                if let Some(defaults) = defaults {
                    for surface in names_in::defaults_surfaces(&defaults) {
                        scope.surface(&surface, tables);
                    }
                }
            }
            WorkKind::ModelProvider => {
                scope.all_providers(&key.namespace, tables);
                scope.all_agents(&key.namespace, tables);
                scope.namespace_defaults(&key.namespace, tables);
            }
        }
        scope
    }

    fn agent(&mut self, key: &ObjectRef, tables: &Tables) {
        let Some(agent) = take!(self, Agent, agents, tables.agents, key) else {
            if let Some(why) = self.undecodable.get(&(Kind::Agent, key.clone()))
                && let Some(bare) = why.bare_agent()
            {
                self.agents.insert(key.clone(), Arc::new(bare));
            }
            return;
        };
        self.secrets.extend(names_in::agent_secrets(&agent));
        for surface in names_in::agent_surfaces(&agent) {
            self.surface(&surface, tables);
        }
        for grant in tables.grants.namespace(&key.namespace) {
            match &grant.object {
                Ok(object) if object.spec.agents.contains(&key.name) => {
                    self.grants.insert(reference(&*grant), Arc::clone(object));
                    self.grant_names(object, tables);
                }
                Ok(_) => {}
                // It may have named this agent.
                Err(why) => {
                    self.undecodable
                        .insert((Kind::ToolGrant, reference(&*grant)), why.clone());
                }
            }
        }
        if let Some(defaults) = self.namespace_defaults(&key.namespace, tables) {
            for surface in names_in::defaults_surfaces(&defaults) {
                self.surface(&surface, tables);
            }
        }
        self.all_providers(&key.namespace, tables);
    }

    fn grant_names(&mut self, grant: &ToolGrant, tables: &Tables) {
        let namespace = grant.metadata.namespace.clone().unwrap_or_default();
        for agent in &grant.spec.agents {
            let key = ObjectRef::new(namespace.clone(), agent.clone());
            // Only whether it exists matters here.
            let _exists = take!(self, Agent, agents, tables.agents, key);
        }
        for surface in names_in::grant_surfaces(grant) {
            self.surface(&surface, tables);
        }
    }

    fn surface(&mut self, key: &ObjectRef, tables: &Tables) {
        if let Some(surface) = take!(self, Surface, surfaces, tables.surfaces, key) {
            self.secrets.extend(names_in::surface_secrets(&surface));
            self.config_maps
                .extend(names_in::surface_config_maps(&surface));
        }
    }

    fn namespace_defaults(
        &mut self,
        namespace: &str,
        tables: &Tables,
    ) -> Option<Arc<ToolDefaults>> {
        let key = ObjectRef::new(namespace, names::TOOL_DEFAULTS);
        take!(self, ToolDefaults, defaults, tables.defaults, key)
    }

    fn all_agents(&mut self, namespace: &str, tables: &Tables) {
        for agent in readable(&tables.agents.namespace(namespace)) {
            self.agents.insert(reference(&*agent), agent);
        }
    }

    fn all_providers(&mut self, namespace: &str, tables: &Tables) {
        for provider in tables.providers.namespace(namespace) {
            let key = reference(&*provider);
            if let Some(provider) = take!(self, ModelProvider, providers, tables.providers, key) {
                self.secrets.extend(names_in::provider_secrets(&provider));
                self.config_maps
                    .extend(names_in::provider_config_maps(&provider));
            }
        }
    }

    /// The inputs. `secret` and `config_map` say what is known of a name.
    pub fn inputs(
        &self,
        synced: Synced,
        settings: Settings,
        tables: &Tables,
        secret: impl Fn(&ObjectRef) -> Presence<SecretFacts>,
        config_map: impl Fn(&ObjectRef) -> ConfigMapFacts,
    ) -> Inputs {
        let mut inputs = Inputs::online(synced, settings);
        let mut namespaces = BTreeSet::new();
        for (key, agent) in &self.agents {
            namespaces.insert(key.namespace.clone());
            inputs.set_agent(Arc::clone(agent));
        }
        for (key, surface) in &self.surfaces {
            namespaces.insert(key.namespace.clone());
            set_services(&mut inputs, tables, &**surface);
            inputs.set_surface(Arc::clone(surface));
        }
        for (key, grant) in &self.grants {
            namespaces.insert(key.namespace.clone());
            inputs.set_grant(Arc::clone(grant));
        }
        for (key, defaults) in &self.defaults {
            namespaces.insert(key.namespace.clone());
            inputs.set_defaults(Arc::clone(defaults));
        }
        for provider in self.providers.values() {
            set_services(&mut inputs, tables, &**provider);
            inputs.set_provider(Arc::clone(provider));
        }
        for name in namespaces {
            if let Some(namespace) = tables.namespaces.get("", &name) {
                let labels = namespace.meta().labels.clone().unwrap_or_default();
                inputs.set_namespace(name, labels);
            }
        }
        for ((kind, key), why) in &self.undecodable {
            note_undecodable(&mut inputs, *kind, key.clone(), why);
        }
        for key in &self.secrets {
            inputs.set_secret(key.clone(), secret(key));
        }
        for key in &self.config_maps {
            inputs.set_config_map(key.clone(), config_map(key));
        }
        inputs
    }
}

fn reference(object: &impl Resource) -> ObjectRef {
    let meta = object.meta();
    ObjectRef::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn readable<K>(objects: &[Arc<Decoded<K>>]) -> Vec<Arc<K>> {
    objects
        .iter()
        .filter_map(|object| object.object.as_ref().ok())
        .map(Arc::clone)
        .collect()
}

/// What is known of the Services that an object leads to.
fn set_services(inputs: &mut Inputs, tables: &Tables, object: &(impl Leads + Resource)) {
    for service in object.possible_services() {
        if let Some(found) = tables.services.get(&service.namespace, &service.name)
            && let Ok(found) = &found.object
        {
            inputs.set_service(service, ServiceFacts::from_object(found));
        }
    }
    let addresses = object.addresses();
    if addresses.is_empty() {
        return;
    }
    for found in readable(&tables.services.all()) {
        if !ServiceFacts::addresses(&found).is_disjoint(&addresses) {
            inputs.set_service(reference(&*found), ServiceFacts::from_object(&found));
        }
    }
}
