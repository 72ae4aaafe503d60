//! Writes an Agent's objects: its identity, the mediator's files, the public ConfigMaps, and its
//! pods' NetworkPolicy.
//!
//! Here: the order of the writes, and the effect of a failed write on the next. Not here: the content
//! of the objects (`toolcrib_compile`), and applying a single object.
//!
//! Invariant: the mediator's Secret, which revokes, is written even if another object cannot be
//! written. It is left unchanged only while the valid tokens, or the last good value of an
//! unreadable source, are unknown.

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
    /// Time until an earlier token may be dropped.
    pub look_again: Option<Duration>,
    /// Set if the runner's token changed.
    pub notice: Option<Notice>,
    pub errors: Vec<ReconcileError>,
}

/// Writes the identity Secret, then the objects that are materialized with its tokens.
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
            // The tokens of another owner's Secret are not valid.
            result.errors.push(error);
            Vec::new()
        }
        // The valid tokens are unknown: an earlier version of the files is better than none.
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

/// Applies all objects except the identity Secret. A failure does not keep the others from being
/// applied.
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

/// Removes the policy of an agent that is no longer restricted.
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
