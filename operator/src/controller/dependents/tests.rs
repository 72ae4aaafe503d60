//! Tests that a change affects all work whose result it changes, by the keys of earlier
//! compilations.

use std::fmt::Debug;

use kube_runtime::watcher::Event;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, Objects};

use super::affected::{WatchedObject, affected, everything};
use super::*;
use crate::controller::queue::work::WorkKind;
use crate::controller::snapshot::tests::worlds::{OBJECTS, World, ours, world};
use crate::controller::snapshot::tests::{
    FromInputs, inputs, object, results, snapshot, stores, subject,
};
use crate::objects::store::{Store, StoreWriter};
use crate::objects::stores::{ScopedStore, Stores};

/// Compiles or checks the object of each work, and returns the results.
fn observe_all(
    stores: &Stores,
    material: &FromInputs,
    dependents: &Dependents,
    works: impl IntoIterator<Item = Work>,
) -> Vec<(Work, String)> {
    let observe = |work: Work| {
        let mut observation = dependents.observe(&work);
        let note = |key: &Key| observation.enter(key);
        let result = results(
            &snapshot(stores, material, &note),
            work.kind.kind(),
            &work.key,
        );
        observation.set_whole(true);
        drop(observation);
        (work, result)
    };
    works.into_iter().map(observe).collect()
}

/// Puts an object into its store, and returns the affected work.
fn put<K>(
    store: &Store<K>,
    stores: &Stores,
    dependents: &Dependents,
    object: Value,
) -> BTreeSet<Work>
where
    K: WatchedObject + DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object of its kind");
    apply(store, stores, dependents, Event::Apply(object))
}

fn apply<K: WatchedObject>(
    store: &Store<K>,
    stores: &Stores,
    dependents: &Dependents,
    event: Event<K>,
) -> BTreeSet<Work> {
    let changes = StoreWriter::new(store.clone()).apply(event);
    let affected = changes
        .iter()
        .map(|change| affected(change, stores, dependents));
    affected.flatten().collect()
}

/// The store of a kind, for a call of a generic function.
macro_rules! with_store {
    ($kind:expr, $stores:expr, $store:ident => $do:expr) => {{
        let (ScopedStore::Cluster(secrets), ScopedStore::Cluster(config_maps)) =
            (&$stores.secrets, &$stores.config_maps)
        else {
            panic!("cluster-wide")
        };
        match $kind {
            Kind::Agent => {
                let $store = &$stores.agents;
                $do
            }
            Kind::Surface => {
                let $store = &$stores.surfaces;
                $do
            }
            Kind::ToolGrant => {
                let $store = &$stores.grants;
                $do
            }
            Kind::ToolDefaults => {
                let $store = &$stores.defaults;
                $do
            }
            Kind::ClusterToolPolicy => {
                let $store = &$stores.policies;
                $do
            }
            Kind::ModelProvider => {
                let $store = &$stores.providers;
                $do
            }
            Kind::Service => {
                let $store = &$stores.services;
                $do
            }
            Kind::Secret => {
                let $store = secrets;
                $do
            }
            Kind::ConfigMap => {
                let $store = config_maps;
                $do
            }
            Kind::Namespace => {
                let $store = &$stores.namespaces;
                $do
            }
        }
    }};
}

fn delete<K>(
    store: &Store<K>,
    stores: &Stores,
    dependents: &Dependents,
    object: Value,
) -> BTreeSet<Work>
where
    K: WatchedObject + DeserializeOwned,
{
    let object = serde_json::from_value(object).expect("an object of its kind");
    apply(store, stores, dependents, Event::Delete(object))
}

/// A change of an object.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// Takes the object of another world, which may be absent there.
    Replace,
    Delete,
    /// Makes its spec undecodable.
    Break,
}

/// The work of every object that a world may have.
fn works() -> impl Iterator<Item = Work> {
    OBJECTS.iter().map(|(kind, namespace, name, _)| {
        let kinds = [
            WorkKind::Agent,
            WorkKind::Surface,
            WorkKind::ToolGrant,
            WorkKind::ToolDefaults,
            WorkKind::ModelProvider,
            WorkKind::ClusterToolPolicy,
        ];
        let of_kind = kinds.into_iter().find(|known| known.kind().name() == *kind);
        let of_kind = of_kind.expect("a kind of Toolcrib's");
        of_kind.work(ObjectRef::new(*namespace, *name))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    /// Covers later changes too, whose entries come from the work that the first change affected.
    #[test]
    fn a_change_affects_all_work_whose_result_it_changes(
        before in world(),
        other in world(),
        edits in prop::collection::vec(
            (any::<Index>(), select(vec![Edit::Replace, Edit::Replace, Edit::Delete, Edit::Break])),
            1..4,
        ),
    ) {
        let stores = stores(&before);
        let dependents = Dependents::default();
        let mut world = before;
        let mut results: Vec<(Work, String)> =
            observe_all(&stores, &FromInputs(inputs(&world)), &dependents, works());
        for (which, edit) in edits {
            let names: BTreeSet<&String> = world.keys().chain(other.keys()).collect();
            let names: Vec<&String> = names.into_iter().collect();
            let name = which.get(&names).to_string();
            let (kind, key) = subject(&name);
            let old = world.remove(&name);
            let new = match edit {
                Edit::Replace => other.get(&name).cloned(),
                Edit::Delete => None,
                Edit::Break if kind == Kind::Namespace => None,
                Edit::Break => {
                    let broken = "surfaces: 7, agents: 7, url: 7, tools: 7, endpoints: 7, ports: 7";
                    Some(ours(kind.name(), &key.namespace, &key.name, broken).1)
                }
            };
            let affected = match (&old, &new) {
                (_, Some(text)) => {
                    with_store!(kind, &stores, store => put(store, &stores, &dependents, object(text)))
                }
                (Some(text), None) => {
                    with_store!(kind, &stores, store => delete(store, &stores, &dependents, object(text)))
                }
                (None, None) => BTreeSet::new(),
            };
            world.extend(new.map(|text| (name.clone(), text)));
            let material = FromInputs(inputs(&world));
            // The current results, without entries in the index.
            let now = observe_all(&stores, &material, &Dependents::default(), works());
            for ((work, was), (_, is)) in results.iter().zip(&now) {
                prop_assert!(
                    was == is || affected.contains(work),
                    "{edit:?} {name} changes {work:?}, which is not affected:\n{was}\n{is}"
                );
            }
            observe_all(&stores, &material, &dependents, affected);
            results = now;
        }
    }
}

/// Two agents, two surfaces with a credential each: `otter` uses `reed`, `newt` uses `mud`.
struct Pond {
    stores: Stores,
    material: FromInputs,
    dependents: Dependents,
}

fn meta(name: &str, version: &str, generation: i64) -> Value {
    json!({
        "name": name, "namespace": "pond", "uid": format!("uid-{name}"),
        "resourceVersion": version, "generation": generation,
    })
}

fn toolcrib(kind: &str, meta: Value, spec: Value) -> Value {
    json!({"apiVersion": "toolcrib.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec})
}

impl Pond {
    fn new() -> Self {
        let mut world = World::new();
        for (surface, agent) in [("reed", "otter"), ("mud", "newt")] {
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": meta(&format!("{surface}-service"), "1", 1),
                "spec": {"ports": [{"port": 80}]},
            });
            world.insert(
                format!("Service pond/{surface}-service"),
                service.to_string(),
            );
            let spec = format!(
                "service: {{name: {surface}-service, port: 80}}, auth: {{secretKeyRef: {{name: {surface}-key, key: k}}}}, descriptor: {{version: 2, tools: [{{name: list, $S, http: {{method: GET, path: /}}}}]}}"
            );
            world.extend([
                ours("Surface", "pond", surface, &spec),
                ours(
                    "Agent",
                    "pond",
                    agent,
                    &format!("surfaces: [{{name: {surface}}}]"),
                ),
                ours(
                    "ToolGrant",
                    "pond",
                    &format!("{agent}-grant"),
                    &format!(
                        "agents: [{agent}], tools: [{{surface: {{name: {surface}}}, allow: ['*']}}]"
                    ),
                ),
            ]);
        }
        Self::of(&world)
    }

    fn of(world: &World) -> Self {
        let pond = Self {
            stores: stores(world),
            material: FromInputs(inputs(world)),
            dependents: Dependents::default(),
        };
        pond.observe_all(everything(&pond.stores));
        pond
    }

    fn observe_all(&self, works: BTreeSet<Work>) {
        observe_all(&self.stores, &self.material, &self.dependents, works);
    }

    /// Puts an object, and returns the affected work as `KIND NAME`.
    fn put(&self, kind: Kind, object: Value) -> BTreeSet<String> {
        let affected = with_store!(kind, &self.stores, store => {
            put(store, &self.stores, &self.dependents, object)
        });
        self.observe_all(affected.clone());
        let named = affected
            .iter()
            .map(|work| format!("{} {}", work.kind.kind().name(), work.key.name));
        named.collect()
    }
}

#[track_caller]
fn check(affected: BTreeSet<String>, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(affected, expected);
}

#[test]
fn a_changed_grant_affects_the_agents_of_both_versions() {
    let pond = Pond::new();
    let moved = toolcrib(
        "ToolGrant",
        meta("otter-grant", "2", 2),
        json!({"agents": ["newt"]}),
    );
    check(
        pond.put(Kind::ToolGrant, moved),
        &["Agent newt", "Agent otter", "ToolGrant otter-grant"],
    );
}

#[test]
fn a_status_change_affects_nothing_and_a_rotation_affects_the_agent() {
    let pond = Pond::new();
    let spec = json!({"surfaces": [{"name": "reed"}]});
    let mut otter = toolcrib("Agent", meta("otter", "2", 1), spec);
    pond.put(Kind::Agent, otter.clone());
    otter["metadata"]["resourceVersion"] = json!("3");
    otter["status"] = json!({"toolCount": 1});
    check(pond.put(Kind::Agent, otter.clone()), &[]);
    otter["metadata"]["resourceVersion"] = json!("4");
    otter["metadata"]["annotations"] = json!({"toolcrib.dev/rotate": "1"});
    check(
        pond.put(Kind::Agent, otter),
        &["Agent otter", "Surface reed", "ToolGrant otter-grant"],
    );
}

/// Labels change no generation. Only agents that look for the label are affected by its grants.
#[test]
fn a_changed_label_affects_the_agent_and_the_grants_that_look_for_it() {
    let grant = |name: &str, role: &str| {
        let spec = format!(
            "agentSelector: {{matchLabels: {{grants.toolcrib.dev/role: {role}}}}}, tools: [{{surface: {{name: reed}}, allow: ['*']}}]"
        );
        ours("ToolGrant", "pond", name, &spec)
    };
    let world = [
        ours("Agent", "pond", "otter", "surfaces: []"),
        ours("Agent", "pond", "newt", "surfaces: []"),
        grant("readers", "reader"),
        grant("writers", "writer"),
    ];
    let pond = Pond::of(&world.into());
    let otter = |version: &str, labels: Value| {
        let mut otter = toolcrib("Agent", meta("otter", version, 1), json!({"surfaces": []}));
        otter["metadata"]["labels"] = labels;
        pond.put(Kind::Agent, otter)
    };
    // The first version here has a generation.
    otter("2", json!({}));
    let role = "grants.toolcrib.dev/role";
    check(otter("3", json!({"team": "reeds"})), &[]);
    check(
        otter("4", json!({role: "reader"})),
        &["Agent otter", "ToolGrant readers"],
    );
    check(
        otter("5", json!({role: "writer"})),
        &["Agent otter", "ToolGrant readers", "ToolGrant writers"],
    );
    let changed = |version: i64, role_is: &str| {
        let spec = json!({"agentSelector": {"matchLabels": {role: role_is}}});
        pond.put(
            Kind::ToolGrant,
            toolcrib(
                "ToolGrant",
                meta("readers", &version.to_string(), version),
                spec,
            ),
        )
    };
    check(changed(2, "admin"), &["ToolGrant readers"]);
    check(changed(3, "writer"), &["Agent otter", "ToolGrant readers"]);
    check(
        otter("6", json!({})),
        &["Agent otter", "ToolGrant readers", "ToolGrant writers"],
    );
}

#[test]
fn a_service_and_a_credential_affect_the_users_of_their_surface() {
    let pond = Pond::new();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta("mud-service", "2", 1),
        "spec": {"ports": [{"port": 81}]},
    });
    check(
        pond.put(Kind::Service, service),
        &["Agent newt", "Surface mud", "ToolGrant newt-grant"],
    );
    let secret = |name: &str| json!({"metadata": meta(name, "1", 1)});
    let reed = pond.put(Kind::Secret, secret("reed-key"));
    check(reed, &["Agent otter", "Surface reed"]);
    check(pond.put(Kind::Secret, secret("somebody-elses")), &[]);
}

#[test]
fn a_service_affects_the_surfaces_that_use_its_short_name_or_address() {
    let named = [("lake", "http://perch.pond"), ("sea", "https://10.96.0.7")];
    let named = named.map(|(name, url)| ours("Surface", "pond", name, &format!("url: '{url}'")));
    let pond = Pond::of(&named.into());
    let service = |name: &str, version: &str, spec: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta(name, version, 1),
            "spec": spec,
        })
    };
    let put = |object: Value| pond.put(Kind::Service, object);
    check(
        put(service("perch", "1", json!({"ports": [{"port": 80}]}))),
        &["Surface lake"],
    );
    let pike =
        |version: &str, address: &str| service("pike", version, json!({"clusterIP": address}));
    check(put(pike("1", "10.96.0.7")), &["Surface sea"]);
    check(put(pike("2", "10.96.0.8")), &["Surface sea"]);
    check(put(pike("3", "10.96.0.9")), &[]);
}

/// Every agent's files contain the addresses of the name servers.
#[test]
fn the_service_of_the_name_servers_affects_every_agent() {
    let pond = Pond::new();
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta("kube-dns", "1", 1),
        "spec": {"clusterIP": "10.96.0.10"},
    });
    check(pond.put(Kind::Service, service.clone()), &[]);
    service["metadata"]["namespace"] = json!("kube-system");
    check(
        pond.put(Kind::Service, service),
        &["Agent newt", "Agent otter"],
    );
}

#[test]
fn labels_of_a_namespace_affect_all_dependents_of_consent() {
    let consent = "url: 'https://pike.test', consumers: {namespaces: {from: Selector, selector: {matchLabels: {team: reeds}}}}";
    let foreign = "surface: {name: pike, namespace: lake}, allow: ['*']";
    let world = [
        ours("Surface", "lake", "pike", consent),
        ours(
            "Agent",
            "pond",
            "eel",
            "surfaces: [{name: pike, namespace: lake}]",
        ),
        ours("Agent", "pond", "otter", "surfaces: []"),
        ours(
            "ToolGrant",
            "pond",
            "far",
            &format!("agents: [otter], tools: [{{{foreign}}}]"),
        ),
        ours(
            "ToolDefaults",
            "pond",
            "default",
            &format!("feeds: [{{{foreign}}}]"),
        ),
    ];
    let pond = Pond::of(&world.into());
    let labelled = |version: &str, team: &str| {
        let meta = json!({"name": "pond", "resourceVersion": version, "labels": {"team": team}});
        pond.put(Kind::Namespace, json!({ "metadata": meta }))
    };
    let all = [
        "Agent eel",
        "Surface pike",
        "ToolDefaults default",
        "ToolGrant far",
    ];
    check(labelled("1", "reeds"), &all);
    check(labelled("2", "mud"), &all);
    check(labelled("3", "mud"), &[]);
}

#[test]
fn a_compiled_object_affects_its_agent() {
    let pond = Pond::new();
    let mut compiled = json!({"metadata": meta("toolcrib-otter-mediator", "1", 1)});
    compiled["metadata"]["labels"] = json!({"toolcrib.dev/compiled-for": "otter"});
    check(pond.put(Kind::Secret, compiled.clone()), &["Agent otter"]);
    check(pond.put(Kind::ConfigMap, compiled), &["Agent otter"]);
}

#[test]
fn a_grant_that_cannot_be_decoded_affects_every_agent_of_its_namespace() {
    let pond = Pond::new();
    let broken = |version: &str| {
        toolcrib(
            "ToolGrant",
            meta("otter-grant", version, 2),
            json!({"agents": 5}),
        )
    };
    let all = ["Agent newt", "Agent otter", "ToolGrant otter-grant"];
    check(pond.put(Kind::ToolGrant, broken("2")), &all);
}

/// Otherwise a change between the read and its entry would affect nothing.
#[test]
fn a_key_is_entered_before_its_answer_is_read() {
    let pond = Pond::of(&World::new());
    let otter = WorkKind::Agent.work(ObjectRef::new("pond", "otter"));
    let reed = ObjectRef::new("pond", "reed");
    let observation = pond.dependents.observe(&otter);
    let affected = Mutex::default();
    let note = |key: &Key| {
        observation.enter(key);
        let (_, text) = ours("Surface", "pond", "reed", "url: 'https://reed.test'");
        let found = put(
            &pond.stores.surfaces,
            &pond.stores,
            &pond.dependents,
            object(&text),
        );
        *affected.lock() = found;
    };
    let snapshot = snapshot(&pond.stores, &pond.material, &note);
    assert!(
        snapshot.surface(&reed).is_some(),
        "the answer is read after the change"
    );
    assert!(affected.lock().contains(&otter));
}

#[test]
fn an_interrupted_observation_keeps_earlier_entries() {
    let dependents = Dependents::default();
    let otter = WorkKind::Agent.work(ObjectRef::new("pond", "otter"));
    let [reed, mud] =
        ["reed", "mud"].map(|name| Key::Object(Kind::Surface, ObjectRef::new("pond", name)));
    let observe = |keys: &[&Key], is_whole: bool| {
        let mut observation = dependents.observe(&otter);
        keys.iter().for_each(|key| observation.enter(key));
        observation.set_whole(is_whole);
    };
    let has = || [&reed, &mud].map(|key| dependents.has(key));
    observe(&[&reed], true);
    assert_eq!(has(), [true, false]);
    observe(&[&mud], false);
    assert_eq!(has(), [true, true]);
    observe(&[&mud, &mud], true);
    assert_eq!(has(), [false, true]);
    assert_eq!(dependents.of([&reed, &mud]), [otter.clone()].into());
    dependents.forget(&otter);
    assert_eq!(has(), [false, false]);
    assert!(dependents.entries().dependents.is_empty());
    assert!(dependents.entries().keys_of.is_empty());
}

/// Each agent depends on a grant, on two surfaces with all their references, and on lists of its
/// namespace.
#[test]
fn the_entries_of_ten_thousand_agents_take_less_than_ten_mebibytes() {
    let dependents = Dependents::default();
    let taken = allocation_counter::measure(|| {
        for number in 0..10_000 {
            let namespace = format!("namespace-{}", number / 200);
            let key = |name: String| ObjectRef::new(&*namespace, name);
            let of = |kind, name: &str, number: usize| {
                Key::Object(kind, key(format!("{name}-{number}")))
            };
            let agent = key(format!("agent-{number}"));
            let grant = key(format!("grant-{number}"));
            let mut observation = dependents.observe(&WorkKind::ToolGrant.work(grant));
            observation.enter(&Key::Object(Kind::Agent, agent.clone()));
            observation.set_whole(true);
            let mut observation = dependents.observe(&WorkKind::Agent.work(agent.clone()));
            observation.enter(&Key::GrantsFor(agent));
            observation.enter(&of(Kind::ToolDefaults, "default", 0));
            observation.enter(&Key::In(Kind::ModelProvider, namespace.clone()));
            observation.enter(&of(Kind::Secret, "own", number));
            for surface in [number / 20, number / 20 + 1] {
                for kind in [Kind::Surface, Kind::Service, Kind::Secret, Kind::ConfigMap] {
                    observation.enter(&of(kind, "surface", surface));
                }
            }
            observation.set_whole(true);
        }
    });
    let mebibytes = taken.bytes_current >> 20;
    assert!((1..10).contains(&mebibytes), "{mebibytes} MiB");
}
