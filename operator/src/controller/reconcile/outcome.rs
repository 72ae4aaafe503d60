//! Reports the outcome of an Agent's reconcile: status, Events, and the time of the next reconcile.
//!
//! Here: gathers the facts of the status from the compilation, the writes and the pods' reports. Not
//! here: the content of the status (the controller's `status`, pure), and writing it.
//!
//! Invariant: status lists only tools that are in the written files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use toolcrib_compile::{Compilation, ObjectRef, ToolSummary};
use toolcrib_crds::{Agent, AgentStatus, Mode};
use toolcrib_manifest::Want;

use super::ReconcileError;
use super::objects::WriteResult;
use super::pods::pods;
use super::report;
use crate::controller::context::Context;
use crate::controller::context::memory::Memory;
use crate::controller::queue::Completion;
use crate::controller::queue::work::{Work, WorkKind};
use crate::controller::status::{AgentFacts, WriteOutcome, budgets, counted};
use crate::controller::write::apply::ApplyError;
use crate::link::reports::ReportChange;

/// Delay that combines the counters of a turn's calls into one write.
const ONE_TURN: Duration = Duration::from_secs(2);

/// Writes status and Events, and returns the time of the next reconcile.
pub(super) async fn report(
    context: &Context,
    work: &Work,
    agent: &Agent,
    before: Option<&AgentStatus>,
    compiled: &Compilation,
    result: WriteResult,
) -> Result<Completion, ReconcileError> {
    let key = &work.key;
    let digests = result
        .materialized
        .as_ref()
        .map(|materialized| &materialized.digests);
    if let (Some(digests), true) = (digests, result.errors.is_empty()) {
        let want = Want {
            manifest: digests.manifest.clone(),
            credentials: digests.credentials.clone(),
        };
        let mut memory = context.memory();
        let agent_memory = memory.agents.entry(key.clone()).or_default();
        let before = agent_memory
            .want
            .take()
            .filter(|(before, _)| **before == want);
        let is_new = before.is_none();
        let (want, _) = agent_memory
            .want
            .insert(before.unwrap_or_else(|| (Arc::new(want), Instant::now())));
        context.link.want(key, Arc::clone(want));
        if is_new && std::mem::take(&mut agent_memory.gives) && context.settings.refresh_hints {
            context.hints.plan(key);
        }
    }
    let want = context.want(key);
    let (pods, pods_wait) = pods(context, key, created(agent), want.as_ref());
    let usage = context.link.reports().usage(key);
    let shown = counted(before.and_then(|status| status.usage.as_ref()));
    let usage_wait = if usage == shown {
        Duration::ZERO
    } else {
        usage_wait(context, key)
    };
    let write_usage = usage != shown && usage_wait.is_zero();
    let now = Timestamp::now();
    let used = {
        let mut sums = context.link.budgets();
        sums.limit(key, &compiled.files.agent.budgets);
        sums.of(key, now)
    };
    let budgets = budgets::budgets(&compiled.files.agent.budgets, &used, now);
    let shown_budgets = before.map_or(&[][..], |status| &status.budgets);
    let budgets = match write_usage || budgets::is_urgent(shown_budgets, &budgets) {
        true => budgets,
        false => shown_budgets.to_vec(),
    };

    let shown_heads = before.map_or(&[][..], |status| &status.record);
    let record = {
        let heads = context.link.heads();
        match write_usage || heads.is_urgent(key, shown_heads) {
            true => heads.of(key),
            false => shown_heads.to_vec(),
        }
    };

    let (tools, withheld) = match &result.materialized {
        Some(materialized) => materialized.given(compiled),
        None => (compiled.tools.clone(), compiled.withheld.clone()),
    };
    let would_deny = would_deny(&tools);
    context
        .memory()
        .agents
        .entry(key.clone())
        .or_default()
        .would_deny = would_deny;
    let feeds = match &result.materialized {
        Some(materialized) => materialized.given_feeds(compiled),
        None => compiled.feeds.clone(),
    };
    let facts = AgentFacts {
        agent: key,
        generation: agent.metadata.generation,
        mode: match compiled.files.agent.mode {
            toolcrib_manifest::Mode::Mediated => Mode::Mediated,
            toolcrib_manifest::Mode::Native => Mode::Native,
        },
        policies: &compiled.policies,
        refusal: compiled.refusal.as_ref(),
        suspension: compiled.suspension(),
        tools: &tools,
        feeds: &feeds,
        withheld: &withheld,
        diagnostics: &compiled.diagnostics,
        network: &compiled.network,
        digests,
        kept: result
            .materialized
            .iter()
            .flat_map(|materialized| &materialized.kept)
            .map(ToString::to_string)
            .collect(),
        written: written(&result.errors),
        pods,
        usage: write_usage.then(|| usage.clone()),
        budgets,
        record,
        created: created(agent),
    };
    // Written first: if the status fails, the next attempt would find the token unchanged.
    report::notify(context, work, agent, result.notice.into_iter().collect()).await;
    report::agent(context, work, agent, before, &facts).await?;
    if write_usage && let Some(memory) = context.memory().agents.get_mut(key) {
        memory.usage_written = Some(Instant::now());
        memory.usage_slot = None;
    }

    let waits = [
        pods_wait,
        result.look_again,
        (usage != shown && !write_usage).then_some(usage_wait),
    ];
    match result.errors.into_iter().next() {
        // The status reports it; only a change of the operator's settings can resolve it.
        Some(ReconcileError::NotWatched(key, _))
            if !context.settings.secrets.covers(&key.namespace) =>
        {
            return Ok(Completion::Settled);
        }
        Some(error) => return Err(error),
        None => {}
    }
    Ok(waits
        .into_iter()
        .flatten()
        .min()
        .map_or(Completion::Settled, Completion::Again))
}

/// Queues the agent after a mediator's report: at once for a changed state, at the usage interval
/// for counters.
pub fn reported(context: &Context, agent: &ObjectRef, change: ReportChange) {
    let work = WorkKind::Agent.work(agent.clone());
    if change.state {
        context.queue.add_all([work]);
    } else if change.usage {
        let wait = context
            .memory()
            .agents
            .get(agent)
            .and_then(|memory| memory.usage_written)
            .map_or(Duration::ZERO, |written| {
                let interval = context.settings.usage_interval;
                interval.saturating_sub(written.elapsed())
            });
        context.queue.add_after(work, wait.max(ONE_TURN));
    }
}

/// The wait of changed usage: for the agent's own interval, then for a slot among all agents.
fn usage_wait(context: &Context, agent: &ObjectRef) -> Duration {
    let now = Instant::now();
    let mut memory = context.memory();
    let Memory { agents, usage, .. } = &mut *memory;
    let Some(agent_memory) = agents
        .get_mut(agent)
        .filter(|agent_memory| agent_memory.want.is_some())
    else {
        return Duration::ZERO;
    };
    let due = agent_memory
        .usage_written
        .map_or(now, |written| written + context.settings.usage_interval);
    if due > now {
        return due - now;
    }
    let slot = *agent_memory
        .usage_slot
        .get_or_insert_with(|| usage.reserve(now));
    slot.saturating_duration_since(now)
}

pub(super) fn created(agent: &Agent) -> Option<Timestamp> {
    let created = agent.metadata.creation_timestamp.as_ref()?;
    Some(created.0)
}

fn written(errors: &[ReconcileError]) -> WriteOutcome {
    let conflict = errors.iter().find_map(|error| {
        let ReconcileError::Apply(conflict @ ApplyError::Conflict { .. }) = error else {
            return None;
        };
        Some(conflict.to_string())
    });
    match (conflict, errors.first()) {
        (Some(conflict), _) => WriteOutcome::Conflict(conflict),
        (None, Some(error)) => WriteOutcome::Failed(chain(error)),
        (None, None) => WriteOutcome::Done,
    }
}

/// An error as text for the user, with the API server's message, which names missing rights.
fn chain(error: &ReconcileError) -> String {
    match error {
        ReconcileError::Apply(ApplyError::Api {
            source: kube::Error::Api(status),
            ..
        })
        | ReconcileError::ReadSecret(_, kube::Error::Api(status)) => {
            format!("{error}: {}", status.message)
        }
        ReconcileError::NotSynced
        | ReconcileError::NotLeading
        | ReconcileError::NotWatched(..)
        | ReconcileError::ReadSecret(..)
        | ReconcileError::Random(_)
        | ReconcileError::Apply(_)
        | ReconcileError::Report(_) => error.to_string(),
    }
}

/// Counts the tools that each policy under trial would deny.
fn would_deny(tools: &[ToolSummary]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for policy in tools.iter().flat_map(|tool| &tool.would_deny) {
        *counts.entry(policy.clone()).or_insert(0) += 1;
    }
    counts
}
