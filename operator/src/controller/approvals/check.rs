//! Asks the API server whether admission policies protect ToolApprovals and ToolDecisions.
//!
//! The policy for ToolApprovals refuses one name to everybody, the controller included. The one for
//! ToolDecisions refuses a decision that says another user. The controller applies both by dry run, in its
//! own namespace, and expects the refusals of the chart's policies. It has the right to apply only
//! objects of this name there, and uses it for dry runs only.
//!
//! Invariants: while an answer is missing or too old, no question is taken and no decision counts. One
//! check runs at a time, and all questions share it: it is asked by the leader's task, so a question
//! whose request ends does not end it. Once the policies are known to hold, nothing is asked while no
//! question is open.

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use toolcrib_bounds::cut;
use toolcrib_compile::names;
use toolcrib_crds::{ToolApproval, ToolDecision};

use crate::approvals::plan::Protection;
use crate::controller::context::Context;

/// The time for which the result of a check is used. The next check follows while questions are open.
const INTERVAL: Duration = Duration::from_secs(5);
/// The age from which an answer counts no more, if the API server gives none.
const OLDEST: Duration = Duration::from_secs(60);
/// The deadline of one question.
const QUESTION: Duration = Duration::from_secs(5);
/// Limits the bytes of an error in messages.
const SHOWN: usize = 256;

/// When the checks of one tenure run. Questions wait for them.
#[derive(Debug, Default)]
pub struct Schedule {
    /// The end of the last check; `None` before the first one has ended.
    ended: watch::Sender<Option<Instant>>,
    /// A question waits for a newer check.
    wanted: Notify,
}

impl Schedule {
    /// Returns once the last check is new enough.
    pub async fn fresh(&self) {
        let mut ended = self.ended.subscribe();
        while !is_fresh(*ended.borrow_and_update()) {
            self.wanted.notify_one();
            ended.changed().await.expect("`self` has the sender");
        }
    }

    /// Returns once a check is due: at once for the first one; then when the last one is too old, and a
    /// question waits for another or `is_wanted` holds.
    async fn due(&self, is_wanted: impl Fn() -> bool) {
        while self.ended.borrow().is_some() {
            tokio::select! {
                () = self.wanted.notified() => if !is_fresh(*self.ended.borrow()) { return },
                () = tokio::time::sleep(INTERVAL) => if is_wanted() { return },
            }
        }
    }

    /// Notes the end of a check, and wakes the questions that wait for it.
    fn note_end(&self) {
        self.ended.send_replace(Some(Instant::now()));
    }
}

fn is_fresh(ended: Option<Instant>) -> bool {
    ended.is_some_and(|at| at.elapsed() < INTERVAL)
}

/// Checks as [`Schedule`] says, while this replica leads.
pub async fn keep(context: &Context, schedule: &Schedule) -> anyhow::Error {
    // The last time at which the API server answered.
    let mut answered: Option<Instant> = None;
    let approvals = &context.approvals;
    let is_wanted = || approvals.has_open() || approvals.protection() != Protection::Holds;
    loop {
        schedule.due(is_wanted).await;
        match ask(context).await {
            Ok(protection) => {
                answered = Some(Instant::now());
                settle(context, protection);
            }
            Err(why) => {
                tracing::warn!(why, "check of the policies for approvals failed, retried");
                if answered.is_none_or(|at| at.elapsed() >= OLDEST) {
                    settle(context, Protection::Unknown);
                }
            }
        }
        schedule.note_end();
    }
}

fn settle(context: &Context, protection: Protection) {
    if !context.approvals.set_protection(protection.clone()) {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt as _;

    use super::*;

    const CHECK: Duration = Duration::from_secs(3);

    /// Runs `steps` beside the checks, each of which takes [`CHECK`]. Returns how many have begun.
    async fn checks(schedule: &Schedule, is_wanted: bool, steps: impl Future<Output = ()>) -> u32 {
        let begun = Cell::new(0);
        let checks = async {
            loop {
                schedule.due(|| is_wanted).await;
                begun.set(begun.get() + 1);
                tokio::time::sleep(CHECK).await;
                schedule.note_end();
            }
        };
        tokio::select! {
            () = checks => unreachable!("they do not end"),
            () = steps => begun.get(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn questions_share_one_check_and_its_result() {
        let schedule = Schedule::default();
        let steps = async {
            let begun = Instant::now();
            // One whose request ends early does not end the check of the others.
            let ends_early = tokio::time::timeout(CHECK / 3, schedule.fresh());
            let questions = futures::future::join_all((0..20).map(|_| schedule.fresh()));
            let (early, _) = tokio::join!(ends_early, questions);
            assert!(early.is_err());
            assert_eq!(begun.elapsed(), CHECK);
            tokio::time::advance(INTERVAL - Duration::from_millis(1)).await;
            assert_eq!(schedule.fresh().now_or_never(), Some(()));
            tokio::time::advance(Duration::from_millis(1)).await;
            futures::future::join_all((0..20).map(|_| schedule.fresh())).await;
            assert_eq!(begun.elapsed(), CHECK + INTERVAL + CHECK);
        };
        assert_eq!(checks(&schedule, false, steps).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_checked_at_the_start_and_then_while_questions_are_open() {
        let minute = || tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(checks(&Schedule::default(), false, minute()).await, 1);
        // Each takes three seconds, and the next one begins five seconds later.
        assert_eq!(checks(&Schedule::default(), true, minute()).await, 8);
    }
}
