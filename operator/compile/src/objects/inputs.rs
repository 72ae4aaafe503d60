//! Everything that a compilation depends on, as one value.
//!
//! Secret *values* are not part of it: only a Secret's label, its hosts and the names of its keys
//! are. An absent object and an unreadable one are different answers ([`Presence`]), because a
//! cache that is half filled after a restart must not look like a revocation. Inputs of a cluster can be built only with a
//! [`SyncProof`] witness.

use crate::{ConfigMapFacts, Presence, SecretFacts, ServiceFacts};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use kube::ResourceExt;
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use crate::objects::agent_selector::{AgentLabel, grant_labels};
use crate::objects::grants::Grants;
use crate::objects::{List, Unusable};
use crate::reference::surface_key;
use crate::{Code, Kind, ObjectRef, Objects, Settings, Subject};

/// Proof that every store whose absence means something was filled before `Inputs` is
/// built from them: an empty store after a restart must not revoke the fleet.
#[derive(Clone, Copy, Debug)]
pub struct SyncProof(());

impl SyncProof {
    /// Kinds whose stores must be filled. Secrets and ConfigMaps are excluded: their stores are per
    /// namespace, and an unsynced one makes its references Unknown.
    pub const KINDS: [Kind; 7] = [
        Kind::Surface,
        Kind::Agent,
        Kind::ToolGrant,
        Kind::ToolDefaults,
        Kind::ModelProvider,
        Kind::ClusterToolPolicy,
        Kind::Service,
    ];

    /// Returns the witness, or the kinds that are still missing.
    pub fn check(filled: &BTreeSet<Kind>) -> Result<Self, Vec<Kind>> {
        let missing: Vec<Kind> = Self::KINDS
            .into_iter()
            .filter(|kind| !filled.contains(kind))
            .collect();
        if missing.is_empty() {
            Ok(Self(()))
        } else {
            Err(missing)
        }
    }
}

/// The answer for a Secret, ConfigMap or Namespace that was never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnlistedAnswer {
    /// Offline: the files are all there is.
    Absent,
    /// Online: the object has not been read yet.
    Unknown,
}

/// Everything that compile reads. Cheap to clone: objects are shared.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub(crate) settings: Settings,
    pub(crate) surfaces: BTreeMap<ObjectRef, Arc<Surface>>,
    pub(crate) agents: BTreeMap<ObjectRef, Arc<Agent>>,
    pub(crate) grants: Grants,
    pub(crate) defaults: BTreeMap<ObjectRef, Arc<ToolDefaults>>,
    pub(crate) providers: BTreeMap<ObjectRef, Arc<ModelProvider>>,
    policies: BTreeMap<ObjectRef, Arc<ClusterToolPolicy>>,
    services: BTreeMap<ObjectRef, Arc<ServiceFacts>>,
    secrets: BTreeMap<ObjectRef, Presence<Arc<SecretFacts>>>,
    config_maps: BTreeMap<ObjectRef, ConfigMapFacts>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    undecodable: BTreeMap<(Kind, ObjectRef), String>,
    /// Objects over a memory budget, and why.
    too_expensive: BTreeMap<(Kind, ObjectRef), String>,
    unlisted: UnlistedAnswer,
}

impl Inputs {
    /// Creates the inputs of a cluster. A Secret, ConfigMap or Namespace that is never set is
    /// Unknown; an object of any other kind does not exist.
    pub fn online(_: SyncProof, settings: Settings) -> Self {
        Self::empty(settings, UnlistedAnswer::Unknown)
    }

    /// Creates the inputs of files: an object that is never set does not exist.
    pub fn offline(settings: Settings) -> Self {
        Self::empty(settings, UnlistedAnswer::Absent)
    }

    fn empty(settings: Settings, unlisted: UnlistedAnswer) -> Self {
        Self {
            settings,
            surfaces: BTreeMap::new(),
            agents: BTreeMap::new(),
            grants: Grants::default(),
            defaults: BTreeMap::new(),
            providers: BTreeMap::new(),
            policies: BTreeMap::new(),
            services: BTreeMap::new(),
            secrets: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            undecodable: BTreeMap::new(),
            too_expensive: BTreeMap::new(),
            unlisted,
        }
    }

    pub fn set_surface(&mut self, object: Arc<Surface>) {
        self.surfaces.insert(key(&*object), object);
    }

    pub fn set_agent(&mut self, object: Arc<Agent>) {
        self.agents.insert(key(&*object), object);
    }

    pub fn set_grant(&mut self, object: Arc<ToolGrant>) {
        self.grants.insert(key(&*object), object);
    }

    /// Removes a grant, as if it were deleted.
    pub fn remove_grant(&mut self, grant: &ObjectRef) {
        self.grants.remove(grant);
    }

    pub fn set_defaults(&mut self, object: Arc<ToolDefaults>) {
        self.defaults.insert(key(&*object), object);
    }

    pub fn set_provider(&mut self, object: Arc<ModelProvider>) {
        self.providers.insert(key(&*object), object);
    }

    /// Adds a policy. One that is also set as undecodable or too expensive is in force in this form,
    /// the last one that could be read.
    pub fn set_policy(&mut self, object: Arc<ClusterToolPolicy>) {
        self.policies.insert(key(&*object), object);
    }

    pub fn set_service(&mut self, service: ObjectRef, facts: ServiceFacts) {
        self.services.insert(service, Arc::new(facts));
    }

    pub fn set_secret(&mut self, secret: ObjectRef, facts: Presence<SecretFacts>) {
        let facts = match facts {
            Presence::Present(facts) => Presence::Present(Arc::new(facts)),
            Presence::Absent => Presence::Absent,
            Presence::Unknown(why) => Presence::Unknown(why),
        };
        self.secrets.insert(secret, facts);
    }

    pub fn set_config_map(&mut self, config_map: ObjectRef, facts: impl Into<ConfigMapFacts>) {
        self.config_maps.insert(config_map, facts.into());
    }

    pub fn set_namespace(&mut self, name: String, labels: BTreeMap<String, String>) {
        self.namespaces.insert(name, labels);
    }

    /// Adds an object that cannot be decoded as its kind. It gives nothing, and objects that name
    /// it report why.
    pub fn set_undecodable(&mut self, kind: Kind, object: ObjectRef, reason: String) {
        self.undecodable.insert((kind, object), reason);
    }

    /// Adds an object over a memory budget. It gives nothing, like one that cannot be decoded; an
    /// Agent that is also set is compiled to nothing.
    pub fn set_too_expensive(&mut self, kind: Kind, object: ObjectRef, reason: String) {
        self.too_expensive.insert((kind, object), reason);
    }

    /// Adds an object of Toolcrib's kinds that no API server would accept. It gives nothing, and
    /// objects that name it report why.
    pub fn refuse(&mut self, kind: Kind, object: ObjectRef, reason: String) {
        match kind {
            Kind::Surface => drop(self.surfaces.remove(&object)),
            Kind::Agent => drop(self.agents.remove(&object)),
            Kind::ToolGrant => self.grants.remove(&object),
            Kind::ToolDefaults => drop(self.defaults.remove(&object)),
            Kind::ModelProvider => drop(self.providers.remove(&object)),
            Kind::ClusterToolPolicy => drop(self.policies.remove(&object)),
            Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => {}
        }
        self.set_undecodable(kind, object, reason);
    }

    /// Lays `files` over these inputs, as `kubectl apply` does: an object of the files replaces its
    /// namesake or is added; all others stay.
    pub fn overlaid(&self, files: &Self) -> Self {
        let mut all = self.clone();
        for (kind, key) in files.undecodable.keys().chain(files.too_expensive.keys()) {
            match kind {
                Kind::Surface => drop(all.surfaces.remove(key)),
                Kind::Agent => drop(all.agents.remove(key)),
                Kind::ToolGrant => all.grants.remove(key),
                Kind::ToolDefaults => drop(all.defaults.remove(key)),
                Kind::ModelProvider => drop(all.providers.remove(key)),
                Kind::ClusterToolPolicy => drop(all.policies.remove(key)),
                Kind::Service => drop(all.services.remove(key)),
                Kind::Secret => drop(all.secrets.remove(key)),
                Kind::ConfigMap => drop(all.config_maps.remove(key)),
                Kind::Namespace => drop(all.namespaces.remove(&key.name)),
            }
        }
        all.undecodable
            .retain(|(kind, key), _| !files.has(*kind, key));
        fn lay<K: Ord + Clone, V: Clone>(over: &mut BTreeMap<K, V>, files: &BTreeMap<K, V>) {
            over.extend(
                files
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        lay(&mut all.surfaces, &files.surfaces);
        lay(&mut all.agents, &files.agents);
        all.grants.extend(&files.grants);
        lay(&mut all.defaults, &files.defaults);
        lay(&mut all.providers, &files.providers);
        lay(&mut all.policies, &files.policies);
        lay(&mut all.services, &files.services);
        lay(&mut all.secrets, &files.secrets);
        lay(&mut all.config_maps, &files.config_maps);
        lay(&mut all.namespaces, &files.namespaces);
        lay(&mut all.undecodable, &files.undecodable);
        all.too_expensive
            .retain(|(kind, key), _| !files.has(*kind, key));
        lay(&mut all.too_expensive, &files.too_expensive);
        all
    }

    /// Removes the objects of Toolcrib's kinds in these namespaces, as if they were deleted.
    pub fn without_ours(&self, namespaces: &BTreeSet<String>) -> Self {
        let mut rest = self.clone();
        let stays = |key: &ObjectRef| !namespaces.contains(&key.namespace);
        rest.surfaces.retain(|key, _| stays(key));
        rest.agents.retain(|key, _| stays(key));
        rest.grants.retain(stays);
        rest.defaults.retain(|key, _| stays(key));
        rest.providers.retain(|key, _| stays(key));
        rest.policies.retain(|key, _| stays(key));
        rest.undecodable.retain(|(_, key), _| stays(key));
        rest.too_expensive.retain(|(_, key), _| stays(key));
        rest
    }

    /// Returns whether there is no object of Toolcrib's kinds, not even an undecodable one.
    pub fn is_without_ours(&self) -> bool {
        self.surfaces.is_empty()
            && self.agents.is_empty()
            && self.grants.iter().next().is_none()
            && self.defaults.is_empty()
            && self.providers.is_empty()
            && self.policies.is_empty()
            && self.undecodable.is_empty()
            && self.too_expensive.is_empty()
    }

    /// The objects of Toolcrib's kinds that can be compiled or checked.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> {
        let agents = self.agents.keys().map(|key| (Kind::Agent, key));
        let surfaces = self.surfaces.keys().map(|key| (Kind::Surface, key));
        let grants = self.grants.iter().map(|(key, _)| (Kind::ToolGrant, key));
        let defaults = self.defaults.keys().map(|key| (Kind::ToolDefaults, key));
        let providers = self.providers.keys().map(|key| (Kind::ModelProvider, key));
        let ours = agents.chain(surfaces).chain(grants);
        let policies = self
            .policies
            .keys()
            .map(|key| (Kind::ClusterToolPolicy, key));
        let all = ours.chain(defaults).chain(providers).chain(policies);
        all.map(|(kind, key)| Subject::new(kind, key))
    }

    /// Returns whether a Secret was set, present, absent or unknown.
    pub fn knows_secret(&self, secret: &ObjectRef) -> bool {
        self.secrets.contains_key(secret)
    }

    fn has(&self, kind: Kind, key: &ObjectRef) -> bool {
        match kind {
            Kind::Surface => self.surfaces.contains_key(key),
            Kind::Agent => self.agents.contains_key(key),
            Kind::ToolGrant => self.grants.contains_key(key),
            Kind::ToolDefaults => self.defaults.contains_key(key),
            Kind::ModelProvider => self.providers.contains_key(key),
            Kind::ClusterToolPolicy => self.policies.contains_key(key),
            Kind::Service => self.services.contains_key(key),
            Kind::Secret => self.secrets.contains_key(key),
            Kind::ConfigMap => self.config_maps.contains_key(key),
            Kind::Namespace => self.namespaces.contains_key(&key.name),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn agents(&self) -> impl Iterator<Item = (&ObjectRef, &Agent)> {
        self.agents.iter().map(|(key, agent)| (key, &**agent))
    }

    pub fn surfaces(&self) -> impl Iterator<Item = (&ObjectRef, &Surface)> {
        self.surfaces.iter().map(|(key, surface)| (key, &**surface))
    }

    pub fn grants(&self) -> impl Iterator<Item = (&ObjectRef, &ToolGrant)> {
        self.grants.iter()
    }

    pub fn defaults(&self) -> impl Iterator<Item = (&ObjectRef, &ToolDefaults)> {
        self.defaults
            .iter()
            .map(|(key, defaults)| (key, &**defaults))
    }

    pub fn providers(&self) -> impl Iterator<Item = (&ObjectRef, &ModelProvider)> {
        self.providers
            .iter()
            .map(|(key, provider)| (key, &**provider))
    }

    pub fn policies(&self) -> impl Iterator<Item = (&ObjectRef, &ClusterToolPolicy)> {
        self.policies.iter().map(|(key, policy)| (key, &**policy))
    }

    /// Returns the objects that exist and give nothing, and why.
    pub fn undecodable(&self) -> impl Iterator<Item = (Kind, &ObjectRef, &str)> {
        self.undecodable
            .iter()
            .chain(&self.too_expensive)
            .map(|((kind, object), reason)| (*kind, object, reason.as_str()))
    }

    /// Returns the Secrets that were read, or could not be.
    pub fn secrets(&self) -> impl Iterator<Item = (&ObjectRef, &Presence<Arc<SecretFacts>>)> {
        self.secrets.iter()
    }

    pub fn services(&self) -> impl Iterator<Item = (&ObjectRef, &ServiceFacts)> {
        self.services.iter().map(|(key, facts)| (key, &**facts))
    }
}

impl Objects for Inputs {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn agent(&self, key: &ObjectRef) -> Option<Arc<Agent>> {
        self.agents.get(key).cloned()
    }

    fn surface(&self, key: &ObjectRef) -> Option<Arc<Surface>> {
        self.surfaces.get(key).cloned()
    }

    fn grant(&self, key: &ObjectRef) -> Option<Arc<ToolGrant>> {
        self.grants.get(key).cloned()
    }

    fn defaults(&self, key: &ObjectRef) -> Option<Arc<ToolDefaults>> {
        self.defaults.get(key).cloned()
    }

    fn provider(&self, key: &ObjectRef) -> Option<Arc<ModelProvider>> {
        self.providers.get(key).cloned()
    }

    fn unusable(&self, kind: Kind, key: &ObjectRef) -> Option<Unusable> {
        let key = (kind, key.clone());
        let because = |code| {
            move |reason: &String| Unusable {
                code,
                reason: reason.clone(),
            }
        };
        let undecodable = self.undecodable.get(&key).map(because(Code::Undecodable));
        undecodable.or_else(|| {
            self.too_expensive
                .get(&key)
                .map(because(Code::TooExpensive))
        })
    }

    fn service(&self, key: &ObjectRef) -> Option<Arc<ServiceFacts>> {
        self.services.get(key).cloned()
    }

    fn service_at(&self, address: IpAddr) -> Option<ObjectRef> {
        let mut services = self.services.iter();
        let (service, _) = services.find(|(_, facts)| facts.addresses.contains(&address))?;
        Some(service.clone())
    }

    fn secret(&self, key: &ObjectRef) -> Presence<Arc<SecretFacts>> {
        match (self.secrets.get(key), self.unlisted) {
            (Some(presence), _) => presence.clone(),
            (None, UnlistedAnswer::Absent) => Presence::Absent,
            (None, UnlistedAnswer::Unknown) => {
                Presence::Unknown("Secret was not read yet".to_owned())
            }
        }
    }

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts {
        match (self.config_maps.get(key), self.unlisted) {
            (Some(facts), _) => facts.clone(),
            (None, UnlistedAnswer::Absent) => ConfigMapFacts::Absent,
            (None, UnlistedAnswer::Unknown) => {
                ConfigMapFacts::Unknown("ConfigMap was not read yet".to_owned())
            }
        }
    }

    fn namespace_labels(&self, name: &str) -> Option<BTreeMap<String, String>> {
        match (self.namespaces.get(name), self.unlisted) {
            (Some(labels), _) => Some(labels.clone()),
            (None, UnlistedAnswer::Absent) => Some(BTreeMap::new()),
            (None, UnlistedAnswer::Unknown) => None,
        }
    }

    fn grants_for(&self, agent: &ObjectRef) -> List<ToolGrant> {
        self.grants.naming(agent)
    }

    fn grants_selecting(&self, label: &AgentLabel) -> List<ToolGrant> {
        self.grants.selecting(label)
    }

    fn agents_labelled(&self, label: &AgentLabel) -> List<Agent> {
        let has = |agent: &Agent| {
            let mut labels = grant_labels(agent.metadata.labels.as_ref());
            labels.any(|(name, value)| {
                *name == label.name && label.value.as_ref().is_none_or(|it| it == value)
            })
        };
        let here = in_namespace(&self.agents, &label.namespace);
        here.filter(|(_, agent)| has(agent))
            .map(|(key, agent)| (key.clone(), Arc::clone(agent)))
            .collect()
    }

    fn agents_using(&self, surface: &ObjectRef) -> List<Agent> {
        let names = |key: &ObjectRef, agent: &Agent| {
            let mut entries = agent.spec.surfaces.iter();
            entries.any(|entry| surface_key(key, entry) == *surface)
        };
        let agents = self.agents.iter().filter(|(key, agent)| names(key, agent));
        agents
            .map(|(key, agent)| (key.clone(), Arc::clone(agent)))
            .collect()
    }

    fn agents_in(&self, namespace: &str) -> List<Agent> {
        in_namespace(&self.agents, namespace)
            .map(|(key, agent)| (key.clone(), Arc::clone(agent)))
            .collect()
    }

    fn providers_in(&self, namespace: &str) -> List<ModelProvider> {
        in_namespace(&self.providers, namespace)
            .map(|(key, provider)| (key.clone(), Arc::clone(provider)))
            .collect()
    }

    fn all_agents(&self) -> Vec<ObjectRef> {
        self.agents.keys().cloned().collect()
    }

    fn policies(&self) -> List<ClusterToolPolicy> {
        let all = self.policies.iter();
        all.map(|(key, policy)| (key.clone(), Arc::clone(policy)))
            .collect()
    }

    fn unreadable_policies(&self) -> Vec<(ObjectRef, String)> {
        let all = self.undecodable.iter().chain(&self.too_expensive);
        let unread = all.filter(|((kind, key), _)| {
            *kind == Kind::ClusterToolPolicy && !self.policies.contains_key(key)
        });
        let unread = unread.map(|((_, key), why)| (key.clone(), why.clone()));
        let unread: BTreeMap<ObjectRef, String> = unread.collect();
        unread.into_iter().collect()
    }

    fn names_in(&self, kind: Kind, namespace: &str) -> Vec<String> {
        fn names<T>(map: &BTreeMap<ObjectRef, Arc<T>>, namespace: &str) -> Vec<String> {
            let here = in_namespace(map, namespace);
            here.map(|(key, _)| key.name.clone()).collect()
        }
        match kind {
            Kind::Agent => names(&self.agents, namespace),
            Kind::Surface => names(&self.surfaces, namespace),
            Kind::ToolGrant
            | Kind::ToolDefaults
            | Kind::ModelProvider
            | Kind::ClusterToolPolicy
            | Kind::Service
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::Namespace => Vec::new(),
        }
    }
}

fn key(object: &impl ResourceExt) -> ObjectRef {
    ObjectRef::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// Returns the entries of one namespace: a range, so that other namespaces cost nothing.
fn in_namespace<'a, T>(
    map: &'a BTreeMap<ObjectRef, Arc<T>>,
    namespace: &str,
) -> impl Iterator<Item = (&'a ObjectRef, &'a Arc<T>)> {
    let namespace = namespace.to_owned();
    map.range((
        Bound::Included(ObjectRef::new(namespace.clone(), "")),
        Bound::Unbounded,
    ))
    .take_while(move |(key, _)| key.namespace == namespace)
}
