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
    Compilation, ObjectRef, Objects, Synced, ToolExplained, compile, explain_tool, floor,
};
use toolcrib_crds::Agent;
use toolcrib_manifest::Floor;

use super::ask::Asker;
use super::secrets::Known;
use super::{ReconcileError, objects, outcome, secrets};
use crate::claw::holders::holdings;
use crate::controller::context::Context;
use crate::controller::noticed::Look;
use crate::controller::queue::Done;
use crate::controller::report;
use crate::controller::status::counted;
use crate::controller::work::Work;
use crate::objects::decode::Decoded;

/// Says what is left standing, and writes nothing.
pub(super) async fn tell(context: &Context, work: &Work, synced: Synced) {
    let look = context.noticed.look(&work.key);
    match there(context, &work.key) {
        None => {
            context.dependents.forget(work);
            say(context, &work.key, None, look);
        }
        Some(stored) if readable(&stored).is_some() => {
            compiled(context, work, synced, look).await;
        }
        // What it was compiled to stands, but not what it may ask the operator.
        Some(_) => context.holders.forget(&work.key),
    }
}

/// All of it, what [`tell`] says included: there may be more to say by now.
pub(super) async fn agent(
    context: &Context,
    work: &Work,
    synced: Synced,
) -> Result<Done, ReconcileError> {
    let key = &work.key;
    let look = context.noticed.look(key);
    let Some(stored) = there(context, key) else {
        // What was written for it goes with its owner.
        context.dependents.forget(work);
        say(context, key, None, look);
        context.memory().agents.remove(key);
        return Ok(Done::Settled);
    };
    let agent = match (readable(&stored), &stored.object) {
        (Some(agent), _) => agent,
        (None, Err(why)) => {
            context.holders.forget(key);
            report::unreadable::<Agent>(context, work, &stored, why).await?;
            return Ok(Done::Settled);
        }
        (None, Ok(_)) => return Ok(Done::Settled),
    };
    let agent = &agent;
    let before = stored.status();
    let usage = before.as_ref().and_then(|status| status.usage.as_ref());
    context.link.reports().begin(key, &counted(usage));

    let Some((compiled, known)) = compiled(context, work, synced, look).await else {
        return Ok(Done::Settled);
    };
    let wrote = objects::write(context, agent, &compiled, &known).await;
    if wrote.errors.iter().any(ReconcileError::passes) {
        // Nothing that a user should read about.
        return Err(ReconcileError::NotSynced);
    }
    outcome::report(context, work, agent, before.as_ref(), &compiled, wrote).await
}

/// Why the agent has a tool, or has it not, as it is compiled now. Writes nothing, and reads no
/// Secret. `None`: there is no such agent, it does not read, or not everything is listed.
pub async fn explain(context: &Context, agent: &ObjectRef, tool: &str) -> Option<ToolExplained> {
    let synced = context.tables.synced()?;
    let known = Known::default();
    let mut asker = Asker::new(context, synced, None);
    let answer = asker.ask(&known, |objects| {
        let compiled = compile(objects, agent)?;
        Some(explain_tool(objects, &compiled, tool))
    });
    answer.await.value
}

/// The agent as it is compiled; `None`: it cannot be read, so that what was compiled stands.
fn readable(stored: &Decoded<Agent>) -> Option<Arc<Agent>> {
    match &stored.object {
        Ok(agent) => Some(Arc::clone(agent)),
        Err(why) => why.bare_agent().map(Arc::new),
    }
}

/// The agent, unless it is gone or going.
fn there(context: &Context, agent: &ObjectRef) -> Option<Arc<Decoded<Agent>>> {
    let stored = context.tables.agents.get(&agent.namespace, &agent.name)?;
    stored.meta().deletion_timestamp.is_none().then_some(stored)
}

/// What it is compiled to now, with the Secrets that stand behind it; said already.
async fn compiled(
    context: &Context,
    work: &Work,
    synced: Synced,
    look: Look<'_>,
) -> Option<(Compilation, Known)> {
    let key = &work.key;
    let observation = context.dependents.observe(work);
    let mut asker = Asker::new(context, synced, Some(observation));
    let question = |objects: &dyn Objects| compile(objects, key);
    let first = asker.ask(&Known::default(), question).await;
    let first = first.value?;
    let known = secrets::read(context, &first).await;
    let compiled = if known.stands_behind(&first) {
        first
    } else {
        asker.ask(&known, question).await.value?
    };
    // Before anything is written, and whether or not it can be: mediators need no volume to
    // hear what is taken away.
    say(context, key, Some(&floor(&compiled)), look);
    if let Some(surface) = context.settings.claw_api_surface() {
        let held = holdings(&compiled, &surface, |reference| known.value(reference));
        context.holders.compiled(key, held);
    }
    Some((compiled, known))
}

/// Tells the agent's mediators what is left of their loaded files; `None`: nothing, it is deleted.
fn say(context: &Context, agent: &ObjectRef, floor: Option<&Floor>, look: Look<'_>) {
    if floor.is_none() {
        context.holders.forget(agent);
    }
    context.link.publish(agent, floor, look.done());
}
