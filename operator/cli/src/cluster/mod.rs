//! The objects of a cluster, read with the user's own rights, as [`Loaded`] inputs.
//!
//! The same inputs that files give, and the same compiler behind them: so a question has
//! the same answer from both. Values of Secrets are never asked for, only their metadata.
//! What the user may not read is Unknown, and said. Nothing is written, but the tools of one
//! Surface where that is what was asked for ([`surface`]).

mod advice;
mod connect;
mod facts;
mod operator;
mod pods;
mod read;
mod surface;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use kube::{Api, Client};
use serde::Serialize;
use toolcrib_compile::{
    Inputs, Kind, Leads as _, Loaded, ObjectRef, PodPort, Presence, References, ServiceFacts,
    Subject, Synced, all_references, left_out, too_heavy,
};
use toolcrib_crds::{
    Agent, AgentSpec, Conditioned, ModelProvider, NamespacesFrom, Surface, ToolDefaults, ToolGrant,
};

use crate::args::OperatorArgs;

pub use connect::Session;
pub use pods::PodFacts;
pub use read::Scope;
use read::{Found, each, get, list};
pub use surface::{Conflicts, Held};

/// What was read.
pub struct Cluster {
    pub loaded: Loaded,
    /// Pods of agents; `None`: the user may not list them.
    pub pods: Option<Vec<PodFacts>>,
    /// What could not be read, and what is assumed instead.
    pub notes: BTreeSet<String>,
}

impl Cluster {
    /// On standard error, so that they stand beside any output.
    pub fn print_notes(&self) {
        for note in &self.notes {
            eprintln!("note: {note}");
        }
    }
}

/// What was being done, and what came in between.
type Broken = (String, kube::Error);

/// The objects of our kinds, as they came.
struct Ours {
    surfaces: Vec<Found<Surface>>,
    agents: Vec<Found<Agent>>,
    grants: Vec<Found<ToolGrant>>,
    defaults: Vec<Found<ToolDefaults>>,
    providers: Vec<Found<ModelProvider>>,
}

/// `files`: objects that are to be laid over the cluster's. What they name may be there already,
/// so it is read as well.
async fn read_all(
    client: &Client,
    scope: &Scope,
    given: &OperatorArgs,
    files: Option<&Inputs>,
) -> Result<Cluster, Broken> {
    let mut notes = BTreeSet::new();
    let settings = operator::settings(client, given, &mut notes).await;
    let ours = Ours {
        surfaces: list(client, scope).await?,
        agents: list(client, scope).await?,
        grants: list(client, scope).await?,
        defaults: list(client, scope).await?,
        providers: list(client, scope).await?,
    };
    // Services are read by name below, so none of them is missing by accident.
    let synced = Synced::check(&Synced::KINDS.into_iter().collect())
        .expect("all kinds were named as filled");
    let mut inputs = Inputs::online(synced, settings);
    note_all_left_out(&ours, &mut notes);
    set_ours(&mut inputs, ours);
    let foreign = foreign_surfaces(&naming(&inputs, files), scope);
    for (key, found) in each(foreign, |key| read::get_one::<Surface>(client, key)).await? {
        match found {
            Presence::Present(Ok(found)) => take_surface(&mut inputs, &key, found),
            Presence::Present(Err(reason)) => {
                inputs.set_undecodable(Kind::Surface, key, reason);
            }
            Presence::Absent => {}
            Presence::Unknown(why) => {
                notes.insert(format!("Surface {key} could not be read: {why}"));
                inputs.set_undecodable(Kind::Surface, key, why);
            }
        }
    }
    let naming = naming(&inputs, files);
    services(client, &mut inputs, &naming, &mut notes).await?;
    namespaces(client, &mut inputs, &naming, &mut notes).await?;
    references(client, &mut inputs, &naming, &mut notes).await?;
    let pods = pods::list(client, scope, &mut notes).await?;
    Ok(Cluster {
        loaded: Loaded {
            inputs,
            secrets: BTreeMap::new(),
            origins: BTreeMap::new(),
            others: Vec::new(),
            diagnostics: Vec::new(),
            errors: Vec::new(),
        },
        pods,
        notes,
    })
}

/// Whose names matter: the cluster's objects, and what they become with the files.
fn naming(inputs: &Inputs, files: Option<&Inputs>) -> Vec<Inputs> {
    let after = files.map(|files| inputs.overlaid(files));
    std::iter::once(inputs.clone()).chain(after).collect()
}

/// Surfaces of other namespaces that the objects name, where these were not listed.
fn foreign_surfaces(naming: &[Inputs], scope: &Scope) -> BTreeSet<ObjectRef> {
    let Scope::Namespaces(here) = scope else {
        return BTreeSet::new();
    };
    let mut named = BTreeSet::new();
    let mut add = |key: &ObjectRef, namespace: &Option<String>, name: &str| {
        let namespace = namespace.as_ref().unwrap_or(&key.namespace);
        if !here.contains(namespace) {
            named.insert(ObjectRef::new(namespace.clone(), name));
        }
    };
    for inputs in naming {
        for (key, agent) in inputs.agents() {
            for entry in &agent.spec.surfaces {
                add(key, &entry.namespace, &entry.name);
            }
        }
        let of_grants = inputs
            .grants()
            .map(|(key, grant)| (key, &grant.spec.tools, &grant.spec.feeds));
        let of_defaults = inputs
            .defaults()
            .map(|(key, defaults)| (key, &defaults.spec.tools, &defaults.spec.feeds));
        for (key, tools, feeds) in of_grants.chain(of_defaults) {
            let of_tools = tools.iter().map(|rule| &rule.surface);
            for surface in of_tools.chain(feeds.iter().map(|rule| &rule.surface)) {
                add(key, &surface.namespace, &surface.name);
            }
        }
    }
    named
}

fn set_ours(inputs: &mut Inputs, ours: Ours) {
    for found in ours.surfaces {
        set(inputs, Kind::Surface, found, take_surface);
    }
    for found in ours.agents {
        set(inputs, Kind::Agent, found, take_agent);
    }
    for found in ours.grants {
        set(inputs, Kind::ToolGrant, found, |inputs, key, grant| {
            if within_budget(inputs, Kind::ToolGrant, key, &grant, &grant.spec) {
                inputs.set_grant(Arc::new(grant));
            }
        });
    }
    for found in ours.defaults {
        set(
            inputs,
            Kind::ToolDefaults,
            found,
            |inputs, key, defaults| {
                if within_budget(inputs, Kind::ToolDefaults, key, &defaults, &defaults.spec) {
                    inputs.set_defaults(Arc::new(defaults));
                }
            },
        );
    }
    for found in ours.providers {
        set(
            inputs,
            Kind::ModelProvider,
            found,
            |inputs, key, provider| {
                if within_budget(inputs, Kind::ModelProvider, key, &provider, &provider.spec) {
                    inputs.set_provider(Arc::new(provider));
                }
            },
        );
    }
}

fn set<K>(
    inputs: &mut Inputs,
    kind: Kind,
    Found { key, object }: Found<K>,
    take: fn(&mut Inputs, &ObjectRef, K),
) {
    match object {
        Ok(object) => take(inputs, &key, object),
        Err(reason) => inputs.set_undecodable(kind, key, reason),
    }
}

fn note_all_left_out(ours: &Ours, notes: &mut BTreeSet<String>) {
    note_left_out(Kind::Surface, &ours.surfaces, notes);
    note_left_out(Kind::Agent, &ours.agents, notes);
    note_left_out(Kind::ToolGrant, &ours.grants, notes);
    note_left_out(Kind::ToolDefaults, &ours.defaults, notes);
    note_left_out(Kind::ModelProvider, &ours.providers, notes);
}

/// Objects that the operator has no room for, as their status says. Whether a change of them, or of
/// others, makes room is known to the operator alone.
fn note_left_out<K: Conditioned>(kind: Kind, objects: &[Found<K>], notes: &mut BTreeSet<String>) {
    for Found { key, object } in objects {
        let Ok(object) = object else { continue };
        if let Some(why) = left_out(object.conditions(), object.meta().generation) {
            let subject = Subject::new(kind, key);
            notes.insert(format!(
                "{subject} gives nothing until the operator has room for it, also as it is in your files: {why}"
            ));
        }
    }
}

fn take_surface(inputs: &mut Inputs, key: &ObjectRef, surface: Surface) {
    if within_budget(inputs, Kind::Surface, key, &surface, &surface.spec) {
        inputs.set_surface(Arc::new(surface));
    }
}

/// An Agent over its budget is still there: what it has must be taken away.
fn take_agent(inputs: &mut Inputs, key: &ObjectRef, mut agent: Agent) {
    if !within_budget(inputs, Kind::Agent, key, &agent, &agent.spec) {
        agent.spec = AgentSpec::default();
    }
    inputs.set_agent(Arc::new(agent));
}

/// Notes an object that weighs too much, as the operator and files do, or that the operator has no
/// room for, as its status says.
fn within_budget(
    inputs: &mut Inputs,
    kind: Kind,
    key: &ObjectRef,
    object: &impl Conditioned,
    spec: &impl Serialize,
) -> bool {
    let no_room = || left_out(object.conditions(), object.meta().generation).map(str::to_owned);
    let Some(reason) = too_heavy(spec).or_else(no_room) else {
        return true;
    };
    inputs.set_too_expensive(kind, key.clone(), reason);
    false
}

/// The Services that surfaces and providers lead to, if only by a url or by an address: egress
/// is narrowed to their pods. One that may not be read is taken to be as the surface
/// says: the operator reads it, whoever asks.
async fn services(
    client: &Client,
    inputs: &mut Inputs,
    naming: &[Inputs],
    notes: &mut BTreeSet<String>,
) -> Result<(), Broken> {
    let mut wanted: BTreeMap<ObjectRef, BTreeSet<u16>> = BTreeMap::new();
    let mut named: BTreeSet<ObjectRef> = BTreeSet::new();
    for (key, surface) in naming.iter().flat_map(Inputs::surfaces) {
        for service in surface.possible_services() {
            wanted.entry(service).or_default();
        }
        named.extend(surface.services());
        if let Some(service) = &surface.spec.service {
            let key = ObjectRef::new(key.namespace.clone(), service.name.clone());
            wanted.entry(key).or_default().insert(service.port);
        }
    }
    for (_, provider) in naming.iter().flat_map(Inputs::providers) {
        for service in provider.possible_services() {
            wanted.entry(service).or_default();
        }
        named.extend(provider.services());
    }
    services_at(client, inputs, naming, notes).await?;
    let keys: BTreeSet<ObjectRef> = wanted.keys().cloned().collect();
    let found = each(keys, |key| async move {
        let api: Api<Service> = Api::namespaced(client.clone(), &key.namespace);
        get("Service", &key, api.get_opt(&key.name).await)
    })
    .await?;
    for (key, service) in found {
        match service {
            Presence::Present(service) => {
                inputs.set_service(key, ServiceFacts::from_object(&service));
            }
            Presence::Absent => {}
            // Only perhaps a Service: most names of two labels are somebody's domain.
            Presence::Unknown(_) if !named.contains(&key) => {}
            Presence::Unknown(why) => {
                notes.insert(format!(
                    "Service {key} could not be read, and is taken to be as its Surface says: {why}"
                ));
                let ports = wanted.remove(&key).unwrap_or_default().into_iter();
                let facts = ServiceFacts {
                    ports: ports.map(|port| (port, PodPort::Number(port))).collect(),
                    ..ServiceFacts::default()
                };
                inputs.set_service(key, facts);
            }
        }
    }
    Ok(())
}

/// The Services that have an address which is written in a url: nothing but a list tells.
async fn services_at(
    client: &Client,
    inputs: &mut Inputs,
    naming: &[Inputs],
    notes: &mut BTreeSet<String>,
) -> Result<(), Broken> {
    let surfaces = naming.iter().flat_map(Inputs::surfaces);
    let of_surfaces = surfaces.flat_map(|(_, it)| it.addresses());
    let providers = naming.iter().flat_map(Inputs::providers);
    let of_providers = providers.flat_map(|(_, it)| it.addresses());
    let addresses: BTreeSet<IpAddr> = of_surfaces.chain(of_providers).collect();
    if addresses.is_empty() {
        return Ok(());
    }
    let all = match list::<Service>(client, &Scope::All).await {
        Ok(all) => all,
        Err((_, kube::Error::Api(status))) if status.code == 403 => {
            notes.insert(format!(
                "Services could not be listed, and no address is taken to be one of theirs: {}",
                status.message
            ));
            return Ok(());
        }
        Err(broken) => return Err(broken),
    };
    for (key, service) in all.iter().filter_map(Found::ok) {
        if !ServiceFacts::addresses(service).is_disjoint(&addresses) {
            inputs.set_service(key.clone(), ServiceFacts::from_object(service));
        }
    }
    Ok(())
}

/// Labels of agents' namespaces, where a surface's consent depends on them.
async fn namespaces(
    client: &Client,
    inputs: &mut Inputs,
    naming: &[Inputs],
    notes: &mut BTreeSet<String>,
) -> Result<(), Broken> {
    let selects = |surface: &Surface| {
        let consumers = surface.spec.consumers.as_ref();
        let consent = consumers.and_then(|consumers| consumers.namespaces.as_ref());
        consent.is_some_and(|consent| consent.from == NamespacesFrom::Selector)
    };
    let mut surfaces = naming.iter().flat_map(Inputs::surfaces);
    if !surfaces.any(|(_, surface)| selects(surface)) {
        return Ok(());
    }
    let wanted: BTreeSet<ObjectRef> = naming
        .iter()
        .flat_map(Inputs::agents)
        .map(|(key, _)| ObjectRef::new("", key.namespace.clone()))
        .collect();
    let api: Api<Namespace> = Api::all(client.clone());
    let found = each(wanted, |key| {
        let api = api.clone();
        async move { get("Namespace", &key, api.get_metadata_opt(&key.name).await) }
    })
    .await?;
    for (key, namespace) in found {
        match namespace {
            Presence::Present(namespace) => {
                let labels = namespace.metadata.labels.unwrap_or_default();
                inputs.set_namespace(key.name, labels);
            }
            Presence::Absent => {}
            Presence::Unknown(why) => {
                notes.insert(format!(
                    "Namespace {} could not be read, and no selector is taken to match it: {why}",
                    key.name
                ));
            }
        }
    }
    Ok(())
}

/// Secrets' metadata and ConfigMaps, as far as any object refers to them.
async fn references(
    client: &Client,
    inputs: &mut Inputs,
    naming: &[Inputs],
    notes: &mut BTreeSet<String>,
) -> Result<(), Broken> {
    let references: Vec<References> = naming.iter().map(all_references).collect();
    let named = references.iter().flat_map(|named| &named.secrets);
    let secrets = each(named.cloned().collect(), |key| async move {
        let api: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
        get("Secret", &key, api.get_metadata_opt(&key.name).await)
    })
    .await?;
    for (key, secret) in secrets {
        if let Presence::Unknown(why) = &secret {
            notes.insert(format!(
                "Secret {key} could not be read, and is taken to be as its users need it: {why}"
            ));
        }
        let facts = map(secret, |secret| facts::of_secret(&secret.metadata));
        if let Presence::Present(facts) = &facts
            && facts.keys.is_none()
        {
            notes.insert(format!(
                "Secret {key} does not tell the names of its keys: they are taken to be there"
            ));
        }
        inputs.set_secret(key, facts);
    }
    let named = references.iter().flat_map(|named| &named.config_maps);
    let config_maps = each(named.cloned().collect(), |key| async move {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
        get("ConfigMap", &key, api.get_opt(&key.name).await)
    })
    .await?;
    for (key, config_map) in config_maps {
        if let Presence::Unknown(why) = &config_map {
            notes.insert(format!("ConfigMap {key} could not be read: {why}"));
        }
        let data = map(config_map, |found| found.data.unwrap_or_default());
        inputs.set_config_map(key, data);
    }
    Ok(())
}

fn map<T, U>(presence: Presence<T>, change: impl FnOnce(T) -> U) -> Presence<U> {
    match presence {
        Presence::Present(value) => Presence::Present(change(value)),
        Presence::Absent => Presence::Absent,
        Presence::Unknown(why) => Presence::Unknown(why),
    }
}
