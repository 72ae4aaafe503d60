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
use toolcrib_compile::{Compilation, CompiledSecret, Network, ObjectRef, Role, materialize};
use toolcrib_crds::Agent;

use super::ReconcileError;
use super::put::put;
use super::secrets::SecretVersions;
use super::{identity_secret, secrets};
use crate::controller::context::Context;
use crate::controller::status::Notice;
use crate::controller::write::apply::{self, ApplyError, DesiredObject};
use crate::controller::write::managed_object::{self, ManagedObject};

/// The result of writing an agent's objects.
#[derive(Default)]
pub(super) struct WriteResult {
    pub materialized: Option<CompiledSecret>,
    /// When earlier tokens may go without an event.
    pub look_again: Option<Duration>,
    /// Set where the runner's token is another than before.
    pub notice: Option<Notice>,
    pub errors: Vec<ReconcileError>,
}

/// Identity, then what is materialized with its tokens.
pub(super) async fn write(
    context: &Context,
    agent: &Agent,
    compiled: &Compilation,
    known: &SecretVersions,
) -> WriteResult {
    let mut result = WriteResult::default();
    let tokens = match identity_secret::write(context, agent, compiled).await {
        Ok(tokens) => {
            result.look_again = tokens.look_again;
            result.notice = tokens.notice;
            tokens.valid
        }
        Err(error @ ReconcileError::Apply(ApplyError::Conflict { .. })) => {
            // Somebody else's Secret of that name lets nobody in.
            result.errors.push(error);
            Vec::new()
        }
        // Which tokens are valid is not known: better an old version than none.
        Err(error) => {
            result.errors.push(error);
            return result;
        }
    };
    let last_good = match secrets::last_good(context, agent, compiled).await {
        Ok(last_good) => last_good,
        Err(error) => {
            result.errors.push(error);
            return result;
        }
    };
    let materialized = materialize(
        compiled,
        &|reference| known.value(reference),
        &last_good,
        &tokens,
    );
    apply_all(context, agent, compiled, &materialized, &mut result.errors).await;
    result.materialized = Some(materialized);
    result
}

/// All but the identity Secret; one that fails keeps no other from being applied.
async fn apply_all(
    context: &Context,
    agent: &Agent,
    compiled: &Compilation,
    materialized: &CompiledSecret,
    errors: &mut Vec<ReconcileError>,
) {
    for role in Role::ALL {
        let object = match role {
            Role::Identity => continue,
            Role::Mediator => compiled.envelope(role),
            Role::Manifest | Role::Context | Role::Network => compiled.object(role),
        };
        let Some(object) = object else { continue };
        let mut desired = DesiredObject {
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
            desired.data = managed_object::of_spec(spec);
        }
        let result = match object.role {
            Role::Identity => continue,
            Role::Mediator => {
                desired.annotations.extend(materialized.annotations.clone());
                desired.data = materialized.files.clone();
                put(context, &context.stores.secrets, agent, &desired).await
            }
            Role::Manifest | Role::Context => {
                put(context, &context.stores.config_maps, agent, &desired).await
            }
            Role::Network => put(context, &context.stores.network_policies, agent, &desired).await,
        };
        if let Err(error) = result {
            errors.push(error);
        }
    }
    match compiled.network {
        Network::Declared(_) | Network::Undecided => {}
        Network::Unrestricted => {
            if let Err(error) = remove_policy(context, agent, compiled).await {
                errors.push(error);
            }
        }
    }
}

/// An agent that is no longer restricted has no policy of ours.
async fn remove_policy(
    context: &Context,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<(), ReconcileError> {
    let key = ObjectRef::new(
        compiled.agent.namespace.clone(),
        Role::Network.object_name(&compiled.agent.name),
    );
    let store = &context.stores.network_policies;
    let Some(version) = apply::to_remove(store, &apply::owner(agent), &key) else {
        return Ok(());
    };
    if !context.leading() {
        return Err(ReconcileError::NotLeading);
    }
    apply::remove::<NetworkPolicy>(&context.client, &key, version).await?;
    context.metrics.wrote(NetworkPolicy::KIND, "delete");
    tracing::info!(object = %key, kind = NetworkPolicy::KIND, "deleted");
    Ok(())
}
