//! Tells people about questions and their ends: Events on the Agent, and metrics.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use tokio::time::Instant;
use toolcrib_crds::{Agent, ApprovalPhase};

use crate::approvals::stored::{ApprovalBody, StoredApproval};
use crate::controller::context::Context;
use crate::metrics::Phase;

/// The reason of the Event about a question.
const ASKED: &str = "ApprovalNeeded";

/// Reports a new question.
pub async fn asked(context: &Context, approval: &StoredApproval) {
    let Some(body) = approval.body.as_deref() else {
        return;
    };
    let key = approval.key();
    let note = format!(
        "{} needs an approval: kubectl toolcrib approve -n {} {}",
        body.tool, key.namespace, key.name
    );
    event(context, approval, body, ASKED, note).await;
}

/// Reports the end of a question: its decision, expiry or withdrawal.
pub async fn ended(context: &Context, approval: &StoredApproval, phase: ApprovalPhase, why: &str) {
    let Some(body) = approval.body.as_deref() else {
        return;
    };
    let reason = match phase {
        ApprovalPhase::Approved => "CallApproved",
        ApprovalPhase::Denied => "CallDenied",
        ApprovalPhase::Expired => "CallExpired",
        ApprovalPhase::Withdrawn => "CallWithdrawn",
        ApprovalPhase::Pending
        | ApprovalPhase::Succeeded
        | ApprovalPhase::Failed
        | ApprovalPhase::Unknown => return,
    };
    let took = body.requested_at.duration_until(Timestamp::now());
    let seconds = took.as_secs_f64().max(0.0);
    let phase = Phase {
        phase: phase.name(),
    };
    context
        .metrics
        .approval_seconds
        .get_or_create(&phase)
        .observe(seconds);
    let note = format!("{} ({}): {why}", body.tool, approval.key().name);
    event(context, approval, body, reason, note).await;
}

async fn event(
    context: &Context,
    approval: &StoredApproval,
    body: &ApprovalBody,
    reason: &str,
    note: String,
) {
    let key = approval.key();
    tracing::info!(approval = %key, reason, "{note}");
    if context.ending(&key.namespace) || !context.leading() {
        return;
    }
    if !context.memory().notices.try_take(Instant::now()) {
        context.metrics.events_dropped.inc();
        return;
    }
    let about = ObjectReference {
        api_version: Some(Agent::api_version(&()).into_owned()),
        kind: Some(Agent::kind(&()).into_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(body.agent.name.clone()),
        uid: Some(body.agent.uid.clone()),
        ..ObjectReference::default()
    };
    match context
        .events
        .note(&about, reason, note, approval.uid())
        .await
    {
        Ok(true) => context.metrics.wrote("Event", "create"),
        Ok(false) => {}
        Err(error) => tracing::warn!(approval = %key, %error, "Event not written"),
    }
}
