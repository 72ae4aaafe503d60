//! The chart's admission policies: they exist, are bound, and deny.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::ResourceExt as _;

use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

/// The value of the chart that renders a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    Guard,
    Hints,
}

/// The policies of the chart: the part of the name after the release's, the value that renders it, and the
/// effect of its absence.
pub(super) const POLICIES: [(&str, Condition, &str); 12] = [
    (
        "guard",
        Condition::Guard,
        "an agent's pod can run without a mediator",
    ),
    (
        "labels",
        Condition::Guard,
        "the agent of a running pod can be changed",
    ),
    (
        "secrets",
        Condition::Guard,
        "other containers can mount the files of mediators",
    ),
    (
        "connections",
        Condition::Guard,
        "users can run programs in mediators",
    ),
    ("tokens", Condition::Guard, "users can report for mediators"),
    (
        "compiled-secrets",
        Condition::Guard,
        "users can write the Secrets of mediators",
    ),
    (
        "compiled-configmaps",
        Condition::Guard,
        "users can write the ConfigMaps of agents",
    ),
    (
        "selectors",
        Condition::Always,
        "grants select no agent by labels",
    ),
    ("approvals", Condition::Always, "no approval counts"),
    ("decisions", Condition::Always, "no approval counts"),
    (
        "responder",
        Condition::Always,
        "a responder can change more of an Agent than its suspension",
    ),
    ("hints", Condition::Hints, "no refresh hint is sent"),
];

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Policies);
    let (policies, bindings) = match (&facts.policies, &facts.bindings) {
        (Ok(policies), Ok(bindings)) => (policies, bindings),
        (policies, bindings) => {
            let gaps = [policies.as_ref().err(), bindings.as_ref().err()];
            for gap in gaps.into_iter().flatten() {
                findings.gap(gap);
            }
            return findings.finish("");
        }
    };
    let mut checked = 0;
    for (suffix, condition, effect) in POLICIES {
        if condition == Condition::Hints && !facts.release.has_hints {
            continue;
        }
        checked += 1;
        let name = format!("{}-{suffix}", facts.release.name);
        let upgrade = facts.release.upgrade();
        let install = match condition {
            Condition::Always => format!("install it again: {upgrade}"),
            Condition::Guard => format!("install it again: {upgrade} --set guard.enabled=true"),
            Condition::Hints => format!("install it again: {upgrade} --set hints.enabled=true"),
        };
        let Some(policy) = policies.iter().find(|it| it.name_any() == name) else {
            findings.absent(
                facts,
                format!("ValidatingAdmissionPolicy {name} does not exist: {effect}"),
                install,
            );
            continue;
        };
        let spec = policy.spec.as_ref();
        if spec.and_then(|it| it.failure_policy.as_deref()) == Some("Ignore") {
            findings.error(
                format!("ValidatingAdmissionPolicy {name} has failurePolicy Ignore: {effect} if its evaluation fails"),
                format!("set spec.failurePolicy to Fail, as the chart has it: {upgrade}"),
            );
        }
        let mut bound = bindings_of(bindings, &name).peekable();
        if bound.peek().is_none() {
            findings.error(
                format!("ValidatingAdmissionPolicy {name} has no binding: {effect}"),
                install,
            );
        } else if !bound.any(denies_everywhere) {
            findings.error(
                format!("the ValidatingAdmissionPolicyBinding of {name} does not deny, or not everywhere: {effect}"),
                format!("set its spec.validationActions to [Deny], and remove spec.matchResources: {upgrade}"),
            );
        }
    }
    findings.finish(format!("{checked} policies, all bound"))
}

fn bindings_of<'a>(
    bindings: &'a [ValidatingAdmissionPolicyBinding],
    policy: &str,
) -> impl Iterator<Item = &'a ValidatingAdmissionPolicyBinding> {
    bindings.iter().filter(move |binding| {
        let spec = binding.spec.as_ref();
        spec.and_then(|spec| spec.policy_name.as_deref()) == Some(policy)
    })
}

fn denies_everywhere(binding: &ValidatingAdmissionPolicyBinding) -> bool {
    binding.spec.as_ref().is_some_and(|spec| {
        let mut actions = spec.validation_actions.iter().flatten();
        actions.any(|action| action == "Deny") && spec.match_resources.is_none()
    })
}
