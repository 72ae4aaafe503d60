//! Reads of Secrets: what compile asked for, and what a compiled Secret holds now.
//!
//! Not here: remembering and bounding what was read (the controller's `readers`), and the
//! identity Secret.
//!
//! Invariant: values go to materialize only; logs and errors carry keys and the API
//! server's message.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Resource};
use toolcrib_compile::{Compilation, LastGood, ObjectRef, SecretKeyRef, SourceState, names};
use toolcrib_crds::Agent;
use toolcrib_manifest::SecretText;

use super::ReconcileError;
use super::gather::Unread;
use crate::controller::apply::{self, Standing};
use crate::controller::carrier::Carrier;
use crate::controller::related::users_of_secret;
use crate::controller::world::World;

/// What reading gave over what compile already knew.
pub(super) enum News {
    Nothing,
    Read { unread: Unread },
}

/// Reads the Secrets that a compilation refers to.
pub(super) async fn read(world: &World, compiled: &Compilation) -> News {
    let secrets: BTreeSet<ObjectRef> = compiled
        .references()
        .into_iter()
        .map(|reference| reference.secret)
        .collect();
    let mut learned = BTreeSet::new();
    let mut unread = Unread::new();
    for key in secrets {
        match world.readers.read_secret(&world.tables.secrets, &key).await {
            Ok(false) => {}
            Ok(true) => {
                learned.insert(key);
            }
            Err(error) => {
                tracing::warn!(secret = %key, error = %message(&error), "Secret not read");
                unread.insert(key, "the API server did not give it".to_owned());
            }
        }
    }
    if learned.is_empty() && unread.is_empty() {
        return News::Nothing;
    }
    // Keys are known now: surfaces and providers can say which are missing.
    for key in &learned {
        world.queue.add_all(users_of_secret(&world.tables, key));
    }
    News::Read { unread }
}

/// Short, and without what a body may hold.
fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// A value that was read; `None`: it is not known.
pub(super) fn value(world: &World, reference: &SecretKeyRef) -> Option<SecretText> {
    world
        .readers
        .secret_values(&world.tables.secrets, &reference.secret)?
        .get(&reference.key)
        .cloned()
}

/// What the compiled Secret holds now, if a source of the new one cannot be read.
pub(super) async fn last_good(
    world: &World,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<LastGood, ReconcileError> {
    let unknown = compiled
        .sources
        .values()
        .any(|source| source.state == SourceState::Unknown);
    if !unknown {
        return Ok(LastGood::default());
    }
    let key = ObjectRef::new(
        compiled.agent.namespace.clone(),
        names::mediator_secret(&compiled.agent.name),
    );
    let found = find(world, &key)
        .await?
        // Somebody else's Secret holds nothing of ours.
        .filter(|found| apply::standing(found.meta(), &apply::owner(agent)) == Standing::Ours);
    Ok(found.map_or_else(LastGood::default, |found| {
        LastGood::read(
            found
                .metadata
                .annotations
                .as_ref()
                .unwrap_or(&BTreeMap::new()),
            &found.content(),
        )
    }))
}

/// Past the watch: as the API server has it now.
pub(super) async fn find(
    world: &World,
    secret: &ObjectRef,
) -> Result<Option<Secret>, ReconcileError> {
    Api::<Secret>::namespaced(world.client.clone(), &secret.namespace)
        .get_opt(&secret.name)
        .await
        .map_err(|error| ReconcileError::ReadSecret(secret.clone(), error))
}
