//! Stores of watched objects, by namespace and name.
//!
//! kube's own store is a flat map and keeps no previous version. Compiling an agent needs the
//! objects of one namespace, or the objects that reference another one, without a scan of all. The
//! agents that a change affects depend on the previous version too: a grant that named another agent
//! until now affects that agent.
//!
//! Invariants: a store is synced only after a complete list, which replaces the content at once, so
//! no reader sees half a list. The lists of [`Store::find`] change together with the objects.

#[cfg(test)]
mod tests;
mod writer;

pub use writer::{BudgetedStoreWriter, StoreWriter};

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use parking_lot::{RwLock, RwLockReadGuard};
use toolcrib_compile::{Key, ObjectRef};

use super::budget::Shortage;

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

impl<K: StoreObject> Change<K> {
    /// Whether the old object ended. A list after lost events can show only that another object
    /// has its name now.
    pub fn is_end(&self) -> bool {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => old.id().uid != new.id().uid,
            (None, Some(_)) => false,
            (Some(_) | None, None) => true,
        }
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

fn same_version<K: StoreObject>(a: &K, b: &K) -> bool {
    a.id() == b.id() && a.id().version.is_some()
}
