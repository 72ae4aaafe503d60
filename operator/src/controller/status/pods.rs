//! The manifests that an agent's pods have loaded, by their own reports.
//!
//! Here: the pods' part of an Agent's status, and `InForce`. Not here: finding the pods, and their
//! reports.
//!
//! Invariant: a pod without a report never counts as having loaded a manifest.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use toolcrib_compile::names;
use toolcrib_crds::{ConditionStatus, ConditionType, PodsStatus, StateReason};

use super::changes::condition;
use super::condition::{Verdict, verdict};
use super::count;
use super::written::WriteOutcome;

/// Most names in a list or a message.
const STALE_LISTED: usize = 10;

/// A pod of the agent that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    pub name: String,
    pub report: ReportState,
    /// Whether the pod has been without the current manifest for longer than the stale time, or has
    /// stopped reporting.
    pub overdue: bool,
    /// Whether the pod was created before this leader began, so it may have reported to an earlier
    /// leader.
    pub is_older_than_leader: bool,
    /// Compiled tools that its mediator does not offer: `tool: reason`.
    pub withheld: Vec<String>,
    /// Providers that refuse every key that its mediator has for them: `NAME refused …`.
    pub providers: Vec<String>,
    /// Services from which its mediator's last calls got no answer: `NAME (cause)`.
    pub outages: Vec<String>,
    /// Providers from which its mediator's last requests got no answer: `NAME (cause)`.
    pub provider_outages: Vec<String>,
}

/// The last report of a pod's mediator, compared with the current manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportState {
    /// It has not reported, or not for too long.
    None,
    /// The webhook did not inject the pod, so it has no mediator to report.
    NoMediator,
    Loaded,
    /// The pod has loaded another manifest.
    Behind,
    Rejected(String),
    /// The files are loaded, but the mediator refuses the runner's token.
    TokenRefused(TokenFault),
}

/// Reason why the runner in a pod has no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The pod is older than the Agent, so its containers have the token of an earlier Agent.
    EarlierAgent,
    /// The mediator has refused every token that was presented.
    Refused,
}

pub(super) fn in_force(written: &WriteOutcome, pods: &[PodState]) -> Verdict {
    // The pods may have mounted an object that another user wrote under a compiled name. Their
    // mediators then connect to the link that it names, and present their tokens there.
    if let WriteOutcome::Conflict(what) = written {
        let text = format!("the pods' reports are not trusted: {what}");
        return verdict(ConditionStatus::Unknown, StateReason::Conflict, text);
    }
    if pods.is_empty() {
        return verdict(
            ConditionStatus::Unknown,
            StateReason::NoPods,
            "the agent has no running pod",
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
    if let Some(names) = names_of(pods, |pod| pod.report == ReportState::Behind) {
        return verdict(
            ConditionStatus::False,
            StateReason::Pending,
            format!(
                "current files not loaded yet by {names}; the kubelet refreshes the volume about once a minute; tools that were taken away are refused already"
            ),
        );
    }
    if let Some(names) = names_of(pods, |pod| pod.report == ReportState::None) {
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

/// Every fault of the pods that does not resolve itself, in the order of [`in_force`]. `Ready`
/// reports the first fault, and each fault is an Event.
pub(super) fn faults(pods: &[PodState]) -> Vec<Verdict> {
    let rejected = rejected(pods, |pod| pod.overdue);
    let late = [late(pods), silent(pods)];
    let all = [rejected, no_mediator(pods), token_refused(pods)];
    let keys = [key_refused(pods)];
    all.into_iter().chain(late).chain(keys).flatten().collect()
}

/// Returns the verdict of `Ready` that an earlier leader made from the pods' reports. `None` if no pod
/// still has to report to this leader, or if that verdict did not come from a report.
pub(super) fn earlier_verdict(before: &[Condition], pods: &[PodState]) -> Option<Verdict> {
    const FROM_REPORTS: [StateReason; 7] = [
        StateReason::ManifestRejected,
        StateReason::Stale,
        StateReason::TokenReplaced,
        StateReason::TokenRefused,
        StateReason::ProviderKeyRefused,
        StateReason::ProviderUnreachable,
        StateReason::ServiceUnreachable,
    ];
    let lacks_report = |pod: &PodState| {
        pod.report == ReportState::None && pod.is_older_than_leader && !pod.overdue
    };
    if !pods.iter().any(lacks_report) {
        return None;
    }
    let before = condition(before, ConditionType::Ready)?;
    let reason = FROM_REPORTS
        .into_iter()
        .find(|reason| reason.as_str() == before.reason)?;
    let status = match before.status == ConditionStatus::True.as_str() {
        true => ConditionStatus::True,
        false => ConditionStatus::False,
    };
    Some(verdict(status, reason, before.message.clone()))
}

/// The names of the first pods that `pick` selects, separated by commas.
fn names_of(pods: &[PodState], pick: impl Fn(&PodState) -> bool) -> Option<String> {
    let chosen = pods.iter().filter(|pod| pick(pod));
    let names: Vec<&str> = chosen.map(|pod| &*pod.name).take(STALE_LISTED).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The verdict on pods whose mediator refuses the compiled files.
fn rejected(pods: &[PodState], pick: impl Fn(&PodState) -> bool) -> Option<Verdict> {
    let refusals: Vec<String> = pods
        .iter()
        .filter(|pod| pick(pod))
        .filter_map(|pod| match &pod.report {
            ReportState::Rejected(why) => Some(format!("{}: {why}", pod.name)),
            ReportState::None
            | ReportState::NoMediator
            | ReportState::Loaded
            | ReportState::Behind
            | ReportState::TokenRefused(_) => None,
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

/// The verdict on pods that have had earlier files for too long.
fn late(pods: &[PodState]) -> Option<Verdict> {
    let is_late = |pod: &&PodState| pod.overdue && pod.report == ReportState::Behind;
    overdue(
        pods.iter().filter(is_late),
        "has not loaded the compiled files",
        "the kubelet of its node has not refreshed the volume, or its mediator cannot reach the operator",
    )
}

/// The verdict on pods whose mediators have not reported for too long.
fn silent(pods: &[PodState]) -> Option<Verdict> {
    let is_silent = |pod: &&PodState| pod.overdue && pod.report == ReportState::None;
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
        others => format!(" (also {})", others.join(", ")),
    };
    let text = format!(
        "pod {first} {fault} in time{others}: {causes}; `kubectl describe pod {first}` shows its events, `kubectl logs {first} -c {}` its mediator's log",
        names::MEDIATOR_CONTAINER,
    );
    Some(verdict(ConditionStatus::False, StateReason::Stale, text))
}

/// The verdict on pods without a usable mediator. Only new pods can have one.
pub(super) fn unusable(pods: &[PodState]) -> Option<Verdict> {
    no_mediator(pods).or_else(|| token_refused(pods))
}

fn no_mediator(pods: &[PodState]) -> Option<Verdict> {
    let names = names_of(pods, |pod| pod.report == ReportState::NoMediator)?;
    let text = format!(
        "no mediator in {names}: the webhook did not inject one when the pods were created, so their programs have none of the agent's tools and no limits; delete the pods, so that new ones get a mediator"
    );
    Some(verdict(
        ConditionStatus::False,
        StateReason::NoMediator,
        text,
    ))
}

/// The verdict on pods whose runner has no valid token.
fn token_refused(pods: &[PodState]) -> Option<Verdict> {
    let named =
        |fault: TokenFault| names_of(pods, |pod| pod.report == ReportState::TokenRefused(fault));
    if let Some(names) = named(TokenFault::EarlierAgent) {
        let text = format!(
            "created for an earlier Agent of this name, whose token is no longer valid: {names}; \
             delete the pods, so that new ones start with the current token"
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

/// The verdict on pods whose mediators have no key that its provider takes. Pods with earlier files
/// count too: their requests are refused until they load the present ones.
fn key_refused(pods: &[PodState]) -> Option<Verdict> {
    let mut refusals: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut is_loaded = false;
    let reports = [ReportState::Loaded, ReportState::Behind];
    for pod in pods.iter().filter(|pod| reports.contains(&pod.report)) {
        is_loaded |= pod.report == ReportState::Loaded && !pod.providers.is_empty();
        for refusal in &pod.providers {
            refusals.entry(refusal).or_default().push(&pod.name);
        }
    }
    let refusals = refusals.into_iter().take(STALE_LISTED);
    let refusals: Vec<String> = refusals
        .map(|(refusal, pods)| {
            let pods: Vec<&str> = pods.into_iter().take(STALE_LISTED).collect();
            format!("provider {refusal} ({})", pods.join(", "))
        })
        .collect();
    let cure = match is_loaded {
        true => {
            "correct the key in the Secret that the ModelProvider names: the pods load it by themselves"
        }
        false => {
            "these pods have not loaded the present files yet, which may hold another key: wait"
        }
    };
    let text = format!("{}; {cure}", refusals.join("; "));
    (!refusals.is_empty()).then(|| {
        verdict(
            ConditionStatus::False,
            StateReason::ProviderKeyRefused,
            text,
        )
    })
}

/// The verdicts on providers and services that do not answer, providers first: without one the
/// agent can do nothing. They name no pods, so that a text changes with the first pod and the last
/// one that report a server. True: the agent is as its spec says, and the server may return by itself.
pub(super) fn outages(pods: &[PodState]) -> Vec<Verdict> {
    let named = |of: fn(&PodState) -> &Vec<String>| {
        let servers: BTreeSet<&str> = pods.iter().flat_map(of).map(String::as_str).collect();
        let named: Vec<&str> = servers.into_iter().take(STALE_LISTED).collect();
        (!named.is_empty()).then(|| named.join(", "))
    };
    let providers = named(|pod| &pod.provider_outages).map(|named| {
        let text = format!(
            "the last requests got no answer from model provider {named}: `kubectl toolcrib audit --requests` shows the address"
        );
        verdict(ConditionStatus::True, StateReason::ProviderUnreachable, text)
    });
    let services = named(|pod| &pod.outages).map(|named| {
        let text = format!(
            "the last calls got no answer from service {named}: `kubectl toolcrib audit --failed` shows the address"
        );
        verdict(ConditionStatus::True, StateReason::ServiceUnreachable, text)
    });
    providers.into_iter().chain(services).collect()
}

/// Reason and note of each Warning about the pods. Reports are trusted only if the operator wrote
/// the files; the lack of a mediator is known in any case.
pub fn pod_warnings(written: &WriteOutcome, pods: &[PodState]) -> Vec<(&'static str, String)> {
    let faults: Vec<_> = match written {
        WriteOutcome::Done => faults(pods).into_iter().chain(outages(pods)).collect(),
        WriteOutcome::Conflict(_) | WriteOutcome::Failed(_) => unusable(pods).into_iter().collect(),
    };
    let warnings = faults.into_iter();
    warnings
        .map(|Verdict(_, reason, note)| (reason.0, note))
        .collect()
}

/// Names of the pods that have been without the current manifest for too long.
pub(super) fn stale(pods: &[PodState]) -> Vec<String> {
    pods.iter()
        .filter(|pod| pod.overdue)
        .filter(|pod| {
            matches!(
                pod.report,
                ReportState::None | ReportState::Behind | ReportState::Rejected(_)
            )
        })
        .map(|pod| pod.name.clone())
        .take(STALE_LISTED)
        .collect()
}

pub(super) fn pods(written: &WriteOutcome, pods: &[PodState]) -> PodsStatus {
    let trusted = !matches!(written, WriteOutcome::Conflict(_));
    PodsStatus {
        running: count(pods.len()),
        in_force: count(
            pods.iter()
                .filter(|pod| trusted && pod.report == ReportState::Loaded)
                .count(),
        ),
        stale: stale(pods),
    }
}
