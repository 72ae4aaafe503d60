//! A Surface, ToolGrant, ToolDefaults or ModelProvider: snapshot, check, report.
//!
//! Here: which check and which table belong to which kind. Not here: what the checks find
//! (`toolcrib_compile`) and how a report becomes a status.
//!
//! Invariant: of these objects only the status is written, and nothing is compiled.

use toolcrib_compile::{
    Inputs, Synced, check_defaults, check_grant, check_provider, check_surface,
};
use toolcrib_crds::{ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::gather::Gathered;
use super::secrets::Known;
use super::{ReconcileError, computed};
use crate::controller::report;
use crate::controller::status::{OfDefaults, OfGrant};
use crate::controller::work::Work;
use crate::controller::world::World;

pub(super) async fn surface(
    world: &World,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(world, work, synced).await?;
    let report = computed(world, || check_surface(&inputs, &work.key)).await;
    report::other::<Surface, _>(world, work, &world.tables.surfaces, report).await?;
    Ok(())
}

pub(super) async fn grant(
    world: &World,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(world, work, synced).await?;
    let report = computed(world, || check_grant(&inputs, &work.key)).await;
    let stored = world.tables.grants.get(&work.key.namespace, &work.key.name);
    let agents = stored
        .as_ref()
        .and_then(|stored| stored.object.as_ref().ok())
        .map(|grant| grant.spec.agents.clone())
        .unwrap_or_default();
    let report = report.map(|report| OfGrant { report, agents });
    report::other::<ToolGrant, _>(world, work, &world.tables.grants, report).await?;
    Ok(())
}

pub(super) async fn defaults(
    world: &World,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(world, work, synced).await?;
    let report = computed(world, || check_defaults(&inputs, &work.key))
        .await
        .map(OfDefaults);
    report::other::<ToolDefaults, _>(world, work, &world.tables.defaults, report).await?;
    Ok(())
}

pub(super) async fn provider(
    world: &World,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(world, work, synced).await?;
    let report = computed(world, || check_provider(&inputs, &work.key)).await;
    report::other::<ModelProvider, _>(world, work, &world.tables.providers, report).await?;
    Ok(())
}

/// While what it refers to is being listed there is nothing to report: a status would say for
/// a moment that nobody knows.
async fn snapshot(world: &World, work: &Work, synced: Synced) -> Result<Inputs, ReconcileError> {
    let gathered = Gathered::of(world, work, synced).await;
    if gathered.is_listing(world) {
        return Err(ReconcileError::NotSynced);
    }
    Ok(gathered.inputs(world, &Known::default()))
}
