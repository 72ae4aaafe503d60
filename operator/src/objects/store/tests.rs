//! Events of watches, and the stores after them.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_runtime::watcher::Event;
use toolcrib_compile::Kind;

use super::*;
use crate::objects::budget::Budget;

fn service(name: &str, version: &str) -> Service {
    Service {
        metadata: ObjectMeta {
            namespace: Some("pond".into()),
            name: Some(name.into()),
            uid: Some(format!("uid-{name}")),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        },
        ..Service::default()
    }
}

fn summary(changes: &[Change<Service>]) -> Vec<String> {
    let version = |object: &Option<Arc<Service>>| {
        object.as_ref().map_or("-".to_owned(), |o| {
            o.metadata.resource_version.clone().unwrap()
        })
    };
    changes
        .iter()
        .map(|c| {
            format!(
                "{}/{} {}>{}",
                c.namespace,
                c.name,
                version(&c.old),
                version(&c.new)
            )
        })
        .collect()
}

/// A list after lost events.
#[test]
fn an_object_ends_when_another_has_its_name() {
    let mut writer = StoreWriter::new(Store::default());
    let mut listed = |service: Option<Service>| {
        writer.apply(Event::Init);
        if let Some(service) = service {
            writer.apply(Event::InitApply(service));
        }
        let changes = writer.apply(Event::InitDone);
        changes.iter().map(Change::is_end).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some(service("heron", "1"))), [false]);
    assert_eq!(listed(Some(service("heron", "2"))), [false]);
    let mut other = service("heron", "3");
    other.metadata.uid = Some("uid-other".into());
    assert_eq!(listed(Some(other)), [true]);
    assert_eq!(listed(None), [true]);
}

#[test]
fn a_store_is_empty_and_unsynced_until_a_list_is_complete() {
    let store = Store::default();
    let mut writer = StoreWriter::new(store.clone());
    assert!(writer.apply(Event::Init).is_empty());
    assert!(
        writer
            .apply(Event::InitApply(service("heron", "1")))
            .is_empty()
    );
    assert!(!store.synced());
    assert!(store.get("pond", "heron").is_none());
    assert_eq!(summary(&writer.apply(Event::InitDone)), ["pond/heron ->1"]);
    assert!(store.synced());
}

#[test]
fn a_relist_reports_only_differences() {
    let store = Store::default();
    let mut writer = StoreWriter::new(store.clone());
    writer.apply(Event::Init);
    for name in ["heron", "newt", "toad"] {
        writer.apply(Event::InitApply(service(name, "1")));
    }
    writer.apply(Event::InitDone);

    writer.apply(Event::Init);
    assert_eq!(
        store.len(),
        3,
        "the old content stands while a list is read"
    );
    writer.apply(Event::InitApply(service("heron", "1")));
    writer.apply(Event::InitApply(service("newt", "2")));
    writer.apply(Event::InitApply(service("vole", "1")));
    assert_eq!(
        summary(&writer.apply(Event::InitDone)),
        ["pond/newt 1>2", "pond/vole ->1", "pond/toad 1>-"]
    );
}

#[test]
fn repeated_and_unknown_events_change_nothing() {
    let mut writer = StoreWriter::new(Store::default());
    assert_eq!(
        summary(&writer.apply(Event::Apply(service("heron", "1")))),
        ["pond/heron ->1"]
    );
    assert!(writer.apply(Event::Apply(service("heron", "1"))).is_empty());
    assert_eq!(
        summary(&writer.apply(Event::Delete(service("heron", "3")))),
        ["pond/heron 1>-"]
    );
    assert!(
        writer
            .apply(Event::Delete(service("heron", "3")))
            .is_empty()
    );
}

/// An object with a body of the given weight.
#[derive(Clone, Debug, PartialEq)]
struct WeightedService {
    object: Service,
    weight: usize,
    shortage: Option<Shortage>,
}

impl StoreObject for WeightedService {
    fn kind_name() -> Cow<'static, str> {
        Cow::Borrowed("Service")
    }

    fn id(&self) -> Id<'_> {
        self.object.id()
    }
}

impl BudgetedObject for WeightedService {
    fn created(&self) -> Option<Timestamp> {
        self.object
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn without_body(&self, why: Shortage) -> Option<Self> {
        (self.shortage != Some(why)).then(|| Self {
            shortage: Some(why),
            ..self.clone()
        })
    }

    fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }
}

fn weighed(name: &str, version: &str, created: i64, weight: usize) -> WeightedService {
    let mut object = service(name, version);
    object.metadata.creation_timestamp = Timestamp::from_second(created)
        .ok()
        .map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
    WeightedService {
        object,
        weight,
        shortage: None,
    }
}

/// Names of the objects that have their bodies.
fn bodies(store: &Store<WeightedService>) -> Vec<String> {
    let mut all = store.all();
    all.retain(|object| object.shortage.is_none());
    all.iter()
        .map(|object| object.id().name.to_owned())
        .collect()
}

fn budgeted() -> (Store<WeightedService>, BudgetedStoreWriter<WeightedService>) {
    let store = Store::default();
    let budget = Arc::new(Budget::new(100, 150));
    let writer = BudgetedStoreWriter::new(store.clone(), Kind::Service, budget);
    (store, writer)
}

fn list(
    writer: &mut BudgetedStoreWriter<WeightedService>,
    objects: Vec<WeightedService>,
) -> Vec<Change<WeightedService>> {
    writer.apply(Event::Init);
    for object in objects {
        writer.apply(Event::InitApply(object));
    }
    writer.apply(Event::InitDone)
}

#[test]
fn the_oldest_listed_objects_keep_their_bodies_in_any_order() {
    let (store, mut writer) = budgeted();
    let mut objects = vec![
        weighed("heron", "1", 3, 50),
        weighed("newt", "1", 1, 50),
        weighed("toad", "1", 2, 50),
    ];
    list(&mut writer, objects.clone());
    assert_eq!(
        (store.len(), bodies(&store)),
        (3, vec!["newt".to_owned(), "toad".to_owned()])
    );
    // A relist in another order changes nothing.
    objects.reverse();
    assert!(list(&mut writer, objects).is_empty());
    assert_eq!(bodies(&store), ["newt", "toad"]);
}

#[test]
fn only_growth_of_an_older_object_drops_the_body_of_a_younger_one() {
    let (store, mut writer) = budgeted();
    list(
        &mut writer,
        vec![weighed("newt", "1", 1, 50), weighed("toad", "1", 2, 50)],
    );
    let changes = writer.apply(Event::Apply(weighed("heron", "2", 3, 50)));
    assert_eq!(
        (changes.len(), bodies(&store)),
        (1, vec!["newt".to_owned(), "toad".to_owned()])
    );
    // The same version without a body is no change.
    assert!(
        writer
            .apply(Event::Apply(weighed("heron", "2", 3, 50)))
            .is_empty()
    );

    let changes = writer.apply(Event::Apply(weighed("newt", "3", 1, 60)));
    let changed: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
    assert_eq!(changed, ["newt", "toad"]);
    assert_eq!(bodies(&store), ["newt"]);
}

#[test]
fn an_object_within_the_budget_again_is_read_and_reported_as_a_change() {
    let (store, mut writer) = budgeted();
    list(
        &mut writer,
        vec![weighed("newt", "1", 1, 90), weighed("toad", "1", 2, 50)],
    );
    assert_eq!(writer.next_to_read(), None);
    writer.apply(Event::Delete(weighed("newt", "2", 1, 90)));
    let toad = ObjectRef::new("pond", "toad");
    assert_eq!(writer.next_to_read(), Some(toad.clone()));
    assert!(!writer.has_to_read());
    writer.read_later(toad.clone());
    assert_eq!(writer.next_to_read(), Some(toad));
    let changes = writer.apply(Event::Apply(weighed("toad", "1", 2, 50)));
    assert_eq!(
        (changes.len(), bodies(&store)),
        (1, vec!["toad".to_owned()])
    );
    assert_eq!(writer.next_to_read(), None);
}

#[test]
fn an_object_missing_from_a_relist_frees_its_budget() {
    let (store, mut writer) = budgeted();
    // An interrupted list had one more object.
    writer.apply(Event::Init);
    writer.apply(Event::InitApply(weighed("newt", "1", 1, 90)));
    list(&mut writer, vec![weighed("toad", "1", 2, 50)]);
    assert_eq!(bodies(&store), Vec::<String>::new());
    assert_eq!(writer.next_to_read(), Some(ObjectRef::new("pond", "toad")));
}

fn in_namespace(namespace: &str, object: WeightedService) -> WeightedService {
    let mut object = object;
    object.object.metadata.namespace = Some(namespace.to_owned());
    object
}

#[test]
fn only_a_namespace_over_its_equal_share_loses_its_youngest_objects() {
    let (store, mut writer) = budgeted();
    list(
        &mut writer,
        vec![
            weighed("newt", "1", 1, 50),
            weighed("toad", "1", 2, 50),
            in_namespace("lake", weighed("carp", "1", 9, 50)),
        ],
    );
    assert_eq!(bodies(&store), ["carp", "newt", "toad"]);
    let pike = in_namespace("lake", weighed("pike", "1", 10, 10));
    let changes = writer.apply(Event::Apply(pike));
    let changed: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
    assert_eq!(changed, ["pike", "toad"]);
    assert_eq!(bodies(&store), ["carp", "pike", "newt"]);
    let toad = store.get("pond", "toad").expect("it is kept");
    assert_eq!(toad.shortage, Some(Shortage::Process));

    // An object over both bounds reports the namespace's.
    writer.apply(Event::Apply(weighed("newt", "2", 1, 60)));
    let toad = store.get("pond", "toad").expect("it is kept");
    assert_eq!(toad.shortage, Some(Shortage::Namespace));
}
