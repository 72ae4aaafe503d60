//! Whom a change concerns.
//!
//! Level-based: a key in line means "look again", never what happened. When in doubt a
//! whole namespace is looked at again: compiling an agent whose inputs did not change
//! writes nothing. Changes of status alone, including our own, concern nobody.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use kube::Resource;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::decode::{Decoded, MetaOf};
use super::names_in;
use super::stores::Tables;
use super::tables::Change;
use super::work::{Work, WorkKind};

type Related = BTreeSet<Work>;

fn here<K>(change: &Change<K>) -> ObjectRef {
    ObjectRef::new(change.namespace.clone(), change.name.clone())
}

/// Old and new version, as far as each exists and can be read.
fn versions<K>(change: &Change<Decoded<K>>) -> Vec<&K> {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .filter_map(|object| object.object.as_ref().ok())
        .map(|object| &**object)
        .collect()
}

fn unreadable<K>(change: &Change<Decoded<K>>) -> bool {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .any(|object| object.object.is_err())
}

/// Whether anything but status and bookkeeping differs.
fn matters<K: Resource>(change: &Change<K>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return true;
    };
    let (old, new) = (old.meta(), new.meta());
    let rotate = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        meta.annotations
            .as_ref()
            .and_then(|all| all.get(names::ROTATE_ANNOTATION))
            .cloned()
    };
    old.uid != new.uid
        || old.generation.is_none()
        || old.generation != new.generation
        || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
        || rotate(old) != rotate(new)
}

/// Agents that have one of these surfaces in their spec, and grants and defaults that name
/// one.
fn users_of_surfaces(tables: &Tables, surfaces: &BTreeSet<ObjectRef>, related: &mut Related) {
    for agent in tables.agents.all() {
        if let Ok(agent) = &agent.object
            && !names_in::agent_surfaces(agent).is_disjoint(surfaces)
        {
            related.insert(WorkKind::Agent.work(key(&**agent)));
        }
    }
    for grant in tables.grants.all() {
        if let Ok(grant) = &grant.object
            && !names_in::grant_surfaces(grant).is_disjoint(surfaces)
        {
            related.insert(WorkKind::ToolGrant.work(key(&**grant)));
        }
    }
    for defaults in tables.defaults.all() {
        if let Ok(defaults) = &defaults.object
            && !names_in::defaults_surfaces(defaults).is_disjoint(surfaces)
        {
            related.insert(WorkKind::ToolDefaults.work(key(&**defaults)));
        }
    }
}

fn key(object: &impl Resource) -> ObjectRef {
    let meta = object.meta();
    ObjectRef::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn agents_in(tables: &Tables, namespace: &str, related: &mut Related) {
    related.extend(
        tables
            .agents
            .namespace(namespace)
            .iter()
            .map(|agent| WorkKind::Agent.work(key(&**agent))),
    );
}

/// Surfaces and providers of a namespace that `uses` picks, with everybody they concern.
fn users_of(
    tables: &Tables,
    namespace: &str,
    surface_uses: impl Fn(&Surface) -> bool,
    provider_uses: impl Fn(&ModelProvider) -> bool,
    related: &mut Related,
) {
    let surfaces: BTreeSet<ObjectRef> = tables
        .surfaces
        .namespace(namespace)
        .iter()
        .filter_map(|surface| surface.object.as_ref().ok())
        .filter(|surface| surface_uses(surface))
        .map(|surface| key(&**surface))
        .collect();
    if !surfaces.is_empty() {
        users_of_surfaces(tables, &surfaces, related);
        related.extend(surfaces.into_iter().map(|key| WorkKind::Surface.work(key)));
    }
    let providers: Vec<ObjectRef> = tables
        .providers
        .namespace(namespace)
        .iter()
        .filter_map(|provider| provider.object.as_ref().ok())
        .filter(|provider| provider_uses(provider))
        .map(|provider| key(&**provider))
        .collect();
    if !providers.is_empty() {
        agents_in(tables, namespace, related);
        related.extend(
            providers
                .into_iter()
                .map(|key| WorkKind::ModelProvider.work(key)),
        );
    }
}

/// The agent that an object of ours was compiled for.
fn compiled_for(old: Option<&impl Resource>, new: Option<&impl Resource>, related: &mut Related) {
    let mut add = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name));
        if let Some(agent) = label(names::COMPILED_FOR_LABEL) {
            let namespace = meta.namespace.clone().unwrap_or_default();
            related.insert(WorkKind::Agent.work(ObjectRef::new(namespace, agent.clone())));
        }
    };
    if let Some(old) = old {
        add(old.meta());
    }
    if let Some(new) = new {
        add(new.meta());
    }
}

/// A change of a kind that the controller watches.
pub trait Concerns: Sized {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related;
}

impl Concerns for Decoded<Agent> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if !matters(change) {
            return related;
        }
        related.insert(WorkKind::Agent.work(here(change)));
        for agent in versions(change) {
            related.extend(
                names_in::agent_surfaces(agent)
                    .into_iter()
                    .map(|key| WorkKind::Surface.work(key)),
            );
        }
        // Counts of the namespace's grants, defaults and providers.
        for grant in tables.grants.namespace(&change.namespace) {
            if grant
                .object
                .as_ref()
                .is_ok_and(|grant| grant.spec.agents.contains(&change.name))
            {
                related.insert(WorkKind::ToolGrant.work(key(&*grant)));
                // Whoever shares a grant with it hears whether it exists.
                if (change.old.is_none() || change.new.is_none())
                    && let Ok(grant) = &grant.object
                {
                    related.extend(grant.spec.agents.iter().map(|agent| {
                        WorkKind::Agent
                            .work(ObjectRef::new(change.namespace.clone(), agent.clone()))
                    }));
                }
            }
        }
        for defaults in tables.defaults.namespace(&change.namespace) {
            related.insert(WorkKind::ToolDefaults.work(key(&*defaults)));
        }
        for provider in tables.providers.namespace(&change.namespace) {
            related.insert(WorkKind::ModelProvider.work(key(&*provider)));
        }
        related
    }
}

impl Concerns for Decoded<Surface> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if matters(change) {
            users_of_surfaces(tables, &BTreeSet::from([here(change)]), &mut related);
            related.insert(WorkKind::Surface.work(here(change)));
        }
        related
    }
}

impl Concerns for Decoded<ToolGrant> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if !matters(change) {
            return related;
        }
        related.insert(WorkKind::ToolGrant.work(here(change)));
        for grant in versions(change) {
            related.extend(grant.spec.agents.iter().map(|agent| {
                WorkKind::Agent.work(ObjectRef::new(change.namespace.clone(), agent.clone()))
            }));
        }
        if unreadable(change) {
            agents_in(tables, &change.namespace, &mut related);
        }
        related
    }
}

impl Concerns for Decoded<ToolDefaults> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if matters(change) {
            related.insert(WorkKind::ToolDefaults.work(here(change)));
            agents_in(tables, &change.namespace, &mut related);
            // Defaults may set models, which decide who consumes a provider.
            for provider in tables.providers.namespace(&change.namespace) {
                related.insert(WorkKind::ModelProvider.work(key(&*provider)));
            }
        }
        related
    }
}

impl Concerns for Decoded<ModelProvider> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        if matters(change) {
            related.insert(WorkKind::ModelProvider.work(here(change)));
            agents_in(tables, &change.namespace, &mut related);
        }
        related
    }
}

impl Concerns for Decoded<Service> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        // Services carry no generation; their spec is small enough to compare.
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && let (Ok(old), Ok(new)) = (&old.object, &new.object)
            && old.spec == new.spec
        {
            return related;
        }
        let service = here(change);
        users_of(
            tables,
            &change.namespace,
            |surface| names_in::surface_service(surface).as_ref() == Some(&service),
            |_| false,
            &mut related,
        );
        related
    }
}

/// Surfaces and providers that a Secret is a credential of.
pub fn users_of_secret(tables: &Tables, secret: &ObjectRef) -> Related {
    let mut related = Related::new();
    users_of(
        tables,
        &secret.namespace,
        |surface| names_in::surface_secrets(surface).contains(secret),
        |provider| names_in::provider_secrets(provider).contains(secret),
        &mut related,
    );
    related.retain(|work| work.kind != WorkKind::Agent);
    related
}

impl Concerns for MetaOf<Secret> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        compiled_for(change.old.as_deref(), change.new.as_deref(), &mut related);
        let secret = here(change);
        users_of(
            tables,
            &change.namespace,
            |surface| names_in::surface_secrets(surface).contains(&secret),
            |provider| names_in::provider_secrets(provider).contains(&secret),
            &mut related,
        );
        for agent in tables.agents.namespace(&change.namespace) {
            if agent
                .object
                .as_ref()
                .is_ok_and(|a| names_in::agent_secrets(a).contains(&secret))
            {
                related.insert(WorkKind::Agent.work(key(&*agent)));
            }
        }
        related
    }
}

impl Concerns for MetaOf<ConfigMap> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        compiled_for(change.old.as_deref(), change.new.as_deref(), &mut related);
        let config_map = here(change);
        users_of(
            tables,
            &change.namespace,
            |surface| names_in::surface_config_maps(surface).contains(&config_map),
            |provider| names_in::provider_config_maps(provider).contains(&config_map),
            &mut related,
        );
        related
    }
}

impl Concerns for MetaOf<Pod> {
    fn concerns(change: &Change<Self>, _: &Tables) -> Related {
        let label = |pod: &Self| {
            let labels = pod.meta().labels.as_ref()?;
            Some((
                labels.get(names::AGENT_LABEL)?.clone(),
                pod.meta().deletion_timestamp.is_some(),
            ))
        };
        let old = change.old.as_deref().and_then(label);
        let new = change.new.as_deref().and_then(label);
        // A pod's own status changes often and says nothing to us.
        if old == new {
            return Related::new();
        }
        [old, new]
            .into_iter()
            .flatten()
            .map(|(agent, _)| WorkKind::Agent.work(ObjectRef::new(change.namespace.clone(), agent)))
            .collect()
    }
}

impl Concerns for MetaOf<Namespace> {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related {
        let mut related = Related::new();
        let labels = |side: &Option<std::sync::Arc<Self>>| {
            side.as_ref()
                .and_then(|namespace| namespace.meta().labels.clone())
        };
        if labels(&change.old) == labels(&change.new) {
            return related;
        }
        // Its labels decide which other namespaces' surfaces its agents may use.
        for agent in tables.agents.namespace(&change.name) {
            let Ok(object) = &agent.object else { continue };
            let foreign: Vec<ObjectRef> = names_in::agent_surfaces(object)
                .into_iter()
                .filter(|surface| surface.namespace != change.name)
                .collect();
            if !foreign.is_empty() {
                related.insert(WorkKind::Agent.work(key(&*agent)));
                related.extend(foreign.into_iter().map(|key| WorkKind::Surface.work(key)));
            }
        }
        related
    }
}

/// Everything there is, for a start and for the periodic second look.
pub fn everything(tables: &Tables) -> Related {
    let mut all = Related::new();
    fn add<K: Resource + Clone>(
        table: &super::tables::Table<Decoded<K>>,
        kind: WorkKind,
        all: &mut Related,
    ) {
        all.extend(table.all().iter().map(|object| kind.work(key(&**object))));
    }
    add(&tables.agents, WorkKind::Agent, &mut all);
    add(&tables.surfaces, WorkKind::Surface, &mut all);
    add(&tables.grants, WorkKind::ToolGrant, &mut all);
    add(&tables.defaults, WorkKind::ToolDefaults, &mut all);
    add(&tables.providers, WorkKind::ModelProvider, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube_runtime::watcher::Event;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::settings::SecretScope;
    use crate::controller::stores::Scoped;
    use crate::controller::tables::{Filler, Table};

    fn meta(name: &str, version: &str, generation: i64) -> Value {
        json!({
            "name": name, "namespace": "pond", "uid": format!("uid-{name}"),
            "resourceVersion": version, "generation": generation,
        })
    }

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
            "metadata": meta(name, "1", 1), "spec": spec,
        })
    }

    fn feed<K>(table: &Table<K>, object: Value) -> Vec<Change<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        Filler::new(table.clone()).apply(Event::Apply(object))
    }

    /// Two agents, two surfaces with a credential each; `otter` uses reed, `newt` uses mud.
    fn pond() -> Tables {
        let tables = Tables::new(&SecretScope::Cluster);
        for (surface, agent) in [("reed", "otter"), ("mud", "newt")] {
            feed(
                &tables.surfaces,
                object(
                    "Surface",
                    surface,
                    json!({
                        "service": {"name": format!("{surface}-service"), "port": 80},
                        "auth": {"secretKeyRef": {"name": format!("{surface}-key"), "key": "k"}},
                    }),
                ),
            );
            feed(
                &tables.agents,
                object("Agent", agent, json!({"surfaces": [{"name": surface}]})),
            );
            feed(
                &tables.grants,
                object(
                    "ToolGrant",
                    &format!("{agent}-grant"),
                    json!({
                        "agents": [agent],
                        "tools": [{"surface": {"name": surface}, "allow": ["*"]}],
                    }),
                ),
            );
        }
        tables
    }

    /// Whom the change that `event` makes concerns, as `Kind name`.
    fn check<K>(tables: &Tables, table: &Table<K>, event: Value) -> BTreeSet<String>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Concerns,
    {
        feed(table, event)
            .iter()
            .flat_map(|change| K::concerns(change, tables))
            .map(|work| format!("{} {}", work.kind.kind().name(), work.key.name))
            .collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_grant_that_moves_concerns_who_had_it_and_who_has_it() {
        let tables = pond();
        let mut moved = object("ToolGrant", "otter-grant", json!({"agents": ["newt"]}));
        moved["metadata"] = meta("otter-grant", "2", 2);
        assert_eq!(
            check(&tables, &tables.grants, moved),
            names(&["Agent newt", "Agent otter", "ToolGrant otter-grant"])
        );
    }

    #[test]
    fn status_alone_concerns_nobody_and_a_rotation_does() {
        let tables = pond();
        let mut otter = object("Agent", "otter", json!({"surfaces": [{"name": "reed"}]}));
        otter["metadata"] = meta("otter", "2", 1);
        otter["status"] = json!({"toolCount": 1});
        assert_eq!(check(&tables, &tables.agents, otter.clone()), names(&[]));
        otter["metadata"]["resourceVersion"] = json!("3");
        otter["metadata"]["annotations"] = json!({"toolcrib.dev/rotate": "1"});
        assert!(check(&tables, &tables.agents, otter).contains("Agent otter"));
    }

    #[test]
    fn a_service_and_a_credential_concern_the_agents_of_their_surface() {
        let tables = pond();
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta("mud-service", "1", 1),
            "spec": {"ports": [{"port": 80}]},
        });
        let expected = names(&["Agent newt", "Surface mud", "ToolGrant newt-grant"]);
        assert_eq!(check(&tables, &tables.services, service), expected);
        let Scoped::Cluster(secrets) = &tables.secrets else {
            panic!("cluster-wide")
        };
        let secret = json!({"kind": "PartialObjectMetadata", "metadata": meta("mud-key", "1", 1)});
        assert_eq!(check(&tables, secrets, secret), expected);
        let stranger = json!({"metadata": meta("somebody-elses", "1", 1)});
        assert_eq!(check(&tables, secrets, stranger), names(&[]));
    }

    #[test]
    fn a_compiled_object_concerns_its_agent() {
        let tables = pond();
        let Scoped::Cluster(secrets) = &tables.secrets else {
            panic!("cluster-wide")
        };
        let mut ours = json!({"metadata": meta("toolcrib-otter-mediator", "1", 1)});
        ours["metadata"]["labels"] = json!({"toolcrib.dev/compiled-for": "otter"});
        assert_eq!(check(&tables, secrets, ours), names(&["Agent otter"]));
    }

    #[test]
    fn a_grant_that_cannot_be_read_concerns_its_whole_namespace() {
        let tables = pond();
        let mut broken = object("ToolGrant", "otter-grant", json!({"agents": 5}));
        broken["metadata"] = meta("otter-grant", "2", 2);
        assert_eq!(
            check(&tables, &tables.grants, broken),
            names(&["Agent newt", "Agent otter", "ToolGrant otter-grant"])
        );
    }
}
