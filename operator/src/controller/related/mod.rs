//! Whom a change concerns.
//!
//! Here: what a change is asked, and everything at once. Reading order: [`users`] (who
//! names what), [`ours`] (the API's own kinds), [`cluster`] (Kubernetes' kinds that they
//! refer to). Not here: watching, and waiting in line.
//!
//! Invariant: level-based. A key in line means "look again", never what happened. When in
//! doubt a whole namespace is looked at again: compiling an agent whose inputs did not
//! change writes nothing. Changes of status alone, including our own, concern nobody.

mod cluster;
mod ours;
mod users;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube::Resource;
use toolcrib_compile::ObjectRef;

use super::work::{Work, WorkKind};
use crate::objects::decode::Decoded;
use crate::objects::stores::Tables;
use crate::objects::tables::{Change, Table};
pub use cluster::{material_in_use, users_of_material, users_of_secret};

type Related = BTreeSet<Work>;

/// A change of a kind that the controller watches.
pub trait Concerns: Sized {
    fn concerns(change: &Change<Self>, tables: &Tables) -> Related;

    /// Of the kinds whose status is ours: which kind, and a digest of what it says.
    fn status(&self) -> Option<(WorkKind, u64)> {
        None
    }
}

/// Of what is only compared, as a status's text is.
pub fn digest(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Everything there is, for a start and for the periodic second look.
pub fn everything(tables: &Tables) -> Related {
    let mut all = Related::new();
    fn add<K: Resource + Clone>(table: &Table<Decoded<K>>, kind: WorkKind, all: &mut Related) {
        all.extend(table.all().iter().map(|object| kind.work(key(&**object))));
    }
    add(&tables.agents, WorkKind::Agent, &mut all);
    add(&tables.surfaces, WorkKind::Surface, &mut all);
    add(&tables.grants, WorkKind::ToolGrant, &mut all);
    add(&tables.defaults, WorkKind::ToolDefaults, &mut all);
    add(&tables.providers, WorkKind::ModelProvider, &mut all);
    all
}

fn here<K>(change: &Change<K>) -> ObjectRef {
    ObjectRef::new(change.namespace.clone(), change.name.clone())
}

fn key(object: &impl Resource) -> ObjectRef {
    let meta = object.meta();
    ObjectRef::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube_runtime::watcher::Event;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::objects::stores::Scoped;
    use crate::objects::stores::SecretScope;
    use crate::objects::tables::{Filler, Stored, Table};

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
        K: Stored + DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        Filler::new(table.clone()).apply(Event::Apply(object))
    }

    /// Two agents, two surfaces with a credential each; `otter` uses reed, `newt` uses mud.
    fn pond() -> Tables {
        let tables = Tables::new(&SecretScope::Cluster, usize::MAX);
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
        K: Stored + DeserializeOwned + Concerns,
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
    fn a_service_concerns_who_names_it_shortly_or_by_its_address() {
        let tables = pond();
        for (surface, url) in [("lake", "http://perch.pond"), ("sea", "https://10.96.0.7")] {
            feed(
                &tables.surfaces,
                object("Surface", surface, json!({ "url": url })),
            );
        }
        let service = |name: &str, spec: Value| {
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": meta(name, "1", 1),
                "spec": spec,
            })
        };
        let perch = service("perch", json!({"ports": [{"port": 80}]}));
        assert_eq!(
            check(&tables, &tables.services, perch),
            names(&["Surface lake"])
        );
        let pike = service("pike", json!({"clusterIP": "10.96.0.7"}));
        assert_eq!(
            check(&tables, &tables.services, pike),
            names(&["Surface sea"])
        );
        let mut gone = service("pike", json!({"clusterIP": "10.96.0.8"}));
        gone["metadata"] = meta("pike", "2", 1);
        assert_eq!(
            check(&tables, &tables.services, gone),
            names(&["Surface sea"])
        );
    }

    /// Every agent's files name its addresses.
    #[test]
    fn the_service_of_the_name_servers_concerns_every_agent() {
        let tables = pond();
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta("kube-dns", "1", 1),
            "spec": {"clusterIP": "10.96.0.10"},
        });
        let expected = names(&[]);
        assert_eq!(check(&tables, &tables.services, service.clone()), expected);
        service["metadata"]["namespace"] = json!("kube-system");
        let expected = names(&["Agent newt", "Agent otter"]);
        assert_eq!(check(&tables, &tables.services, service), expected);
    }

    #[test]
    fn labels_of_a_namespace_concern_all_that_depends_on_consent() {
        let tables = pond();
        let foreign = json!([{"surface": {"name": "pike", "namespace": "lake"}, "allow": ["*"]}]);
        feed(
            &tables.grants,
            object(
                "ToolGrant",
                "far",
                json!({"agents": ["otter"], "tools": foreign}),
            ),
        );
        feed(
            &tables.defaults,
            object("ToolDefaults", "default", json!({"feeds": foreign})),
        );
        feed(
            &tables.agents,
            object(
                "Agent",
                "eel",
                json!({"surfaces": [{"name": "pike", "namespace": "lake"}]}),
            ),
        );
        let namespace = |team: &str| {
            let mut meta = meta("pond", team, 1);
            meta["labels"] = json!({ "team": team });
            meta.as_object_mut().unwrap().remove("namespace");
            json!({ "metadata": meta })
        };
        let concerned = names(&[
            "Agent eel",
            "Surface pike",
            "ToolDefaults default",
            "ToolGrant far",
        ]);
        assert_eq!(
            check(&tables, &tables.namespaces, namespace("1")),
            concerned
        );
        assert_eq!(
            check(&tables, &tables.namespaces, namespace("2")),
            concerned
        );
        assert_eq!(
            check(&tables, &tables.namespaces, namespace("2")),
            names(&[])
        );
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
