//! One object, from the tables to the API server and back into its status.
//!
//! Reads as a table of contents: snapshot, compile, read what compile asked for, compile
//! again with it, materialize, apply, report. Level-based: it looks only at what is, and
//! doing it twice does nothing the second time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use tokio::time::Instant;
use toolcrib_compile::{
    Code, Compilation, Inputs, LastGood, Materialized, ObjectRef, Presence, Role, SecretFacts,
    SecretKeyRef, SourceState, Synced, Withheld, check_defaults, check_grant, check_provider,
    check_surface, compile, identity::runner_tokens, materialize, names,
};
use toolcrib_crds::{Agent, Mode, ModelProvider, Surface, ToolDefaults, ToolGrant};
use toolcrib_manifest::{RunnerToken, SecretText};

use super::apply::{self, Applied, ApplyError, Carrier, Desired, Standing, Verb};
use super::identity::{Identity, identity, look_again};
use super::queue::Done;
use super::related::users_of_secret;
use super::report::{self, ReportError};
use super::snapshot::Scope;
use super::status::{AgentFacts, OfDefaults, OfGrant, PodNews, PodState, Written, counted};
use super::stores::Scoped;
use super::work::{Work, WorkKind};
use super::world::{AgentMemory, World};

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Not an error of anybody: it is looked at again when the watch has caught up.
    #[error("the watches have not brought everything yet")]
    NotSynced,
    #[error("this replica leads no longer")]
    NotLeading,
    #[error("Secret {0}: {1}")]
    NotWatched(ObjectRef, String),
    #[error("Secret {0} not read")]
    ReadSecret(ObjectRef, #[source] kube::Error),
    #[error("randomness not available: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl ReconcileError {
    /// Whether it is only a matter of the watches catching up.
    fn passes(&self) -> bool {
        matches!(
            self,
            ReconcileError::NotSynced
                | ReconcileError::NotLeading
                | ReconcileError::Apply(ApplyError::Stale { .. })
        )
    }
}

/// Does one piece of work.
pub async fn reconcile(world: &World, work: &Work) -> Result<Done, ReconcileError> {
    let synced = world.tables.synced().ok_or(ReconcileError::NotSynced)?;
    let tables = &world.tables;
    match work.kind {
        WorkKind::Agent => return agent(world, work, synced).await,
        WorkKind::Surface => {
            let inputs = own_inputs(world, work, synced).await;
            let report = check_surface(&inputs, &work.key);
            report::other::<Surface, _>(world, work, &tables.surfaces, report).await?;
        }
        WorkKind::ToolGrant => {
            let inputs = own_inputs(world, work, synced).await;
            let report = check_grant(&inputs, &work.key).map(OfGrant);
            report::other::<ToolGrant, _>(world, work, &tables.grants, report).await?;
        }
        WorkKind::ToolDefaults => {
            let inputs = own_inputs(world, work, synced).await;
            let report = check_defaults(&inputs, &work.key).map(OfDefaults);
            report::other::<ToolDefaults, _>(world, work, &tables.defaults, report).await?;
        }
        WorkKind::ModelProvider => {
            let inputs = own_inputs(world, work, synced).await;
            let report = check_provider(&inputs, &work.key);
            report::other::<ModelProvider, _>(world, work, &tables.providers, report).await?;
        }
    }
    Ok(Done::Settled)
}

async fn own_inputs(world: &World, work: &Work, synced: Synced) -> Inputs {
    let scope = Scope::of(work, &world.tables);
    let config_maps = config_maps(world, &scope).await;
    inputs(world, &scope, synced, &config_maps, &BTreeMap::new())
}

type ConfigMaps = BTreeMap<ObjectRef, Presence<BTreeMap<String, String>>>;

async fn config_maps(world: &World, scope: &Scope) -> ConfigMaps {
    let mut found = ConfigMaps::new();
    for key in &scope.config_maps {
        let data = world
            .readers
            .config_map(&world.tables.config_maps, key)
            .await;
        found.insert(key.clone(), data);
    }
    found
}

/// `failed`: Secrets that could not be read just now; what they hold is unknown.
fn inputs(
    world: &World,
    scope: &Scope,
    synced: Synced,
    config_maps: &ConfigMaps,
    failed: &BTreeMap<ObjectRef, String>,
) -> Inputs {
    let secret = |key: &ObjectRef| -> Presence<SecretFacts> {
        match failed.get(key) {
            Some(why) => Presence::Unknown(why.clone()),
            None => world.readers.secret_facts(&world.tables.secrets, key),
        }
    };
    let config_map = |key: &ObjectRef| {
        config_maps
            .get(key)
            .cloned()
            .unwrap_or_else(|| Presence::Unknown("it was not read".to_owned()))
    };
    scope.inputs(
        synced,
        world.compile_settings(),
        &world.tables,
        secret,
        config_map,
    )
}

async fn agent(world: &World, work: &Work, synced: Synced) -> Result<Done, ReconcileError> {
    let key = &work.key;
    let Some(stored) = world.tables.agents.get(&key.namespace, &key.name) else {
        // What was written for it goes with its owner.
        return Ok(Done::Settled);
    };
    if stored.meta().deletion_timestamp.is_some() {
        return Ok(Done::Settled);
    }
    let agent = match &stored.object {
        Ok(agent) => agent,
        Err(why) => {
            report::unreadable::<Agent>(world, work, &stored, &why.reason).await?;
            return Ok(Done::Settled);
        }
    };
    world.reports().begin(
        key,
        &counted(agent.status.as_ref().and_then(|s| s.usage.as_ref())),
    );

    let Some(compiled) = compile_agent(world, work, synced).await else {
        return Ok(Done::Settled);
    };
    let outcome = write_agent(world, agent, &compiled).await;
    if outcome.errors.iter().any(ReconcileError::passes) {
        // Nothing that a user should read about.
        return Err(ReconcileError::NotSynced);
    }
    report_agent(world, work, agent, &compiled, outcome).await
}

/// Snapshot, compile, read, compile again.
async fn compile_agent(world: &World, work: &Work, synced: Synced) -> Option<Compilation> {
    let scope = Scope::of(work, &world.tables);
    let config_maps = config_maps(world, &scope).await;
    let first = compile(
        &inputs(world, &scope, synced, &config_maps, &BTreeMap::new()),
        &work.key,
    )?;
    let secrets: BTreeSet<ObjectRef> = first
        .references()
        .into_iter()
        .map(|reference| reference.secret)
        .collect();
    let mut learned = BTreeSet::new();
    let mut failed = BTreeMap::new();
    for key in secrets {
        match world.readers.read_secret(&world.tables.secrets, &key).await {
            Ok(false) => {}
            Ok(true) => {
                learned.insert(key);
            }
            Err(error) => {
                tracing::warn!(secret = %key, error = %message(&error), "Secret not read");
                failed.insert(key, "the API server did not give it".to_owned());
            }
        }
    }
    if learned.is_empty() && failed.is_empty() {
        return Some(first);
    }
    // Keys are known now: surfaces and providers can say which are missing.
    for key in &learned {
        world.queue.add_all(users_of_secret(&world.tables, key));
    }
    compile(
        &inputs(world, &scope, synced, &config_maps, &failed),
        &work.key,
    )
}

/// Short, and without what a body may hold.
fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// What writing an agent's objects gave.
struct Outcome {
    materialized: Option<Materialized>,
    /// When earlier tokens may go without an event.
    look_again: Option<Duration>,
    errors: Vec<ReconcileError>,
}

/// Identity, mediator's files, and what is published. The mediator's Secret is written even
/// when another object cannot be: it is the one that revokes.
async fn write_agent(world: &World, agent: &Agent, compiled: &Compilation) -> Outcome {
    let mut outcome = Outcome {
        materialized: None,
        look_again: None,
        errors: Vec::new(),
    };
    let tokens = match write_identity(world, agent, compiled).await {
        Ok((tokens, look_again)) => {
            outcome.look_again = look_again;
            tokens
        }
        Err(error @ ReconcileError::Apply(ApplyError::Conflict { .. })) => {
            // Somebody else's Secret of that name lets nobody in.
            outcome.errors.push(error);
            Vec::new()
        }
        // Which tokens are valid is not known: better an old version than none.
        Err(error) => {
            outcome.errors.push(error);
            return outcome;
        }
    };
    let last_good = match last_good(world, agent, compiled).await {
        Ok(last_good) => last_good,
        Err(error) => {
            outcome.errors.push(error);
            return outcome;
        }
    };
    let materialized = materialize(compiled, &|key| value(world, key), &last_good, &tokens);
    for object in compiled.objects() {
        let mut desired = Desired {
            key: object.key,
            labels: object.labels,
            annotations: object.annotations,
            data: object
                .data
                .into_iter()
                .map(|(k, text)| (k, text.into_bytes()))
                .collect(),
        };
        let result = match object.role {
            Role::Identity => continue,
            Role::Mediator => {
                desired.annotations.extend(materialized.annotations.clone());
                desired.data = materialized.files.clone();
                put(world, &world.tables.secrets, agent, &desired).await
            }
            Role::Manifest | Role::Context => {
                put(world, &world.tables.config_maps, agent, &desired).await
            }
        };
        if let Err(error) = result {
            outcome.errors.push(error);
        }
    }
    outcome.materialized = Some(materialized);
    outcome
}

/// Applies one object and remembers what is in place.
async fn put<K: Carrier>(
    world: &World,
    table: &Scoped<K>,
    agent: &Agent,
    desired: &Desired,
) -> Result<(), ReconcileError> {
    let last: Option<Applied> = world.memory().applied.get(&desired.key).cloned();
    let owner = apply::owner(agent);
    if !world.leading() {
        return Err(ReconcileError::NotLeading);
    }
    let (verb, applied) =
        apply::apply(&world.client, table, &owner, desired, last.as_ref()).await?;
    world.memory().applied.insert(desired.key.clone(), applied);
    match verb {
        Verb::Unchanged => {}
        Verb::Created => {
            world.metrics.wrote(K::KIND, "create");
            tracing::info!(object = %desired.key, kind = K::KIND, "created");
        }
        Verb::Patched => {
            world.metrics.wrote(K::KIND, "patch");
            tracing::info!(object = %desired.key, kind = K::KIND, "changed");
        }
    }
    Ok(())
}

/// The identity Secret as it should be; its valid tokens.
async fn write_identity(
    world: &World,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<(Vec<RunnerToken>, Option<Duration>), ReconcileError> {
    let table = &world.tables.secrets;
    let Some(object) = compiled
        .objects()
        .into_iter()
        .find(|o| o.role == Role::Identity)
    else {
        return Ok((Vec::new(), None));
    };
    let key = object.key;
    let read = |error| ReconcileError::ReadSecret(key.clone(), error);
    world.readers.read_secret(table, &key).await.map_err(read)?;
    let current = match table.look_up(&key) {
        Presence::Present(found) => {
            match apply::standing(found.meta(), &apply::owner(agent)) {
                Standing::Ours => {}
                Standing::Leftover => {
                    return Err(ApplyError::Leftover {
                        kind: "Secret",
                        key,
                    }
                    .into());
                }
                Standing::Foreign => {
                    return Err(ApplyError::Conflict {
                        kind: "Secret",
                        key,
                    }
                    .into());
                }
            }
            // Read, but of a newer version than the watch has brought: soon.
            let values = world
                .readers
                .secret_values(table, &key)
                .ok_or(ReconcileError::NotSynced)?;
            Some(Identity {
                data: (*values).clone(),
                annotations: found.meta().annotations.clone().unwrap_or_default(),
            })
        }
        Presence::Absent => {
            let made = world.memory().applied.contains_key(&key);
            if made && exists(world, &key).await? {
                // Another token now would lock out whoever got the one made a moment ago.
                return Err(ReconcileError::NotSynced);
            }
            None
        }
        Presence::Unknown(why) => return Err(ReconcileError::NotWatched(key, why)),
    };
    let now = Timestamp::now();
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(ReconcileError::Random)?;
    let rotate = agent
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::ROTATE_ANNOTATION))
        .map(String::as_str);
    let wanted = identity(
        &compiled.agent.name,
        current.as_ref(),
        rotate,
        &pod_births(world, &compiled.agent),
        now,
        || random,
    );
    let mut annotations = object.annotations;
    annotations.extend(wanted.annotations.clone());
    let data = wanted
        .data
        .iter()
        .map(|(key, value)| (key.clone(), value.expose().as_bytes().to_vec()))
        .collect();
    let desired = Desired {
        key,
        labels: object.labels,
        annotations,
        data,
    };
    put(world, table, agent, &desired).await?;
    Ok((runner_tokens(&wanted.data), look_again(&wanted, now)))
}

async fn exists(world: &World, secret: &ObjectRef) -> Result<bool, ReconcileError> {
    let api: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(world.client.clone(), &secret.namespace);
    api.get_opt(&secret.name)
        .await
        .map(|found| found.is_some())
        .map_err(|error| ReconcileError::ReadSecret(secret.clone(), error))
}

fn pod_births(world: &World, agent: &ObjectRef) -> Vec<Timestamp> {
    agent_pods(world, agent)
        .iter()
        .filter_map(|pod| pod.meta().creation_timestamp.as_ref())
        .map(|time| time.0)
        .collect()
}

type PodMeta = super::decode::MetaOf<k8s_openapi::api::core::v1::Pod>;

/// Pods of the agent that have not ended.
fn agent_pods(world: &World, agent: &ObjectRef) -> Vec<std::sync::Arc<PodMeta>> {
    let mut pods = world.tables.pods.namespace(&agent.namespace);
    pods.retain(|pod| {
        pod.meta()
            .labels
            .as_ref()
            .and_then(|labels| labels.get(names::AGENT_LABEL))
            == Some(&agent.name)
    });
    pods
}

fn value(world: &World, reference: &SecretKeyRef) -> Option<SecretText> {
    world
        .readers
        .secret_values(&world.tables.secrets, &reference.secret)?
        .get(&reference.key)
        .cloned()
}

/// What the compiled Secret holds now, if a source of the new one cannot be read.
async fn last_good(
    world: &World,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<LastGood, ReconcileError> {
    let unknown = compiled
        .sources
        .values()
        .any(|source| source.state == SourceState::Unknown);
    if !unknown {
        return Ok(LastGood::default());
    }
    let key = ObjectRef::new(
        compiled.agent.namespace.clone(),
        names::mediator_secret(&compiled.agent.name),
    );
    let api: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(world.client.clone(), &key.namespace);
    let found = api
        .get_opt(&key.name)
        .await
        .map_err(|error| ReconcileError::ReadSecret(key.clone(), error))?
        // Somebody else's Secret holds nothing of ours.
        .filter(|found| apply::standing(found.meta(), &apply::owner(agent)) == Standing::Ours);
    Ok(found.map_or_else(LastGood::default, |found| {
        LastGood::read(
            found
                .metadata
                .annotations
                .as_ref()
                .unwrap_or(&BTreeMap::new()),
            &found.content(),
        )
    }))
}

/// Status, events, and when to look again.
async fn report_agent(
    world: &World,
    work: &Work,
    agent: &Agent,
    compiled: &Compilation,
    outcome: Outcome,
) -> Result<Done, ReconcileError> {
    let key = &work.key;
    let digests = outcome
        .materialized
        .as_ref()
        .map(|materialized| &materialized.digests);
    if let (Some(digests), true) = (digests, outcome.errors.is_empty()) {
        let mut memory = world.memory();
        let remembered = memory
            .agents
            .entry(key.clone())
            .or_insert_with(|| AgentMemory {
                want: digests.clone(),
                since: Instant::now(),
                usage_written: None,
            });
        if remembered.want != *digests {
            remembered.want = digests.clone();
            remembered.since = Instant::now();
        }
    }
    let memory = world.memory().agents.get(key).cloned();
    let (pods, pods_wait) = pods(world, key, memory.as_ref());
    let usage = world.reports().usage(key);
    let shown = counted(
        agent
            .status
            .as_ref()
            .and_then(|status| status.usage.as_ref()),
    );
    let usage_wait = memory
        .as_ref()
        .and_then(|memory| memory.usage_written)
        .map_or(Duration::ZERO, |written| {
            world
                .settings
                .usage_interval
                .saturating_sub(written.elapsed())
        });
    let write_usage = usage != shown && usage_wait.is_zero();

    let (tools, withheld) = given(compiled, outcome.materialized.as_ref());
    let facts = AgentFacts {
        generation: agent.metadata.generation,
        mode: match compiled.files.agent.mode {
            toolcrib_manifest::Mode::Mediated => Mode::Mediated,
            toolcrib_manifest::Mode::Native => Mode::Native,
        },
        refusal: compiled.refusal.as_ref(),
        tools: &tools,
        withheld: &withheld,
        diagnostics: &compiled.diagnostics,
        digests,
        kept: outcome
            .materialized
            .iter()
            .flat_map(|materialized| &materialized.kept)
            .map(ToString::to_string)
            .collect(),
        written: written(&outcome.errors),
        pods,
        usage: write_usage.then(|| usage.clone()),
    };
    report::agent(world, work, agent, &facts).await?;
    if write_usage && let Some(memory) = world.memory().agents.get_mut(key) {
        memory.usage_written = Some(Instant::now());
    }

    let waits = [
        pods_wait,
        outcome.look_again,
        (usage != shown && !write_usage).then_some(usage_wait),
    ];
    match outcome.errors.into_iter().next() {
        // Said in status; only another configuration can change it.
        Some(ReconcileError::NotWatched(key, _))
            if !world.settings.secrets.covers(&key.namespace) =>
        {
            return Ok(Done::Settled);
        }
        Some(error) => return Err(error),
        None => {}
    }
    Ok(waits
        .into_iter()
        .flatten()
        .min()
        .map_or(Done::Settled, Done::Again))
}

/// The tools that are really in the files, and what is withheld.
fn given(
    compiled: &Compilation,
    materialized: Option<&Materialized>,
) -> (Vec<toolcrib_compile::ToolSummary>, Vec<Withheld>) {
    let late: BTreeSet<&str> = materialized
        .iter()
        .flat_map(|materialized| &materialized.withheld)
        .map(String::as_str)
        .collect();
    let tools = compiled
        .tools
        .iter()
        .filter(|tool| !late.contains(tool.name.as_str()))
        .cloned()
        .collect();
    let withheld = compiled
        .withheld
        .iter()
        .cloned()
        .chain(late.iter().map(|what| Withheld {
            what: (*what).to_owned(),
            code: Code::SecretUnknown,
            message: "its credential could not be read".to_owned(),
        }))
        .collect();
    (tools, withheld)
}

fn written(errors: &[ReconcileError]) -> Written {
    let conflict = errors.iter().find_map(|error| match error {
        ReconcileError::Apply(conflict @ ApplyError::Conflict { .. }) => Some(conflict.to_string()),
        _ => None,
    });
    match (conflict, errors.first()) {
        (Some(conflict), _) => Written::Conflict(conflict),
        (None, Some(error)) => Written::Failed(chain(error)),
        (None, None) => Written::Done,
    }
}

/// An error for the user: with the API server's own words, which say what to do about
/// missing rights.
fn chain(error: &ReconcileError) -> String {
    match error {
        ReconcileError::Apply(ApplyError::Api {
            source: kube::Error::Api(status),
            ..
        })
        | ReconcileError::ReadSecret(_, kube::Error::Api(status)) => {
            format!("{error}: {}", status.message)
        }
        other => other.to_string(),
    }
}

/// What the agent's pods say, and when one of them becomes overdue.
fn pods(
    world: &World,
    agent: &ObjectRef,
    memory: Option<&AgentMemory>,
) -> (Vec<PodState>, Option<Duration>) {
    let now = Timestamp::now();
    let limit = world.settings.stale_after;
    let mut wait: Option<Duration> = None;
    let reports = world.reports();
    let states = agent_pods(world, agent)
        .iter()
        .filter(|pod| pod.meta().deletion_timestamp.is_none())
        .map(|pod| {
            let meta = pod.meta();
            let said = meta.uid.as_deref().and_then(|uid| reports.pod(uid));
            let news = match said {
                None => PodNews::None,
                Some(said) => match (&said.error, &said.loaded) {
                    (Some(error), _) => PodNews::Rejected(error.clone()),
                    (None, Some(loaded)) if memory.is_some_and(|m| m.want == *loaded) => {
                        PodNews::Loaded
                    }
                    (None, _) => PodNews::Behind,
                },
            };
            let age = meta
                .creation_timestamp
                .as_ref()
                .and_then(|created| Duration::try_from(now.duration_since(created.0)).ok())
                .unwrap_or_default();
            let waiting = memory
                .map_or(Duration::ZERO, |memory| memory.since.elapsed())
                .min(age);
            let overdue = waiting >= limit;
            if news != PodNews::Loaded && !overdue {
                let left = limit - waiting + Duration::from_secs(1);
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            }
            PodState {
                name: meta.name.clone().unwrap_or_default(),
                news,
                overdue,
                withheld: said.map(|said| said.withheld.clone()).unwrap_or_default(),
            }
        })
        .collect();
    (states, wait)
}
