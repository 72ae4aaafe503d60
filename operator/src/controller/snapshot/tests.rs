//! Compiles random sets of objects in the stores through a snapshot.

#[path = "../../../compile/tests/properties/worlds/mod.rs"]
pub mod worlds;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube_runtime::watcher::Event;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toolcrib_compile::{
    check_defaults, check_grant, check_policy, check_provider, check_surface, compile, load,
};
use worlds::{OBJECTS, World, world};

use super::*;
use crate::controller::write::digest::digest;
use crate::objects::decode::MetaOf;
use crate::objects::store::{Store, StoreObject, StoreWriter};
use crate::objects::stores::{ScopedStore, SecretScope};

/// The facts about Secrets and ConfigMaps in these inputs.
pub struct FromInputs(pub Inputs);

impl Material for FromInputs {
    fn secret(&self, key: &ObjectRef) -> Presence<SecretFacts> {
        match self.0.secret(key) {
            Presence::Present(facts) => Presence::Present((*facts).clone()),
            Presence::Absent => Presence::Absent,
            Presence::Unknown(why) => Presence::Unknown(why),
        }
    }

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts {
        self.0.config_map(key)
    }
}

pub fn inputs(world: &World) -> Inputs {
    let texts = world.iter();
    let texts = texts.map(|(name, text)| (name.clone(), object(text).to_string()));
    load(texts, Settings::default()).inputs
}

/// Parses `KIND NAMESPACE/NAME`, the name of an object in a world.
pub fn subject(name: &str) -> (Kind, ObjectRef) {
    let (kind, key) = name.split_once(' ').expect("KIND NAMESPACE/NAME");
    let (namespace, name) = key.split_once('/').expect("NAMESPACE/NAME");
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind);
    (kind.expect("a kind"), ObjectRef::new(namespace, name))
}

/// The document as a stored object. Each text has its own resourceVersion.
pub fn object(text: &str) -> Value {
    let mut object: Value = serde_yaml::from_str(text).expect("a document");
    let version = digest(text).to_string();
    let meta = &mut object["metadata"];
    meta["uid"] = json!(format!("u-{}", meta["name"]));
    meta["resourceVersion"] = json!(version);
    object
}

fn fill<K: StoreObject + DeserializeOwned>(store: &Store<K>, world: &World, kind: Kind) {
    let mut writer = StoreWriter::new(store.clone());
    writer.apply(Event::Init);
    for (_, text) in world.iter().filter(|(name, _)| subject(name).0 == kind) {
        let object = serde_json::from_value(object(text)).expect("an object of its kind");
        writer.apply(Event::InitApply(object));
    }
    writer.apply(Event::InitDone);
}

pub fn stores(world: &World) -> Stores {
    let stores = Stores::new(&SecretScope::Cluster, usize::MAX);
    fill(&stores.agents, world, Kind::Agent);
    fill(&stores.surfaces, world, Kind::Surface);
    fill(&stores.grants, world, Kind::ToolGrant);
    fill(&stores.defaults, world, Kind::ToolDefaults);
    fill(&stores.providers, world, Kind::ModelProvider);
    fill(&stores.policies, world, Kind::ClusterToolPolicy);
    fill(&stores.services, world, Kind::Service);
    fill::<MetaOf<Namespace>>(&stores.namespaces, world, Kind::Namespace);
    let (ScopedStore::Cluster(secrets), ScopedStore::Cluster(config_maps)) =
        (&stores.secrets, &stores.config_maps)
    else {
        panic!("cluster-wide")
    };
    fill(secrets, world, Kind::Secret);
    fill(config_maps, world, Kind::ConfigMap);
    stores
}

/// The result of compiling or checking one object, as text without suggestions of names.
pub fn results(objects: &dyn Objects, kind: Kind, key: &ObjectRef) -> String {
    let text = match kind {
        Kind::Agent => format!("{:?}", compile(objects, key)),
        Kind::Surface => format!("{:?}", check_surface(objects, key)),
        Kind::ToolGrant => format!("{:?}", check_grant(objects, key)),
        Kind::ToolDefaults => format!("{:?}", check_defaults(objects, key)),
        Kind::ModelProvider => format!("{:?}", check_provider(objects, key)),
        Kind::ClusterToolPolicy => format!("{:?}", check_policy(objects, key)),
        Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Namespace => String::new(),
    };
    let mut parts = text.split(" (did you mean ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (_, rest) = part.split_once("?)").expect("the end of a suggestion");
        text + rest
    })
}

pub fn snapshot<'a>(
    stores: &'a Stores,
    material: &'a FromInputs,
    look: &'a dyn Fn(&Key),
) -> Snapshot<'a> {
    let synced = SyncProof::check(&SyncProof::KINDS.into()).expect("the list contains every kind");
    Snapshot::new(stores, synced, Settings::default(), material, look)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn a_snapshot_gives_the_results_of_all_objects(world in world()) {
        let material = FromInputs(inputs(&world));
        let stores = stores(&world);
        for (kind, namespace, name, _) in OBJECTS {
            let (kind, key) = subject(&format!("{kind} {namespace}/{name}"));
            prop_assert_eq!(
                results(&snapshot(&stores, &material, &|_| ()), kind, &key),
                results(&material.0, kind, &key)
            );
        }
    }
}

/// A change of an object between two reads of a compilation is not visible to it.
#[test]
fn a_snapshot_reads_each_object_once() {
    let documents = [
        worlds::ours("Surface", "pond", "fish", "url: 'https://fish.test'"),
        worlds::ours("Agent", "pond", "otter", "surfaces: [{name: fish}]"),
        worlds::ours("ToolGrant", "pond", "reads", "agents: [otter]"),
    ];
    let world: World = documents.into();
    let material = FromInputs(inputs(&World::new()));
    let stores = stores(&world);
    let snapshot = snapshot(&stores, &material, &|_| ());
    let [fish, otter, newt] = ["fish", "otter", "newt"].map(|name| ObjectRef::new("pond", name));
    assert!(snapshot.surface(&fish).is_some() && snapshot.agent(&newt).is_none());
    assert_eq!(snapshot.grants_for(&otter).len(), 1);

    let later = [
        worlds::ours("Agent", "pond", "newt", "surfaces: [{name: fish}]"),
        worlds::ours("Agent", "pond", "toad", "surfaces: [{name: fish}]"),
    ];
    let later: World = later.into();
    fill(&stores.agents, &later, Kind::Agent);
    fill(&stores.surfaces, &later, Kind::Surface);
    fill(&stores.grants, &later, Kind::ToolGrant);
    assert!(
        snapshot.surface(&fish).is_some(),
        "it was read before it was deleted"
    );
    assert_eq!(snapshot.grants_for(&otter).len(), 1);
    let users: BTreeSet<ObjectRef> = snapshot
        .agents_using(&fish)
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(users, [ObjectRef::new("pond", "toad")].into());
    assert!(
        snapshot.agent(&newt).is_none(),
        "it was absent at the first read"
    );
}

/// The condition of a grant suggests what the webhook's warning does, and does not depend on the
/// other agents of the namespace.
#[test]
fn a_misspelt_agent_is_suggested_without_a_dependency() {
    let documents = [
        worlds::ours("Agent", "pond", "otter", "surfaces: []"),
        worlds::ours("Agent", "lake", "oter2", "surfaces: []"),
        worlds::ours("ToolGrant", "pond", "reads", "agents: [oter]"),
    ];
    let world: World = documents.into();
    let material = FromInputs(inputs(&World::new()));
    let stores = stores(&world);
    let looked_at = RefCell::new(BTreeSet::new());
    let look = |key: &Key| {
        looked_at.borrow_mut().insert(key.clone());
    };
    let report = check_grant(
        &snapshot(&stores, &material, &look),
        &ObjectRef::new("pond", "reads"),
    );
    let report = report.expect("the grant exists");
    let messages: Vec<&str> = report
        .diagnostics
        .iter()
        .map(|found| found.message.as_str())
        .collect();
    assert_eq!(
        messages,
        ["agent pond/oter not found (did you mean otter?): create it, or correct the name"]
    );
    let otter = Key::of_object(Kind::Agent, &ObjectRef::new("pond", "otter"));
    let looked_at = looked_at.into_inner();
    assert!(
        otter.iter().all(|key| !looked_at.contains(key)),
        "{looked_at:?}"
    );
}
