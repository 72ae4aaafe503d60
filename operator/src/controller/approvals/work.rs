//! One ToolApproval and its ToolDecisions: compares them with what they should be, and writes it.
//!
//! Invariant: level-based and idempotent. The status of the ToolApproval is written before anything that
//! follows from it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use toolcrib_bounds::chain;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::StateReason;

use super::notify;
use super::write::{WriteError, Writer};
use crate::approvals::plan::{
    CallAuthority, CountedCondition, GONE, MOST_DECISIONS, Plan, Situation,
};
use crate::approvals::stored::{ApprovalBody, StoredApproval, StoredDecision};
use crate::controller::context::Context;
use crate::controller::queue::work::ApprovalWork;
use crate::controller::queue::{Completion, Step};
use crate::objects::store::StoreObject as _;

/// Workers of the leader. An approval takes two or three requests.
pub const WORKERS: usize = 4;
/// The deadline of one piece of work.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The wait for a watch that lags behind the leader's own writes.
const CATCH_UP: Duration = Duration::from_millis(500);
/// Limits the decisions that are deleted in one piece of work, so that a new one is soon looked at.
const MOST_DELETED: usize = 128;

/// Works on approvals while this replica leads.
pub async fn keep(context: &Context) -> anyhow::Error {
    loop {
        let work = context.approval_queue.next(Step::Write).await;
        let ApprovalWork(key) = &work;
        let done = match tokio::time::timeout(TIMEOUT, approval(context, key)).await {
            Ok(Ok(completion)) => completion,
            Ok(Err(WriteError::Stale(_))) => Completion::Again(CATCH_UP),
            Ok(Err(WriteError::NotLeading)) => Completion::Settled,
            Ok(Err(error @ (WriteError::Exists(_) | WriteError::Api { .. }))) => {
                let error = chain(&error);
                tracing::warn!(approval = %key, error, "write failed, requeued");
                Completion::Failed
            }
            Err(_) => {
                tracing::warn!(approval = %key, "work timed out, requeued");
                Completion::Failed
            }
        };
        context.approval_queue.done(&work, done);
    }
}

async fn approval(context: &Context, key: &ObjectRef) -> Result<Completion, WriteError> {
    if !context.approvals.synced() {
        return Ok(Completion::Again(CATCH_UP));
    }
    let leads = || context.leading();
    let writer = Writer {
        client: &context.client,
        leads: &leads,
    };
    let decisions = context.approvals.decisions_on(key);
    let Some(approval) = context.approvals.get(key) else {
        return orphans(context, &writer, key, &decisions).await;
    };
    let Some(body) = approval.body.as_deref() else {
        return Ok(Completion::Settled);
    };
    let situation = Situation {
        uid: approval.uid(),
        body,
        decisions: &decisions,
        authority: authority(context, key, body),
        question: context.approvals.question_state(body),
        protection: context.approvals.protection(),
        retention: context.settings.approvals_kept,
        now: Timestamp::now(),
    };
    let plan = situation.plan();
    write(context, &writer, &approval, &decisions, &plan).await?;
    let mut again = plan.again;
    let (surplus, kept) = partition(&decisions, |at| plan.surplus.contains(&at));
    for decision in kept {
        let left = adopt_or_expire(context, &writer, decision, &approval).await?;
        again = again.into_iter().chain(left).min();
    }
    again = again
        .into_iter()
        .chain(delete(&writer, &surplus).await?)
        .min();
    let agent = ObjectRef::new(&*key.namespace, &*body.agent.name);
    // The oldest ones have no event of their own.
    let mut surplus = context.approvals.surplus(&agent);
    let is_surplus = surplus.contains(key);
    surplus.retain(|other| other != key);
    context.queue_approvals(surplus);
    if plan.delete || is_surplus {
        writer.delete_approval(&approval).await?;
        context.metrics.wrote("ToolApproval", "delete");
    }
    Ok(again.map_or(Completion::Settled, |again| {
        Completion::Again(again.unsigned_abs().max(CATCH_UP))
    }))
}

/// Writes a plan: first the status, then the decisions.
async fn write(
    context: &Context,
    writer: &Writer<'_>,
    approval: &StoredApproval,
    decisions: &[Arc<StoredDecision>],
    plan: &Plan,
) -> Result<(), WriteError> {
    if let Some(status) = &plan.status {
        writer.status(approval, status).await?;
        context.metrics.wrote("ToolApproval", "patch");
    }
    let now = Timestamp::now();
    for (at, condition) in &plan.counted {
        writer.counted(&decisions[*at], condition, now).await?;
        context.metrics.wrote("ToolDecision", "patch");
    }
    if let (Some(phase), Some(status)) = (plan.decided, &plan.status) {
        let decided = status
            .conditions
            .iter()
            .find(|it| it.reason == phase.name());
        let why = decided.map_or("", |decided| &decided.message);
        notify::ended(context, approval, phase, why).await;
    }
    Ok(())
}

/// Whether the agent may still make the call.
fn authority(context: &Context, key: &ObjectRef, body: &ApprovalBody) -> CallAuthority {
    let stores = &context.stores;
    let pod = stores.pods.get(&key.namespace, &body.pod.name);
    if pod.is_none_or(|pod| pod.id().uid != Some(&body.pod.uid)) {
        return CallAuthority::PodGone;
    }
    let agent = stores.agents.get(&key.namespace, &body.agent.name);
    if agent.is_none_or(|agent| agent.id().uid != Some(&body.agent.uid)) {
        return CallAuthority::Revoked("the agent was deleted".to_owned());
    }
    let agent = ObjectRef::new(&*key.namespace, &*body.agent.name);
    context.approvals.authority(&agent, body)
}

/// Makes the ToolApproval the owner of a decision on it. A decision on an earlier ToolApproval of this name
/// is deleted once it is old enough; returns the time until then.
async fn adopt_or_expire(
    context: &Context,
    writer: &Writer<'_>,
    decision: &StoredDecision,
    approval: &StoredApproval,
) -> Result<Option<SignedDuration>, WriteError> {
    let Some(body) = decision.body.as_deref() else {
        return Ok(None);
    };
    if body.spec.approval.uid != approval.uid() {
        return expire(context, writer, decision).await;
    }
    // The write of `Counted` has made another version, whose event brings the approval here again.
    if !body.is_owned && body.counted.is_some() {
        writer.adopt(decision, approval).await?;
    }
    Ok(None)
}

/// Deletes a decision on no ToolApproval once it is old enough. Returns the time until then.
async fn expire(
    context: &Context,
    writer: &Writer<'_>,
    decision: &StoredDecision,
) -> Result<Option<SignedDuration>, WriteError> {
    let created = decision.body.as_ref().and_then(|body| body.created);
    let kept = context.settings.approvals_kept;
    let age = created.map_or(kept, |created| created.duration_until(Timestamp::now()));
    if age < kept {
        return Ok(Some(kept - age));
    }
    writer.delete_decision(decision).await?;
    Ok(None)
}

/// Splits decisions by their index.
fn partition(
    decisions: &[Arc<StoredDecision>],
    is_surplus: impl Fn(usize) -> bool,
) -> (Vec<&StoredDecision>, Vec<&StoredDecision>) {
    let decisions = decisions.iter().map(|it| &**it).enumerate();
    let (surplus, kept): (Vec<_>, Vec<_>) = decisions.partition(|(at, _)| is_surplus(*at));
    let without_index = |all: Vec<(usize, _)>| all.into_iter().map(|(_, it)| it).collect();
    (without_index(surplus), without_index(kept))
}

/// Deletes decisions, at most [`MOST_DELETED`]. Returns the time until the next ones.
async fn delete(
    writer: &Writer<'_>,
    surplus: &[&StoredDecision],
) -> Result<Option<SignedDuration>, WriteError> {
    for decision in surplus.iter().take(MOST_DELETED) {
        writer.delete_decision(decision).await?;
    }
    Ok((surplus.len() > MOST_DELETED).then_some(SignedDuration::ZERO))
}

/// Marks the decisions on a ToolApproval that does not exist as `Gone`, and deletes them once they are old
/// enough.
async fn orphans(
    context: &Context,
    writer: &Writer<'_>,
    key: &ObjectRef,
    decisions: &[Arc<StoredDecision>],
) -> Result<Completion, WriteError> {
    // Its creation may have failed.
    context.approvals.release(key);
    if decisions.is_empty() {
        return Ok(Completion::Settled);
    }
    let is_new = |it: &StoredDecision| it.body.as_ref().is_some_and(|it| it.counted.is_none());
    if decisions.iter().any(|it| is_new(it)) {
        // The two watches are not in step, so the approval may be there already.
        if writer.read(key).await?.is_some() {
            return Ok(Completion::Again(CATCH_UP));
        }
    }
    let most = match context.approvals.has_too_many_decisions(&key.namespace) {
        true => 0,
        false => MOST_DECISIONS,
    };
    let (surplus, kept) = partition(decisions, |at| at >= most);
    let mut again: Option<SignedDuration> = None;
    for decision in kept {
        if is_new(decision) {
            let condition = CountedCondition {
                reason: StateReason::Gone,
                message: GONE.to_owned(),
            };
            writer
                .counted(decision, &condition, Timestamp::now())
                .await?;
            context.metrics.wrote("ToolDecision", "patch");
        }
        let left = expire(context, writer, decision).await?;
        again = again.into_iter().chain(left).min();
    }
    again = again
        .into_iter()
        .chain(delete(writer, &surplus).await?)
        .min();
    Ok(again.map_or(Completion::Settled, |again| {
        Completion::Again(again.unsigned_abs().max(CATCH_UP))
    }))
}
