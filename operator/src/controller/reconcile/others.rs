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
use crate::controller::context::Context;
use crate::controller::report;
use crate::controller::status::{OfDefaults, OfGrant};
use crate::controller::work::Work;

pub(super) async fn surface(
    context: &Context,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(context, work, synced).await?;
    let report = computed(context, || check_surface(&inputs, &work.key)).await;
    report::other::<Surface, _>(context, work, &context.tables.surfaces, report).await?;
    Ok(())
}

pub(super) async fn grant(
    context: &Context,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(context, work, synced).await?;
    let report = computed(context, || check_grant(&inputs, &work.key)).await;
    let stored = context
        .tables
        .grants
        .get(&work.key.namespace, &work.key.name);
    let agents = stored
        .as_ref()
        .and_then(|stored| stored.object.as_ref().ok())
        .map(|grant| grant.spec.agents.clone())
        .unwrap_or_default();
    let report = report.map(|report| OfGrant { report, agents });
    report::other::<ToolGrant, _>(context, work, &context.tables.grants, report).await?;
    Ok(())
}

pub(super) async fn defaults(
    context: &Context,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(context, work, synced).await?;
    let report = computed(context, || check_defaults(&inputs, &work.key))
        .await
        .map(OfDefaults);
    report::other::<ToolDefaults, _>(context, work, &context.tables.defaults, report).await?;
    Ok(())
}

pub(super) async fn provider(
    context: &Context,
    work: &Work,
    synced: Synced,
) -> Result<(), ReconcileError> {
    let inputs = snapshot(context, work, synced).await?;
    let report = computed(context, || check_provider(&inputs, &work.key)).await;
    report::other::<ModelProvider, _>(context, work, &context.tables.providers, report).await?;
    Ok(())
}

/// While what it refers to is being listed there is nothing to report: a status would say for
/// a moment that nobody knows.
async fn snapshot(
    context: &Context,
    work: &Work,
    synced: Synced,
) -> Result<Inputs, ReconcileError> {
    let gathered = Gathered::of(context, work, synced).await;
    if gathered.is_listing(context) {
        return Err(ReconcileError::NotSynced);
    }
    Ok(gathered.inputs(context, &Known::default()))
}
