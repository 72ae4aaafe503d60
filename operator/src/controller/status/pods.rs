//! What an agent's pods have loaded, as they say themselves.
//!
//! Here: the pods' part of an Agent's status, and `InForce`. Not here: which pods there are
//! and what they said.
//!
//! Invariant: a pod that says nothing is never taken to have loaded anything.

use toolcrib_crds::{ConditionStatus, PodsStatus, StateReason};

use super::agent::Written;
use super::condition::{Verdict, verdict};
use super::count;

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
    Loaded,
    /// Something else than what is compiled now.
    Behind,
    Rejected(String),
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
        PodNews::None | PodNews::Loaded | PodNews::Behind => None,
    };
    if let Some(pods) = named(&rejected) {
        return verdict(ConditionStatus::False, StateReason::ManifestRejected, pods);
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

/// Names of those that have wanted too long.
pub(super) fn stale(pods: &[PodState]) -> Vec<String> {
    pods.iter()
        .filter(|pod| pod.overdue && pod.news != PodNews::Loaded)
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
