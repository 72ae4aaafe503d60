//! Writes a watch's events into a store, and returns what changed.
//!
//! Here: the plain writer, and the one that keeps bodies within their namespace's budget. Not here:
//! reading the store, and the budget's rule (`budget`).
//!
//! Invariant: a list replaces the store's content at once, and only differences are returned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_runtime::watcher::Event;
use parking_lot::RwLockWriteGuard;
use toolcrib_compile::{Kind, ObjectRef};

use super::{BudgetedObject, ByName, ByNameSet, Change, Content, Store, StoreObject, same_version};
use crate::objects::budget::Budget;

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
