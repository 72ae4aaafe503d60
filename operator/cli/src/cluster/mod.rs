//! The objects of a cluster, read with the user's own rights, as [`LoadResult`] inputs.
//!
//! Files give the same inputs to the same compiler, so a question has the same answer from both.
//! Values of Secrets are never read, only their metadata. Objects that the user may not read are
//! Unknown, with a note. Nothing is written, except on request: the tools of one Surface
//! ([`surface`]), the suspension of Agents ([`agents`]), and decisions about calls ([`approvals`]).

pub mod tls;

mod advice;
mod agents;
mod approvals;
mod connect;
mod facts;
mod grants;
pub mod installation;
mod logs;
mod operator;
mod pods;
mod read;
mod surface;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Client};
use serde::Serialize;
use toolcrib_compile::{
    AgentSelectors, Code, Fetch, Inputs, Key, Kind, Leads as _, LoadResult, ObjectRef, OverBound,
    PodPort, Presence, ServiceFacts, Subject, SyncProof, left_out, too_heavy,
};
use toolcrib_crds::{
    Agent, AgentSpec, ClusterToolPolicy, HasConditions, ModelProvider, Surface, ToolDefaults,
    ToolGrant,
};

use crate::args::OperatorArgs;

pub use agents::{AgentState, PodCounts, SuspensionChange};
pub use connect::{Session, WithoutCluster};
pub use logs::LogPart;
pub use pods::PodFacts;
pub use read::Scope;
use read::{ListItem, each, get, list};
pub use surface::{Conflicts, StoredSurface};

/// Limit on the objects and lists that compile asks for. Objects of Toolcrib's kinds count as
/// well, so it is far above a large cluster.
const MOST_KEYS: usize = 1_000_000;

/// The objects that were read.
pub struct Cluster {
    pub loaded: LoadResult,
    /// Pods of agents; `None`: the user may not list them.
    pub pods: Option<Vec<PodFacts>>,
    /// Objects that could not be read, and the assumptions in their place.
    pub notes: BTreeSet<String>,
}

impl Cluster {
    /// Prints the notes to standard error, so that they can stand beside any output.
    pub fn print_notes(&self) {
        for note in &self.notes {
            eprintln!("note: {note}");
        }
    }
}

/// Why the objects could not be read.
enum ReadError {
    /// A request failed.
    Api { doing: String, error: kube::Error },
    /// The objects refer to more objects than the bound allows.
    TooMany(OverBound),
    /// The user may not list the policies of the cluster, with the API server's reason.
    NoPolicies(String),
}

/// The objects of Toolcrib's kinds, as listed.
struct ToolcribObjects {
    surfaces: Vec<ListItem<Surface>>,
    agents: Vec<ListItem<Agent>>,
    grants: Vec<ListItem<ToolGrant>>,
    defaults: Vec<ListItem<ToolDefaults>>,
    providers: Vec<ListItem<ModelProvider>>,
    policies: Vec<ListItem<ClusterToolPolicy>>,
}

/// Reads the cluster. `files` holds objects that will replace those of the cluster; the objects
/// that they refer to are read as well.
async fn read_all(
    client: &Client,
    scope: &Scope,
    given: &OperatorArgs,
    files: Option<&Inputs>,
) -> Result<Cluster, ReadError> {
    let mut notes = BTreeSet::new();
    let mut settings = operator::settings(client, given, &mut notes).await;
    let ours = ToolcribObjects {
        surfaces: list(client, scope).await?,
        agents: list(client, scope).await?,
        grants: list(client, scope).await?,
        defaults: list(client, scope).await?,
        providers: list(client, scope).await?,
        policies: policies(client, &mut notes).await?,
    };
    if let Some(why) = selectors_off(&ours.grants) {
        notes.insert(format!("grants select no agents by labels now: {why}"));
        settings.agent_selectors = AgentSelectors::Off(why);
    }
    // Services are read below, by name, so none is missing by accident.
    let synced = SyncProof::check(&SyncProof::KINDS.into_iter().collect())
        .expect("all kinds were named as filled");
    let mut inputs = Inputs::online(synced, settings);
    note_all_left_out(&ours, &mut notes);
    set_toolcrib_objects(&mut inputs, ours);
    complete(client, scope, &mut inputs, files, &mut notes).await?;
    let pods = pods::list(client, scope, &mut notes).await?;
    Ok(Cluster {
        loaded: LoadResult {
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

/// Reads the objects that the cluster's objects refer to, before and after the files replace some
/// of them, until compile misses none.
async fn complete(
    client: &Client,
    scope: &Scope,
    inputs: &mut Inputs,
    files: Option<&Inputs>,
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    let mut fetch = Fetch::new(MOST_KEYS);
    loop {
        let after = files.map(|files| inputs.overlaid(files));
        let sides: Vec<Inputs> = std::iter::once(inputs.clone()).chain(after).collect();
        for (side, objects) in sides.iter().enumerate() {
            for subject in objects.subjects() {
                fetch.evaluate(side, objects, &subject);
            }
        }
        let missing = fetch.missing().map_err(ReadError::TooMany)?;
        if missing.is_empty() {
            return Ok(());
        }
        read_missing(client, scope, missing, inputs, &sides, notes).await?;
    }
}

/// Reads the keys that the lists of `scope` have not answered. `sides`: the objects that refer to
/// them.
async fn read_missing(
    client: &Client,
    scope: &Scope,
    missing: BTreeSet<Key>,
    inputs: &mut Inputs,
    sides: &[Inputs],
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    let mut wanted: BTreeMap<Kind, BTreeSet<ObjectRef>> = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for key in missing {
        match key {
            Key::Object(kind, key) => {
                wanted.entry(kind).or_default().insert(key);
            }
            Key::ServiceAt(address) => {
                addresses.insert(address);
            }
            // Lists of Toolcrib's own kinds. Those of the scope were read, and the output shows no
            // other ones.
            Key::GrantsFor(_)
            | Key::GrantsSelecting(_)
            | Key::AgentsLabelled(_)
            | Key::AgentsUsing(_)
            | Key::In(..)
            | Key::AllAgents => {}
        }
    }
    services_at(client, inputs, &addresses, notes).await?;
    for (kind, keys) in wanted {
        match kind {
            Kind::Surface => surfaces(client, scope, inputs, keys, notes).await?,
            Kind::Service => services(client, inputs, keys, sides, notes).await?,
            Kind::Namespace => namespaces(client, inputs, keys, notes).await?,
            Kind::Secret => secrets(client, inputs, keys, notes).await?,
            Kind::ConfigMap => config_maps(client, inputs, keys, notes).await?,
            Kind::Agent
            | Kind::ToolGrant
            | Kind::ToolDefaults
            | Kind::ModelProvider
            | Kind::ClusterToolPolicy => {}
        }
    }
    Ok(())
}

/// Lists the policies of the whole cluster. An answer without them could list tools that a policy
/// denies.
async fn policies(
    client: &Client,
    notes: &mut BTreeSet<String>,
) -> Result<Vec<ListItem<ClusterToolPolicy>>, ReadError> {
    match list(client, &Scope::All).await {
        Err(ReadError::Api {
            error: kube::Error::Api(status),
            ..
        }) if status.code == 404 => {
            let note = "the cluster has no ClusterToolPolicies: its chart is of an earlier release";
            notes.insert(note.to_owned());
            Ok(Vec::new())
        }
        Err(ReadError::Api {
            error: kube::Error::Api(status),
            ..
        }) if status.code == 403 => Err(ReadError::NoPolicies(status.message)),
        found => found,
    }
}

/// Reads Surfaces outside the listed namespaces.
async fn surfaces(
    client: &Client,
    scope: &Scope,
    inputs: &mut Inputs,
    mut keys: BTreeSet<ObjectRef>,
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    keys.retain(|key| !scope.includes(&key.namespace));
    for (key, found) in each(keys, |key| read::get_one::<Surface>(client, key)).await? {
        match found {
            Presence::Present(Ok(found)) => take_surface(inputs, &key, found),
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
    Ok(())
}

fn set_toolcrib_objects(inputs: &mut Inputs, ours: ToolcribObjects) {
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
    for found in ours.policies {
        let kind = Kind::ClusterToolPolicy;
        set(inputs, kind, found, |inputs, key, policy| {
            if within_budget(inputs, Kind::ClusterToolPolicy, key, &policy, &policy.spec) {
                inputs.set_policy(Arc::new(policy));
            }
        });
    }
}

fn set<K>(
    inputs: &mut Inputs,
    kind: Kind,
    ListItem { key, object }: ListItem<K>,
    take: fn(&mut Inputs, &ObjectRef, K),
) {
    match object {
        Ok(object) => take(inputs, &key, object),
        Err(reason) => inputs.set_undecodable(kind, key, reason),
    }
}

fn note_all_left_out(ours: &ToolcribObjects, notes: &mut BTreeSet<String>) {
    note_left_out(Kind::Surface, &ours.surfaces, notes);
    note_left_out(Kind::Agent, &ours.agents, notes);
    note_left_out(Kind::ToolGrant, &ours.grants, notes);
    note_left_out(Kind::ToolDefaults, &ours.defaults, notes);
    note_left_out(Kind::ModelProvider, &ours.providers, notes);
    note_left_out(Kind::ClusterToolPolicy, &ours.policies, notes);
}

/// Returns the operator's reason in a grant's status, if it does not let grants select agents.
fn selectors_off(grants: &[ListItem<ToolGrant>]) -> Option<String> {
    let grants = grants.iter().filter_map(ListItem::ok);
    let mut off = grants.filter(|(_, grant)| {
        let generation = grant.metadata.generation;
        let is_off = |it: &Condition| {
            it.reason == Code::SelectorsOff.name() && it.observed_generation == generation
        };
        grant.conditions().iter().any(is_off)
    });
    let (key, _) = off.next()?;
    Some(format!(
        "the operator says {} in the status of ToolGrant {key}",
        Code::SelectorsOff
    ))
}

/// Notes the objects that the operator has no room for, by their status. Only the operator knows
/// whether a change makes room.
fn note_left_out<K: HasConditions>(
    kind: Kind,
    objects: &[ListItem<K>],
    notes: &mut BTreeSet<String>,
) {
    for ListItem { key, object } in objects {
        let Ok(object) = object else { continue };
        if let Some(why) = left_out(object.conditions(), object.meta().generation) {
            let subject = Subject::new(kind, key);
            notes.insert(format!(
                "no agent gets anything of {subject} until the operator has room for it, also as it is in your files: {why}"
            ));
        }
    }
}

fn take_surface(inputs: &mut Inputs, key: &ObjectRef, surface: Surface) {
    if within_budget(inputs, Kind::Surface, key, &surface, &surface.spec) {
        inputs.set_surface(Arc::new(surface));
    }
}

/// Adds an Agent. One over its budget stays, without its spec: it must lose its tools.
fn take_agent(inputs: &mut Inputs, key: &ObjectRef, mut agent: Agent) {
    if !within_budget(inputs, Kind::Agent, key, &agent, &agent.spec) {
        agent.spec = AgentSpec::default();
    }
    inputs.set_agent(Arc::new(agent));
}

/// Notes an object that is over its budget, by the rule of the operator and of files, or for which
/// the operator has no room by its status.
fn within_budget(
    inputs: &mut Inputs,
    kind: Kind,
    key: &ObjectRef,
    object: &impl HasConditions,
    spec: &impl Serialize,
) -> bool {
    let no_room = || left_out(object.conditions(), object.meta().generation).map(str::to_owned);
    let Some(reason) = too_heavy(spec).or_else(no_room) else {
        return true;
    };
    inputs.set_too_expensive(kind, key.clone(), reason);
    false
}

/// Reads Services by name. A Service that the user may not read is assumed to match its Surface:
/// the operator can read it.
async fn services(
    client: &Client,
    inputs: &mut Inputs,
    keys: BTreeSet<ObjectRef>,
    sides: &[Inputs],
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
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
            // A host of two labels is usually a public domain, not a Service.
            Presence::Unknown(_) if !is_named(sides, &key) => {}
            Presence::Unknown(why) => {
                notes.insert(format!(
                    "Service {key} could not be read, and is taken to be as its Surface says: {why}"
                ));
                let surfaces = sides.iter().flat_map(Inputs::surfaces);
                let targets = surfaces.filter_map(|(_, surface)| {
                    let target = surface.spec.service.as_ref()?;
                    (surface.service().as_ref() == Some(&key)).then_some(target.port)
                });
                let facts = ServiceFacts {
                    ports: targets.map(|port| (port, PodPort::Number(port))).collect(),
                    ..ServiceFacts::default()
                };
                inputs.set_service(key, facts);
            }
        }
    }
    Ok(())
}

/// Whether an object names the Service in full.
fn is_named(sides: &[Inputs], service: &ObjectRef) -> bool {
    sides.iter().any(|inputs| {
        let mut surfaces = inputs.surfaces();
        let mut providers = inputs.providers();
        surfaces.any(|(_, it)| it.services().contains(service))
            || providers.any(|(_, it)| it.services().contains(service))
    })
}

/// Finds the Services with one of these addresses, which takes a list of all Services.
async fn services_at(
    client: &Client,
    inputs: &mut Inputs,
    addresses: &BTreeSet<IpAddr>,
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    if addresses.is_empty() {
        return Ok(());
    }
    let all = match list::<Service>(client, &Scope::All).await {
        Ok(all) => all,
        Err(ReadError::Api {
            error: kube::Error::Api(status),
            ..
        }) if status.code == 403 => {
            notes.insert(format!(
                "Services could not be listed, and no address is taken to be one of theirs: {}",
                status.message
            ));
            return Ok(());
        }
        Err(broken) => return Err(broken),
    };
    for (key, service) in all.iter().filter_map(ListItem::ok) {
        if !ServiceFacts::addresses(service).is_disjoint(addresses) {
            inputs.set_service(key.clone(), ServiceFacts::from_object(service));
        }
    }
    Ok(())
}

/// Reads labels of agents' namespaces if a surface's consent depends on them.
async fn namespaces(
    client: &Client,
    inputs: &mut Inputs,
    keys: BTreeSet<ObjectRef>,
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let found = each(keys, |key| {
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
                    "Namespace {} could not be read: no surface is taken to be open to it, and every policy to match it: {why}",
                    key.name
                ));
            }
        }
    }
    Ok(())
}

/// Reads the metadata of Secrets.
async fn secrets(
    client: &Client,
    inputs: &mut Inputs,
    keys: BTreeSet<ObjectRef>,
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    let secrets = each(keys, |key| async move {
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
    Ok(())
}

async fn config_maps(
    client: &Client,
    inputs: &mut Inputs,
    keys: BTreeSet<ObjectRef>,
    notes: &mut BTreeSet<String>,
) -> Result<(), ReadError> {
    let config_maps = each(keys, |key| async move {
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
