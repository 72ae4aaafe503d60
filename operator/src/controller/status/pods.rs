//! What an agent's pods have loaded, as they say themselves.
//!
//! Here: the pods' part of an Agent's status, and `InForce`. Not here: which pods there are
//! and what they said.
//!
//! Invariant: a pod that says nothing is never taken to have loaded anything.

use toolcrib_crds::{ConditionStatus, PodsStatus, StateReason};

use super::condition::{Verdict, verdict};
use super::count;
use super::written::Written;

/// Names in a list or a message; a count stands beside.
const STALE_LISTED: usize = 10;

/// A pod of the agent that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    pub name: String,
    pub news: PodNews,
    /// It has been wanting for longer than the stale time.
    pub overdue: bool,
    /// Compiled tools that its mediator does not offer: `tool: reason`.
    pub withheld: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNews {
    None,
    /// The webhook did not edit it, so there is no mediator that could report.
    NoMediator,
    Loaded,
    /// Something else than what is compiled now.
    Behind,
    Rejected(String),
    /// The files are loaded, but the runner's token does not open the mediator.
    TokenRefused(TokenFault),
}

/// Why the runner in a pod has no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The pod is older than the Agent, so its containers hold the token of an earlier one.
    EarlierAgent,
    /// The mediator has refused every token that was presented.
    Refused,
}

pub(super) fn in_force(written: &Written, pods: &[PodState]) -> Verdict {
    // An object of a compiled name that somebody else wrote may be what the pods have mounted:
    // their mediators then speak to whom it says, and show their tokens there.
    if let Written::Conflict(what) = written {
        let text = format!("what the pods report is not believed: {what}");
        return verdict(ConditionStatus::Unknown, StateReason::Conflict, text);
    }
    if pods.is_empty() {
        return verdict(
            ConditionStatus::Unknown,
            StateReason::NoPods,
            "no pod of the agent runs",
        );
    }
    let named = |pick: &dyn Fn(&PodState) -> Option<String>| {
        let names: Vec<String> = pods.iter().filter_map(pick).take(STALE_LISTED).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let rejected = |pod: &PodState| match &pod.news {
        PodNews::Rejected(why) => Some(format!("{}: {why}", pod.name)),
        PodNews::None
        | PodNews::NoMediator
        | PodNews::Loaded
        | PodNews::Behind
        | PodNews::TokenRefused(_) => None,
    };
    if let Some(pods) = named(&rejected) {
        return verdict(ConditionStatus::False, StateReason::ManifestRejected, pods);
    }
    if let Some(unusable) = unusable(pods) {
        return unusable;
    }
    let behind = |pod: &PodState| (pod.news == PodNews::Behind).then(|| pod.name.clone());
    if let Some(names) = named(&behind) {
        let overdue = pods
            .iter()
            .any(|pod| pod.news == PodNews::Behind && pod.overdue);
        let reason = if overdue {
            StateReason::Stale
        } else {
            StateReason::Pending
        };
        return verdict(
            ConditionStatus::False,
            reason,
            format!("not loaded yet by {names}"),
        );
    }
    let silent = |pod: &PodState| (pod.news == PodNews::None).then(|| pod.name.clone());
    if let Some(names) = named(&silent) {
        let text = format!("no report yet from {names}");
        return verdict(ConditionStatus::Unknown, StateReason::NoReport, text);
    }
    let withheld = |pod: &PodState| {
        (!pod.withheld.is_empty()).then(|| format!("{} ({})", pod.name, pod.withheld.join(", ")))
    };
    let note = named(&withheld).map(|pods| format!("not offered by {pods}"));
    verdict(
        ConditionStatus::True,
        StateReason::InForce,
        note.unwrap_or_default(),
    )
}

/// Says which pods have no mediator that they can use, and what to do. Only new pods help.
pub(super) fn unusable(pods: &[PodState]) -> Option<Verdict> {
    no_mediator(pods).or_else(|| token_refused(pods))
}

fn no_mediator(pods: &[PodState]) -> Option<Verdict> {
    let names: Vec<&str> = pods
        .iter()
        .filter(|pod| pod.news == PodNews::NoMediator)
        .map(|pod| &*pod.name)
        .take(STALE_LISTED)
        .collect();
    if names.is_empty() {
        return None;
    }
    let text = format!(
        "no mediator in {}: the webhook did not edit the pods when they were created, so their programs have none of the agent's tools and no limits; delete the pods, so that new ones get a mediator",
        names.join(", ")
    );
    Some(verdict(
        ConditionStatus::False,
        StateReason::NoMediator,
        text,
    ))
}

/// Says which pods cannot use their mediator for want of a valid token, and what to do.
fn token_refused(pods: &[PodState]) -> Option<Verdict> {
    let named = |fault: TokenFault| {
        let names: Vec<&str> = pods
            .iter()
            .filter(|pod| pod.news == PodNews::TokenRefused(fault))
            .map(|pod| &*pod.name)
            .take(STALE_LISTED)
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(names) = named(TokenFault::EarlierAgent) {
        let text = format!(
            "created for an earlier Agent of this name, whose token is no longer valid: {names}; \
             delete the pods, so that new ones start with the present token"
        );
        return Some(verdict(
            ConditionStatus::False,
            StateReason::TokenReplaced,
            text,
        ));
    }
    let names = named(TokenFault::Refused)?;
    let text = format!(
        "the mediator refuses the token that the program presents in {names}: the program must \
         use the address and key of its environment; if it does, delete the pods"
    );
    Some(verdict(
        ConditionStatus::False,
        StateReason::TokenRefused,
        text,
    ))
}

/// The reason and the note of the Warning for [`unusable`].
pub fn pod_warning(pods: &[PodState]) -> Option<(&'static str, String)> {
    let Verdict(_, reason, note) = unusable(pods)?;
    Some((reason.0, note))
}

/// Names of those that have wanted too long.
pub(super) fn stale(pods: &[PodState]) -> Vec<String> {
    pods.iter()
        .filter(|pod| pod.overdue)
        .filter(|pod| {
            matches!(
                pod.news,
                PodNews::None | PodNews::Behind | PodNews::Rejected(_)
            )
        })
        .map(|pod| pod.name.clone())
        .take(STALE_LISTED)
        .collect()
}

pub(super) fn pods(written: &Written, pods: &[PodState]) -> PodsStatus {
    let believed = !matches!(written, Written::Conflict(_));
    PodsStatus {
        running: count(pods.len()),
        in_force: count(
            pods.iter()
                .filter(|pod| believed && pod.news == PodNews::Loaded)
                .count(),
        ),
        stale: stale(pods),
    }
}
