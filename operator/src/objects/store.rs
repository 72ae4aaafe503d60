//! Stores of watched objects, by namespace and name.
//!
//! kube's own store is a flat map and keeps no previous version. Compiling an agent needs the
//! objects of one namespace, or the objects that reference another one, without a scan of all. The
//! agents that a change affects depend on the previous version too: a grant that named another agent
//! until now affects that agent.
//!
//! Invariants: a store is synced only after a complete list, which replaces the content at once, so
//! no reader sees half a list. The lists of [`Store::find`] change together with the objects.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use kube_runtime::watcher::Event;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use toolcrib_compile::{Key, Kind, ObjectRef};

use super::budget::{Budget, Shortage};

/// An object of a store.
pub trait StoreObject {
    fn kind_name() -> Cow<'static, str>;

    fn id(&self) -> Id<'_>;
}

/// An object whose body is kept only while it is within its namespace's budget.
pub trait BudgetedObject: StoreObject + Sized {
    fn created(&self) -> Option<Timestamp>;

    /// Bytes of the body, even if it is not kept.
    fn weight(&self) -> usize;

    /// The object without its body, for an object over the budget. `None` if the body is already
    /// left out for this reason, or if there is none.
    fn without_body(&self, why: Shortage) -> Option<Self>;

    /// The reason why the body is left out; `None` if it is within the budget.
    fn shortage(&self) -> Option<Shortage>;
}

/// The identity and version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: Option<&'a str>,
    pub version: Option<&'a str>,
}

impl<K: Resource<DynamicType = ()>> StoreObject for K {
    fn kind_name() -> Cow<'static, str> {
        K::kind(&())
    }

    fn id(&self) -> Id<'_> {
        let meta = self.meta();
        Id {
            namespace: meta.namespace.as_deref().unwrap_or_default(),
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref(),
            version: meta.resource_version.as_deref(),
        }
    }
}

/// Objects of one namespace, by name.
type ByNameSet<K> = BTreeSet<ByName<K>>;

/// An object that is ordered by its name. A map's key would store the name a second time.
#[derive(Debug)]
struct ByName<K>(Arc<K>);

impl<K: StoreObject> Borrow<str> for ByName<K> {
    fn borrow(&self) -> &str {
        self.0.id().name
    }
}

impl<K: StoreObject> Ord for ByName<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.id().name.cmp(other.0.id().name)
    }
}

impl<K: StoreObject> PartialOrd for ByName<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: StoreObject> PartialEq for ByName<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: StoreObject> Eq for ByName<K> {}

/// A change of the store by a watch event.
#[derive(Clone, Debug)]
pub struct Change<K> {
    pub namespace: String,
    pub name: String,
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    pub fn key(&self) -> ObjectRef {
        ObjectRef::new(&*self.namespace, &*self.name)
    }
}

/// The read side of a store; cheap to clone.
#[derive(Debug)]
pub struct Store<K>(Arc<RwLock<Content<K>>>);

#[derive(Debug)]
struct Content<K> {
    synced: bool,
    /// The API server's reason for refusing to list; `None` if it has not refused.
    forbidden: Option<String>,
    namespaces: BTreeMap<String, ByNameSet<K>>,
    lists: Lists<K>,
}

/// Indexes of the objects, besides their namespaces.
#[derive(Debug)]
struct Lists<K> {
    /// The keys of the lists that contain an object.
    keys: fn(&K) -> BTreeSet<Key>,
    objects: HashMap<Key, Vec<Arc<K>>>,
}

impl<K> Lists<K> {
    fn new(keys: fn(&K) -> BTreeSet<Key>) -> Self {
        Self {
            keys,
            objects: HashMap::new(),
        }
    }

    fn insert(&mut self, object: &Arc<K>) {
        for key in (self.keys)(object) {
            self.objects
                .entry(key)
                .or_default()
                .push(Arc::clone(object));
        }
    }

    fn remove(&mut self, object: &Arc<K>) {
        for key in (self.keys)(object) {
            let Some(list) = self.objects.get_mut(&key) else {
                continue;
            };
            if let Some(index) = list.iter().position(|other| Arc::ptr_eq(other, object)) {
                list.swap_remove(index);
            }
            if list.is_empty() {
                self.objects.remove(&key);
            }
        }
    }
}

impl<K: StoreObject> Content<K> {
    fn put(&mut self, namespace: &str, object: Arc<K>) -> Option<Arc<K>> {
        self.lists.insert(&object);
        let objects = self.namespaces.entry(namespace.to_owned()).or_default();
        let ByName(old) = objects.replace(ByName(object))?;
        self.lists.remove(&old);
        Some(old)
    }

    fn take(&mut self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let objects = self.namespaces.get_mut(namespace)?;
        let old = objects.take(name);
        if objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        let ByName(old) = old?;
        self.lists.remove(&old);
        Some(old)
    }

    /// Replaces all objects; returns the previous ones.
    fn replace(&mut self, new: BTreeMap<String, ByNameSet<K>>) -> BTreeMap<String, ByNameSet<K>> {
        self.lists = Lists::new(self.lists.keys);
        for ByName(object) in new.values().flatten() {
            self.lists.insert(object);
        }
        std::mem::replace(&mut self.namespaces, new)
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self::with_lists(|_| BTreeSet::new())
    }
}

impl<K> Store<K> {
    /// An empty store that also indexes each object by its `keys`.
    pub fn with_lists(keys: fn(&K) -> BTreeSet<Key>) -> Self {
        Self(Arc::new(RwLock::new(Content {
            synced: false,
            forbidden: None,
            namespaces: BTreeMap::new(),
            lists: Lists::new(keys),
        })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Content<K>> {
        // A panic cannot leave the maps half changed: a writer replaces them, or sets one entry.
        self.0.read()
    }

    pub fn synced(&self) -> bool {
        self.read().synced
    }

    pub fn forbidden(&self) -> Option<String> {
        self.read().forbidden.clone()
    }

    /// Whether the first list is still pending.
    pub fn is_listing(&self) -> bool {
        let content = self.read();
        !content.synced && content.forbidden.is_none()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>>
    where
        K: StoreObject,
    {
        let content = self.read();
        let ByName(object) = content.namespaces.get(namespace)?.get(name)?;
        Some(Arc::clone(object))
    }

    pub fn namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let content = self.read();
        let objects = content.namespaces.get(namespace).into_iter().flatten();
        objects.map(|ByName(object)| Arc::clone(object)).collect()
    }

    /// The objects with a key, in no order; empty if the store has no index for the key.
    pub fn find(&self, list: &Key) -> Vec<Arc<K>> {
        let content = self.read();
        content.lists.objects.get(list).cloned().unwrap_or_default()
    }

    /// The stored object, if it has the version of `object`.
    fn same(&self, object: &K) -> Option<Arc<K>>
    where
        K: StoreObject,
    {
        let id = object.id();
        let known = self.get(id.namespace, id.name)?;
        same_version(&*known, object).then_some(known)
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        let content = self.read();
        let objects = content.namespaces.values().flatten();
        objects.map(|ByName(object)| Arc::clone(object)).collect()
    }

    pub fn len(&self) -> usize {
        self.read().namespaces.values().map(BTreeSet::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The only writer of a store. It applies a watcher's events.
#[derive(Debug)]
pub struct StoreWriter<K> {
    store: Store<K>,
    /// The objects of a list that is not complete yet.
    listing: BTreeMap<String, ByNameSet<K>>,
}

/// A writer that keeps the bodies of objects only while their namespaces are within the budget.
#[derive(Debug)]
pub struct BudgetedStoreWriter<K> {
    writer: StoreWriter<K>,
    kind: Kind,
    budget: Arc<Budget>,
    /// Objects that are within the budget again, so that their bodies must be read.
    to_read: BTreeSet<ObjectRef>,
}

impl<K: BudgetedObject> BudgetedStoreWriter<K> {
    pub fn new(store: Store<K>, kind: Kind, budget: Arc<Budget>) -> Self {
        Self {
            writer: StoreWriter::new(store),
            kind,
            budget,
            to_read: BTreeSet::new(),
        }
    }

    pub fn forbidden(&self, why: String) {
        self.writer.forbidden(why);
    }

    /// Applies an event to the store and to the budget of its namespace.
    pub fn apply(&mut self, event: Event<K>) -> Vec<Change<K>> {
        let mut changes = match event {
            Event::InitApply(object) => {
                let object = match self.writer.store.same(&object) {
                    // Shares the stored object, so that a relist does not keep a second copy.
                    Some(known) if known.shortage().is_none() => known,
                    Some(_) | None => Arc::new(object),
                };
                let object = self.within(object);
                self.writer.list(object);
                Vec::new()
            }
            Event::Apply(object) => {
                let object = self.within(Arc::new(object));
                let mut changes = self.writer.put(object);
                changes.retain(|change| match (&change.old, &change.new) {
                    (Some(old), Some(new)) => {
                        !same_version(&**old, &**new) || old.shortage() != new.shortage()
                    }
                    (Some(_) | None, _) => true,
                });
                changes
            }
            Event::InitDone => {
                let changes = self.writer.apply(Event::InitDone);
                let store = &self.writer.store;
                let is_there = |key: &ObjectRef| store.get(&key.namespace, &key.name).is_some();
                self.budget.retain(self.kind, is_there);
                // An object that was left out earlier in this list may be within the budget now.
                let all = store.all().into_iter();
                let lacking = all.filter(|object| object.shortage().is_some());
                let namespaces = lacking.map(|object| object.id().namespace.to_owned());
                self.budget.again(self.kind, namespaces.collect());
                changes
            }
            event @ (Event::Init | Event::Delete(_)) => self.writer.apply(event),
        };
        for change in &changes {
            if change.new.is_none() {
                self.budget.remove(self.kind, &change.key());
            }
        }
        changes.extend(self.settle());
        changes
    }

    /// Drops the bodies of objects that are now over the budget, and queues reads for objects that
    /// are within it again.
    pub fn settle(&mut self) -> Vec<Change<K>> {
        let mut changes = Vec::new();
        for namespace in self.budget.moved(self.kind) {
            let listing = self.writer.listing.get(&namespace);
            let listed: Vec<Arc<K>> = listing
                .into_iter()
                .flatten()
                .map(|ByName(object)| Arc::clone(object))
                .collect();
            for object in listed {
                if let Some(bare) = self.bare(&object) {
                    self.writer.list(Arc::new(bare));
                }
            }
            for object in self.writer.store.namespace(&namespace) {
                let key = ObjectRef::new(&*namespace, object.id().name);
                if object.shortage().is_some() && self.budget.check(self.kind, &key).is_ok() {
                    self.to_read.insert(key);
                } else if let Some(bare) = self.bare(&object) {
                    changes.extend(self.writer.put(Arc::new(bare)));
                }
            }
        }
        changes
    }

    /// The next object whose body is to be read and applied.
    pub fn next_to_read(&mut self) -> Option<ObjectRef> {
        while let Some(key) = self.to_read.pop_first() {
            let stored = self.writer.store.get(&key.namespace, &key.name);
            let lacks_room = stored.is_some_and(|object| object.shortage().is_some());
            if lacks_room && self.budget.check(self.kind, &key).is_ok() {
                return Some(key);
            }
        }
        None
    }

    pub fn has_to_read(&self) -> bool {
        !self.to_read.is_empty()
    }

    /// Queues another read of an object after a failed one.
    pub fn read_later(&mut self, object: ObjectRef) {
        self.to_read.insert(object);
    }

    /// Enters the object into the budget, and drops its body if it is over.
    fn within(&self, object: Arc<K>) -> Arc<K> {
        let (namespace, name) = key(&*object);
        let key = ObjectRef::new(namespace, name);
        let (created, weight) = (object.created(), object.weight());
        match self.budget.enter(self.kind, &key, created, weight) {
            Ok(()) => object,
            Err(why) => object.without_body(why).map_or(object, Arc::new),
        }
    }

    fn bare(&self, object: &K) -> Option<K> {
        let (namespace, name) = key(object);
        let verdict = self
            .budget
            .check(self.kind, &ObjectRef::new(namespace, name));
        object.without_body(verdict.err()?)
    }
}

impl<K: StoreObject> StoreWriter<K> {
    pub fn new(store: Store<K>) -> Self {
        Self {
            store,
            listing: BTreeMap::new(),
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Content<K>> {
        self.store.0.write()
    }

    fn list(&mut self, object: Arc<K>) {
        let (namespace, _) = key(&*object);
        let objects = self.listing.entry(namespace).or_default();
        objects.replace(ByName(object));
    }

    /// Stores an object. The object that it replaces may have the same version.
    fn put(&mut self, new: Arc<K>) -> Vec<Change<K>> {
        let (namespace, name) = key(&*new);
        let old = self.write().put(&namespace, Arc::clone(&new));
        vec![Change {
            namespace,
            name,
            old,
            new: Some(new),
        }]
    }

    /// Notes that the API server refuses to list. Objects of an earlier list stay.
    pub fn forbidden(&self, why: String) {
        self.write().forbidden = Some(why);
    }

    /// Applies an event and returns the changes. A relist reports only objects with another uid or
    /// resourceVersion, so it causes no needless reconciles.
    pub fn apply(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.list(Arc::new(object));
                Vec::new()
            }
            Event::InitDone => {
                let new = std::mem::take(&mut self.listing);
                let mut content = self.write();
                let old = content.replace(new);
                content.synced = true;
                content.forbidden = None;
                differences(&old, &content.namespaces)
            }
            Event::Apply(object) => {
                let mut changes = self.put(Arc::new(object));
                changes.retain(|change| match (&change.old, &change.new) {
                    (Some(old), Some(new)) => !same_version(&**old, &**new),
                    (Some(_) | None, _) => true,
                });
                changes
            }
            Event::Delete(object) => {
                let (namespace, name) = key(&object);
                let old = self.write().take(&namespace, &name);
                match old {
                    Some(old) => vec![Change {
                        namespace,
                        name,
                        old: Some(old),
                        new: None,
                    }],
                    None => Vec::new(),
                }
            }
        }
    }
}

fn key<K: StoreObject>(object: &K) -> (String, String) {
    let id = object.id();
    (id.namespace.to_owned(), id.name.to_owned())
}

fn same_version<K: StoreObject>(a: &K, b: &K) -> bool {
    a.id() == b.id() && a.id().version.is_some()
}

fn differences<K: StoreObject>(
    old: &BTreeMap<String, ByNameSet<K>>,
    new: &BTreeMap<String, ByNameSet<K>>,
) -> Vec<Change<K>> {
    let mut changes = Vec::new();
    for (namespace, objects) in new {
        for object in objects {
            let ByName(after) = object;
            let before = old.get(namespace).and_then(|objects| objects.get(object));
            if !before.is_some_and(|ByName(before)| same_version(&**before, &**after)) {
                changes.push(Change {
                    namespace: namespace.clone(),
                    name: after.id().name.to_owned(),
                    old: before.map(|ByName(before)| Arc::clone(before)),
                    new: Some(Arc::clone(after)),
                });
            }
        }
    }
    for (namespace, objects) in old {
        for object in objects {
            if new
                .get(namespace)
                .is_none_or(|objects| !objects.contains(object))
            {
                let ByName(gone) = object;
                changes.push(Change {
                    namespace: namespace.clone(),
                    name: gone.id().name.to_owned(),
                    old: Some(Arc::clone(gone)),
                    new: None,
                });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

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
}
