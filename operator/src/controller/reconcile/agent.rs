//! An Agent, step by step.
//!
//! Reads as a table of contents: compile, read the Secrets that compile asked for, compile again
//! where they say more, materialize and apply, report. Not here: how any of the steps is done.
//!
//! What is left standing is said to the mediators as soon as it is known: in a step of its own
//! too, which waits for nothing to be written.
//!
//! Invariant: an error of the watches only catching up is not reported to a user.

use std::sync::Arc;

use kube::Resource;
use toolcrib_compile::{
    Compilation, ObjectRef, Objects, SyncProof, ToolExplanation, compile, explain_tool, floor,
};
use toolcrib_crds::Agent;
use toolcrib_manifest::Floor;

use super::ask::Asker;
use super::report;
use super::secrets::SecretVersions;
use super::{ReconcileError, objects, outcome, secrets};
use crate::claw::tokens::token_grants;
use crate::controller::context::Context;
use crate::controller::queue::Completion;
use crate::controller::queue::pending_since::Look;
use crate::controller::queue::work::Work;
use crate::controller::status::counted;
use crate::objects::decode::DecodedObject;

/// Publishes the agent's allowlist, and writes no object.
pub(super) async fn publish(context: &Context, work: &Work, synced: SyncProof) {
    let look = context.pending_since.look(&work.key);
    match there(context, &work.key) {
        None => {
            context.dependents.forget(work);
            publish_allowlist(context, &work.key, None, look);
        }
        Some(stored) if readable(&stored).is_some() => {
            compiled(context, work, synced, look).await;
        }
        // What it was compiled to stands, but not what it may ask the operator.
        Some(_) => context.tokens.forget(&work.key),
    }
}

/// Reconciles the agent. Publishes as [`publish`] does, since the allowlist may have changed since.
pub(super) async fn agent(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<Completion, ReconcileError> {
    let key = &work.key;
    let look = context.pending_since.look(key);
    let Some(stored) = there(context, key) else {
        // The garbage collector deletes the objects that the Agent owns.
        context.dependents.forget(work);
        publish_allowlist(context, key, None, look);
        context.memory().agents.remove(key);
        return Ok(Completion::Settled);
    };
    let agent = match (readable(&stored), &stored.object) {
        (Some(agent), _) => agent,
        (None, Err(why)) => {
            context.tokens.forget(key);
            report::unreadable::<Agent>(context, work, &stored, why).await?;
            return Ok(Completion::Settled);
        }
        (None, Ok(_)) => return Ok(Completion::Settled),
    };
    let agent = &agent;
    let before = stored.status();
    let usage = before.as_ref().and_then(|status| status.usage.as_ref());
    context.link.reports().begin(key, &counted(usage));

    let Some((compiled, known)) = compiled(context, work, synced, look).await else {
        return Ok(Completion::Settled);
    };
    let result = objects::write(context, agent, &compiled, &known).await;
    if result.errors.iter().any(ReconcileError::passes) {
        // Nothing that a user should read about.
        return Err(ReconcileError::NotSynced);
    }
    outcome::report(context, work, agent, before.as_ref(), &compiled, result).await
}

/// Why the agent has a tool, or has it not, as it is compiled now. Writes nothing, and reads no
/// Secret. `None`: there is no such agent, it does not read, or not everything is listed.
pub async fn explain(context: &Context, agent: &ObjectRef, tool: &str) -> Option<ToolExplanation> {
    let synced = context.stores.synced()?;
    let known = SecretVersions::default();
    let mut asker = Asker::new(context, synced, None);
    let answer = asker.ask(&known, |objects| {
        let compiled = compile(objects, agent)?;
        Some(explain_tool(objects, &compiled, tool))
    });
    answer.await.value
}

/// The agent as it is compiled; `None`: it cannot be read, so that what was compiled stands.
fn readable(stored: &DecodedObject<Agent>) -> Option<Arc<Agent>> {
    match &stored.object {
        Ok(agent) => Some(Arc::clone(agent)),
        Err(why) => why.bare_agent().map(Arc::new),
    }
}

/// The agent, unless it is gone or going.
fn there(context: &Context, agent: &ObjectRef) -> Option<Arc<DecodedObject<Agent>>> {
    let stored = context.stores.agents.get(&agent.namespace, &agent.name)?;
    stored.meta().deletion_timestamp.is_none().then_some(stored)
}

/// What it is compiled to now, with the Secrets that stand behind it; said already.
async fn compiled(
    context: &Context,
    work: &Work,
    synced: SyncProof,
    look: Look<'_>,
) -> Option<(Compilation, SecretVersions)> {
    let key = &work.key;
    let observation = context.dependents.observe(work);
    let mut asker = Asker::new(context, synced, Some(observation));
    let question = |objects: &dyn Objects| compile(objects, key);
    let first = asker.ask(&SecretVersions::default(), question).await;
    let first = first.value?;
    let known = secrets::read(context, &first).await;
    let compiled = if known.stands_behind(&first) {
        first
    } else {
        asker.ask(&known, question).await.value?
    };
    // Before anything is written, and whether or not it can be: mediators need no volume to
    // hear what is taken away.
    publish_allowlist(context, key, Some(&floor(&compiled)), look);
    if let Some(surface) = context.settings.claw_api_surface() {
        let grants = token_grants(&compiled, &surface, |reference| known.value(reference));
        context.tokens.set(key, grants);
    }
    Some((compiled, known))
}

/// Publishes what the agent's mediators may still use; `None`: nothing, the Agent was deleted.
fn publish_allowlist(context: &Context, agent: &ObjectRef, floor: Option<&Floor>, look: Look<'_>) {
    if floor.is_none() {
        context.tokens.forget(agent);
    }
    context.link.publish(agent, floor, look.done());
}
