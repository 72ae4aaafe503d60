//! What the API server holds, as tables by namespace and name.
//!
//! kube's own store is one flat map and forgets what an object was before; compiling one
//! agent needs one namespace quickly, and "which agents does this change concern" needs the
//! old version too (a grant that named another agent until now concerns that agent).
//!
//! Invariant: a table says it is synced only after a whole list was taken over, and the
//! list replaces the content at once, so no reader sees half of it.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use kube::Resource;
use kube_runtime::watcher::Event;

/// An object of a table.
pub trait Stored {
    fn kind_name() -> Cow<'static, str>;

    fn id(&self) -> Id<'_>;
}

/// Which object, and which version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: Option<&'a str>,
    pub version: Option<&'a str>,
}

impl<K: Resource<DynamicType = ()>> Stored for K {
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
type Named<K> = BTreeSet<ByName<K>>;

/// An object by the name that it has: a map's key would hold it a second time.
#[derive(Debug)]
struct ByName<K>(Arc<K>);

impl<K: Stored> Borrow<str> for ByName<K> {
    fn borrow(&self) -> &str {
        self.0.id().name
    }
}

impl<K: Stored> Ord for ByName<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.id().name.cmp(other.0.id().name)
    }
}

impl<K: Stored> PartialOrd for ByName<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Stored> PartialEq for ByName<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Stored> Eq for ByName<K> {}

/// One difference that a watch event made.
#[derive(Clone, Debug)]
pub struct Change<K> {
    pub namespace: String,
    pub name: String,
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

/// The readable side; cheap to clone.
#[derive(Debug)]
pub struct Table<K>(Arc<RwLock<Content<K>>>);

#[derive(Debug)]
struct Content<K> {
    synced: bool,
    /// Why the API server lists nothing for us; `None`: it does, or has not answered yet.
    forbidden: Option<String>,
    namespaces: BTreeMap<String, Named<K>>,
}

impl<K> Clone for Table<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Content {
            synced: false,
            forbidden: None,
            namespaces: BTreeMap::new(),
        })))
    }
}

impl<K> Table<K> {
    fn read(&self) -> RwLockReadGuard<'_, Content<K>> {
        // A panic cannot leave the maps half changed: they are replaced or one entry is set.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn synced(&self) -> bool {
        self.read().synced
    }

    pub fn forbidden(&self) -> Option<String> {
        self.read().forbidden.clone()
    }

    /// Nothing is known yet, but will be.
    pub fn is_listing(&self) -> bool {
        let content = self.read();
        !content.synced && content.forbidden.is_none()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>>
    where
        K: Stored,
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

/// The one writer of a table, fed with a watcher's events.
#[derive(Debug)]
pub struct Filler<K> {
    table: Table<K>,
    /// A list in progress.
    listing: BTreeMap<String, Named<K>>,
}

impl<K: Stored> Filler<K> {
    pub fn new(table: Table<K>) -> Self {
        Self {
            table,
            listing: BTreeMap::new(),
        }
    }

    /// The API server does not let us list. What was listed before stands.
    pub fn forbidden(&self, why: String) {
        let mut content = self.table.0.write().unwrap_or_else(PoisonError::into_inner);
        content.forbidden = Some(why);
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
                let (namespace, _) = key(&object);
                self.listing
                    .entry(namespace)
                    .or_default()
                    .replace(ByName(Arc::new(object)));
                Vec::new()
            }
            Event::InitDone => {
                let new = std::mem::take(&mut self.listing);
                let mut content = self.table.0.write().unwrap_or_else(PoisonError::into_inner);
                let old = std::mem::replace(&mut content.namespaces, new);
                content.synced = true;
                content.forbidden = None;
                differences(&old, &content.namespaces)
            }
            Event::Apply(object) => {
                let (namespace, name) = key(&object);
                let new = Arc::new(object);
                let mut content = self.table.0.write().unwrap_or_else(PoisonError::into_inner);
                let old = content
                    .namespaces
                    .entry(namespace.clone())
                    .or_default()
                    .replace(ByName(Arc::clone(&new)))
                    .map(|ByName(old)| old);
                drop(content);
                if old.as_ref().is_some_and(|old| same_version(&**old, &*new)) {
                    return Vec::new();
                }
                vec![Change {
                    namespace,
                    name,
                    old,
                    new: Some(new),
                }]
            }
            Event::Delete(object) => {
                let (namespace, name) = key(&object);
                let mut content = self.table.0.write().unwrap_or_else(PoisonError::into_inner);
                let Some(objects) = content.namespaces.get_mut(&namespace) else {
                    return Vec::new();
                };
                let old = objects.take(&*name);
                if objects.is_empty() {
                    content.namespaces.remove(&namespace);
                }
                drop(content);
                match old {
                    Some(ByName(old)) => vec![Change {
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

fn key<K: Stored>(object: &K) -> (String, String) {
    let id = object.id();
    (id.namespace.to_owned(), id.name.to_owned())
}

fn same_version<K: Stored>(a: &K, b: &K) -> bool {
    a.id() == b.id() && a.id().version.is_some()
}

fn differences<K: Stored>(
    old: &BTreeMap<String, Named<K>>,
    new: &BTreeMap<String, Named<K>>,
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
    fn a_table_is_empty_and_unsynced_until_a_list_is_whole() {
        let table = Table::default();
        let mut filler = Filler::new(table.clone());
        assert!(filler.apply(Event::Init).is_empty());
        assert!(
            filler
                .apply(Event::InitApply(service("heron", "1")))
                .is_empty()
        );
        assert!(!table.synced());
        assert!(table.get("pond", "heron").is_none());
        assert_eq!(said(&filler.apply(Event::InitDone)), ["pond/heron ->1"]);
        assert!(table.synced());
    }

    #[test]
    fn a_relist_reports_only_differences() {
        let table = Table::default();
        let mut filler = Filler::new(table.clone());
        filler.apply(Event::Init);
        for name in ["heron", "newt", "toad"] {
            filler.apply(Event::InitApply(service(name, "1")));
        }
        filler.apply(Event::InitDone);

        filler.apply(Event::Init);
        assert_eq!(
            table.len(),
            3,
            "the old content stands while a list is read"
        );
        filler.apply(Event::InitApply(service("heron", "1")));
        filler.apply(Event::InitApply(service("newt", "2")));
        filler.apply(Event::InitApply(service("vole", "1")));
        assert_eq!(
            said(&filler.apply(Event::InitDone)),
            ["pond/newt 1>2", "pond/vole ->1", "pond/toad 1>-"]
        );
    }

    #[test]
    fn repeated_and_unknown_events_change_nothing() {
        let mut filler = Filler::new(Table::default());
        assert_eq!(
            said(&filler.apply(Event::Apply(service("heron", "1")))),
            ["pond/heron ->1"]
        );
        assert!(filler.apply(Event::Apply(service("heron", "1"))).is_empty());
        assert_eq!(
            said(&filler.apply(Event::Delete(service("heron", "3")))),
            ["pond/heron 1>-"]
        );
        assert!(
            filler
                .apply(Event::Delete(service("heron", "3")))
                .is_empty()
        );
    }
}
