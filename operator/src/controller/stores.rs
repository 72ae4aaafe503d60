//! All tables, and what is still missing of them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Resource;
use toolcrib_compile::{Kind, ObjectRef, Presence, Synced};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::decode::{Decoded, MetaOf};
use super::settings::SecretScope;
use super::tables::Table;

#[derive(Clone, Debug)]
pub struct Tables {
    pub surfaces: Table<Decoded<Surface>>,
    pub agents: Table<Decoded<Agent>>,
    pub grants: Table<Decoded<ToolGrant>>,
    pub defaults: Table<Decoded<ToolDefaults>>,
    pub providers: Table<Decoded<ModelProvider>>,
    pub services: Table<Decoded<Service>>,
    pub namespaces: Table<MetaOf<Namespace>>,
    pub pods: Table<MetaOf<Pod>>,
    pub secrets: Scoped<Secret>,
    pub config_maps: Scoped<ConfigMap>,
    pub network_policies: Scoped<NetworkPolicy>,
}

impl Tables {
    pub fn new(scope: &SecretScope) -> Self {
        Self {
            surfaces: Table::default(),
            agents: Table::default(),
            grants: Table::default(),
            defaults: Table::default(),
            providers: Table::default(),
            services: Table::default(),
            namespaces: Table::default(),
            pods: Table::default(),
            secrets: Scoped::new(scope),
            config_maps: Scoped::new(scope),
            network_policies: Scoped::new(scope),
        }
    }

    /// The witness that compile asks for. Namespaces and Pods are waited for as well: an
    /// unknown namespace's labels match no selector, which would withdraw consent.
    pub fn synced(&self) -> Option<Synced> {
        if !self.namespaces.synced() || !self.pods.synced() {
            return None;
        }
        Synced::check(&self.filled()).ok()
    }

    fn filled(&self) -> BTreeSet<Kind> {
        [
            (Kind::Surface, self.surfaces.synced()),
            (Kind::Agent, self.agents.synced()),
            (Kind::ToolGrant, self.grants.synced()),
            (Kind::ToolDefaults, self.defaults.synced()),
            (Kind::ModelProvider, self.providers.synced()),
            (Kind::Service, self.services.synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| synced.then_some(kind))
        .collect()
    }

    /// Names of what is not listed yet, for `/readyz`.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut missing: Vec<&'static str> = Synced::check(&self.filled())
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(Kind::name)
            .collect();
        if !self.namespaces.synced() {
            missing.push("Namespace");
        }
        if !self.pods.synced() {
            missing.push("Pod");
        }
        missing
    }
}

/// Metadata of Secrets, ConfigMaps or NetworkPolicies, of the namespaces that the operator has rights in.
#[derive(Debug)]
pub enum Scoped<K> {
    Cluster(Table<MetaOf<K>>),
    Namespaces(BTreeMap<String, Table<MetaOf<K>>>),
}

impl<K> Clone for Scoped<K> {
    fn clone(&self) -> Self {
        match self {
            Scoped::Cluster(table) => Scoped::Cluster(table.clone()),
            Scoped::Namespaces(tables) => Scoped::Namespaces(tables.clone()),
        }
    }
}

/// Which version of an object is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub uid: String,
    pub resource_version: String,
}

impl Version {
    pub fn of(object: &impl Resource) -> Option<Self> {
        let meta = object.meta();
        Some(Self {
            uid: meta.uid.clone()?,
            resource_version: meta.resource_version.clone()?,
        })
    }
}

impl<K: Resource> Scoped<K> {
    pub fn new(scope: &SecretScope) -> Self {
        match scope {
            SecretScope::Cluster => Scoped::Cluster(Table::default()),
            SecretScope::Namespaces(names) => Scoped::Namespaces(
                names
                    .iter()
                    .map(|name| (name.clone(), Table::default()))
                    .collect(),
            ),
        }
    }

    fn table(&self, namespace: &str) -> Option<&Table<MetaOf<K>>> {
        match self {
            Scoped::Cluster(table) => Some(table),
            Scoped::Namespaces(tables) => tables.get(namespace),
        }
    }

    /// Present, certainly absent, or unknown because nobody could look.
    pub fn look_up(&self, key: &ObjectRef) -> Presence<std::sync::Arc<MetaOf<K>>> {
        let Some(table) = self.table(&key.namespace) else {
            return Presence::Unknown(format!(
                "the operator has no right to read in namespace {}: add it to secretNamespaces",
                key.namespace
            ));
        };
        match table.get(&key.namespace, &key.name) {
            Some(found) => Presence::Present(found),
            None if table.synced() => Presence::Absent,
            None => Presence::Unknown(format!("namespace {} was not listed yet", key.namespace)),
        }
    }

    /// `(namespace or all, table)`.
    pub fn each(&self) -> Vec<(Option<String>, Table<MetaOf<K>>)> {
        match self {
            Scoped::Cluster(table) => vec![(None, table.clone())],
            Scoped::Namespaces(tables) => tables
                .iter()
                .map(|(namespace, table)| (Some(namespace.clone()), table.clone()))
                .collect(),
        }
    }

    pub fn synced(&self) -> bool {
        match self {
            Scoped::Cluster(table) => table.synced(),
            Scoped::Namespaces(tables) => tables.values().all(Table::synced),
        }
    }
}
