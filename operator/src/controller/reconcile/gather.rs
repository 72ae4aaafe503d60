//! What compile looks at, for one piece of work.
//!
//! Here: reading the ConfigMaps that are in scope, and joining them with what the tables
//! and the readers know of Secrets. Not here: what is in scope (the controller's
//! `snapshot`), and reading Secrets.
//!
//! Invariant: whatever was not read is unknown or what it was before, never absent.

use std::collections::BTreeMap;

use toolcrib_compile::{ConfigMapFacts, Inputs, ObjectRef, Presence, SecretFacts, Synced};

use super::secrets::Known;
use crate::controller::context::Context;
use crate::controller::snapshot::Scope;
use crate::controller::work::Work;

/// The scope of one piece of work, with its ConfigMaps read.
pub(super) struct Gathered {
    scope: Scope,
    synced: Synced,
    config_maps: BTreeMap<ObjectRef, ConfigMapFacts>,
}

impl Gathered {
    pub(super) async fn of(context: &Context, work: &Work, synced: Synced) -> Self {
        let scope = Scope::of(work, &context.tables);
        let mut config_maps = BTreeMap::new();
        for key in &scope.config_maps {
            let data = context
                .readers
                .config_map(&context.tables.config_maps, key)
                .await;
            config_maps.insert(key.clone(), data);
        }
        Self {
            scope,
            synced,
            config_maps,
        }
    }

    /// Whether something that it refers to will soon be known.
    pub(super) fn is_listing(&self, context: &Context) -> bool {
        let secrets = self.scope.secrets.iter();
        let config_maps = self.scope.config_maps.iter();
        secrets
            .map(|key| context.tables.secrets.is_listing(&key.namespace))
            .chain(config_maps.map(|key| context.tables.config_maps.is_listing(&key.namespace)))
            .any(|listing| listing)
    }

    /// The snapshot as of now, with Secrets as they are `known`.
    pub(super) fn inputs(&self, context: &Context, known: &Known) -> Inputs {
        let secret = |key: &ObjectRef| -> Presence<SecretFacts> {
            known.facts(
                key,
                context.readers.secret_facts(&context.tables.secrets, key),
            )
        };
        let config_map = |key: &ObjectRef| {
            self.config_maps
                .get(key)
                .cloned()
                .unwrap_or_else(|| ConfigMapFacts::Unknown("it was not read".to_owned()))
        };
        self.scope.inputs(
            self.synced,
            context.compile_settings(),
            &context.tables,
            secret,
            config_map,
        )
    }
}
