//! The decision on a call for its dispatch, and its wait for an approval.
//!
//! A call that waits is looked at again whenever a decision comes, or the configuration in force or the
//! windows of its rules change. The wait ends at once when something that the call needs is taken away, or
//! when it needs no approval any more. It does not end when a rate or a budget is used up meanwhile: the
//! call is decided by these after its approval.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use toolcrib_manifest::ApprovalRef;
use toolcrib_mediation::{
    ApprovalNeed, Denial, Ending, LiveTool, ManagedCall, PendingNeed, ResultCode, Standing,
    ToolFailure,
};

use super::waits::{ApprovalWaits, CallWait};
use crate::app::App;
use crate::approvals::TakenApproval;
use crate::config::EffectiveConfig;
use crate::request::caller::Caller;

/// The longest wait of a call if the agent's policy has none.
const WAIT: Duration = Duration::from_mins(2);
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// A call that may run now.
pub struct PermittedCall<'a> {
    pub call: &'a ManagedCall,
    /// The configuration that permits it.
    pub config: Arc<EffectiveConfig>,
    pub live: LiveTool,
    /// The approval that it uses.
    pub approval: Option<TakenApproval>,
}

/// Decides the call by the configuration and the counts of now, or of the time after its approval. The
/// rest of the way to the intent line must be without a pause.
pub async fn permitted<'a>(
    app: &'a Arc<App>,
    caller: &'a Caller,
    call: &'a ManagedCall,
    waits: &'a ApprovalWaits,
) -> Result<PermittedCall<'a>, ToolFailure> {
    let dispatch = Dispatch {
        app,
        caller,
        call,
        waits,
    };
    let mut wait = None;
    let permitted = dispatch.permitted(&mut wait).await;
    if let Some(wait) = wait {
        app.metrics.approval_waited(wait.began.elapsed());
    }
    permitted
}

/// A call on its way to its dispatch.
#[derive(Clone, Copy, Debug)]
struct Dispatch<'a> {
    app: &'a Arc<App>,
    caller: &'a Caller,
    call: &'a ManagedCall,
    waits: &'a ApprovalWaits,
}

impl<'a> Dispatch<'a> {
    async fn permitted(
        self,
        wait: &mut Option<CallWait<'a>>,
    ) -> Result<PermittedCall<'a>, ToolFailure> {
        let (rates, budgets) = (self.app.rates.counts(), self.app.budgets.counts());
        let mut approval: Option<TakenApproval> = None;
        loop {
            let config = self.app.current.now();
            let (authority, at) = (&config.authority, Timestamp::now());
            let permitted = match &approval {
                None => authority.permits(self.call, rates, budgets, at),
                Some(it) => authority.permits_approved(self.call, it.need(), rates, budgets, at),
            };
            match permitted {
                Ok(live) => {
                    return Ok(PermittedCall {
                        call: self.call,
                        config,
                        live,
                        approval,
                    });
                }
                // Not of an approved call.
                Err(Denial::NeedsApproval { need, .. }) => {
                    drop(config);
                    approval = self.approved(&need, wait).await?;
                }
                Err(denial) => {
                    if let Some(approval) = &mut approval {
                        approval.refused(denial.code());
                    }
                    return Err(denial.into());
                }
            }
        }
    }

    /// Asks for an approval of the call and waits for it. Returns `None` if the call is to be decided
    /// anew: it may need another approval now, or none.
    async fn approved(
        self,
        need: &ApprovalNeed,
        wait: &mut Option<CallWait<'a>>,
    ) -> Result<Option<TakenApproval>, ToolFailure> {
        let approvals = &self.app.approvals;
        let mut decisions = approvals.subscribe();
        let mut changes = self.app.current.subscribe();
        let who = self.caller.who();
        let question = approvals.meet(who, &self.caller.agent, self.call, need)?;
        let id = &question.id;
        loop {
            decisions.mark_unchanged();
            changes.mark_unchanged();
            let now = self.app.current.now();
            let rates = self.app.rates.counts();
            let pending =
                now.authority
                    .pending_need(self.call, &question.need, rates, Timestamp::now());
            let pending = pending.inspect_err(|denial| {
                approvals.withdraw(id, &denial.to_string());
            })?;
            let standing = approvals.standing(id);
            let (approval, left) = match (standing, pending) {
                (Standing::Ended { ending, left }, _) => return Err(self.ended(ending, left)),
                // Another call with the same arguments has used the approval.
                (Standing::Gone, _) => return Ok(None),
                (Standing::Open { .. } | Standing::Approved, PendingNeed::Other) => {
                    approvals.withdraw(id, "other rules or policies ask");
                    return Ok(None);
                }
                (Standing::Open { .. } | Standing::Approved, PendingNeed::None) => {
                    approvals.withdraw(id, "the call needs no approval any more");
                    return Ok(None);
                }
                (Standing::Approved, PendingNeed::Asked) => return Ok(approvals.take(id)),
                (Standing::Open { approval, left }, PendingNeed::Asked) => (approval, left),
            };
            let began = wait
                .get_or_insert_with(|| self.waits.begin(self.call.id()))
                .began;
            let deadline = self.waits.deadline(began, longest(&now));
            let expires = Instant::now() + left;
            tokio::select! {
                biased;
                // Err: the writers are gone and no change can follow.
                Ok(()) = decisions.changed() => {}
                Ok(()) = changes.changed() => {}
                () = window_changes(&now) => {}
                () = tokio::time::sleep_until(expires.into()) => {}
                () = tokio::time::sleep_until(deadline.into()) => {
                    return Err(self.pending(approval, left));
                }
            }
        }
    }

    fn ended(self, ending: Ending, left: Duration) -> ToolFailure {
        let tool = self.call.name();
        let denied = |what: String| ToolFailure::refused(ResultCode::ApprovalDenied, what);
        let because = |reason: String| match reason.is_empty() {
            true => String::new(),
            false => format!(": {reason}"),
        };
        match ending {
            Ending::Denied(reason) => denied(format!(
                "{tool} was not called: a person denied this call{}",
                because(reason)
            )),
            Ending::Expired => denied(format!(
                "{tool} was not called: nobody decided on this call in time"
            ))
            .after(left),
            Ending::Withdrawn(reason) => denied(format!(
                "{tool} was not called: the approval of this call was withdrawn{}",
                because(reason)
            ))
            .after(left),
            Ending::Refused(refusal) => {
                let what = format!("{tool} was not called: {}", refusal.message);
                ToolFailure::refused(refusal.code, what).after(left)
            }
        }
    }

    fn pending(self, approval: Option<ApprovalRef>, left: Duration) -> ToolFailure {
        let tool = self.call.name();
        let waits_for = match approval {
            Some(approval) => format!("nobody has decided on ToolApproval {} yet", approval.name),
            None => "the operator could not be asked for its approval yet".to_owned(),
        };
        let minutes = left.as_secs().div_ceil(60);
        ToolFailure::refused(
            ResultCode::ApprovalPending,
            format!(
                "{tool} was not called: {waits_for}. The same call with exactly the same arguments \
                 can be made again within {minutes} min, and then runs if it was approved"
            ),
        )
    }
}

fn longest(now: &EffectiveConfig) -> Duration {
    let policy = now.version().ok().map(|version| version.catalog.policy());
    let wait = policy.and_then(|policy| policy.approval_wait_ms);
    wait.map_or(WAIT, Duration::from_millis).min(LONGEST_WAIT)
}

/// Resolves when the window of a rule opens or closes.
async fn window_changes(now: &EffectiveConfig) {
    match now.authority.until_change(Timestamp::now()) {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
