//! What else one of our objects is compiled with, read when it is asked for.
//!
//! Here: which other objects matter to a change of one, and reading just these. Not here:
//! what becomes of them. The webhook keeps Agents only: a store of every kind would cost
//! each replica what the controller has, for a question that is asked when a person applies
//! something; and a read is never behind.
//!
//! Invariant: bounded. Over a bound, or out of time, there is no answer rather than half
//! of one: an object that was left out would look like something lost. Secrets and
//! ConfigMaps are not read at all, there is no right to; what they hold is unknown.

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
    SyncProof,
};
use toolcrib_crds::{ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::agents::Agents;
use super::object::Object;
use crate::objects::decode::{DecodedObject, KindWithStatus, note_undecodable};
use crate::objects::pages;
use crate::objects::store::BudgetedObject as _;

/// Agents whose answer is compared. A surface that a whole cluster uses is `kubectl
/// toolcrib plan`'s, which has time.
pub const MOST_AGENTS: usize = 50;
/// Each costs a list of its grants and one of its providers.
const MOST_NAMESPACES: usize = 8;
/// Read one by one.
const MOST_SURFACES: usize = 64;
/// Objects and lists that the compilations may ask for. Each is read at most once.
const MOST_KEYS: usize = 2_000;
/// One page. Where there are more, the place is a big one, and is left to the CLI too.
const MOST_LISTED: u32 = 500;
const AT_A_TIME: usize = 8;
/// What all that was read may weigh.
const MOST_WEIGHT: usize = 16 * 1024 * 1024;
/// Objects that are looked at with their neighbours at the same time; others wait.
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

/// Everything but the object that changes.
#[derive(Debug)]
pub struct Neighbours {
    /// Whose answer may change.
    pub affected: BTreeSet<ObjectRef>,
    inputs: Inputs,
}

impl Neighbours {
    /// As if there were nothing but these objects, and no agent that the change concerns.
    pub fn only(inputs: Inputs) -> Self {
        Self {
            affected: BTreeSet::new(),
            inputs,
        }
    }

    /// The inputs with this version of the object that changes; `None`: without it.
    pub fn with(&self, object: Option<&Object>) -> Inputs {
        let mut inputs = self.inputs.clone();
        if let Some(object) = object {
            object.put(&mut inputs);
        }
        inputs
    }

    /// The inputs while the object that changes is left out for want of memory.
    pub fn without(&self, kind: Kind, key: &ObjectRef, reason: &str) -> Inputs {
        let mut inputs = self.inputs.clone();
        inputs.set_too_expensive(kind, key.clone(), reason.to_owned());
        inputs
    }

    /// The inputs before the change of `changed`, as the controller has them: an object that is left
    /// out gives nothing.
    pub fn before(&self, changed: &Subject, old: Option<&Object>) -> Inputs {
        match old.and_then(Object::left_out) {
            Some(reason) => self.without(changed.kind, &changed.key, reason),
            None => self.with(old),
        }
    }
}

/// Reads what matters to a change of an object from `old` to `new`.
pub async fn neighbours(
    client: &Client,
    agents: &Agents,
    settings: &Settings,
    Subject { kind, key }: &Subject,
    old: Option<&Object>,
    new: Option<&Object>,
) -> Result<Neighbours, Unavailable> {
    if !agents.synced() {
        return Err(Unavailable::NotSynced);
    }
    // Never closed.
    let mut turn = TURNS.acquire().await;
    let versions = [old.cloned(), new.cloned()];
    let affected = affected(agents, *kind, key, &versions);
    bound(affected.len(), MOST_AGENTS, "agents are concerned")?;
    let mut namespaces: BTreeSet<&str> = affected.iter().map(|it| &*it.namespace).collect();
    namespaces.insert(&key.namespace);
    bound(
        namespaces.len(),
        MOST_NAMESPACES,
        "namespaces are concerned",
    )?;
    // What each version is compared by is read, and whatever fails ends here: so no object of these
    // kinds is missing by accident.
    let synced = SyncProof::check(&SyncProof::KINDS.into()).expect("all kinds are named");
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
        let neighbours = Neighbours {
            affected: affected.clone(),
            inputs: reader.inputs.clone(),
        };
        // Up to a hundred compilations: not between other requests. They keep the turn, also
        // when the time is up and nobody waits for them any more.
        let looked = tokio::task::spawn_blocking(move || {
            let missing = look(&mut fetch, &neighbours, &changed, &versions);
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
    Ok(Neighbours { affected, inputs })
}

/// The keys that a comparison of both versions looks at, and that were not read yet.
fn look(
    fetch: &mut Fetch,
    neighbours: &Neighbours,
    changed: &Subject,
    [old, new]: &[Option<Object>; 2],
) -> Result<BTreeSet<Key>, OverBound> {
    let sides = [
        neighbours.before(changed, old.as_ref()),
        neighbours.with(new.as_ref()),
    ];
    for (side, inputs) in sides.iter().enumerate() {
        for subject in inputs.subjects() {
            // A comparison says why a provider cannot be used.
            let is_compared = subject == *changed
                || subject.kind == Kind::ModelProvider
                || (subject.kind == Kind::Agent && neighbours.affected.contains(&subject.key));
            if is_compared {
                fetch.look(side, inputs, &subject);
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

/// Agents that hold something by the object, in either version.
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
            let named = keys.filter_map(|key| match key {
                Key::GrantsFor(agent) => Some(agent),
                Key::Object(..) | Key::AgentsUsing(_) | Key::In(..) | Key::ServiceAt(_) => None,
            });
            named.collect()
        }
        Kind::ToolDefaults | Kind::ModelProvider => agents.of_namespace(&key.namespace),
        Kind::Surface => {
            let using = Key::AgentsUsing(key.clone());
            agents.select(|agent| agent.keys().contains(&using))
        }
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => BTreeSet::new(),
    }
}

/// Reads keys from the API server, within the bounds above.
struct Reader<'a> {
    client: Client,
    agents: &'a Agents,
    /// The object that changes: it is never read.
    changed: Subject,
    inputs: Inputs,
    /// Lists that were read: kind and namespace; empty: all namespaces.
    listed: BTreeSet<(Kind, String)>,
    surfaces: usize,
    weight: usize,
}

impl Reader<'_> {
    /// The affected Agents are among the inputs, so that lists of Agents are answered by them.
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
                Key::In(Kind::ModelProvider, namespace) => self.providers(&namespace).await?,
                Key::ServiceAt(_) => self.all_services().await?,
                Key::In(..) | Key::AgentsUsing(_) => {}
            }
        }
        for (kind, keys) in wanted {
            match kind {
                Kind::Agent => keys.iter().for_each(|key| self.agent(key)),
                Kind::Surface => {
                    self.surfaces += keys.len();
                    bound(self.surfaces, MOST_SURFACES, "surfaces are concerned")?;
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
                // Read in lists, or the object that changes.
                Kind::ToolGrant | Kind::ModelProvider => {}
                // There is no right to: what they hold is unknown.
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

    /// Nothing but a list tells whose an address is, and addresses are rarely written.
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

    /// Those of them that are there.
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
                let what = "MiB of objects are concerned";
                return Err(Unavailable::TooMany { what, most });
            }
            all.push((key, object));
        }
        Ok(all)
    }
}

/// Puts an object into the inputs as the controller has it: without its body where it cannot be
/// read, or is left out for want of memory.
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
    K: KindWithStatus + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
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
    fn a_comparison_that_looks_at_too_much_has_no_answer() {
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
            look(
                &mut Fetch::new(MOST_KEYS),
                &Neighbours::only(Inputs::offline(Settings::default())),
                &changed,
                &versions,
            )
        };
        let few = missing(10).unwrap().len();
        assert!(few > 10, "{few}");
        let over = missing(MOST_KEYS + 1).unwrap_err();
        let why = Unavailable::from(over).to_string();
        assert_eq!(why, "over 2000 objects and lists are concerned");
    }
}
