//! What is written for an Agent: its identity, the mediator's files, what is published, and
//! its pods' NetworkPolicy.
//!
//! Here: the order of the writes, and what one that fails means for the next. Not here:
//! what the objects hold (`toolcrib_compile`) and how one is applied.
//!
//! Invariant: the mediator's Secret, the one that revokes, is written even when another
//! object cannot be. It is left as it is only while it is not known which tokens are valid,
//! or what stands in for a source that cannot be read.

use std::time::Duration;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use toolcrib_compile::{Compilation, Materialized, Network, ObjectRef, Role, materialize};
use toolcrib_crds::Agent;

use super::ReconcileError;
use super::secrets::Known;
use super::{identity_secret, secrets};
use crate::controller::apply::{self, ApplyError, Desired, Verb};
use crate::controller::carrier::{self, Carrier};
use crate::controller::world::World;
use crate::objects::stores::Scoped;

/// What writing an agent's objects gave.
#[derive(Default)]
pub(super) struct Wrote {
    pub materialized: Option<Materialized>,
    /// When earlier tokens may go without an event.
    pub look_again: Option<Duration>,
    pub errors: Vec<ReconcileError>,
}

/// Identity, then what is materialized with its tokens.
pub(super) async fn write(
    world: &World,
    agent: &Agent,
    compiled: &Compilation,
    known: &Known,
) -> Wrote {
    let mut wrote = Wrote::default();
    let tokens = match identity_secret::write(world, agent, compiled).await {
        Ok((tokens, look_again)) => {
            wrote.look_again = look_again;
            tokens
        }
        Err(error @ ReconcileError::Apply(ApplyError::Conflict { .. })) => {
            // Somebody else's Secret of that name lets nobody in.
            wrote.errors.push(error);
            Vec::new()
        }
        // Which tokens are valid is not known: better an old version than none.
        Err(error) => {
            wrote.errors.push(error);
            return wrote;
        }
    };
    let last_good = match secrets::last_good(world, agent, compiled).await {
        Ok(last_good) => last_good,
        Err(error) => {
            wrote.errors.push(error);
            return wrote;
        }
    };
    let materialized = materialize(
        compiled,
        &|reference| known.value(reference),
        &last_good,
        &tokens,
    );
    apply_all(world, agent, compiled, &materialized, &mut wrote.errors).await;
    wrote.materialized = Some(materialized);
    wrote
}

/// All but the identity Secret; one that fails keeps no other from being applied.
async fn apply_all(
    world: &World,
    agent: &Agent,
    compiled: &Compilation,
    materialized: &Materialized,
    errors: &mut Vec<ReconcileError>,
) {
    for role in Role::ALL {
        let object = match role {
            Role::Identity => continue,
            Role::Mediator => compiled.envelope(role),
            Role::Manifest | Role::Context | Role::Network => compiled.object(role),
        };
        let Some(object) = object else { continue };
        let mut desired = Desired {
            role,
            key: object.key,
            labels: object.labels,
            annotations: object.annotations,
            data: object
                .data
                .into_iter()
                .map(|(k, text)| (k, text.into_bytes()))
                .collect(),
        };
        if let Some(spec) = &object.spec {
            desired.data = carrier::of_spec(spec);
        }
        let result = match object.role {
            Role::Identity => continue,
            Role::Mediator => {
                desired.annotations.extend(materialized.annotations.clone());
                desired.data = materialized.files.clone();
                put(world, &world.tables.secrets, agent, &desired).await
            }
            Role::Manifest | Role::Context => {
                put(world, &world.tables.config_maps, agent, &desired).await
            }
            Role::Network => put(world, &world.tables.network_policies, agent, &desired).await,
        };
        if let Err(error) = result {
            errors.push(error);
        }
    }
    match compiled.network {
        Network::Declared(_) | Network::Undecided => {}
        Network::Unrestricted => {
            if let Err(error) = remove_policy(world, agent, compiled).await {
                errors.push(error);
            }
        }
    }
}

/// An agent that is no longer restricted has no policy of ours.
async fn remove_policy(
    world: &World,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<(), ReconcileError> {
    let key = ObjectRef::new(
        compiled.agent.namespace.clone(),
        Role::Network.object_name(&compiled.agent.name),
    );
    let table = &world.tables.network_policies;
    let Some(version) = apply::to_remove(table, &apply::owner(agent), &key) else {
        return Ok(());
    };
    if !world.leading() {
        return Err(ReconcileError::NotLeading);
    }
    apply::remove::<NetworkPolicy>(&world.client, &key, version).await?;
    world.metrics.wrote(NetworkPolicy::KIND, "delete");
    tracing::info!(object = %key, kind = NetworkPolicy::KIND, "deleted");
    Ok(())
}

/// Applies one object and remembers what is in place.
pub(super) async fn put<K: Carrier>(
    world: &World,
    table: &Scoped<K>,
    agent: &Agent,
    desired: &Desired,
) -> Result<(), ReconcileError> {
    let owner = apply::owner(agent);
    let of_agent = ObjectRef::new(&*desired.key.namespace, &*owner.name);
    let last = world.applied(&of_agent, desired.role);
    if !world.leading() {
        return Err(ReconcileError::NotLeading);
    }
    let leads = || world.leading();
    let (verb, applied) = apply::apply(&world.client, table, &owner, desired, last, leads).await?;
    world.set_applied(&of_agent, desired.role, applied);
    match verb {
        Verb::Unchanged => {}
        Verb::Created => {
            world.metrics.wrote(K::KIND, "create");
            tracing::info!(object = %desired.key, kind = K::KIND, "created");
        }
        Verb::Patched => {
            world.metrics.wrote(K::KIND, "patch");
            tracing::info!(object = %desired.key, kind = K::KIND, "changed");
        }
    }
    Ok(())
}
