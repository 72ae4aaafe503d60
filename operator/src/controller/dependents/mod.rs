//! An index from the keys that a compilation read to the work that read them: the dependents of a
//! change.
//!
//! Here: the index. [`affected`] finds the work that a change affects. Not here: the keys
//! (`toolcrib_compile`), and reading the stores (the controller's `snapshot`).
//!
//! Invariants: a key is entered before the store is read for it, and a change is in the store before
//! its keys are looked up here. So either the read sees the change, or the lookup finds the entry; no
//! change is missed. An entry is removed only after a later, complete observation that does not need
//! it.
//!
//! A key is kept as a digest of 8 bytes, so 10,000 agents take a few MiB. Two keys with the same
//! digest cause a needless compilation at most.

pub mod affected;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use toolcrib_compile::{Key, Kind};

use super::queue::work::Work;
use super::snapshot::dns;

#[derive(Debug, Default)]
pub struct Dependents {
    /// Has random seeds, so that users cannot create objects that share a digest.
    hasher: RandomState,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    dependents: HashMap<u64, Vec<Arc<Work>>>,
    /// The keys of each piece of work, sorted.
    keys_of: HashMap<Arc<Work>, Box<[u64]>>,
}

impl Dependents {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }

    /// The work that depends on one of the keys.
    pub fn of<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> BTreeSet<Work> {
        let entries = self.entries();
        let digests = keys.into_iter().map(|key| self.hasher.hash_one(key));
        let found = digests.filter_map(|digest| entries.dependents.get(&digest));
        found.flatten().map(|work| (**work).clone()).collect()
    }

    pub fn has(&self, key: &Key) -> bool {
        let digest = self.hasher.hash_one(key);
        self.entries().dependents.contains_key(&digest)
    }

    /// Begins an observation of `work`. A piece of work has one observation at a time.
    pub fn observe(&self, work: &Work) -> Observation<'_> {
        let observation = self.begin(work);
        if work.is_agent() {
            // Every agent's files contain the addresses of the name servers.
            observation.enter(&dns::key());
        }
        observation
    }

    fn begin(&self, work: &Work) -> Observation<'_> {
        let entries = self.entries();
        let known = entries.keys_of.get_key_value(work);
        let (work, before) = match known {
            Some((work, keys)) => (Arc::clone(work), keys.clone()),
            None => (Arc::new(work.clone()), Box::default()),
        };
        Observation {
            dependents: self,
            work,
            before,
            now: Mutex::default(),
            is_whole: false,
        }
    }

    /// Removes the entries of work whose object was deleted.
    pub fn forget(&self, work: &Work) {
        let mut observation = self.begin(work);
        observation.is_whole = true;
    }

    /// Removes all entries.
    pub fn clear(&self) {
        *self.entries() = Entries::default();
    }
}

/// Enters the keys that a piece of work reads. Dropping a complete observation removes the keys of
/// earlier observations; dropping an interrupted one keeps them.
#[derive(Debug)]
pub struct Observation<'a> {
    dependents: &'a Dependents,
    work: Arc<Work>,
    /// The keys of earlier observations, sorted.
    before: Box<[u64]>,
    now: Mutex<BTreeSet<u64>>,
    is_whole: bool,
}

impl Observation<'_> {
    /// Enters a key. Must be called before the answer is read. The work's own object has no entry,
    /// since its changes affect the work in any case.
    pub fn enter(&self, key: &Key) {
        if self.is_own(key) {
            return;
        }
        let digest = self.dependents.hasher.hash_one(key);
        let mut now = self.now.lock();
        if now.insert(digest) && self.before.binary_search(&digest).is_err() {
            let mut entries = self.dependents.entries();
            let works = entries.dependents.entry(digest);
            // Most keys have a single dependent.
            let works = works.or_insert_with(|| Vec::with_capacity(1));
            works.push(Arc::clone(&self.work));
        }
    }

    /// Sets whether the keys so far are all that the work needs.
    pub fn set_whole(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
    }

    fn is_own(&self, key: &Key) -> bool {
        let own: (Kind, _) = (self.work.kind.kind(), &self.work.key);
        matches!(key, Key::Object(kind, key) if (*kind, key) == own)
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        let now = self.now.get_mut();
        let mut now = std::mem::take(now);
        let mut entries = self.dependents.entries();
        if self.is_whole {
            for digest in self.before.iter().filter(|digest| !now.contains(digest)) {
                entries.remove(*digest, &self.work);
            }
        } else {
            now.extend(self.before.iter().copied());
        }
        if now.is_empty() {
            entries.keys_of.remove(&self.work);
        } else {
            let keys = now.into_iter().collect();
            entries.keys_of.insert(Arc::clone(&self.work), keys);
        }
    }
}

impl Entries {
    /// Compares addresses, since all entries of a piece of work share one allocation: a key that
    /// every agent reads is searched in microseconds.
    fn remove(&mut self, digest: u64, work: &Arc<Work>) {
        let Some(works) = self.dependents.get_mut(&digest) else {
            return;
        };
        if let Some(index) = works.iter().position(|other| Arc::ptr_eq(other, work)) {
            works.swap_remove(index);
        }
        if works.is_empty() {
            self.dependents.remove(&digest);
        }
    }
}
