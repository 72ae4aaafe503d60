//! Reads the objects that are compiled together with a changed object, on demand.
//!
//! Here: deciding which objects matter to a change, and reading only these. Not here: the
//! comparison. The webhook keeps Agents only: a store of every kind would take as much memory as
//! the controller in each replica, for rare changes; and a read is never stale.
//!
//! Invariant: reads are bounded. Over a bound, or after the timeout, nothing is compared: in an
//! incomplete comparison, an object that was not read would look like a lost tool. Secrets and
//! ConfigMaps are not read, since the webhook has no right to them; their content is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::Semaphore;
use toolcrib_compile::{
    Fetch, Inputs, Key, Keys as _, Kind, ObjectRef, OverBound, ServiceFacts, Settings, Subject,
    SyncProof, policy_matches,
};
use toolcrib_crds::{ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::agents::Agents;
use super::object::Object;
use crate::objects::decode::{DecodedObject, KindWithStatus, note_undecodable};
use crate::objects::pages;
use crate::objects::store::BudgetedObject as _;

/// Limit of the agents that are compared. `kubectl toolcrib plan` has time to compare a surface
/// that a whole cluster uses.
pub const MOST_AGENTS: usize = 50;
/// Limit of namespaces. Each costs a list of its grants and a list of its providers.
const MOST_NAMESPACES: usize = 8;
/// Limit of surfaces, which are read one by one.
const MOST_SURFACES: usize = 64;
/// Limit of the objects and lists that the compilations ask for. Each is read at most once.
const MOST_KEYS: usize = 2_000;
/// Limit of the objects of a list, which is one page. Larger namespaces are left to the CLI.
const MOST_LISTED: u32 = 500;
/// Limit of the reads that run at the same time for one change.
const AT_A_TIME: usize = 8;
/// Limit of the estimated memory of all objects that are read, in bytes.
const MOST_WEIGHT: usize = 16 * 1024 * 1024;
/// Limits the changes that are compared at the same time; others wait.
static TURNS: Semaphore = Semaphore::const_new(4);

#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("over {most} {what}")]
    TooMany { what: &'static str, most: usize },
    #[error("the webhook has just started")]
    NotSynced,
    #[error("it took too long")]
    TooSlow,
    #[error("the API server did not answer")]
    Api(#[source] Box<kube::Error>),
    #[error("the comparison panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

impl From<OverBound> for Unavailable {
    fn from(OverBound { what, most }: OverBound) -> Self {
        Unavailable::TooMany { what, most }
    }
}

impl From<kube::Error> for Unavailable {
    fn from(error: kube::Error) -> Self {
        Unavailable::Api(Box::new(error))
    }
}

/// All inputs of a comparison except the object that changes.
#[derive(Debug)]
pub struct RelatedObjects {
    /// The agents whose compilation may change.
    pub affected: BTreeSet<ObjectRef>,
    inputs: Inputs,
}

impl RelatedObjects {
    /// Returns these inputs with no affected agent.
    pub fn only(inputs: Inputs) -> Self {
        Self {
            affected: BTreeSet::new(),
            inputs,
        }
    }

    /// Returns the inputs with this version of the object that changes, or without it (`None`).
    pub fn with(&self, object: Option<&Object>) -> Inputs {
        let mut inputs = self.inputs.clone();
        if let Some(object) = object {
            object.put(&mut inputs);
        }
        inputs
    }

    /// Returns the inputs in which the object that changes is left out for lack of memory.
    pub fn without(&self, kind: Kind, key: &ObjectRef, reason: &str) -> Inputs {
        let mut inputs = self.inputs.clone();
        inputs.set_too_expensive(kind, key.clone(), reason.to_owned());
        inputs
    }

    /// Returns the inputs before the change, as the controller has them: an object that is left out
    /// for lack of memory grants nothing.
    pub fn before(&self, changed: &Subject, old: Option<&Object>) -> Inputs {
        match old.and_then(Object::left_out) {
            Some(reason) => self.without(changed.kind, &changed.key, reason),
            None => self.with(old),
        }
    }
}

/// Reads the objects that matter to a change of an object from `old` to `new`.
pub async fn read_related(
    client: &Client,
    agents: &Agents,
    settings: &Settings,
    Subject { kind, key }: &Subject,
    old: Option<&Object>,
    new: Option<&Object>,
) -> Result<RelatedObjects, Unavailable> {
    if !agents.synced() {
        return Err(Unavailable::NotSynced);
    }
    // The semaphore is never closed.
    let mut turn = TURNS.acquire().await;
    let versions = [old.cloned(), new.cloned()];
    let affected = affected(agents, *kind, key, &versions);
    bound(affected.len(), MOST_AGENTS, "agents are affected")?;
    let mut namespaces: BTreeSet<&str> = affected.iter().map(|it| &*it.namespace).collect();
    namespaces.insert(&key.namespace);
    bound(namespaces.len(), MOST_NAMESPACES, "namespaces are affected")?;
    // Any failed read ends the comparison, so an object of these kinds that is missing in the inputs
    // does not exist.
    let synced = SyncProof::check(&SyncProof::KINDS.into()).expect("the list contains every kind");
    let mut reader = Reader {
        client: pages::bounded(client),
        agents,
        changed: Subject::new(*kind, key),
        inputs: Inputs::online(synced, settings.clone()),
        listed: BTreeSet::new(),
        surfaces: 0,
        weight: 0,
    };
    for agent in &affected {
        reader.agent(agent);
    }
    let mut fetch = Fetch::new(MOST_KEYS);
    loop {
        let (changed, versions) = (reader.changed.clone(), versions.clone());
        let related = RelatedObjects {
            affected: affected.clone(),
            inputs: reader.inputs.clone(),
        };
        // Up to a hundred compilations must not delay other requests, so they run on a blocking
        // thread. They keep the permit even after the request has timed out.
        let looked = tokio::task::spawn_blocking(move || {
            let missing = missing_keys(&mut fetch, &related, &changed, &versions);
            (fetch, missing, turn)
        });
        let missing;
        (fetch, missing, turn) = looked.await.map_err(Unavailable::Panicked)?;
        let missing = missing?;
        if missing.is_empty() {
            break;
        }
        reader.read(missing).await?;
    }
    let inputs = reader.inputs;
    Ok(RelatedObjects { affected, inputs })
}

/// Returns the keys that a comparison of both versions looks up and that were not read yet.
fn missing_keys(
    fetch: &mut Fetch,
    related: &RelatedObjects,
    changed: &Subject,
    [old, new]: &[Option<Object>; 2],
) -> Result<BTreeSet<Key>, OverBound> {
    let sides = [
        related.before(changed, old.as_ref()),
        related.with(new.as_ref()),
    ];
    for (side, inputs) in sides.iter().enumerate() {
        for subject in inputs.subjects() {
            // Providers are compiled too, since a comparison names the reason why one cannot be
            // used.
            let is_compared = subject == *changed
                || subject.kind == Kind::ModelProvider
                || (subject.kind == Kind::Agent && related.affected.contains(&subject.key));
            if is_compared {
                fetch.evaluate(side, inputs, &subject);
            }
        }
    }
    fetch.missing()
}

fn bound(count: usize, most: usize, what: &'static str) -> Result<(), Unavailable> {
    if count > most {
        return Err(Unavailable::TooMany { what, most });
    }
    Ok(())
}

/// Returns the agents that get something through the object, in either version.
///
/// The webhook has no recorded keys to look up: it compiles no agent before it knows which ones are
/// affected, and compiling every Agent for one change would cost far more than this look at specs.
fn affected(
    agents: &Agents,
    kind: Kind,
    key: &ObjectRef,
    versions: &[Option<Object>],
) -> BTreeSet<ObjectRef> {
    match kind {
        Kind::Agent => BTreeSet::from([key.clone()]),
        Kind::ToolGrant => {
            let keys = versions.iter().flatten().flat_map(Object::keys);
            let (mut affected, mut labels) = (BTreeSet::new(), BTreeSet::new());
            for key in keys {
                match key {
                    Key::GrantsFor(agent) => drop(affected.insert(agent)),
                    Key::GrantsSelecting(label) => drop(labels.insert(label)),
                    Key::Object(..)
                    | Key::AgentsLabelled(_)
                    | Key::AgentsUsing(_)
                    | Key::In(..)
                    | Key::ServiceAt(_)
                    | Key::AllAgents => {}
                }
            }
            // Agents that have one of the labels, though maybe not all that the selector needs.
            let has = |key| matches!(key, Key::AgentsLabelled(label) if labels.contains(&label));
            if !labels.is_empty() {
                affected.extend(agents.select(|agent| agent.keys().into_iter().any(has)));
            }
            affected
        }
        Kind::ToolDefaults | Kind::ModelProvider => agents.of_namespace(&key.namespace),
        Kind::Surface => {
            let using = Key::AgentsUsing(key.clone());
            agents.select(|agent| agent.keys().contains(&using))
        }
        // Labels of namespaces are not read yet, so more agents may be compared than it matches.
        Kind::ClusterToolPolicy => agents.select(|agent| {
            let key = ObjectRef::new(agent.namespace().unwrap_or_default(), agent.name_any());
            versions.iter().flatten().any(|version| match version {
                Object::ClusterToolPolicy(policy) => policy_matches(&policy.spec, &key, || None),
                Object::Surface(_)
                | Object::Agent(_)
                | Object::ToolGrant(_)
                | Object::ToolDefaults(_)
                | Object::ModelProvider(_) => false,
            })
        }),
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => BTreeSet::new(),
    }
}

/// Reads keys from the API server, within the bounds above.
struct Reader<'a> {
    client: Client,
    agents: &'a Agents,
    /// The object that changes, which is never read.
    changed: Subject,
    inputs: Inputs,
    /// Lists that were read, by kind and namespace (empty: all namespaces).
    listed: BTreeSet<(Kind, String)>,
    surfaces: usize,
    weight: usize,
}

impl Reader<'_> {
    /// Reads the missing keys. The affected Agents are among the inputs already, so lists of Agents
    /// are not read.
    async fn read(&mut self, missing: BTreeSet<Key>) -> Result<(), Unavailable> {
        let mut wanted: BTreeMap<Kind, BTreeSet<ObjectRef>> = BTreeMap::new();
        for key in missing {
            match key {
                Key::Object(kind, key) => {
                    if !self.is_changed(kind, &key) {
                        wanted.entry(kind).or_default().insert(key);
                    }
                }
                Key::GrantsFor(agent) => self.grants(&agent.namespace).await?,
                Key::GrantsSelecting(label) => self.grants(&label.namespace).await?,
                Key::In(Kind::ModelProvider, namespace) => self.providers(&namespace).await?,
                Key::ServiceAt(_) => self.all_services().await?,
                Key::In(Kind::ClusterToolPolicy, _) => self.policies().await?,
                Key::In(..) | Key::AgentsLabelled(_) | Key::AgentsUsing(_) | Key::AllAgents => {}
            }
        }
        for (kind, keys) in wanted {
            match kind {
                Kind::Agent => keys.iter().for_each(|key| self.agent(key)),
                Kind::Surface => {
                    self.surfaces += keys.len();
                    bound(self.surfaces, MOST_SURFACES, "surfaces are affected")?;
                    for (key, found) in self.get_all::<Surface>(keys).await? {
                        put(&mut self.inputs, kind, key, &found, Inputs::set_surface);
                    }
                }
                Kind::ToolDefaults => {
                    for (key, found) in self.get_all::<ToolDefaults>(keys).await? {
                        put(&mut self.inputs, kind, key, &found, Inputs::set_defaults);
                    }
                }
                Kind::Service => {
                    let found = self.get_all::<Service>(keys).await?;
                    self.set_services(found);
                }
                Kind::Namespace => self.namespaces(keys).await?,
                // Grants, providers and policies are read in lists.
                Kind::ToolGrant | Kind::ModelProvider | Kind::ClusterToolPolicy => {}
                // The webhook has no right to read them; their content is unknown.
                Kind::Secret | Kind::ConfigMap => {}
            }
        }
        Ok(())
    }

    fn is_changed(&self, kind: Kind, key: &ObjectRef) -> bool {
        (kind, key) == (self.changed.kind, &self.changed.key)
    }

    fn agent(&mut self, key: &ObjectRef) {
        if !self.is_changed(Kind::Agent, key)
            && let Some(found) = self.agents.get(key)
        {
            self.inputs.set_agent(Arc::new(found));
        }
    }

    async fn grants(&mut self, namespace: &str) -> Result<(), Unavailable> {
        let kind = Kind::ToolGrant;
        if !self.listed.insert((kind, namespace.to_owned())) {
            return Ok(());
        }
        let here = Api::namespaced(self.client.clone(), namespace);
        for (key, grant) in list::<ToolGrant>(here, "grants in a namespace").await? {
            if !self.is_changed(kind, &key) {
                put(&mut self.inputs, kind, key, &grant, Inputs::set_grant);
            }
        }
        Ok(())
    }

    async fn providers(&mut self, namespace: &str) -> Result<(), Unavailable> {
        let kind = Kind::ModelProvider;
        if !self.listed.insert((kind, namespace.to_owned())) {
            return Ok(());
        }
        let here = Api::namespaced(self.client.clone(), namespace);
        for (key, provider) in list::<ModelProvider>(here, "providers in a namespace").await? {
            if !self.is_changed(kind, &key) {
                put(&mut self.inputs, kind, key, &provider, Inputs::set_provider);
            }
        }
        Ok(())
    }

    async fn policies(&mut self) -> Result<(), Unavailable> {
        let kind = Kind::ClusterToolPolicy;
        if !self.listed.insert((kind, String::new())) {
            return Ok(());
        }
        let all = Api::all(self.client.clone());
        for (key, policy) in list::<ClusterToolPolicy>(all, "policies").await? {
            if !self.is_changed(kind, &key) {
                put(&mut self.inputs, kind, key, &policy, Inputs::set_policy);
            }
        }
        Ok(())
    }

    /// Reads all Services, since only a list shows which Service has an address. Few surfaces use
    /// addresses.
    async fn all_services(&mut self) -> Result<(), Unavailable> {
        if self.listed.insert((Kind::Service, String::new())) {
            let all = Api::all(self.client.clone());
            let mut found = list::<Service>(all, "services").await?;
            found.retain(|(_, service)| {
                let has = |it: &Arc<Service>| !ServiceFacts::addresses(it).is_empty();
                service.object.as_ref().is_ok_and(has)
            });
            self.set_services(found);
        }
        Ok(())
    }

    fn set_services(&mut self, found: Vec<(ObjectRef, DecodedObject<Service>)>) {
        for (key, service) in found {
            if let Ok(service) = &service.object {
                self.inputs
                    .set_service(key, ServiceFacts::from_object(service));
            }
        }
    }

    async fn namespaces(&mut self, keys: BTreeSet<ObjectRef>) -> Result<(), Unavailable> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        for key in keys {
            if let Some(found) = api.get_metadata_opt(&key.name).await? {
                let labels = found.labels().clone();
                self.inputs.set_namespace(key.name, labels);
            }
        }
        Ok(())
    }

    /// Reads the objects of these keys that exist.
    async fn get_all<K>(
        &mut self,
        keys: BTreeSet<ObjectRef>,
    ) -> Result<Vec<(ObjectRef, DecodedObject<K>)>, Unavailable>
    where
        K: KindWithStatus + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = &self.client;
        let mut found = futures::stream::iter(keys)
            .map(|key| async move {
                let api: Api<DecodedObject<K>> = Api::namespaced(client.clone(), &key.namespace);
                let found = api.get_opt(&key.name).await?;
                Ok::<_, kube::Error>(found.map(|object| (key, object)))
            })
            .buffer_unordered(AT_A_TIME);
        let mut all = Vec::new();
        while let Some(object) = found.try_next().await? {
            let Some((key, object)) = object else {
                continue;
            };
            self.weight = self.weight.saturating_add(object.weight());
            if self.weight > MOST_WEIGHT {
                let most = MOST_WEIGHT >> 20;
                let what = "MiB of objects are affected";
                return Err(Unavailable::TooMany { what, most });
            }
            all.push((key, object));
        }
        Ok(all)
    }
}

/// Puts an object into the inputs as the controller has it: without its body if it cannot be decoded
/// or is left out for lack of memory.
fn put<K: KindWithStatus>(
    inputs: &mut Inputs,
    kind: Kind,
    key: ObjectRef,
    found: &DecodedObject<K>,
    set: fn(&mut Inputs, Arc<K>),
) {
    match (&found.object, found.left_out()) {
        (Ok(_), Some(reason)) => inputs.set_too_expensive(kind, key, reason),
        (Ok(object), None) => set(inputs, Arc::clone(object)),
        (Err(why), _) => note_undecodable(inputs, kind, key, why),
    }
}

async fn list<K>(
    api: Api<DecodedObject<K>>,
    what: &'static str,
) -> Result<Vec<(ObjectRef, DecodedObject<K>)>, Unavailable>
where
    K: KindWithStatus,
{
    let page = api.list(&ListParams::default().limit(MOST_LISTED)).await?;
    if page
        .metadata
        .continue_
        .is_some_and(|token| !token.is_empty())
    {
        let most = MOST_LISTED as usize;
        return Err(Unavailable::TooMany { what, most });
    }
    Ok(page
        .items
        .into_iter()
        .map(|object| {
            let namespace = object.namespace().unwrap_or_default();
            (ObjectRef::new(namespace, object.name_any()), object)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_comparison_over_its_bound_of_keys_is_not_made() {
        let credential = |at: usize| json!({"agent": {"name": format!("heron-{at}")}, "secretKeyRef": {"name": format!("key-{at}"), "key": "token"}});
        let surface = |credentials: usize| {
            let own: Vec<_> = (0..credentials).map(credential).collect();
            let object = json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
                "metadata": {"name": "reed", "namespace": "pond"},
                "spec": {"url": "http://reed.example", "auth": {"type": "Bearer", "perAgent": own}},
            });
            Object::read(Kind::Surface, &object.to_string()).unwrap()
        };
        let changed = Subject::new(Kind::Surface, &ObjectRef::new("pond", "reed"));
        let missing = |credentials: usize| {
            let versions = [None, Some(surface(credentials))];
            missing_keys(
                &mut Fetch::new(MOST_KEYS),
                &RelatedObjects::only(Inputs::offline(Settings::default())),
                &changed,
                &versions,
            )
        };
        let few = missing(10).unwrap().len();
        assert!(few > 10, "{few}");
        let over = missing(MOST_KEYS + 1).unwrap_err();
        let why = Unavailable::from(over).to_string();
        assert_eq!(why, "over 2000 objects and lists are affected");
    }
}
