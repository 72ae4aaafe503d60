//! Asks the API server whether admission policies protect ToolApprovals and ToolDecisions.
//!
//! The policy for ToolApprovals refuses one name to everybody, the controller included. The one for
//! ToolDecisions refuses a decision that says another user. The controller applies both by dry run, in its
//! own namespace, and expects the refusals of the chart's policies. It has the right to apply only
//! objects of this name there, and uses it for dry runs only.
//!
//! Invariants: while an answer is missing or too old, no question is taken and no decision counts. Nothing
//! is asked while no question is open.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use toolcrib_bounds::cut;
use toolcrib_compile::names;
use toolcrib_crds::{ToolApproval, ToolDecision};

use crate::approvals::plan::Protection;
use crate::controller::context::Context;

/// The age from which an answer is asked for again.
const INTERVAL: Duration = Duration::from_secs(5);
/// The age from which an answer counts no more, if the API server gives none.
const OLDEST: Duration = Duration::from_secs(60);
/// The deadline of one question.
const QUESTION: Duration = Duration::from_secs(5);
/// Limits the bytes of an error in messages.
const SHOWN: usize = 256;

/// Asks at most once in [`INTERVAL`].
#[derive(Debug, Default)]
pub struct Checker {
    last: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    asked: Option<Instant>,
    /// The last time at which the API server answered.
    answered: Option<Instant>,
}

impl Checker {
    /// Asks, unless the last answer is new enough, and notes the answer.
    pub async fn fresh(&self, context: &Context) {
        let mut last = self.last.lock().await;
        let now = Instant::now();
        if last.asked.is_some_and(|at| now < at + INTERVAL) {
            return;
        }
        let answer = ask(context).await;
        let now = Instant::now();
        last.asked = Some(now);
        let protection = match answer {
            Ok(protection) => {
                last.answered = Some(now);
                protection
            }
            Err(why) => {
                tracing::warn!(why, "check of the policies for approvals failed, retried");
                if last.answered.is_some_and(|at| now < at + OLDEST) {
                    return;
                }
                Protection::Unknown
            }
        };
        settle(context, protection);
    }
}

/// Asks again and again while questions are open.
pub async fn keep(context: &Context, checker: &Checker) -> anyhow::Error {
    loop {
        if context.approvals.has_open() {
            checker.fresh(context).await;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn settle(context: &Context, protection: Protection) {
    let is_off = matches!(protection, Protection::Missing(_));
    context.metrics.approvals_off.set(i64::from(is_off));
    if !context.approvals.protect(protection.clone()) {
        return;
    }
    match protection {
        Protection::Missing(why) => tracing::error!(why, "no decision about a call counts"),
        Protection::Holds => tracing::info!("decisions about calls count"),
        Protection::Unknown => tracing::warn!("decisions about calls wait for the API server"),
    }
    context.queue_approvals(context.approvals.all());
}

/// `Err`: the API server did not answer.
async fn ask(context: &Context) -> Result<Protection, String> {
    let name = names::APPROVAL_CHECK;
    let nobody = json!({"name": name, "uid": name});
    let approval = json!({
        "agent": nobody, "pod": nobody, "tool": name, "tier": "Elevated", "arguments": "{}",
        "callDigest": name, "entryDigest": name, "requestID": name,
        "requestedAt": "2026-01-01T00:00:00Z", "expiresAt": "2026-01-01T00:00:00Z",
    });
    let approvals = ApiResource::erase::<ToolApproval>(&());
    let answer = apply(context, approvals, approval, names::APPROVAL_REFUSAL).await?;
    if answer != Protection::Holds {
        return Ok(answer);
    }
    let decision = json!({
        "approval": nobody, "callDigest": name, "verdict": "Deny",
        "decidedBy": {"username": format!("{name}:nobody")},
    });
    let decisions = ApiResource::erase::<ToolDecision>(&());
    apply(context, decisions, decision, names::DECISION_REFUSAL).await
}

/// Applies an object without changing anything, and expects the refusal.
async fn apply(
    context: &Context,
    resource: ApiResource,
    spec: Value,
    refusal: &str,
) -> Result<Protection, String> {
    let (namespace, name) = (&context.settings.namespace, names::APPROVAL_CHECK);
    let object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let params = PatchParams::apply(names::FIELD_MANAGER).force().dry_run();
    let patch = Patch::Apply(&object);
    let asked = api.patch(name, &params, &patch);
    let kind = &resource.kind;
    match tokio::time::timeout(QUESTION, asked).await {
        Ok(Ok(_)) => Ok(Protection::Missing(format!(
            "no admission policy protects {kind}s: install the chart's policies NAME-approvals and NAME-decisions and their bindings"
        ))),
        Ok(Err(kube::Error::Api(status))) if status.message.contains(refusal) => {
            Ok(Protection::Holds)
        }
        Ok(Err(kube::Error::Api(status))) => {
            let why = format!(
                "the API server refused the question whether a policy protects {kind}s, for another reason: {}",
                cut(&status.message, SHOWN)
            );
            match status.code {
                429 | 500.. => Err(why),
                _ => Ok(Protection::Missing(why)),
            }
        }
        Ok(Err(error)) => Err(cut(&error.to_string(), SHOWN).into_owned()),
        Err(_) => Err("it took too long".to_owned()),
    }
}
