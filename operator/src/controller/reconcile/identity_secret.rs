//! The Secret that holds an agent's tokens.
//!
//! Here: what it holds now, and putting it as it should be. Not here: which tokens are
//! wanted (the controller's `identity`, pure).
//!
//! Invariant: a Secret that is there and not read, or that may be there, is never taken for
//! absent: another token would lock out whoever has the first one.

use std::time::Duration;

use jiff::Timestamp;
use toolcrib_compile::{Compilation, ObjectRef, Presence, Role, identity::runner_tokens, names};
use toolcrib_crds::{Agent, ConditionType};
use toolcrib_manifest::RunnerToken;

use super::ReconcileError;
use super::identity::{Identity, TokenChange, identity, look_again, token_change};
use super::put::put;
use super::{pods, secrets};
use crate::controller::context::Context;
use crate::controller::status::Notice;
use crate::controller::write::apply::{self, ApplyError, DesiredObject, Ownership};

/// The tokens of an agent after its identity Secret was written.
#[derive(Default)]
pub(super) struct Tokens {
    pub valid: Vec<RunnerToken>,
    /// When an earlier one may be dropped without an event.
    pub look_again: Option<Duration>,
    /// Set where the token is another than before.
    pub notice: Option<Notice>,
}

/// Writes the identity Secret as it should be.
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
    let is_ours = is_made_by_us(context, &compiled.agent);
    if current.is_some() && !is_ours {
        tracing::warn!(object = %key, "identity Secret was there before the Agent was first compiled: its tokens are replaced");
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
        &pods::births(context, &compiled.agent),
        now,
        || random,
    );
    // Deleted: as good as emptied, to the pods that hold its token.
    let lost = Identity::default();
    let before = current.as_ref().or(is_ours.then_some(&lost));
    let notice = token_change(before, &wanted).map(|change| notice(change, &key));
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

/// Says what becomes of the pods that run.
fn notice(change: TokenChange, secret: &ObjectRef) -> Notice {
    match change {
        TokenChange::Rotated => Notice {
            reason: "TokenRotated",
            note: format!(
                "a new token is in Secret {secret}, as the annotation {} asks; pods that run keep \
                 the earlier one, which is valid until the last of them has ended: delete them to \
                 end it",
                names::ROTATE_ANNOTATION
            ),
        },
        TokenChange::Replaced => Notice {
            reason: "TokenRenewed",
            note: format!(
                "a new token is in Secret {secret}, whose earlier one was deleted or not made by \
                 the operator; pods created before now get 401 unauthorized: delete them, so that \
                 they are created with the new one"
            ),
        },
    }
}

/// Whether an operator may have made the Agent's identity Secret. Whoever may create Secrets can
/// label one as ours and name the Agent as its owner, and would know the token in it. Only the
/// operator writes an Agent's status, and what was reported compiled had its identity before.
fn is_made_by_us(context: &Context, agent: &ObjectRef) -> bool {
    let reported = || {
        let stored = context.stores.agents.get(&agent.namespace, &agent.name)?;
        let conditions = stored.status()?.conditions;
        let compiled = ConditionType::Compiled.as_str();
        Some(
            conditions
                .iter()
                .any(|condition| condition.type_ == compiled),
        )
    };
    context.applied(agent, Role::Identity).is_some() || reported().unwrap_or(false)
}

/// What it holds; `None`: it is not there.
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
            // Read, but of a newer version than the watch has brought: soon.
            let held = context
                .content_cache
                .secret_values(store, key)
                .ok_or(ReconcileError::NotSynced)?;
            let values = held.data.iter();
            Ok(Some(Identity {
                data: values
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
                annotations: found.annotations(),
            }))
        }
        Presence::Absent => {
            let of_agent = ObjectRef::new(&*key.namespace, &*apply::owner(agent).name);
            let made = context.applied(&of_agent, Role::Identity).is_some();
            if made && secrets::find(context, key).await?.is_some() {
                // Another token now would lock out whoever got the one made a moment ago.
                return Err(ReconcileError::NotSynced);
            }
            Ok(None)
        }
        Presence::Unknown(_) if store.is_listing(&key.namespace) => Err(ReconcileError::NotSynced),
        Presence::Unknown(why) => Err(ReconcileError::NotWatched(key.clone(), why)),
    }
}
