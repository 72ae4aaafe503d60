//! Checks objects of every kind but Agent, and reports the results.
//!
//! Here: the check and the store of each kind. Not here: the checks (`toolcrib_compile`), and the
//! content of the status.
//!
//! Invariant: only the status of these objects is written, and nothing is compiled.

use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use tokio::time::Instant;
use toolcrib_compile::{
    Code, Diagnostic, ObjectRef, Objects, SyncProof, check_defaults, check_grant, check_policy,
    check_provider, check_surface,
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
/// The age of a grant at which an agent that was not found is looked up once more: `kubectl apply`
/// may create the grant before the agents of the same folder.
const APPLIED_TOGETHER: Duration = Duration::from_secs(30);
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

/// Returns the time until a grant whose agent is not found is old enough that a suggestion is final.
/// No name of another agent is a dependency of its check.
fn check_for_suggestions(
    found: &[Diagnostic],
    created: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    if !found.iter().any(|found| found.code == Code::AgentNotFound) {
        return None;
    }
    // Clocks differ.
    let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    let wait = APPLIED_TOGETHER.saturating_sub(age);
    (!wait.is_zero()).then_some(wait)
}

/// Requeued for the time at which the grant's window opens or closes, which its status reports. A
/// selector waits until it is known whether selectors are in force. A new grant whose agent is not
/// found is checked once more.
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
    let now = Timestamp::now();
    let created = stored
        .as_ref()
        .and_then(|stored| stored.meta().creation_timestamp.as_ref());
    let again = report
        .as_ref()
        .zip(created)
        .and_then(|(report, created)| check_for_suggestions(&report.diagnostics, created.0, now));
    let wait = activity.next_change(now).into_iter().chain(again).min();
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
    let is_tried_out = report.as_ref().is_some_and(|report| report.is_tried_out);
    let report = report.map(|report| report.with_denied(denied_by(context, &work.key.name)));
    report::other::<ClusterToolPolicy, _>(context, work, &context.stores.policies, report).await?;
    if stored.is_some() {
        context
            .memory()
            .policies_checked
            .insert(work.key.clone(), now);
    }
    // The number of tools depends on grants, which the check does not read.
    Ok(match is_tried_out {
        true => Completion::Again(POLICY_INTERVAL),
        false => Completion::Settled,
    })
}

/// Counts the tools of all agents that a policy under trial would deny.
fn denied_by(context: &Context, policy: &str) -> u32 {
    let memory = context.memory();
    let agents = memory.agents.values();
    let counts = agents.filter_map(|agent| agent.would_deny.get(policy));
    counts.fold(0, |sum, count| sum.saturating_add(*count))
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

#[cfg(test)]
mod tests {
    use toolcrib_compile::{Kind, Subject};

    use super::*;

    #[test]
    fn a_new_grant_without_its_agent_is_checked_once_more() {
        let found = |code: Code| Diagnostic {
            object: Subject::new(Kind::ToolGrant, &ObjectRef::new("pond", "reads")),
            field: "spec.agents[0]".into(),
            code,
            severity: code.severity(),
            message: String::new(),
        };
        let created: Timestamp = "2026-06-01T12:00:00Z".parse().expect("a time");
        let check = |code: Code, seconds: i64, expected: Option<u64>| {
            let now = created + jiff::SignedDuration::from_secs(seconds);
            let wait = check_for_suggestions(&[found(code)], created, now);
            assert_eq!(
                wait.map(|wait| wait.as_secs()),
                expected,
                "{code:?} {seconds}"
            );
        };
        check(Code::AgentNotFound, 0, Some(30));
        check(Code::AgentNotFound, 12, Some(18));
        check(Code::AgentNotFound, 30, None);
        check(Code::AgentNotFound, 9000, None);
        // The API server's clock is ahead.
        check(Code::AgentNotFound, -5, Some(30));
        check(Code::ToolNotFound, 0, None);
    }
}
