//! Asks the API server whether it protects the labels that grants select agents by.
//!
//! The controller may not create ToolGrants, so the chart's policy must refuse it such a label. The
//! controller applies, by dry run, an Agent with such a label in its own namespace, and expects the
//! policy's refusal. It has the right to apply one Agent of one name there, and uses it for dry
//! runs only.
//!
//! Here: the question, its times, and the work that an answer affects. Not here: what an answer means
//! ([`super::selectors`]).
//!
//! Invariant: nothing is asked while no grant has a selector.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use toolcrib_bounds::cut;
use toolcrib_compile::{AgentSelectors, ObjectRef, names};
use toolcrib_crds::Agent;

use super::context::Context;
use super::queue::work::{Work, WorkKind};
use super::selectors::DryRunResult;
use crate::objects::store::StoreObject;

/// Interval between two questions.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two questions while the API server does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// The deadline of one question.
const QUESTION: Duration = Duration::from_secs(5);
/// The longest wait of a new leader for an answer. Until then selectors are off, which would take
/// tools from agents.
const AT_START: Duration = Duration::from_secs(10);
/// The beginning of the policy's refusal. Another policy's refusal proves nothing.
const REFUSAL: &str = "toolcrib: only who may create ToolGrants in this namespace may set";
/// Limits the bytes of an error in messages.
const SHOWN: usize = 256;

/// Asks before anything is compiled, if a grant has a selector, until there is an answer.
pub async fn begin(context: &Context) {
    let begun = Instant::now();
    while has_selectors(context) {
        let answer = ask(context).await;
        let is_late = begun.elapsed() >= AT_START;
        let failed = matches!(answer, DryRunResult::Failed(_));
        if !failed || is_late {
            settle(context, answer);
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Asks again and again while this replica leads.
pub async fn keep(context: &Context) -> anyhow::Error {
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = context.selectors.wanted() => {}
        }
        if has_selectors(context) {
            let answer = ask(context).await;
            if settle(context, answer) {
                context.queue.add_all(affected(context));
            }
        } else {
            // The next selector waits for an answer of its own.
            context.selectors.forget();
            context.metrics.agent_selectors_off.set(0);
        }
    }
}

/// Stores an answer; returns whether selectors were switched on or off by it.
fn settle(context: &Context, answer: DryRunResult) -> bool {
    if let DryRunResult::Failed(why) = &answer {
        tracing::warn!(
            why,
            "check of the policy for Agents' labels failed, retried"
        );
    }
    let changed = context.selectors.answered(answer, Instant::now());
    let setting = context.selectors.setting();
    let is_off = matches!(setting, AgentSelectors::Off(_));
    context.metrics.agent_selectors_off.set(i64::from(is_off));
    match (changed, setting) {
        (true, AgentSelectors::Off(why)) => {
            tracing::error!(why, "agent selectors of grants are off");
        }
        (true, AgentSelectors::Guarded) => tracing::info!("agent selectors of grants are on"),
        (false, _) => {}
    }
    changed
}

fn has_selectors(context: &Context) -> bool {
    let grants = context.stores.grants.all();
    let mut grants = grants.iter().filter_map(|it| it.object.as_ref().ok());
    grants.any(|grant| grant.spec.agent_selector.is_some())
}

/// The grants with a selector, and the agents that one could select. Agents come first, since their
/// losses are published at once.
fn affected(context: &Context) -> BTreeSet<Work> {
    let agents = context.stores.agents.all();
    // The stores keep only the labels that grants select by.
    let labelled = agents.iter().filter(|agent| agent.meta().labels.is_some());
    let labelled = labelled.map(|agent| WorkKind::Agent.work(key(&**agent)));
    let grants = context.stores.grants.all();
    let selecting = grants.iter().filter(|grant| {
        let grant = grant.object.as_ref();
        grant.is_ok_and(|grant| grant.spec.agent_selector.is_some())
    });
    let selecting = selecting.map(|grant| WorkKind::ToolGrant.work(key(&**grant)));
    labelled.chain(selecting).collect()
}

fn key(object: &impl StoreObject) -> ObjectRef {
    let id = object.id();
    ObjectRef::new(id.namespace, id.name)
}

/// Asks the API server, without changing anything, whether the controller may label an Agent.
async fn ask(context: &Context) -> DryRunResult {
    let (namespace, name) = (&*context.settings.namespace, names::SELECTOR_CHECK_AGENT);
    // A new value each time: applying the value that an Agent already has changes nothing, so no
    // policy would refuse it.
    let label = format!("{}check", names::GRANT_LABEL_PREFIX);
    let value = Timestamp::now().as_nanosecond().to_string();
    let agent = json!({
        "apiVersion": Agent::api_version(&()), "kind": Agent::kind(&()),
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {label: value},
        },
        "spec": {},
    });
    let params = PatchParams::apply(names::FIELD_MANAGER).force().dry_run();
    let api: Api<Agent> = Api::namespaced(context.client.clone(), namespace);
    let patch = Patch::Apply(&agent);
    let asked = api.patch(name, &params, &patch);
    match tokio::time::timeout(QUESTION, asked).await {
        Ok(Ok(_)) => DryRunResult::NotRefused(
            "no admission policy refuses labels with grants.toolcrib.dev/ to users who may not create ToolGrants: install the chart's policy NAME-selectors and its binding".to_owned(),
        ),
        Ok(Err(kube::Error::Api(status))) if status.message.contains(REFUSAL) => DryRunResult::Refused,
        Ok(Err(kube::Error::Api(status))) => {
            // The value is new each time. A changed message would requeue every labelled Agent.
            let message = status.message.replace(&value, "VALUE");
            let why = format!(
                "the API server refused the question whether a policy protects the labels, for another reason: {}",
                cut(&message, SHOWN)
            );
            match status.code {
                429 | 500.. => DryRunResult::Failed(why),
                _ => DryRunResult::NotRefused(why),
            }
        }
        Ok(Err(error)) => DryRunResult::Failed(cut(&error.to_string(), SHOWN).into_owned()),
        Err(_) => DryRunResult::Failed("it took too long".to_owned()),
    }
}
