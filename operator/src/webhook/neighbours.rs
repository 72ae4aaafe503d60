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
use std::net::IpAddr;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::Semaphore;
use toolcrib_compile::{Inputs, Kind, Leads, ObjectRef, ServiceFacts, Settings, Synced, names};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::agents::Agents;
use super::object::Object;
use crate::objects::decode::{Decoded, Whole, note_undecodable};
use crate::objects::names_in;
use crate::objects::pages;
use crate::objects::tables::Budgeted as _;

/// Agents whose answer is compared. A surface that a whole cluster uses is `kubectl
/// toolcrib plan`'s, which has time.
pub const MOST_AGENTS: usize = 50;
/// Each costs a list of its grants and one of its providers.
const MOST_NAMESPACES: usize = 8;
/// Read one by one.
const MOST_SURFACES: usize = 64;
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
    /// As if there were nothing else.
    pub fn none() -> Self {
        Self {
            affected: BTreeSet::new(),
            inputs: Inputs::offline(Settings::default()),
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
}

/// Reads what matters to a change of `key` from `old` to `new`.
pub async fn neighbours(
    client: &Client,
    agents: &Agents,
    kind: Kind,
    key: &ObjectRef,
    old: Option<&Object>,
    new: Option<&Object>,
) -> Result<Neighbours, Unavailable> {
    if !agents.synced() {
        return Err(Unavailable::NotSynced);
    }
    // Never closed.
    let _turn = TURNS.acquire().await;
    let client = &pages::bounded(client);
    let versions: Vec<&Object> = old.into_iter().chain(new).collect();
    let affected = affected(agents, kind, key, &versions);
    bound(affected.len(), MOST_AGENTS, "agents are concerned")?;
    let mut namespaces: BTreeSet<String> = affected
        .iter()
        .map(|agent| agent.namespace.clone())
        .collect();
    namespaces.insert(key.namespace.clone());
    bound(
        namespaces.len(),
        MOST_NAMESPACES,
        "namespaces are concerned",
    )?;

    let mut read = Read::default();
    for namespace in &namespaces {
        read.namespace(client, namespace, &affected).await?;
    }
    let mut others: BTreeMap<ObjectRef, Arc<Agent>> = BTreeMap::new();
    for agent in affected.iter().chain(&read.named) {
        if (kind, agent) != (Kind::Agent, key)
            && let Some(found) = agents.get(agent)
        {
            others.insert(agent.clone(), Arc::new(found));
        }
    }
    let mut surfaces: BTreeSet<ObjectRef> = read.surfaces();
    surfaces.extend(
        others
            .values()
            .flat_map(|agent| names_in::agent_surfaces(agent)),
    );
    surfaces.extend(versions.iter().flat_map(|object| object.surfaces()));
    if kind == Kind::Surface {
        surfaces.remove(key);
    }
    bound(surfaces.len(), MOST_SURFACES, "surfaces are concerned")?;
    let surfaces = get_all::<Surface>(client, surfaces).await?;
    let services = services(client, &versions, &surfaces, &read.providers).await?;
    let foreign = surfaces
        .iter()
        .any(|(surface, _)| namespaces.iter().any(|own| *own != surface.namespace))
        || namespaces.len() > 1;

    // Each of these kinds was asked for everything that a compilation of the affected looks
    // at, and whatever failed ended here.
    let synced = Synced::check(&Synced::KINDS.into()).expect("all kinds are named");
    // What the controller alone is told of (the link, its --refused-hosts) differs on neither
    // side of a comparison.
    let mut inputs = Inputs::online(synced, Settings::default());
    if foreign {
        let api: Api<Namespace> = Api::all(client.clone());
        for name in namespaces {
            if let Some(found) = api.get_metadata_opt(&name).await? {
                inputs.set_namespace(name, found.labels().clone());
            }
        }
    }
    for (service, found) in services {
        if let Ok(found) = &found.object {
            inputs.set_service(service, ServiceFacts::from_object(found));
        }
    }
    for agent in others.into_values() {
        inputs.set_agent(agent);
    }
    for (surface, found) in surfaces {
        put(
            &mut inputs,
            Kind::Surface,
            surface,
            &found,
            Inputs::set_surface,
        );
    }
    read.put(&mut inputs, kind, key);
    Ok(Neighbours { affected, inputs })
}

fn bound(count: usize, most: usize, what: &'static str) -> Result<(), Unavailable> {
    if count > most {
        return Err(Unavailable::TooMany { what, most });
    }
    Ok(())
}

/// The Services that any of these may lead to, by a name or by an address.
async fn services(
    client: &Client,
    versions: &[&Object],
    surfaces: &[(ObjectRef, Decoded<Surface>)],
    providers: &[(ObjectRef, Decoded<ModelProvider>)],
) -> Result<Vec<(ObjectRef, Decoded<Service>)>, Unavailable> {
    let mut named: BTreeSet<ObjectRef> = BTreeSet::new();
    let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
    for object in versions {
        named.extend(object.services());
        addresses.extend(object.addresses());
    }
    for surface in surfaces
        .iter()
        .filter_map(|(_, it)| it.object.as_ref().ok())
    {
        named.extend(surface.possible_services());
        addresses.extend(surface.addresses());
    }
    for provider in providers
        .iter()
        .filter_map(|(_, it)| it.object.as_ref().ok())
    {
        named.extend(provider.possible_services());
        addresses.extend(provider.addresses());
    }
    let mut found = get_all::<Service>(client, named).await?;
    // Nothing but a list tells whose an address is, and addresses are rarely written.
    if !addresses.is_empty() {
        let mut all = list::<Service>(Api::all(client.clone()), "services").await?;
        all.retain(|(_, service)| {
            let has =
                |service: &Arc<Service>| !ServiceFacts::addresses(service).is_disjoint(&addresses);
            service.object.as_ref().is_ok_and(has)
        });
        found.extend(all);
    }
    Ok(found)
}

/// Agents that hold something by the object, in either version.
fn affected(
    agents: &Agents,
    kind: Kind,
    key: &ObjectRef,
    versions: &[&Object],
) -> BTreeSet<ObjectRef> {
    match kind {
        Kind::Agent => BTreeSet::from([key.clone()]),
        Kind::ToolGrant => versions
            .iter()
            .flat_map(|object| object.agents())
            .map(|name| ObjectRef::new(key.namespace.clone(), name.clone()))
            .collect(),
        Kind::ToolDefaults | Kind::ModelProvider => agents.of_namespace(&key.namespace),
        Kind::Surface => agents.select(|agent| names_in::agent_surfaces(agent).contains(key)),
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => BTreeSet::new(),
    }
}

/// What was listed.
#[derive(Default)]
struct Read {
    grants: Vec<(ObjectRef, Decoded<ToolGrant>)>,
    defaults: Vec<(ObjectRef, Decoded<ToolDefaults>)>,
    providers: Vec<(ObjectRef, Decoded<ModelProvider>)>,
    /// Agents that the grants name.
    named: BTreeSet<ObjectRef>,
}

impl Read {
    async fn namespace(
        &mut self,
        client: &Client,
        namespace: &str,
        affected: &BTreeSet<ObjectRef>,
    ) -> Result<(), Unavailable> {
        let here = || Api::namespaced(client.clone(), namespace);
        let grants = list::<ToolGrant>(here(), "grants in a namespace").await?;
        for (key, grant) in grants {
            if let Ok(object) = &grant.object {
                let agents = object.spec.agents.iter();
                let agents: Vec<ObjectRef> = agents
                    .map(|agent| ObjectRef::new(namespace, agent.clone()))
                    .collect();
                if !agents.iter().any(|agent| affected.contains(agent)) {
                    continue;
                }
                self.named.extend(agents);
            }
            self.grants.push((key, grant));
        }
        let here = Api::namespaced(client.clone(), namespace);
        self.providers
            .extend(list::<ModelProvider>(here, "providers in a namespace").await?);
        let defaults = ObjectRef::new(namespace, names::TOOL_DEFAULTS);
        self.defaults
            .extend(get_all::<ToolDefaults>(client, BTreeSet::from([defaults])).await?);
        Ok(())
    }

    fn surfaces(&self) -> BTreeSet<ObjectRef> {
        let grants = self
            .grants
            .iter()
            .filter_map(|(_, grant)| grant.object.as_ref().ok())
            .flat_map(|grant| names_in::grant_surfaces(grant));
        let defaults = self
            .defaults
            .iter()
            .filter_map(|(_, defaults)| defaults.object.as_ref().ok())
            .flat_map(|defaults| names_in::defaults_surfaces(defaults));
        grants.chain(defaults).collect()
    }

    /// All but the object that changes.
    fn put(self, inputs: &mut Inputs, kind: Kind, key: &ObjectRef) {
        let is_other = |of: Kind, found: &ObjectRef| (kind, key) != (of, found);
        for (found, grant) in self.grants {
            if is_other(Kind::ToolGrant, &found) {
                put(inputs, Kind::ToolGrant, found, &grant, Inputs::set_grant);
            }
        }
        for (found, defaults) in self.defaults {
            if is_other(Kind::ToolDefaults, &found) {
                let set = Inputs::set_defaults;
                put(inputs, Kind::ToolDefaults, found, &defaults, set);
            }
        }
        for (found, provider) in self.providers {
            if is_other(Kind::ModelProvider, &found) {
                let set = Inputs::set_provider;
                put(inputs, Kind::ModelProvider, found, &provider, set);
            }
        }
    }
}

/// Puts an object into the inputs as the controller has it: without its body where it cannot be
/// read, or is left out for want of memory.
fn put<K: Whole>(
    inputs: &mut Inputs,
    kind: Kind,
    key: ObjectRef,
    found: &Decoded<K>,
    set: fn(&mut Inputs, Arc<K>),
) {
    match (&found.object, found.left_out()) {
        (Ok(_), Some(reason)) => inputs.set_too_expensive(kind, key, reason),
        (Ok(object), None) => set(inputs, Arc::clone(object)),
        (Err(why), _) => note_undecodable(inputs, kind, key, why),
    }
}

async fn list<K>(
    api: Api<Decoded<K>>,
    what: &'static str,
) -> Result<Vec<(ObjectRef, Decoded<K>)>, Unavailable>
where
    K: Whole + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
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

/// Those of them that are there.
async fn get_all<K>(
    client: &Client,
    keys: BTreeSet<ObjectRef>,
) -> Result<Vec<(ObjectRef, Decoded<K>)>, Unavailable>
where
    K: Whole + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let mut found = futures::stream::iter(keys)
        .map(|key| async move {
            let api: Api<Decoded<K>> = Api::namespaced(client.clone(), &key.namespace);
            let found = api.get_opt(&key.name).await?;
            Ok::<_, kube::Error>(found.map(|object| (key, object)))
        })
        .buffer_unordered(AT_A_TIME);
    let (mut all, mut weight) = (Vec::new(), 0_usize);
    while let Some(object) = found.try_next().await? {
        let Some((key, object)) = object else {
            continue;
        };
        weight = weight.saturating_add(object.weight());
        if weight > MOST_WEIGHT {
            let most = MOST_WEIGHT >> 20;
            let what = "MiB of objects are concerned";
            return Err(Unavailable::TooMany { what, most });
        }
        all.push((key, object));
    }
    Ok(all)
}
