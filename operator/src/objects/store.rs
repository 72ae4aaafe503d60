//! Stores of watched objects, by namespace and name.
//!
//! kube's own store is one flat map and forgets what an object was before. Compiling one
//! agent needs the objects of one namespace, or those that name one other object, without a look
//! at all the others. "Which agents does this change concern" needs the old version too: a grant
//! that named another agent until now concerns that agent.
//!
//! Invariants: a store says it is synced only after a whole list was taken over, and the
//! list replaces the content at once, so no reader sees half of it. The lists of [`Store::find`]
//! change together with the objects.

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

/// An object whose body is kept only while its namespace has room for it.
pub trait BudgetedObject: StoreObject + Sized {
    fn created(&self) -> Option<Timestamp>;

    /// The memory that its body takes, whether or not it is kept.
    fn weight(&self) -> usize;

    /// The object as it is kept while it lacks room; `None`: it is kept so, or has no body.
    fn without_body(&self, why: Shortage) -> Option<Self>;

    /// Why its body is left out, if for want of room.
    fn shortage(&self) -> Option<Shortage>;
}

/// Which object, and which version of it.
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

/// An object by the name that it has: a map's key would hold it a second time.
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

/// One change that a watch event made.
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
    /// Why the API server lists nothing for us; `None`: it does, or has not answered yet.
    forbidden: Option<String>,
    namespaces: BTreeMap<String, ByNameSet<K>>,
    lists: Lists<K>,
}

/// Objects by the lists that they are in, besides that of their own namespace.
#[derive(Debug)]
struct Lists<K> {
    /// The lists that an object is in.
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

    /// Replaces all objects; returns those of before.
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
    /// An empty store that also finds objects by the lists that `keys` says they are in.
    pub fn with_lists(keys: fn(&K) -> BTreeSet<Key>) -> Self {
        Self(Arc::new(RwLock::new(Content {
            synced: false,
            forbidden: None,
            namespaces: BTreeMap::new(),
            lists: Lists::new(keys),
        })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Content<K>> {
        // A panic cannot leave the maps half changed: they are replaced or one entry is set.
        self.0.read()
    }

    pub fn synced(&self) -> bool {
        self.read().synced
    }

    pub fn forbidden(&self) -> Option<String> {
        self.read().forbidden.clone()
    }

    /// Whether the first list is still expected.
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

    /// The objects of a list, in no order; empty if the store does not keep this list.
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

/// The one writer of a store, fed with a watcher's events.
#[derive(Debug)]
pub struct StoreWriter<K> {
    store: Store<K>,
    /// A list in progress.
    listing: BTreeMap<String, ByNameSet<K>>,
}

/// Fills a store with objects whose bodies are kept while their namespaces have room.
#[derive(Debug)]
pub struct BudgetedStoreWriter<K> {
    writer: StoreWriter<K>,
    kind: Kind,
    budget: Arc<Budget>,
    /// Objects that have room again, and whose bodies are to be read.
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

    /// Takes one event over, and what it means for the budget of its namespace.
    pub fn apply(&mut self, event: Event<K>) -> Vec<Change<K>> {
        let mut changes = match event {
            Event::InitApply(object) => {
                let object = match self.writer.store.same(&object) {
                    // Not held twice while it is listed again.
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
                // What got room while the list was read was put out of it before.
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

    /// Takes the bodies of objects that have no room any more, and notes which have room again.
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

    /// An object that has room again: it is to be read and applied.
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

    /// Queues an object again whose read failed.
    pub fn read_later(&mut self, object: ObjectRef) {
        self.to_read.insert(object);
    }

    /// The object, or what is kept of it where its namespace has no room.
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

    /// Puts an object into its place; what it replaces may be of the same version.
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

    /// The API server does not let us list. What was listed before stands.
    pub fn forbidden(&self, why: String) {
        self.write().forbidden = Some(why);
    }

    /// Takes one event over and says what differs now. A relist reports only what really
    /// changed (by uid and resourceVersion), so it wakes nobody needlessly.
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

    fn said(changes: &[Change<Service>]) -> Vec<String> {
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
    fn a_store_is_empty_and_unsynced_until_a_list_is_whole() {
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
        assert_eq!(said(&writer.apply(Event::InitDone)), ["pond/heron ->1"]);
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
            said(&writer.apply(Event::InitDone)),
            ["pond/newt 1>2", "pond/vole ->1", "pond/toad 1>-"]
        );
    }

    #[test]
    fn repeated_and_unknown_events_change_nothing() {
        let mut writer = StoreWriter::new(Store::default());
        assert_eq!(
            said(&writer.apply(Event::Apply(service("heron", "1")))),
            ["pond/heron ->1"]
        );
        assert!(writer.apply(Event::Apply(service("heron", "1"))).is_empty());
        assert_eq!(
            said(&writer.apply(Event::Delete(service("heron", "3")))),
            ["pond/heron 1>-"]
        );
        assert!(
            writer
                .apply(Event::Delete(service("heron", "3")))
                .is_empty()
        );
    }

    /// Any object with a body that weighs so much.
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
    fn of_a_list_the_oldest_objects_keep_their_bodies_whatever_comes_first() {
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
        // Listed again, in another order: nothing differs.
        objects.reverse();
        assert!(list(&mut writer, objects).is_empty());
        assert_eq!(bodies(&store), ["newt", "toad"]);
    }

    #[test]
    fn a_new_object_takes_nothing_from_the_others_and_an_older_one_that_grows_does() {
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
        // Of the same version again, without a body: no news.
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
    fn what_has_room_again_is_read_and_is_a_change_of_the_same_version() {
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
    fn an_object_that_is_gone_when_the_list_comes_again_makes_room() {
        let (store, mut writer) = budgeted();
        // A list that was broken off had an object more.
        writer.apply(Event::Init);
        writer.apply(Event::InitApply(weighed("newt", "1", 1, 90)));
        list(&mut writer, vec![weighed("toad", "1", 2, 50)]);
        assert_eq!(bodies(&store), Vec::<String>::new());
        assert_eq!(writer.next_to_read(), Some(ObjectRef::new("pond", "toad")));
    }

    fn elsewhere(namespace: &str, object: WeightedService) -> WeightedService {
        let mut object = object;
        object.object.metadata.namespace = Some(namespace.to_owned());
        object
    }

    #[test]
    fn a_namespace_over_its_equal_share_loses_its_youngest_and_the_others_lose_nothing() {
        let (store, mut writer) = budgeted();
        list(
            &mut writer,
            vec![
                weighed("newt", "1", 1, 50),
                weighed("toad", "1", 2, 50),
                elsewhere("lake", weighed("carp", "1", 9, 50)),
            ],
        );
        assert_eq!(bodies(&store), ["carp", "newt", "toad"]);
        let pike = elsewhere("lake", weighed("pike", "1", 10, 10));
        let changes = writer.apply(Event::Apply(pike));
        let changed: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
        assert_eq!(changed, ["pike", "toad"]);
        assert_eq!(bodies(&store), ["carp", "pike", "newt"]);
        let toad = store.get("pond", "toad").expect("it is kept");
        assert_eq!(toad.shortage, Some(Shortage::Process));

        // Over its own bound as well: the object says that instead.
        writer.apply(Event::Apply(weighed("newt", "2", 1, 60)));
        let toad = store.get("pond", "toad").expect("it is kept");
        assert_eq!(toad.shortage, Some(Shortage::Namespace));
    }
}
