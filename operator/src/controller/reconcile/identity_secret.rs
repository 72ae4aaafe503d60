//! Reads and writes the Secret with an agent's tokens.
//!
//! Not here: the choice of tokens (`identity`, pure).
//!
//! Invariant: a Secret that exists but was not read, or that may exist, never counts as absent: a new
//! token would lock out the pods that have the first one.

use std::time::Duration;

use jiff::Timestamp;
use toolcrib_compile::{Compilation, ObjectRef, Presence, Role, identity::runner_tokens, names};
use toolcrib_crds::Agent;
use toolcrib_manifest::RunnerToken;

use super::ReconcileError;
use super::identity::{Identity, TokenChange, identity, look_again, token_change};
use super::put::put;
use super::{pods, secrets};
use crate::controller::context::Context;
use crate::controller::status::{self, Notice};
use crate::controller::write::apply::{self, ApplyError, DesiredObject, Ownership};

/// The tokens of an agent after its identity Secret was written.
#[derive(Default)]
pub(super) struct Tokens {
    pub valid: Vec<RunnerToken>,
    /// Time until an earlier token may be dropped.
    pub look_again: Option<Duration>,
    /// Set if the token changed.
    pub notice: Option<Notice>,
}

/// Writes the identity Secret with the wanted tokens.
pub(super) async fn write(
    context: &Context,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<Tokens, ReconcileError> {
    let Some(object) = compiled.envelope(Role::Identity) else {
        return Ok(Tokens::default());
    };
    let key = object.key;
    let mut current = current(context, agent, &key).await?;
    let had_token = had_token(context, agent, &compiled.agent);
    if current.is_some() && !had_token {
        tracing::warn!(object = %key, "identity Secret precedes the Agent's first complete write, tokens replaced");
        current = Some(Identity::default());
    }
    let now = Timestamp::now();
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(ReconcileError::Random)?;
    let rotate = agent
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::ROTATE_ANNOTATION))
        .map(String::as_str);
    let wanted = identity(
        &compiled.agent.name,
        current.as_ref(),
        rotate,
        &pods::creation_times(context, &compiled.agent),
        now,
        || random,
    );
    let change = token_change(current.as_ref(), had_token, &wanted);
    let notice = change.map(|change| notice(change, &key));
    let mut annotations = object.annotations;
    annotations.extend(wanted.annotations.clone());
    let data = wanted
        .data
        .iter()
        .map(|(key, value)| (key.clone(), value.expose().as_bytes().to_vec()))
        .collect();
    let desired = DesiredObject {
        role: Role::Identity,
        key,
        labels: object.labels,
        annotations,
        data,
    };
    put(context, &context.stores.secrets, agent, &desired).await?;
    Ok(Tokens {
        valid: runner_tokens(&wanted.data),
        look_again: look_again(&wanted, now),
        notice,
    })
}

/// The Event about a changed token, which says what running pods can do.
fn notice(change: TokenChange, secret: &ObjectRef) -> Notice {
    match change {
        TokenChange::Rotated => Notice {
            reason: "TokenRotated",
            note: format!(
                "a new token is in Secret {secret}, as requested by the annotation {}; running \
                 pods keep the earlier one, which is valid until the last of them has ended: \
                 delete the pods to end it",
                names::ROTATE_ANNOTATION
            ),
        },
        TokenChange::Replaced => Notice {
            reason: "TokenRenewed",
            note: format!(
                "a new token is in Secret {secret}: the earlier one was deleted, or not written \
                 by the operator; existing pods get 401 unauthorized: delete them, so that new \
                 pods start with the new token"
            ),
        },
    }
}

/// Whether the operator has written a token of this Agent. The proof is a write of this leader, or a
/// status with the digest of a complete write: only the operator writes the status. A condition is no
/// proof, because a failed first write also sets one. A write for an earlier Agent of the same name
/// is none either.
///
/// Without proof, a Secret that looks like the operator's was made by another user, who knows its
/// token: a user who may create Secrets can set the operator's labels and name the Agent as the
/// owner. After the proof, only the chart's admission policy for compiled objects (`guard.enabled`)
/// keeps other users from recreating a deleted Secret with a token of their own.
fn had_token(context: &Context, agent: &Agent, key: &ObjectRef) -> bool {
    let owner = apply::owner(agent);
    let was_written = || {
        let stored = context.stores.agents.get(&key.namespace, &key.name)?;
        Some(status::was_written(&stored.status()?))
    };
    context
        .applied(key, Role::Identity)
        .is_some_and(|applied| applied.is_owned_by(&owner))
        || was_written().unwrap_or(false)
}

/// The content of the identity Secret; `None` if it does not exist.
async fn current(
    context: &Context,
    agent: &Agent,
    key: &ObjectRef,
) -> Result<Option<Identity>, ReconcileError> {
    let store = &context.stores.secrets;
    let read = |error| ReconcileError::ReadSecret(key.clone(), error);
    context
        .content_cache
        .read_secret(store, key)
        .await
        .map_err(read)?;
    match store.look_up(key) {
        Presence::Present(found) => {
            match apply::ownership(&found, &apply::owner(agent)) {
                Ownership::Ours => {}
                Ownership::Leftover => {
                    return Err(ApplyError::Leftover {
                        kind: "Secret",
                        key: key.clone(),
                    }
                    .into());
                }
                Ownership::Foreign => {
                    return Err(ApplyError::Conflict {
                        kind: "Secret",
                        key: key.clone(),
                    }
                    .into());
                }
            }
            // The read returned a newer version, which the watch will deliver soon.
            let content = context
                .content_cache
                .secret_values(store, key)
                .ok_or(ReconcileError::NotSynced)?;
            let values = content.data.iter();
            Ok(Some(Identity {
                data: values
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
                annotations: found.annotations(),
            }))
        }
        Presence::Absent => {
            let of_agent = ObjectRef::new(&*key.namespace, &*apply::owner(agent).name);
            let was_created = context.applied(&of_agent, Role::Identity).is_some();
            if was_created && secrets::find(context, key).await?.is_some() {
                // The Secret was created a moment ago. A new token would lock out the pods that
                // already have the first one.
                return Err(ReconcileError::NotSynced);
            }
            Ok(None)
        }
        Presence::Unknown(_) if store.is_listing(&key.namespace) => Err(ReconcileError::NotSynced),
        Presence::Unknown(why) => Err(ReconcileError::NotWatched(key.clone(), why)),
    }
}
