//! What the decisions on one call say together.

use std::collections::BTreeSet;

use toolcrib_crds::{ApprovalRule, DecisionVerdict, ToolDecisionSpec};

use super::requirements::{Requirements, admits, minimum};

/// The decision of one user on one call. The API server has checked that it is this user's.
#[derive(Clone, Copy, Debug)]
pub struct Ballot<'a> {
    pub username: &'a str,
    pub groups: &'a [String],
    pub verdict: DecisionVerdict,
}

impl<'a> Ballot<'a> {
    pub fn of(decision: &'a ToolDecisionSpec) -> Self {
        Self {
            username: &decision.decided_by.username,
            groups: &decision.decided_by.groups,
            verdict: decision.verdict,
        }
    }
}

/// What some ballots say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// For each ballot, in the same order, whether it counts. If not: the user is not an approver.
    pub counts: Vec<bool>,
    /// `None`: more approvals are needed.
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Approved,
    /// The first ballot that denies, of those that count.
    Denied(usize),
}

impl Requirements<'_> {
    /// Counts the ballots. One user who may approve can deny alone.
    pub fn tally(&self, ballots: &[Ballot<'_>]) -> Tally {
        let counts: Vec<bool> = ballots
            .iter()
            .map(|ballot| self.admit(ballot.username, ballot.groups))
            .collect();
        let counting = || ballots.iter().zip(&counts).enumerate();
        let denied = counting().find_map(|(at, (ballot, counts))| {
            let denies = *counts && ballot.verdict == DecisionVerdict::Deny;
            denies.then_some(Outcome::Denied(at))
        });
        let approvals: Vec<&Ballot<'_>> = ballots
            .iter()
            .filter(|ballot| ballot.verdict == DecisionVerdict::Approve)
            .collect();
        let outcome = denied.or_else(|| self.are_met(&approvals).then_some(Outcome::Approved));
        Tally { counts, outcome }
    }

    fn are_met(&self, approvals: &[&Ballot<'_>]) -> bool {
        if self.asks_nobody_by_name() {
            return !approvals.is_empty();
        }
        let is_met = |asked: &ApprovalRule| {
            let users = approvals
                .iter()
                .filter(|ballot| admits(asked, ballot.username, ballot.groups))
                .map(|ballot| ballot.username);
            users.collect::<BTreeSet<_>>().len() >= minimum(asked)
        };
        let mut rules = self.rules.iter();
        let mut policies = self.policies.iter();
        (self.rules.is_empty() || rules.any(|rule| is_met(&rule.approval)))
            && policies.all(|policy| is_met(&policy.approval))
    }
}
