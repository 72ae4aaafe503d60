//! An Agent, step by step.
//!
//! Reads as a table of contents: snapshot, compile, read the Secrets that compile asked for,
//! compile again with them, materialize and apply, report. Not here: how any of the steps
//! is done.
//!
//! Invariant: an error of the watches only catching up is not reported to a user.

use kube::Resource;
use toolcrib_compile::{Synced, compile};
use toolcrib_crds::Agent;

use super::gather::{Gathered, Unread};
use super::{ReconcileError, computed, objects, outcome, secrets};
use crate::controller::queue::Done;
use crate::controller::report;
use crate::controller::status::counted;
use crate::controller::work::Work;
use crate::controller::world::World;

pub(super) async fn agent(
    world: &World,
    work: &Work,
    synced: Synced,
) -> Result<Done, ReconcileError> {
    let key = &work.key;
    let Some(stored) = world.tables.agents.get(&key.namespace, &key.name) else {
        // What was written for it goes with its owner.
        return Ok(Done::Settled);
    };
    if stored.meta().deletion_timestamp.is_some() {
        return Ok(Done::Settled);
    }
    let agent = match &stored.object {
        Ok(agent) => agent,
        Err(why) => {
            report::unreadable::<Agent>(world, work, &stored, &why.reason).await?;
            return Ok(Done::Settled);
        }
    };
    world.reports().begin(
        key,
        &counted(agent.status.as_ref().and_then(|s| s.usage.as_ref())),
    );

    let gathered = Gathered::of(world, work, synced).await;
    let Some(first) = computed(|| compile(&gathered.inputs(world, &Unread::new()), key)) else {
        return Ok(Done::Settled);
    };
    let compiled = match secrets::read(world, &first).await {
        secrets::News::Nothing => first,
        secrets::News::Read { unread } => {
            let Some(again) = computed(|| compile(&gathered.inputs(world, &unread), key)) else {
                return Ok(Done::Settled);
            };
            again
        }
    };
    let wrote = objects::write(world, agent, &compiled).await;
    if wrote.errors.iter().any(ReconcileError::passes) {
        // Nothing that a user should read about.
        return Err(ReconcileError::NotSynced);
    }
    outcome::report(world, work, agent, &compiled, wrote).await
}
