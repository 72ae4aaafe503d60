//! The stores of all kinds, and the kinds that are not listed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::GetParams;
use kube::core::response::reason;
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use toolcrib_bounds::NAMESPACE_WEIGHT;
use toolcrib_compile::{Key, Keys, Kind, ObjectRef, Presence, SyncProof, policy_matches};
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::budget::Budget;
use super::decode::{DecodedObject, MetaOf};
use super::metadata::ObjectMetadata;
use super::store::{Change, Store, StoreObject};

/// Namespaces in which the operator may read and write Secrets and ConfigMaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretScope {
    Cluster,
    Namespaces(BTreeSet<String>),
}

impl SecretScope {
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            SecretScope::Cluster => true,
            SecretScope::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Stores {
    /// The memory that bodies of objects may take, per namespace and in total.
    pub budget: Arc<Budget>,
    pub surfaces: Store<DecodedObject<Surface>>,
    pub agents: Store<DecodedObject<Agent>>,
    pub grants: Store<DecodedObject<ToolGrant>>,
    pub defaults: Store<DecodedObject<ToolDefaults>>,
    pub providers: Store<DecodedObject<ModelProvider>>,
    pub policies: Store<DecodedObject<ClusterToolPolicy>>,
    /// Each policy as it was last read, by name.
    last_policies: Arc<Mutex<BTreeMap<String, Arc<ClusterToolPolicy>>>>,
    pub services: Store<DecodedObject<Service>>,
    pub namespaces: Store<MetaOf<Namespace>>,
    pub pods: Store<ObjectMetadata<Pod>>,
    pub secrets: ScopedStore<Secret>,
    pub config_maps: ScopedStore<ConfigMap>,
    pub network_policies: ScopedStore<NetworkPolicy>,
}

impl Stores {
    /// Empty stores; all objects together may take `budget` bytes.
    pub fn new(scope: &SecretScope, budget: usize) -> Self {
        Self {
            budget: Arc::new(Budget::new(NAMESPACE_WEIGHT, budget)),
            surfaces: Store::default(),
            agents: Store::with_lists(lists),
            grants: Store::with_lists(lists),
            defaults: Store::default(),
            providers: Store::default(),
            policies: Store::default(),
            last_policies: Arc::default(),
            services: Store::with_lists(lists),
            namespaces: Store::default(),
            pods: Store::default(),
            secrets: ScopedStore::new(scope),
            config_maps: ScopedStore::new(scope),
            network_policies: ScopedStore::new(scope),
        }
    }

    /// The proof of synced stores that compile requires. It requires Namespaces and Pods as well: an
    /// unknown namespace's labels match no selector, which would withdraw consent.
    pub fn synced(&self) -> Option<SyncProof> {
        if !self.namespaces.synced() || !self.pods.synced() {
            return None;
        }
        SyncProof::check(&self.filled()).ok()
    }

    fn filled(&self) -> BTreeSet<Kind> {
        [
            (Kind::Surface, self.surfaces.synced()),
            (Kind::Agent, self.agents.synced()),
            (Kind::ToolGrant, self.grants.synced()),
            (Kind::ToolDefaults, self.defaults.synced()),
            (Kind::ModelProvider, self.providers.synced()),
            (Kind::ClusterToolPolicy, self.policies.synced()),
            (Kind::Service, self.services.synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| synced.then_some(kind))
        .collect()
    }

    /// Stores the new version of a policy that can be read, and forgets a deleted policy.
    pub fn remember(&self, change: &Change<DecodedObject<ClusterToolPolicy>>) {
        let mut last = self.last_policies.lock();
        if change.is_end() {
            last.remove(&change.name);
        }
        if let Some(Ok(policy)) = change.new.as_ref().map(|new| &new.object) {
            last.insert(change.name.clone(), Arc::clone(policy));
        }
    }

    /// The version of a policy that is in force: the current one, or the last that could be read.
    pub fn policy_in_force(
        &self,
        stored: &DecodedObject<ClusterToolPolicy>,
    ) -> Option<Arc<ClusterToolPolicy>> {
        let Ok(policy) = &stored.object else {
            let last = self.last_policies.lock();
            let last = last.get(stored.id().name)?;
            return (last.id().uid == stored.id().uid).then(|| Arc::clone(last));
        };
        Some(Arc::clone(policy))
    }

    /// Whether a policy suspends an agent.
    pub fn is_suspended_by_policy(&self, agent: &ObjectRef) -> bool {
        let policies = self.policies.all();
        let mut policies = policies.iter().filter_map(|it| self.policy_in_force(it));
        policies.any(|policy| policy.spec.is_suspending() && self.is_matched(&policy, agent))
    }

    /// Whether a policy matches an agent.
    pub fn is_matched(&self, policy: &ClusterToolPolicy, agent: &ObjectRef) -> bool {
        policy_matches(&policy.spec, agent, || {
            let namespace = self.namespaces.get("", &agent.namespace)?;
            Some(namespace.meta().labels.clone().unwrap_or_default())
        })
    }

    /// The names of the kinds that are not listed yet, for `/readyz`.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut missing: Vec<&'static str> = SyncProof::check(&self.filled())
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

/// The keys of an object that depend on its content.
fn lists<K: Keys>(object: &DecodedObject<K>) -> BTreeSet<Key> {
    let object = object.object.as_ref().ok();
    let mut keys = object.map(|object| object.keys()).unwrap_or_default();
    keys.retain(|key| match key {
        Key::GrantsFor(_)
        | Key::GrantsSelecting(_)
        | Key::AgentsLabelled(_)
        | Key::AgentsUsing(_)
        | Key::ServiceAt(_) => true,
        Key::Object(..) | Key::In(..) | Key::AllAgents => false,
    });
    keys
}

/// Metadata of Secrets, ConfigMaps or NetworkPolicies in the namespaces that the operator may read.
#[derive(Debug)]
pub enum ScopedStore<K> {
    Cluster(Store<ObjectMetadata<K>>),
    Namespaces(BTreeMap<String, Store<ObjectMetadata<K>>>),
}

impl<K> Clone for ScopedStore<K> {
    fn clone(&self) -> Self {
        match self {
            ScopedStore::Cluster(store) => ScopedStore::Cluster(store.clone()),
            ScopedStore::Namespaces(stores) => ScopedStore::Namespaces(stores.clone()),
        }
    }
}

/// The identity of one version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub uid: String,
    pub resource_version: String,
}

impl Version {
    pub fn of(object: &impl StoreObject) -> Option<Self> {
        let id = object.id();
        Some(Self {
            uid: id.uid?.to_owned(),
            resource_version: id.version?.to_owned(),
        })
    }

    /// Reads an object of which this version is known: this version or a later one; `None` if it was
    /// deleted.
    ///
    /// The API server answers from its cache, and not from etcd as it does for the newest version. A
    /// server whose cache has not reached this version waits 3 s and answers 504; then the newest is
    /// read.
    pub async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let known = GetParams::at(&self.resource_version);
        match api.get_with(name, &known).await {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(kube::Error::Api(status)) if status.reason == reason::TIMEOUT => {
                api.get_opt(name).await
            }
            Err(error) => Err(error),
        }
    }
}

/// The advice for a namespace that the operator may not read.
const WIDEN: &str = "add it to the chart's value secretNamespaces (`helm get notes toolcrib -n toolcrib-system` shows the command)";

impl<K: Resource<DynamicType = ()>> ScopedStore<K> {
    pub fn new(scope: &SecretScope) -> Self {
        match scope {
            SecretScope::Cluster => ScopedStore::Cluster(Store::default()),
            SecretScope::Namespaces(names) => ScopedStore::Namespaces(
                names
                    .iter()
                    .map(|name| (name.clone(), Store::default()))
                    .collect(),
            ),
        }
    }

    fn store(&self, namespace: &str) -> Option<&Store<ObjectMetadata<K>>> {
        match self {
            ScopedStore::Cluster(store) => Some(store),
            ScopedStore::Namespaces(stores) => stores.get(namespace),
        }
    }

    /// Looks an object up: present, certainly absent, or unknown because the operator cannot list it.
    pub fn look_up(&self, key: &ObjectRef) -> Presence<std::sync::Arc<ObjectMetadata<K>>> {
        let Some(store) = self.store(&key.namespace) else {
            return Presence::Unknown(format!(
                "the operator has no right to read in namespace {}: {WIDEN}",
                key.namespace
            ));
        };
        match store.get(&key.namespace, &key.name) {
            Some(found) => Presence::Present(found),
            None if store.synced() => Presence::Absent,
            None => Presence::Unknown(match store.forbidden() {
                Some(why) => format!("the operator may not list this kind: {why}"),
                None => format!("namespace {} is not listed yet", key.namespace),
            }),
        }
    }

    /// Whether the first list of the namespace is still pending.
    pub fn is_listing(&self, namespace: &str) -> bool {
        self.store(namespace).is_some_and(Store::is_listing)
    }

    /// Each store with its namespace; `None` for all namespaces.
    pub fn each(&self) -> Vec<(Option<String>, Store<ObjectMetadata<K>>)> {
        match self {
            ScopedStore::Cluster(store) => vec![(None, store.clone())],
            ScopedStore::Namespaces(stores) => stores
                .iter()
                .map(|(namespace, store)| (Some(namespace.clone()), store.clone()))
                .collect(),
        }
    }

    /// Whether every namespace is listed or forbidden.
    pub fn settled(&self) -> bool {
        self.each().iter().all(|(_, store)| !store.is_listing())
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kube::client::Body;
    use kube_runtime::watcher::Event;
    use toolcrib_compile::Presence::{Absent, Present, Unknown};

    use super::super::store::StoreWriter;
    use super::*;

    fn keys(namespace: &str) -> ObjectRef {
        ObjectRef::new(namespace, "keys")
    }

    /// An API server that answers each request for an object with this; and the queries of the
    /// requests.
    fn server(answers: Vec<serde_json::Value>) -> (Api<ConfigMap>, Arc<Mutex<Vec<String>>>) {
        let queries: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&queries);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let mut seen = seen.lock();
            let answer = &answers[seen.len()];
            let query = request.uri().query().unwrap_or_default();
            seen.push(query.trim_start_matches('&').to_owned());
            let code = answer["code"].as_u64().unwrap_or(200);
            let answer = http::Response::builder()
                .status(u16::try_from(code).expect("a status"))
                .body(Body::from(answer.to_string().into_bytes()));
            async move { answer }
        });
        (
            Api::namespaced(Client::new(service, "pond"), "pond"),
            queries,
        )
    }

    #[tokio::test]
    async fn a_known_object_is_read_from_the_cache_unless_that_is_behind() {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "keys", "resourceVersion": "43"}});
        let failure = |reason: &str, code: u16| {
            serde_json::json!({"apiVersion": "v1", "kind": "Status", "status": "Failure",
                "message": "no", "reason": reason, "code": code})
        };
        let known = Version {
            uid: "u".to_owned(),
            resource_version: "42".to_owned(),
        };
        for (answers, found, asked) in [
            (vec![object.clone()], true, vec!["resourceVersion=42"]),
            (
                vec![failure("NotFound", 404)],
                false,
                vec!["resourceVersion=42"],
            ),
            (
                vec![failure("Timeout", 504), object],
                true,
                vec!["resourceVersion=42", ""],
            ),
        ] {
            let (api, queries) = server(answers);
            let read = known.read(&api, "keys").await.expect("an answer");
            assert_eq!(read.is_some(), found);
            assert_eq!(*queries.lock(), asked);
        }
    }

    #[test]
    fn an_index_follows_the_current_content_of_its_objects() {
        let stores = Stores::new(&SecretScope::Cluster, usize::MAX);
        let mut writer = StoreWriter::new(stores.grants.clone());
        let grant = |name: &str, version: &str, agent: &str| {
            let grant = serde_json::json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
                "metadata": {"name": name, "namespace": "pond", "resourceVersion": version},
                "spec": {"agents": [agent]},
            });
            serde_json::from_value::<DecodedObject<ToolGrant>>(grant).expect("a grant")
        };
        let named = |agent: &str| {
            let list = Key::GrantsFor(ObjectRef::new("pond", agent));
            let found = stores.grants.find(&list);
            let names = found.iter().map(|grant| grant.id().name.to_owned());
            names.collect::<BTreeSet<String>>()
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        writer.apply(Event::Apply(grant("reads", "1", "otter")));
        writer.apply(Event::Apply(grant("writes", "1", "otter")));
        assert_eq!(named("otter"), names(&["reads", "writes"]));
        writer.apply(Event::Apply(grant("reads", "2", "newt")));
        assert_eq!(
            (named("otter"), named("newt")),
            (names(&["writes"]), names(&["reads"]))
        );
        writer.apply(Event::Delete(grant("writes", "2", "otter")));
        assert_eq!(
            (named("otter"), named("newt")),
            (names(&[]), names(&["reads"]))
        );
        for event in [
            Event::Init,
            Event::InitApply(grant("all", "1", "otter")),
            Event::InitDone,
        ] {
            writer.apply(event);
        }
        assert_eq!(
            (named("otter"), named("newt")),
            (names(&["all"]), names(&[]))
        );
    }

    #[track_caller]
    fn check(store: &ScopedStore<Secret>, namespace: &str, expected: Presence<()>) {
        let found = match store.look_up(&keys(namespace)) {
            Present(_) => Present(()),
            Absent => Absent,
            Unknown(why) => Unknown(why),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn pending_and_forbidden_lists_differ() {
        let scope = SecretScope::Namespaces(["pond".to_owned()].into());
        let store: ScopedStore<Secret> = ScopedStore::new(&scope);
        let (_, pond) = store.each().remove(0);
        let mut writer = StoreWriter::new(pond);
        let unknown = |why: &str| Unknown(why.to_owned());

        check(
            &store,
            "reef",
            unknown(
                "the operator has no right to read in namespace reef: add it to the chart's value secretNamespaces (`helm get notes toolcrib -n toolcrib-system` shows the command)",
            ),
        );
        assert!(!store.is_listing("reef"), "no list is pending");

        check(&store, "pond", unknown("namespace pond is not listed yet"));
        assert!(store.is_listing("pond") && !store.settled());

        writer.forbidden("secrets is forbidden".to_owned());
        check(
            &store,
            "pond",
            unknown("the operator may not list this kind: secrets is forbidden"),
        );
        assert!(!store.is_listing("pond") && store.settled());

        for event in [Event::Init, Event::InitDone] {
            writer.apply(event);
        }
        check(&store, "pond", Absent);
        // The list stays known if the right is withdrawn later.
        writer.forbidden("secrets is forbidden".to_owned());
        check(&store, "pond", Absent);
        assert!(store.settled());
    }
}
