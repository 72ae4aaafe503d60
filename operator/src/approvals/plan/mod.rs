//! What is to be written about one ToolApproval and its ToolDecisions. Pure.
//!
//! Invariants: the plan depends on the present state alone, and once it is written, the next plan is
//! empty. What is finished stays as it is. A yes needs an approval that is pending, a tool and rules that
//! stand, admission policies that hold, and decisions that count; everything else that can end an
//! approval comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use toolcrib_bounds::cut;
use toolcrib_compile::CallRequirements;
use toolcrib_compile::approval::{Ballot, Outcome, Requirements, is_about};
use toolcrib_crds::{
    ApprovalPhase, ConditionStatus, ConditionType, CountedDecision, DecisionVerdict, StateReason,
    ToolApprovalStatus,
};

use crate::approvals::stored::{ApprovalBody, Progress, StoredDecision, progress};

/// Limits the decisions on one approval. Those that count are kept beyond it.
pub const MOST_DECISIONS: usize = 64;
/// Limits the decisions of one user on one approval that are kept because they count. They may name
/// different groups.
const MOST_OF_USER: usize = 8;
/// Limits the decisions in a status.
const MOST_LISTED: usize = 64;
/// Limits the bytes of `decidedBy` in a status.
const DECIDED_BY: usize = 512;

/// The state of one approval.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    pub uid: &'a str,
    pub body: &'a ApprovalBody,
    /// The decisions that name it, oldest first.
    pub decisions: &'a [Arc<StoredDecision>],
    pub authority: CallAuthority,
    pub question: QuestionState,
    pub protection: Protection,
    /// The time for which a finished ToolApproval is kept.
    pub retention: SignedDuration,
    pub now: Timestamp,
}

/// Whether the agent may still make the call, if persons approve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAuthority {
    /// This leader does not know it yet.
    Unknown,
    /// The pod that asked is gone.
    PodGone,
    /// The call cannot be approved any more, for this reason.
    Revoked(String),
    /// The call can be approved as these rules and policies say.
    Granted(CallRequirements),
}

/// What the pod's mediator reports about its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionState {
    /// It has not reported to this leader since it asked.
    Unknown,
    Open,
    Used(CallResult),
    /// It does not hold the question open.
    Gone,
}

/// What a mediator reports of an approved call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    Succeeded,
    Failed,
    /// The mediator ended between the call and its result.
    Unknown,
    /// The call was decided again, and refused. With its result code, if the mediator reports it.
    Refused(Option<Arc<str>>),
}

/// Whether the admission policies for ToolApprovals and ToolDecisions are in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    #[default]
    Unknown,
    Holds,
    /// With the reason.
    Missing(String),
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The new status of the ToolApproval; `None` if it stays.
    pub status: Option<ToolApprovalStatus>,
    /// The end that the new status brings.
    pub decided: Option<ApprovalPhase>,
    /// The condition `Counted` of decisions that have none, by index.
    pub counted: BTreeMap<usize, CountedCondition>,
    /// The decisions that are to be deleted, by index.
    pub surplus: BTreeSet<usize>,
    /// The ToolApproval is to be deleted.
    pub delete: bool,
    /// Time until the next plan, without an event.
    pub again: Option<SignedDuration>,
}

/// The reason and message of a condition `Counted`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedCondition {
    pub reason: StateReason,
    pub message: String,
}

impl Situation<'_> {
    pub fn plan(&self) -> Plan {
        let mut plan = match self.body.progress() {
            Progress::Pending => self.pending(),
            Progress::Approved => self.approved(),
            Progress::Finished(_, since) => self.finished(since),
        };
        plan.surplus = self.surplus(&plan);
        plan.counted.retain(|at, _| !plan.surplus.contains(at));
        plan
    }

    /// Returns the decisions beyond the limits, which get no condition either. A decision that is not
    /// looked at yet is never one of them, and one that counts only if its user has made many: decisions
    /// of users who may not decide displace nothing.
    fn surplus(&self, plan: &Plan) -> BTreeSet<usize> {
        let mut of_user: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut kept, mut others) = (0, Vec::new());
        for (at, decision) in self.decisions.iter().enumerate() {
            let Some(body) = decision.body.as_deref() else {
                continue;
            };
            let planned = plan.counted.get(&at);
            let planned = planned.map(|it| it.reason == StateReason::Counted);
            match planned.or(body.counted) {
                None => {}
                Some(true) => {
                    let user = of_user.entry(&body.spec.decided_by.username).or_default();
                    *user += 1;
                    if *user <= MOST_OF_USER {
                        kept += 1;
                    } else {
                        others.push(at);
                    }
                }
                Some(false) => others.push(at),
            }
        }
        others
            .into_iter()
            .skip(MOST_DECISIONS.saturating_sub(kept))
            .collect()
    }

    fn pending(&self) -> Plan {
        let requirements = match &self.authority {
            CallAuthority::Unknown => None,
            CallAuthority::PodGone => return self.end(StateReason::Withdrawn, POD_GONE),
            CallAuthority::Revoked(why) => {
                return self.end(StateReason::Withdrawn, &format!("Revoked: {why}"));
            }
            CallAuthority::Granted(requirements) => Some(requirements.requirements()),
        };
        match &self.question {
            QuestionState::Unknown | QuestionState::Open => {}
            QuestionState::Used(_) => return self.end(StateReason::Withdrawn, USED_UNDECIDED),
            QuestionState::Gone => return self.end(StateReason::Withdrawn, NOT_HELD),
        }
        if self.now >= self.body.expires_at {
            return self.end(StateReason::Expired, "nobody decided in time");
        }
        let mut plan = Plan {
            again: Some(self.now.duration_until(self.body.expires_at)),
            ..Plan::default()
        };
        match (&self.protection, requirements) {
            (Protection::Missing(why), _) => {
                let message = format!("no decision counts: {why}");
                self.count(&mut plan, |_, _| {
                    (StateReason::NotProtected, message.clone())
                });
                let mut status = self.status(Vec::new());
                let reason = StateReason::NotProtected;
                set(
                    &mut status,
                    ConditionType::Decided,
                    false,
                    reason,
                    &message,
                    self.now,
                );
                self.write(&mut plan, status);
            }
            (Protection::Holds, Some(requirements)) => self.tally(&mut plan, requirements),
            (Protection::Unknown, _) | (Protection::Holds, None) => {}
        }
        plan
    }

    /// Counts the decisions, and decides if they are enough.
    fn tally(&self, plan: &mut Plan, requirements: Requirements<'_>) {
        let about: Vec<usize> = self.about().collect();
        let ballots = about
            .iter()
            .filter_map(|at| self.decisions[*at].body.as_deref());
        let ballots: Vec<Ballot<'_>> = ballots.map(|body| Ballot::of(&body.spec)).collect();
        let tally = requirements.tally(&ballots);
        let counting = about
            .iter()
            .zip(&tally.counts)
            .filter(|(_, counts)| **counts);
        let counting: BTreeSet<usize> = counting.map(|(at, _)| *at).collect();
        self.count(plan, |at, _| {
            if counting.contains(&at) {
                (StateReason::Counted, String::new())
            } else {
                let message = format!("who may approve: {requirements}");
                (StateReason::NotAnApprover, message)
            }
        });
        let mut status = self.status(self.listed(&counting));
        let names = status.decided_by.clone().unwrap_or_default();
        let (reason, message) = match tally.outcome {
            None => {
                // It was not protected before.
                status
                    .conditions
                    .retain(|it| it.type_ != ConditionType::Decided.as_str());
                self.write(plan, status);
                return;
            }
            Some(Outcome::Approved) => (StateReason::Approved, format!("approved by {names}")),
            Some(Outcome::Denied(at)) => (
                StateReason::Denied,
                format!("denied by {}", ballots[at].username),
            ),
        };
        set(
            &mut status,
            ConditionType::Decided,
            true,
            reason,
            &message,
            self.now,
        );
        plan.again = None;
        self.write(plan, status);
    }

    /// Returns the decisions for the status, oldest first: the first of each user and verdict.
    fn listed(&self, counting: &BTreeSet<usize>) -> Vec<CountedDecision> {
        let mut seen = BTreeSet::new();
        let counted = counting
            .iter()
            .filter_map(|at| counted(&self.decisions[*at]));
        let mut first: Vec<CountedDecision> = counted
            .filter(|it| seen.insert((it.username.clone(), it.verdict == DecisionVerdict::Deny)))
            .collect();
        if let Some(denial) = first
            .iter()
            .position(|it| it.verdict == DecisionVerdict::Deny)
            && denial >= MOST_LISTED
        {
            // The one that decides is listed in any case.
            first.swap(denial, MOST_LISTED - 1);
        }
        first.truncate(MOST_LISTED);
        first
    }

    /// Ends a pending or approved question without a call.
    fn end(&self, reason: StateReason, message: &str) -> Plan {
        let mut plan = Plan::default();
        self.count(&mut plan, |_, name| self.late(name));
        let mut status = self.body.status.clone();
        set(
            &mut status,
            ConditionType::Decided,
            true,
            reason,
            message,
            self.now,
        );
        self.write(&mut plan, status);
        plan
    }

    fn approved(&self) -> Plan {
        let used = match (&self.authority, &self.question) {
            (_, QuestionState::Used(CallResult::Refused(code))) => {
                return self.end(StateReason::Withdrawn, &refused(code.as_deref()));
            }
            (_, QuestionState::Used(CallResult::Succeeded)) => (StateReason::Succeeded, ""),
            (_, QuestionState::Used(CallResult::Failed)) => (StateReason::Failed, ""),
            (_, QuestionState::Used(CallResult::Unknown)) => (StateReason::Unknown, CALL_UNKNOWN),
            (CallAuthority::PodGone, _) => (StateReason::Unknown, POD_GONE_APPROVED),
            (_, QuestionState::Gone) => return self.end(StateReason::Withdrawn, NOT_HELD),
            (_, QuestionState::Unknown | QuestionState::Open)
                if matches!(self.protection, Protection::Missing(_)) =>
            {
                return self.end(StateReason::Withdrawn, UNPROTECTED);
            }
            (_, QuestionState::Unknown | QuestionState::Open) => {
                let mut plan = Plan::default();
                self.count(&mut plan, |_, name| self.late(name));
                return plan;
            }
        };
        let mut plan = Plan::default();
        self.count(&mut plan, |_, name| self.late(name));
        let mut status = self.body.status.clone();
        let (reason, message) = used;
        set(
            &mut status,
            ConditionType::Used,
            true,
            reason,
            message,
            self.now,
        );
        self.write(&mut plan, status);
        plan
    }

    fn finished(&self, since: Timestamp) -> Plan {
        let age = since.duration_until(self.now);
        let mut plan = Plan {
            delete: age >= self.retention,
            again: Some(self.retention - age).filter(|left| left.is_positive()),
            ..Plan::default()
        };
        self.count(&mut plan, |_, name| self.late(name));
        plan
    }

    /// The decisions that are about this call and are not refused already.
    fn about(&self) -> impl Iterator<Item = usize> {
        let about = self.decisions.iter().enumerate().filter(|(_, decision)| {
            decision.body.as_deref().is_some_and(|body| {
                let is_refused = body.counted == Some(false);
                !is_refused && is_about(self.uid, &self.body.call_digest, &body.spec).is_ok()
            })
        });
        about.map(|(at, _)| at)
    }

    /// Plans the condition of each decision that has none. `of` says it for decisions about this call,
    /// by index and name.
    fn count(&self, plan: &mut Plan, of: impl Fn(usize, &str) -> (StateReason, String)) {
        for (at, decision) in self.decisions.iter().enumerate() {
            let Some(body) = decision.body.as_deref().filter(|it| it.counted.is_none()) else {
                continue;
            };
            let (reason, message) = match is_about(self.uid, &self.body.call_digest, &body.spec) {
                Ok(()) => of(at, &decision.key().name),
                Err(StateReason::OtherDigest) => (
                    StateReason::OtherDigest,
                    "it is about another call".to_owned(),
                ),
                Err(reason) => (reason, GONE.to_owned()),
            };
            plan.counted
                .insert(at, CountedCondition { reason, message });
        }
    }

    /// The condition of a decision about a call that is decided: it counts if the status lists it.
    fn late(&self, name: &str) -> (StateReason, String) {
        let mut counted = self.body.status.decisions.iter();
        if counted.any(|it| it.name == name) {
            return (StateReason::Counted, String::new());
        }
        (
            StateReason::AlreadyDecided,
            "the call was decided before".to_owned(),
        )
    }

    fn status(&self, decisions: Vec<CountedDecision>) -> ToolApprovalStatus {
        let mut names: Vec<&str> = Vec::new();
        for decision in &decisions {
            if !names.contains(&&*decision.username) {
                names.push(&decision.username);
            }
        }
        let names = cut(&names.join(", "), DECIDED_BY).into_owned();
        ToolApprovalStatus {
            phase: None,
            decided_by: Some(names).filter(|names| !names.is_empty()),
            decisions,
            conditions: self.body.status.conditions.clone(),
        }
    }

    /// Plans the status, unless it is the present one.
    fn write(&self, plan: &mut Plan, mut status: ToolApprovalStatus) {
        let phase = phase(&status.conditions);
        status.phase = Some(phase);
        if status == self.body.status {
            return;
        }
        let before = phase_of(self.body);
        plan.decided = Some(phase).filter(|phase| *phase != before);
        plan.status = Some(status);
    }
}

const POD_GONE: &str = "PodGone: the pod that asked is gone; the next pod of the agent asks anew";
const POD_GONE_APPROVED: &str =
    "the pod is gone, and has not reported whether it made the call; its record says it";
const CALL_UNKNOWN: &str = "the mediator ended between the call and its result";
const NOT_HELD: &str = "the mediator does not hold the question open any more";
/// Anybody with the right could have written the status.
const UNPROTECTED: &str = "NotProtected: the admission policies were not in force, so the yes cannot be trusted; the record says whether the call was made before";
const USED_UNDECIDED: &str =
    "the mediator reports a call that nobody approved: look at its record, and at the pod";
/// The message of a decision whose approval is gone.
pub const GONE: &str = "there is no such approval; another one may have its name by now";

/// The message for an approved call that the mediator refused.
fn refused(code: Option<&str>) -> String {
    let with = code.map_or_else(String::new, |code| format!(" with {code}"));
    format!(
        "the mediator decided the call again after the approval, and refused it{with}; its record says more"
    )
}

fn counted(decision: &StoredDecision) -> Option<CountedDecision> {
    let body = decision.body.as_deref()?;
    Some(CountedDecision {
        name: decision.key().name,
        username: body.spec.decided_by.username.clone(),
        verdict: body.spec.verdict,
        reason: body.spec.reason.clone(),
        at: Time(body.created?),
    })
}

fn phase_of(body: &ApprovalBody) -> ApprovalPhase {
    phase(&body.status.conditions)
}

/// The conditions in one word.
fn phase(conditions: &[Condition]) -> ApprovalPhase {
    let reason = |of: ConditionType| {
        let found = conditions.iter().find(|it| it.type_ == of.as_str());
        found
            .filter(|it| it.status == ConditionStatus::True.as_str())
            .map(|it| &*it.reason)
    };
    let said = reason(ConditionType::Used).or_else(|| reason(ConditionType::Decided));
    let named = said.and_then(|said| ApprovalPhase::ALL.into_iter().find(|it| it.name() == said));
    match progress(conditions) {
        Progress::Pending => ApprovalPhase::Pending,
        Progress::Approved => ApprovalPhase::Approved,
        Progress::Finished(..) => named.unwrap_or(ApprovalPhase::Withdrawn),
    }
}

/// Sets a condition. Its time is that of the last change of status or reason.
fn set(
    status: &mut ToolApprovalStatus,
    of: ConditionType,
    holds: bool,
    reason: StateReason,
    message: &str,
    now: Timestamp,
) {
    let word = match holds {
        true => ConditionStatus::True,
        false => ConditionStatus::False,
    };
    let before = status
        .conditions
        .iter()
        .position(|it| it.type_ == of.as_str());
    let before = before.map(|at| status.conditions.remove(at));
    let is_same = |it: &Condition| it.status == word.as_str() && it.reason == reason.as_str();
    let since = before.filter(is_same).map(|it| it.last_transition_time);
    status.conditions.push(Condition {
        type_: of.as_str().to_owned(),
        status: word.as_str().to_owned(),
        reason: reason.as_str().to_owned(),
        message: message.to_owned(),
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: None,
    });
    status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
}

/// The words of the person who denied, of a status.
pub fn denial(status: &ToolApprovalStatus) -> Option<&CountedDecision> {
    let mut decisions = status.decisions.iter();
    decisions.find(|it| it.verdict == DecisionVerdict::Deny)
}

#[cfg(test)]
mod tests;
