//! The wait of a call for an approval.
//!
//! A call that needs one is looked at again whenever a decision comes, or the configuration in force or
//! the windows of its rules change. The wait ends at once when the call may not run any more, or needs no
//! approval any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use toolcrib_manifest::ApprovalRef;
use toolcrib_mediation::{
    ApprovalNeed, BudgetCounts, Denial, Ending, ManagedCall, RateCounts, ResultCode, Standing,
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

/// Waits until the call may be decided for its dispatch. Returns the approval that it uses, if it needs
/// one: the rest of the way to the intent line must be without a pause.
pub async fn approved(
    app: &Arc<App>,
    caller: &Caller,
    call: &ManagedCall,
    waits: &ApprovalWaits,
) -> Result<Option<TakenApproval>, ToolFailure> {
    let now = app.current.now();
    if !now.authority.can_need_approval(call) {
        return Ok(None);
    }
    let (rates, budgets) = (app.rates.counts(), app.budgets.counts());
    let need = now
        .authority
        .approval_need(call, rates, budgets, Timestamp::now())?;
    match need {
        None => Ok(None),
        Some(need) => {
            let waiting = Waiting {
                app,
                caller,
                call,
                waits,
            };
            waiting.wait(need).await
        }
    }
}

/// A call that needs an approval.
#[derive(Clone, Copy)]
struct Waiting<'a> {
    app: &'a Arc<App>,
    caller: &'a Caller,
    call: &'a ManagedCall,
    waits: &'a ApprovalWaits,
}

impl Waiting<'_> {
    async fn wait(self, mut need: ApprovalNeed) -> Result<Option<TakenApproval>, ToolFailure> {
        let approvals = &self.app.approvals;
        let mut decisions = approvals.subscribe();
        let mut changes = self.app.current.subscribe();
        let mut wait: Option<CallWait<'_>> = None;
        loop {
            decisions.mark_unchanged();
            changes.mark_unchanged();
            let who = self.caller.who();
            let id = approvals.meet(who, &self.caller.agent, self.call, &need)?;
            let (approval, left) = match approvals.standing(&id) {
                Standing::Approved => match approvals.take(&id) {
                    Some(taken) => {
                        self.waited(wait.as_ref());
                        return Ok(Some(taken));
                    }
                    None => continue,
                },
                Standing::Ended { ending, left } => {
                    self.waited(wait.as_ref());
                    return Err(self.ended(ending, left));
                }
                // Another call with the same arguments has used it.
                Standing::Gone => continue,
                Standing::Open { approval, left } => (approval, left),
            };
            let began = wait
                .get_or_insert_with(|| self.waits.begin(self.call.id()))
                .began;
            let now = self.app.current.now();
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
                    self.waited(wait.as_ref());
                    return Err(self.pending(approval, left));
                }
            }
            match self.need() {
                Ok(Some(still)) => need = still,
                Ok(None) => {
                    approvals.withdraw(&id, "the call needs no approval any more");
                    self.waited(wait.as_ref());
                    return Ok(None);
                }
                Err(denial) => {
                    approvals.withdraw(&id, &denial.to_string());
                    self.waited(wait.as_ref());
                    return Err(denial.into());
                }
            }
        }
    }

    /// Decides the call as if nothing were used of rates and budgets: only what is taken away ends the
    /// wait.
    fn need(self) -> Result<Option<ApprovalNeed>, Denial> {
        let now = self.app.current.now();
        now.authority.approval_need(
            self.call,
            &RateCounts::default(),
            &BudgetCounts::default(),
            Timestamp::now(),
        )
    }

    fn waited(self, wait: Option<&CallWait<'_>>) {
        if let Some(wait) = wait {
            self.app.metrics.approval_waited(wait.began.elapsed());
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
    let at = Timestamp::now();
    match now.authority.next_change(at) {
        Some(change) => tokio::time::sleep(change.duration_since(at).unsigned_abs()).await,
        None => std::future::pending().await,
    }
}
