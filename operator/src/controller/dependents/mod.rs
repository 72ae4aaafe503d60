//! An index from the keys that compile asked for to the work that asked: the dependents of a change.
//!
//! Here: the index. [`affected`] finds the work that a change affects. Not here: the questions and
//! their keys (`toolcrib_compile`), and asking them (the controller's `snapshot`).
//!
//! Invariants: a key is entered before the store is read for it, and a change is in the store before
//! its keys are looked up here. So either the read sees the change, or the lookup finds the entry; no
//! change falls between. Entries of a piece of work go only when a later observation, which is whole,
//! did not need them.
//!
//! A key is kept as a digest of 8 bytes, which keeps 10,000 agents within a few MiB. Two keys
//! with the same digest cost a compilation in vain.

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
    /// Its seeds are random, so that no object can be made to share a digest.
    hasher: RandomState,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    dependents: HashMap<u64, Vec<Arc<Work>>>,
    /// The keys of each piece of work, in order.
    looked_at: HashMap<Arc<Work>, Box<[u64]>>,
}

impl Dependents {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }

    /// The work that looked at one of the keys.
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

    /// Begins an observation of `work`. There is one at a time for the same work.
    pub fn observe(&self, work: &Work) -> Observation<'_> {
        let observation = self.begin(work);
        if work.is_agent() {
            // By the settings: every agent's files name the name servers.
            observation.enter(&dns::key());
        }
        observation
    }

    fn begin(&self, work: &Work) -> Observation<'_> {
        let entries = self.entries();
        let known = entries.looked_at.get_key_value(work);
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

    /// Removes the entries of work whose object is gone.
    pub fn forget(&self, work: &Work) {
        let mut observation = self.begin(work);
        observation.is_whole = true;
    }

    /// Removes all entries.
    pub fn clear(&self) {
        *self.entries() = Entries::default();
    }
}

/// Enters the keys that one piece of work looks at. When it is dropped, the keys of earlier
/// observations go if this one is whole; they stay if it was broken off.
#[derive(Debug)]
pub struct Observation<'a> {
    dependents: &'a Dependents,
    work: Arc<Work>,
    /// The keys that are entered already, in order.
    before: Box<[u64]>,
    now: Mutex<BTreeSet<u64>>,
    is_whole: bool,
}

impl Observation<'_> {
    /// Enters a key. To be called before the answer is read. The object of the work itself is no
    /// entry: its changes affect the work in any case.
    pub fn enter(&self, key: &Key) {
        if self.is_own(key) {
            return;
        }
        let digest = self.dependents.hasher.hash_one(key);
        let mut now = self.now.lock();
        if now.insert(digest) && self.before.binary_search(&digest).is_err() {
            let mut entries = self.dependents.entries();
            let works = entries.dependents.entry(digest);
            // Most keys have one.
            let works = works.or_insert_with(|| Vec::with_capacity(1));
            works.push(Arc::clone(&self.work));
        }
    }

    /// Says whether the answers so far are all that the work needs.
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
            entries.looked_at.remove(&self.work);
        } else {
            let keys = now.into_iter().collect();
            entries.looked_at.insert(Arc::clone(&self.work), keys);
        }
    }
}

impl Entries {
    fn remove(&mut self, digest: u64, work: &Work) {
        let Some(works) = self.dependents.get_mut(&digest) else {
            return;
        };
        if let Some(index) = works.iter().position(|other| **other == *work) {
            works.swap_remove(index);
        }
        if works.is_empty() {
            self.dependents.remove(&digest);
        }
    }
}
