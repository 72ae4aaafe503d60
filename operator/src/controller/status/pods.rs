//! What an agent's pods have loaded, as they say themselves.
//!
//! Here: the pods' part of an Agent's status, and `InForce`. Not here: which pods there are
//! and what they said.
//!
//! Invariant: a pod that says nothing is never taken to have loaded anything.

use toolcrib_compile::names;
use toolcrib_crds::{ConditionStatus, PodsStatus, StateReason};

use super::condition::{Verdict, verdict};
use super::count;
use super::written::WriteOutcome;

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

pub(super) fn in_force(written: &WriteOutcome, pods: &[PodState]) -> Verdict {
    // An object of a compiled name that somebody else wrote may be what the pods have mounted:
    // their mediators then speak to whom it says, and show their tokens there.
    if let WriteOutcome::Conflict(what) = written {
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
    if let Some(rejected) = rejected(pods, |_| true) {
        return rejected;
    }
    if let Some(unusable) = unusable(pods) {
        return unusable;
    }
    if let Some(late) = late(pods) {
        return late;
    }
    if let Some(names) = names_of(pods, |pod| pod.news == PodNews::Behind) {
        return verdict(
            ConditionStatus::False,
            StateReason::Pending,
            format!(
                "not loaded yet by {names}; the kubelet brings changed files within a minute or two"
            ),
        );
    }
    if let Some(names) = names_of(pods, |pod| pod.news == PodNews::None) {
        let overdue = silent(pods).map(|Verdict(_, _, message)| message);
        return verdict(
            ConditionStatus::Unknown,
            StateReason::NoReport,
            overdue.unwrap_or_else(|| format!("no report yet from {names}")),
        );
    }
    let withheld: Vec<String> = pods
        .iter()
        .filter(|pod| !pod.withheld.is_empty())
        .map(|pod| format!("{} ({})", pod.name, pod.withheld.join(", ")))
        .take(STALE_LISTED)
        .collect();
    let note = (!withheld.is_empty()).then(|| format!("not offered by {}", withheld.join(", ")));
    verdict(
        ConditionStatus::True,
        StateReason::InForce,
        note.unwrap_or_default(),
    )
}

/// Every fault of the pods that waiting does not mend, in the order of [`in_force`]: `Ready` has
/// the first one, and each is an Event.
pub(super) fn faults(pods: &[PodState]) -> Vec<Verdict> {
    let rejected = rejected(pods, |pod| pod.overdue);
    let late = [late(pods), silent(pods)];
    let all = [rejected, no_mediator(pods), token_refused(pods)];
    all.into_iter().chain(late).flatten().collect()
}

/// The first names of the pods that `pick` chooses, separated by commas.
fn names_of(pods: &[PodState], pick: impl Fn(&PodState) -> bool) -> Option<String> {
    let chosen = pods.iter().filter(|pod| pick(pod));
    let names: Vec<&str> = chosen.map(|pod| &*pod.name).take(STALE_LISTED).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Says which mediators refuse the compiled files, why, and what to do.
fn rejected(pods: &[PodState], pick: impl Fn(&PodState) -> bool) -> Option<Verdict> {
    let refusals: Vec<String> = pods
        .iter()
        .filter(|pod| pick(pod))
        .filter_map(|pod| match &pod.news {
            PodNews::Rejected(why) => Some(format!("{}: {why}", pod.name)),
            PodNews::None
            | PodNews::NoMediator
            | PodNews::Loaded
            | PodNews::Behind
            | PodNews::TokenRefused(_) => None,
        })
        .take(STALE_LISTED)
        .collect();
    let text = format!(
        "the mediator refuses the compiled files in {}; delete the pods, so that new ones get the mediator of the operator's release",
        refusals.join(", ")
    );
    (!refusals.is_empty())
        .then(|| verdict(ConditionStatus::False, StateReason::ManifestRejected, text))
}

/// Says which pods have had earlier files for too long, and where to look.
fn late(pods: &[PodState]) -> Option<Verdict> {
    let is_late = |pod: &&PodState| pod.overdue && pod.news == PodNews::Behind;
    overdue(
        pods.iter().filter(is_late),
        "has not loaded the compiled files",
        "the kubelet of its node has not brought them, or its mediator cannot reach the operator",
    )
}

/// Says which mediators have not reported for too long, and where to look.
fn silent(pods: &[PodState]) -> Option<Verdict> {
    let is_silent = |pod: &&PodState| pod.overdue && pod.news == PodNews::None;
    overdue(
        pods.iter().filter(is_silent),
        "has not reported to the operator",
        "its mediator does not run, waits for its files, or cannot reach the operator",
    )
}

fn overdue<'a>(
    pods: impl Iterator<Item = &'a PodState>,
    fault: &str,
    causes: &str,
) -> Option<Verdict> {
    let names: Vec<&str> = pods.map(|pod| &*pod.name).take(STALE_LISTED).collect();
    let first = names.first()?;
    let others = match &names[1..] {
        [] => String::new(),
        others => format!(" (so it is with {})", others.join(", ")),
    };
    let text = format!(
        "pod {first} {fault} in time{others}: {causes}; `kubectl describe pod {first}` shows its events, `kubectl logs {first} -c {}` its mediator's log",
        names::MEDIATOR_CONTAINER,
    );
    Some(verdict(ConditionStatus::False, StateReason::Stale, text))
}

/// Says which pods have no mediator that they can use, and what to do. Only new pods help.
pub(super) fn unusable(pods: &[PodState]) -> Option<Verdict> {
    no_mediator(pods).or_else(|| token_refused(pods))
}

fn no_mediator(pods: &[PodState]) -> Option<Verdict> {
    let names = names_of(pods, |pod| pod.news == PodNews::NoMediator)?;
    let text = format!(
        "no mediator in {names}: the webhook did not edit the pods when they were created, so their programs have none of the agent's tools and no limits; delete the pods, so that new ones get a mediator"
    );
    Some(verdict(
        ConditionStatus::False,
        StateReason::NoMediator,
        text,
    ))
}

/// Says which pods cannot use their mediator for want of a valid token, and what to do.
fn token_refused(pods: &[PodState]) -> Option<Verdict> {
    let named = |fault: TokenFault| names_of(pods, |pod| pod.news == PodNews::TokenRefused(fault));
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

/// Reason and note of the Warnings about the pods. What the pods report is believed only of files
/// that the operator wrote, and a pod has a mediator or not whatever was written.
pub fn pod_warnings(written: &WriteOutcome, pods: &[PodState]) -> Vec<(&'static str, String)> {
    let faults = match written {
        WriteOutcome::Done => faults(pods),
        WriteOutcome::Conflict(_) | WriteOutcome::Failed(_) => unusable(pods).into_iter().collect(),
    };
    let warnings = faults.into_iter();
    warnings
        .map(|Verdict(_, reason, note)| (reason.0, note))
        .collect()
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

pub(super) fn pods(written: &WriteOutcome, pods: &[PodState]) -> PodsStatus {
    let believed = !matches!(written, WriteOutcome::Conflict(_));
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
