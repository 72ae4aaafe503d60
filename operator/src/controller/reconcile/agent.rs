//! Reconciles an Agent, step by step.
//!
//! The steps: compile, read the Secrets that compile needs, compile again if they bring new facts,
//! publish the allowlist, materialize and apply, report. Not here: the steps themselves.
//!
//! The allowlist is published as soon as it is known. A separate `Publish` step does only that, so
//! that no revocation waits for a write.
//!
//! Invariant: errors that resolve once the watches catch up are not reported to users.

use std::sync::Arc;

use kube::Resource;
use toolcrib_compile::{
    Compilation, ObjectRef, Objects, SyncProof, ToolExplanation, compile, explain_tool,
    link_allowlist, tool_requirements,
};
use toolcrib_crds::Agent;
use toolcrib_manifest::LinkAllowlist;

use super::ask::Asker;
use super::report;
use super::secrets::SecretVersions;
use super::{ReconcileError, objects, outcome, secrets};
use crate::approvals::requirements::AgentRequirements;
use crate::claw::tokens::token_grants;
use crate::controller::context::Context;
use crate::controller::queue::Completion;
use crate::controller::queue::pending_since::Attempt;
use crate::controller::queue::work::Work;
use crate::controller::status::budgets::sums;
use crate::controller::status::counted;
use crate::link::answers::Access;
use crate::objects::decode::DecodedObject;

/// Publishes the agent's allowlist, and writes no object.
pub(super) async fn publish(context: &Context, work: &Work, synced: SyncProof) {
    let attempt = context.pending_since.attempt(&work.key);
    match existing(context, &work.key) {
        None => {
            context.dependents.forget(work);
            publish_access(context, &work.key, Access::Deleted, attempt);
        }
        // The watch event has published the suspension already. It is checked here too, so that a
        // suspended agent waits for no compilation.
        Some(_) if context.is_suspended(&work.key) => {
            publish_access(context, &work.key, Access::Suspended, attempt);
        }
        Some(stored) if readable(&stored).is_some() => {
            compiled(context, work, synced, attempt).await;
        }
        // The manifest compiled earlier stays in force, but the tokens for claw-api do not.
        Some(_) => context.tokens.forget(&work.key),
    }
}

/// Reconciles the agent. Publishes like [`publish`], since the allowlist may have changed since.
pub(super) async fn agent(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<Completion, ReconcileError> {
    let key = &work.key;
    let attempt = context.pending_since.attempt(key);
    let Some(stored) = existing(context, key) else {
        // The garbage collector deletes the objects that the Agent owns.
        context.dependents.forget(work);
        publish_access(context, key, Access::Deleted, attempt);
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
    let created = outcome::created(agent);
    context.link.reports().begin(key, created, &counted(usage));
    let heads = before.as_ref().map_or(&[][..], |status| &status.record);
    context.link.heads().begin(key, heads);
    let budgets = before.iter().flat_map(|status| &status.budgets);
    context.link.budgets().begin(key, sums(budgets));

    let Some((compiled, known)) = compiled(context, work, synced, attempt).await else {
        return Ok(Completion::Settled);
    };
    if let Some(why) = &compiled.blocked {
        report::blocked(context, work, agent, before.as_ref(), &compiled, why).await?;
        return Ok(Completion::Settled);
    }
    let result = objects::write(context, agent, &compiled, &known).await;
    if result.errors.iter().any(ReconcileError::passes) {
        // Users need not read about an error that resolves itself.
        return Err(ReconcileError::NotSynced);
    }
    outcome::report(context, work, agent, before.as_ref(), &compiled, result).await
}

/// Explains why the agent has a tool or lacks it, by the current stores. Writes nothing, and reads
/// no Secret. `None` if the agent does not exist or cannot be decoded, or if the stores are not
/// synced.
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

/// The agent to compile; `None` if it cannot be decoded, so that its manifest compiled earlier stays
/// in force.
fn readable(stored: &DecodedObject<Agent>) -> Option<Arc<Agent>> {
    match &stored.object {
        Ok(agent) => Some(Arc::clone(agent)),
        Err(why) => why.bare_agent().map(Arc::new),
    }
}

/// The stored agent, unless it is being deleted.
fn existing(context: &Context, agent: &ObjectRef) -> Option<Arc<DecodedObject<Agent>>> {
    let stored = context.stores.agents.get(&agent.namespace, &agent.name)?;
    stored.meta().deletion_timestamp.is_none().then_some(stored)
}

/// Compiles the agent, and publishes its allowlist. Returns the compilation, and the versions of
/// the Secrets that it used.
async fn compiled(
    context: &Context,
    work: &Work,
    synced: SyncProof,
    attempt: Attempt<'_>,
) -> Option<(Compilation, SecretVersions)> {
    let key = &work.key;
    let observation = context.dependents.observe(work);
    let mut asker = Asker::new(context, synced, Some(observation));
    let question = |objects: &dyn Objects| compile(objects, key);
    let first = asker.ask(&SecretVersions::default(), question).await;
    let first = first.value?;
    if first.blocked.is_some() {
        // The earlier files and allowlist stay in force.
        return Some((first, SecretVersions::default()));
    }
    let known = secrets::read(context, &first).await;
    let compiled = if known.matches(&first) {
        first
    } else {
        asker.ask(&known, question).await.value?
    };
    // Published before any write, and even if the writes fail: the link needs no volume.
    let allowlist = link_allowlist(&compiled);
    let access = match compiled.suspension() {
        Some(_) => Access::Suspended,
        None => Access::Allowed(&allowlist),
    };
    publish_access(context, key, access, attempt);
    if compiled.suspension().is_none() {
        let tools = tool_requirements(&compiled);
        context.set_requirements(key, AgentRequirements::Tools(tools));
    }
    if let Some(surface) = context.settings.claw_api_surface() {
        let tokens = token_grants(&compiled, &surface, |reference| known.value(reference));
        context.tokens.set(key, tokens);
        if context.is_suspended(key) {
            // The suspension may have come while an earlier version was compiled.
            context.tokens.forget(key);
        }
    }
    Some((compiled, known))
}

/// Publishes the access of the agent's mediators.
fn publish_access(
    context: &Context,
    agent: &ObjectRef,
    access: Access<&LinkAllowlist>,
    attempt: Attempt<'_>,
) {
    context.publish(agent, access, attempt.done());
}
