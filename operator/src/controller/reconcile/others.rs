//! Checks an object of each kind but Agent, and reports the result.
//!
//! Here: the check and the store of each kind. Not here: the checks (`toolcrib_compile`), and the
//! content of the status.
//!
//! Invariant: only the status of these objects is written, and nothing is compiled.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use toolcrib_compile::{
    ObjectRef, Objects, SyncProof, check_defaults, check_grant, check_policy, check_provider,
    check_surface,
};
use toolcrib_crds::{ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::ReconcileError;
use super::ask::Asker;
use super::report;
use super::secrets::SecretVersions;
use crate::controller::context::Context;
use crate::controller::queue::Completion;
use crate::controller::queue::work::Work;
use crate::controller::status::{Activity, ToolDefaultsReport, ToolGrantReport};

/// Limits the wait for a grant's time. The queue's clock and the wall's may differ by then.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// The wait until it is known whether selectors are in force.
const SOON: Duration = Duration::from_millis(200);
/// Interval between two checks of a policy. Each change of an Agent may change its number of agents.
const POLICY_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn surface(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<(), ReconcileError> {
    let report = checked(context, work, synced, check_surface).await?;
    report::other::<Surface, _>(context, work, &context.stores.surfaces, report).await?;
    Ok(())
}

/// Requeued for the time at which the grant begins or ends to give something: its status says so. A
/// selector waits until it is known whether selectors are in force.
pub(super) async fn grant(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<Completion, ReconcileError> {
    let stored = context
        .stores
        .grants
        .get(&work.key.namespace, &work.key.name);
    let grant = stored
        .as_ref()
        .and_then(|stored| stored.object.as_ref().ok());
    let has_selector = grant.is_some_and(|grant| grant.spec.agent_selector.is_some());
    if has_selector && context.selectors.is_open() {
        return Ok(Completion::Again(SOON));
    }
    let report = checked(context, work, synced, check_grant).await?;
    let activity = grant.map(|grant| Activity::of(&grant.spec));
    let activity = activity.unwrap_or_default();
    let wait = activity.next_change(Timestamp::now());
    let report = report.map(|report| ToolGrantReport { report, activity });
    report::other::<ToolGrant, _>(context, work, &context.stores.grants, report).await?;
    Ok(wait.map_or(Completion::Settled, |wait| {
        Completion::Again(wait.min(LONGEST_WAIT))
    }))
}

pub(super) async fn defaults(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<(), ReconcileError> {
    let report = checked(context, work, synced, check_defaults).await?;
    let report = report.map(ToolDefaultsReport);
    report::other::<ToolDefaults, _>(context, work, &context.stores.defaults, report).await?;
    Ok(())
}

pub(super) async fn provider(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<(), ReconcileError> {
    let report = checked(context, work, synced, check_provider).await?;
    report::other::<ModelProvider, _>(context, work, &context.stores.providers, report).await?;
    Ok(())
}

pub(super) async fn policy(
    context: &Context,
    work: &Work,
    synced: SyncProof,
) -> Result<Completion, ReconcileError> {
    let stored = context.stores.policies.get("", &work.key.name);
    let now = Instant::now();
    let checked_at = context.memory().policies_checked.get(&work.key).copied();
    let wait = checked_at.map(|at| POLICY_INTERVAL.saturating_sub(now - at));
    match wait {
        Some(wait) if stored.is_some() && !wait.is_zero() => return Ok(Completion::Again(wait)),
        Some(_) | None => {}
    }
    let report = checked(context, work, synced, check_policy).await?;
    report::other::<ClusterToolPolicy, _>(context, work, &context.stores.policies, report).await?;
    if stored.is_some() {
        context
            .memory()
            .policies_checked
            .insert(work.key.clone(), now);
    }
    Ok(Completion::Settled)
}

/// The report of a check. Fails while a Secret or ConfigMap that it needs is being listed: a status
/// would report it as unknown for a moment.
async fn checked<T>(
    context: &Context,
    work: &Work,
    synced: SyncProof,
    check: fn(&dyn Objects, &ObjectRef) -> Option<T>,
) -> Result<Option<T>, ReconcileError> {
    let observation = context.dependents.observe(work);
    let mut asker = Asker::new(context, synced, Some(observation));
    let known = SecretVersions::default();
    let answer = asker.ask(&known, |objects| check(objects, &work.key)).await;
    if answer.is_listing {
        return Err(ReconcileError::NotSynced);
    }
    Ok(answer.value)
}
