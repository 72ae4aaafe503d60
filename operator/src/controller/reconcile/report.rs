//! Writes status and Events, only if they changed.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_compile::{Code, Compilation, Diagnostic, names};
use toolcrib_crds::{Agent, AgentStatus, StateReason};

use crate::controller::context::Context;
use crate::controller::context::memory::FindingState;
use crate::controller::queue::work::{Work, WorkKind};
use crate::controller::status::{self, AgentFacts, Notice, StatusReport, WriteOutcome, sentence};
use crate::controller::write::digest::digest;
use crate::controller::write::events::Warning;
use crate::controller::write::merge_patch::merge_patch;
use crate::metrics::Finding;
use crate::objects::decode::{DecodedObject, KindWithStatus, Undecodable, text};
use crate::objects::store::Store;

/// Most Events per object and reconcile. Status reports further findings.
const EVENTS: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The watch has not delivered the current version yet.
    #[error("{0} is newer than the watched version")]
    Stale(String),
    #[error("cannot write status of {0}")]
    Status(String, #[source] kube::Error),
}

/// Writes an Agent's status and Events.
pub async fn agent(
    context: &Context,
    work: &Work,
    agent: &Agent,
    before: Option<&AgentStatus>,
    facts: &AgentFacts<'_>,
) -> Result<(), ReportError> {
    let now = jiff::Timestamp::now();
    let after = status::agent(before, facts, now);
    let store = &context.stores.agents;
    write_status(context, work, store, agent, &before, &after).await?;
    let mut warnings: Vec<(Option<Code>, Warning)> = state(facts)
        .into_iter()
        .map(|warning| (None, warning))
        .collect();
    warnings.extend(findings(facts.diagnostics));
    warn(context, work, agent, warnings).await;
    notify(context, work, agent, status::notices(before, &after)).await;
    Ok(())
}

/// Reports that an Agent is not compiled. Its earlier files stay in force, and its status keeps
/// listing them.
pub async fn blocked(
    context: &Context,
    work: &Work,
    agent: &Agent,
    before: Option<&AgentStatus>,
    compiled: &Compilation,
    why: &Diagnostic,
) -> Result<(), ReportError> {
    let now = jiff::Timestamp::now();
    let generation = agent.metadata.generation;
    let after = status::blocked(before, compiled, why, generation, now);
    let store = &context.stores.agents;
    write_status(context, work, store, agent, &before, &after).await?;
    let why = std::slice::from_ref(why);
    warn(context, work, agent, findings(why)).await;
    Ok(())
}

/// Warnings besides diagnostics: objects that could not be written, pods that cannot use their
/// mediator, and mediators that have not loaded the compiled files in time.
fn state(facts: &AgentFacts<'_>) -> Vec<Warning> {
    let warning = |reason: StateReason, note: &str| Warning {
        reason: reason.as_str().to_owned(),
        note: note.to_owned(),
    };
    let mut warnings = Vec::new();
    match &facts.written {
        WriteOutcome::Done => {}
        WriteOutcome::Conflict(what) => warnings.push(warning(StateReason::Conflict, what)),
        WriteOutcome::Failed(why) => warnings.push(warning(StateReason::ApplyFailed, why)),
    }
    let of_pods = status::pod_warnings(&facts.written, &facts.pods).into_iter();
    let of_budgets = status::budgets::warning(&facts.budgets);
    warnings.extend(of_pods.chain(of_budgets).map(|(reason, note)| Warning {
        reason: reason.to_owned(),
        note,
    }));
    warnings
}

/// Writes Normal Events, within the rate limit of all objects.
pub async fn notify<K: Resource<DynamicType = ()>>(
    context: &Context,
    work: &Work,
    object: &K,
    notices: Vec<Notice>,
) {
    if notices.is_empty() || context.ending(&work.key.namespace) || !context.leading() {
        return;
    }
    let version = object
        .meta()
        .resource_version
        .as_deref()
        .unwrap_or_default();
    let about = object.object_ref(&());
    for Notice { reason, note } in notices {
        tracing::info!(object = %work.subject(), reason, "{note}");
        if !context.memory().notices.try_take(Instant::now()) {
            context.metrics.events_dropped.inc();
            continue;
        }
        match context.events.note(&about, reason, note, version).await {
            Ok(true) => context.metrics.wrote("Event", "create"),
            Ok(false) => {}
            Err(error) => tracing::warn!(object = %work.subject(), %error, "cannot write Event"),
        }
    }
}

/// Writes status and Events of a Surface, ToolGrant, ToolDefaults or ModelProvider.
pub async fn other<K, R>(
    context: &Context,
    work: &Work,
    store: &Store<DecodedObject<K>>,
    report: Option<R>,
) -> Result<(), ReportError>
where
    K: KindWithStatus<Status = R::Status>,
    R: StatusReport,
{
    let Some(stored) = store.get(&work.key.namespace, &work.key.name) else {
        context.memory().findings.remove(work);
        return Ok(());
    };
    if stored.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let object = match &stored.object {
        Ok(object) => object,
        Err(why) => return unreadable::<K>(context, work, &stored, why).await,
    };
    let Some(report) = report else { return Ok(()) };
    let before = stored.status();
    let generation = object.meta().generation;
    let after = report.status(
        before.as_ref(),
        &work.subject(),
        generation,
        jiff::Timestamp::now(),
    );
    write_status(context, work, store, &**object, &before, &after).await?;
    warn(context, work, &**object, findings(report.diagnostics())).await;
    notify(
        context,
        work,
        &**object,
        R::notices(before.as_ref(), &after),
    )
    .await;
    Ok(())
}

/// Reports an object that cannot be decoded or is over a budget, in its status and as an Event.
pub async fn unreadable<K>(
    context: &Context,
    work: &Work,
    stored: &DecodedObject<K>,
    why: &Undecodable,
) -> Result<(), ReportError>
where
    K: KindWithStatus,
{
    let warning = Warning {
        reason: why.code.name().to_owned(),
        note: why.reason.clone(),
    };
    let is_new = warn(context, work, stored, vec![(Some(why.code), warning)]).await;
    let before = stored.status_text();
    // An unknown status (absent, too long to be kept, undecodable) is written once per finding.
    if !is_new && before == "null" {
        return Ok(());
    }
    let generation = stored.meta().generation;
    let now = jiff::Timestamp::now();
    let Some(change) = unreadable_change(&before, why, generation, now) else {
        return Ok(());
    };
    let written = patch_status::<K>(context, work, stored.meta(), change).await;
    if written.is_err() {
        // The next attempt reports the finding again.
        context.memory().findings.remove(work);
    }
    written
}

/// The change of the status of an object that cannot be decoded. `before` is the status as JSON.
/// `None` if it reports the finding already, such as after a restart.
fn unreadable_change(
    before: &str,
    why: &Undecodable,
    generation: Option<i64>,
    now: jiff::Timestamp,
) -> Option<Value> {
    let before: Value = serde_json::from_str(before).unwrap_or_default();
    let conditions = before.get("conditions").cloned().unwrap_or_default();
    let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
    let after = json!({
        "observedGeneration": generation,
        "conditions": status::undecodable(&conditions, why, generation, now),
    });
    let before = json!({
        "observedGeneration": before.get("observedGeneration"),
        "conditions": before.get("conditions"),
    });
    merge_patch(&before, &after)
}

/// Reports a panic of the operator over an object, in its status and as an Event.
pub async fn panicked(context: &Context, work: &Work) -> Result<(), ReportError> {
    let stores = &context.stores;
    match work.kind {
        WorkKind::Agent => panicked_over(context, work, &stores.agents).await,
        WorkKind::Surface => panicked_over(context, work, &stores.surfaces).await,
        WorkKind::ToolGrant => panicked_over(context, work, &stores.grants).await,
        WorkKind::ToolDefaults => panicked_over(context, work, &stores.defaults).await,
        WorkKind::ModelProvider => panicked_over(context, work, &stores.providers).await,
        WorkKind::ClusterToolPolicy => panicked_over(context, work, &stores.policies).await,
    }
}

async fn panicked_over<K>(
    context: &Context,
    work: &Work,
    store: &Store<DecodedObject<K>>,
) -> Result<(), ReportError>
where
    K: KindWithStatus,
{
    let Some(stored) = store.get(&work.key.namespace, &work.key.name) else {
        return Ok(());
    };
    let warning = Warning {
        reason: StateReason::InternalError.as_str().to_owned(),
        note: status::INTERNAL_ERROR.to_owned(),
    };
    warn(context, work, &*stored, vec![(None, warning)]).await;
    let before: Value = serde_json::from_str(&stored.status_text()).unwrap_or_default();
    let conditions = before.get("conditions").cloned().unwrap_or_default();
    let conditions = serde_json::from_value(conditions).unwrap_or_default();
    let generation = stored.meta().generation;
    let now = jiff::Timestamp::now();
    let after = json!({ "conditions": status::internal_error(conditions, generation, now) });
    let before = json!({ "conditions": before.get("conditions") });
    match merge_patch(&before, &after) {
        Some(change) => patch_status::<K>(context, work, stored.meta(), change).await,
        None => Ok(()),
    }
}

/// Writes a status that was computed from `object`, if it differs from the one before.
async fn write_status<K>(
    context: &Context,
    work: &Work,
    store: &Store<DecodedObject<K>>,
    object: &impl Resource,
    before: &impl Serialize,
    after: &impl Serialize,
) -> Result<(), ReportError>
where
    K: KindWithStatus,
{
    context
        .memory()
        .statuses
        .insert(work.clone(), digest(&text(after)));
    let tree = |value: Result<Value, serde_json::Error>| value.expect("status types are JSON");
    let before = tree(serde_json::to_value(before));
    let after = tree(serde_json::to_value(after));
    if let Some(change) = merge_patch(&before, &after) {
        return patch_status::<K>(context, work, object.meta(), change).await;
    }
    // Another status may have come meanwhile. It was compared with the one wanted until now, so no
    // reconcile is queued for it.
    let version = &object.meta().resource_version;
    let current = store.get(&work.key.namespace, &work.key.name);
    if current.is_some_and(|current| current.meta().resource_version != *version) {
        return Err(ReportError::Stale(work.subject().to_string()));
    }
    Ok(())
}

async fn patch_status<K>(
    context: &Context,
    work: &Work,
    seen: &ObjectMeta,
    change: Value,
) -> Result<(), ReportError>
where
    K: KindWithStatus,
{
    if !context.leading() {
        return Ok(());
    }
    let api = K::api(&context.client, &work.key.namespace);
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    // Fenced by the version: a leader that was paused could write an outdated status, which would
    // stay, since a change of status causes no reconcile.
    let fence = json!({ "uid": seen.uid, "resourceVersion": seen.resource_version });
    let patch = json!({ "metadata": fence, "status": change });
    match api
        .patch_status(&work.key.name, &params, &Patch::Merge(&patch))
        .await
    {
        Ok(_) => {
            context.metrics.wrote("status", "patch");
            tracing::debug!(object = %work.subject(), "status written");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => {
            Err(ReportError::Stale(work.subject().to_string()))
        }
        Err(error) => Err(ReportError::Status(work.subject().to_string(), error)),
    }
}

fn findings(diagnostics: &[Diagnostic]) -> Vec<(Option<Code>, Warning)> {
    diagnostics
        .iter()
        .map(|diagnostic| {
            let reason = diagnostic.code.name().to_owned();
            (
                Some(diagnostic.code),
                Warning {
                    reason,
                    note: sentence(diagnostic),
                },
            )
        })
        .collect()
}

/// Logs and counts the warnings that are new, and writes them as Events. Returns whether any is new.
async fn warn(
    context: &Context,
    work: &Work,
    object: &impl Resource<DynamicType = ()>,
    warnings: Vec<(Option<Code>, Warning)>,
) -> bool {
    let uid = object.meta().uid.clone().unwrap_or_default();
    let fingerprint = |warning: &Warning| digest(&(&*uid, &*warning.reason, &*warning.note));
    let current = warnings.iter().map(|(_, warning)| fingerprint(warning));
    let current: Vec<u64> = current.collect();
    let states = {
        let mut memory = context.memory();
        let mut findings = memory.findings.remove(work).unwrap_or_default();
        let states = findings.replace(&current);
        if !findings.are_empty() {
            memory.findings.insert(work.clone(), findings);
        }
        states
    };
    let new: Vec<((Option<Code>, Warning), FindingState)> = warnings
        .into_iter()
        .zip(states)
        .filter(|(_, state)| *state != FindingState::Reported)
        .collect();
    let any = !new.is_empty();
    let about: ObjectReference = object.object_ref(&());
    let version = object.meta().resource_version.as_deref();
    let version = version.unwrap_or_default();
    for ((code, _), _) in &new {
        if let Some(code) = code {
            context
                .metrics
                .diagnostics
                .get_or_create(&Finding { code: code.name() })
                .inc();
        }
    }
    let ending = context.ending(&work.key.namespace);
    for ((_, warning), state) in new.iter().take(EVENTS) {
        tracing::warn!(object = %work.subject(), reason = warning.reason, "{}", warning.note);
        if ending || !context.leading() {
            continue;
        }
        let again = *state == FindingState::Again;
        if again && !context.memory().notices.try_take(Instant::now()) {
            context.metrics.events_dropped.inc();
            continue;
        }
        let version = again.then_some(version);
        match context.events.warn(&about, warning, version).await {
            Ok(true) => context.metrics.wrote("Event", "create"),
            Ok(false) => {}
            // Not retried, since the status reports the finding too.
            Err(error) => tracing::warn!(object = %work.subject(), %error, "cannot write Event"),
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use toolcrib_crds::Surface;

    use super::*;

    #[test]
    fn the_status_of_an_undecodable_object_is_written_once() {
        let object = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "reed", "namespace": "pond", "generation": 3},
            "spec": {"url": 7},
        });
        let decoded = |status: &Value| {
            let mut object = object.clone();
            object["status"] = status.clone();
            let text = object.to_string();
            serde_json::from_str::<DecodedObject<Surface>>(&text).expect("it has metadata")
        };
        let at = |second| jiff::Timestamp::from_second(second).expect("a time");
        let change = |status: &Value, second| {
            let stored = decoded(status);
            let why = stored.object.as_ref().expect_err("an undecodable Surface");
            unreadable_change(&stored.status_text(), why, Some(3), at(second))
        };
        let mut status = json!({
            "observedGeneration": 2, "toolCount": 4,
            "conditions": [
                {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z"},
                {"type": "Resolved", "status": "True", "reason": "Resolved", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z"},
            ],
        });
        let first = change(&status, 10).expect("the status is outdated");
        json_patch::merge(&mut status, &first);
        assert_eq!(status["observedGeneration"], 3);
        let conditions = status["conditions"].as_array().expect("a list");
        let shown = |condition: &Value| format!("{} {}", condition["type"], condition["reason"]);
        let shown: Vec<String> = conditions.iter().map(shown).collect();
        assert_eq!(
            shown,
            [r#""Accepted" "Undecodable""#, r#""Ready" "Undecodable""#]
        );
        // The next leader writes nothing.
        assert_eq!(change(&status, 20), None);
        assert!(change(&Value::Null, 20).is_some());
    }
}
