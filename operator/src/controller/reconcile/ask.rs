//! Runs a compilation or check on a snapshot of the current stores.
//!
//! Here: recording the keys that it depends on, and reading the ConfigMaps that it needs. Not here:
//! the snapshot of the stores (the controller's `snapshot`), and reading Secrets.
//!
//! Invariant: a Secret or ConfigMap that was not read is unknown or has its last good content. It
//! never counts as absent.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use toolcrib_compile::{
    ConfigMapFacts, Key, MOST_ROUNDS, ObjectRef, Objects, Presence, SecretFacts, SyncProof,
};

use super::computed;
use super::secrets::SecretVersions;
use crate::controller::context::Context;
use crate::controller::dependents::Observation;
use crate::controller::snapshot::{Material, Snapshot};

/// Runs compilations for a piece of work, which depends on their keys from then on.
pub(super) struct Asker<'a> {
    context: &'a Context,
    synced: SyncProof,
    /// `None` if no work depends on the answers.
    observation: Option<Observation<'a>>,
    /// The ConfigMaps that were read for this piece of work.
    config_maps: BTreeMap<ObjectRef, ConfigMapFacts>,
}

/// The result of a question.
pub(super) struct Evaluation<T> {
    pub value: T,
    /// Whether an unknown Secret or ConfigMap will soon be known, since its namespace is being
    /// listed.
    pub is_listing: bool,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        context: &'a Context,
        synced: SyncProof,
        observation: Option<Observation<'a>>,
    ) -> Self {
        Self {
            context,
            synced,
            observation,
            config_maps: BTreeMap::new(),
        }
    }

    /// Runs `question` with the `known` Secrets.
    ///
    /// It repeats after reading the ConfigMaps that `question` needs. Each ConfigMap is read once. If
    /// the objects change in every round, the result of the last round counts, in which unread
    /// ConfigMaps are unknown.
    pub(super) async fn ask<T>(
        &mut self,
        known: &SecretVersions,
        question: impl Fn(&dyn Objects) -> T,
    ) -> Evaluation<T> {
        let context = self.context;
        self.set_whole(false);
        let mut rounds = 0;
        loop {
            let (answer, to_read) = computed(context, || self.answer(known, &question)).await;
            rounds += 1;
            if to_read.is_empty() || rounds == MOST_ROUNDS {
                self.set_whole(true);
                return answer;
            }
            for key in to_read {
                let store = &context.stores.config_maps;
                let facts = context.content_cache.config_map(store, &key).await;
                self.config_maps.insert(key, facts);
            }
        }
    }

    fn set_whole(&mut self, is_whole: bool) {
        if let Some(observation) = &mut self.observation {
            observation.set_whole(is_whole);
        }
    }

    /// Runs `question` once. Returns the answer, and the ConfigMaps that must be read for it.
    fn answer<T>(
        &self,
        known: &SecretVersions,
        question: impl Fn(&dyn Objects) -> T,
    ) -> (Evaluation<T>, BTreeSet<ObjectRef>) {
        let context = self.context;
        let material = Facts {
            asker: self,
            known,
            is_listing: Cell::new(false),
            to_read: RefCell::default(),
        };
        let settings = context.compile_settings();
        let look = |key: &Key| {
            if let Some(observation) = &self.observation {
                observation.enter(key);
            }
        };
        let snapshot = Snapshot::new(&context.stores, self.synced, settings, &material, &look);
        let value = question(&snapshot);
        let is_listing = material.is_listing.get();
        (
            Evaluation { value, is_listing },
            material.to_read.into_inner(),
        )
    }
}

/// The facts about Secrets and ConfigMaps that need no read.
struct Facts<'a> {
    asker: &'a Asker<'a>,
    known: &'a SecretVersions,
    is_listing: Cell<bool>,
    to_read: RefCell<BTreeSet<ObjectRef>>,
}

impl Facts<'_> {
    fn note_listing(&self, is_listing: bool) {
        self.is_listing.set(self.is_listing.get() || is_listing);
    }
}

impl Material for Facts<'_> {
    fn secret(&self, key: &ObjectRef) -> Presence<SecretFacts> {
        let context = self.asker.context;
        let store = &context.stores.secrets;
        self.note_listing(store.is_listing(&key.namespace));
        self.known
            .facts(key, context.content_cache.secret_facts(store, key))
    }

    fn config_map(&self, key: &ObjectRef) -> ConfigMapFacts {
        let context = self.asker.context;
        let store = &context.stores.config_maps;
        self.note_listing(store.is_listing(&key.namespace));
        let read = self.asker.config_maps.get(key).cloned();
        let facts = read.or_else(|| context.content_cache.config_map_facts(store, key));
        facts.unwrap_or_else(|| {
            self.to_read.borrow_mut().insert(key.clone());
            ConfigMapFacts::Unknown("not read yet".to_owned())
        })
    }
}
