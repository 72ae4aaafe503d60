//! Refresh hints: they are sent, and kubelets heed them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use toolcrib_compile::names;

use super::policies::bound;
use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

/// Time in which a kubelet refreshes the files after a hint.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// The policy without which the controller sends no hint.
const POLICY: &str = "hints";

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Hints);
    if let Err(gap) = &facts.deployments {
        findings.gap(gap);
        return findings.or_ok("");
    }
    if !facts.release.has_hints {
        return findings
            .or_ok("off (hints.enabled): a new grant reaches running pods in about a minute");
    }
    let name = format!("{}-{POLICY}", facts.release.name);
    let effect = "no hint is sent, and a new grant reaches running pods in about a minute";
    if bound(facts, &name) == Some(false) {
        findings.warning(
            format!("refresh hints are on, and ValidatingAdmissionPolicy {name} does not bind the controller to them: {effect}"),
            format!("install the policy and its binding again: {} --set hints.enabled=true", facts.release.upgrade()),
        );
    }
    match &facts.materials {
        Err(gap) => findings.gap(gap),
        Ok(Some(role)) => {
            let rules = role.rules.as_deref().unwrap_or_default();
            let patches = rules.iter().any(|rule| {
                let is_pods = |it: &String| it == "pods";
                rule.resources.iter().flatten().any(is_pods)
                    && rule.verbs.iter().any(|it| it == "patch")
            });
            if !patches {
                findings.warning(
                    format!(
                        "ClusterRole {} does not give the controller `patch` on pods: {effect}",
                        facts.release.materials()
                    ),
                    format!(
                        "install it again: {} --set hints.enabled=true",
                        facts.release.upgrade()
                    ),
                );
            }
        }
        Ok(None) => {}
    }
    for pod in facts.pods.iter().flatten() {
        unheeded(facts, pod, &mut findings);
    }
    findings.or_ok("on, and the policy limits the controller to them")
}

/// A pod that was hinted at the current files, and has not loaded them since.
fn unheeded(facts: &Facts, pod: &Pod, findings: &mut Findings) {
    let Some(hint) = pod.annotations().get(names::REFRESH_ANNOTATION) else {
        return;
    };
    // The first digits of the manifest digest, the time in seconds, and the number of the attempt.
    let mut parts = hint.split('.');
    let (Some(digest), Some(second)) = (parts.next(), parts.next()) else {
        return;
    };
    let Some(sent) = second
        .parse()
        .ok()
        .and_then(|second| Timestamp::from_second(second).ok())
    else {
        return;
    };
    let agents = facts.agents.iter().flatten();
    let mut own = agents.filter(|agent| {
        agent.namespace() == pod.namespace()
            && pod.labels().get(names::AGENT_LABEL) == Some(&agent.name_any())
    });
    let Some(status) = own.next().and_then(|agent| agent.status.as_ref()) else {
        return;
    };
    let is_current = status
        .manifest_digest
        .as_ref()
        .is_some_and(|it| it.starts_with(digest));
    let is_stale = status
        .pods
        .as_ref()
        .is_some_and(|pods| pods.stale.contains(&pod.name_any()));
    if is_current && is_stale && facts.now.duration_since(sent) > PATIENCE {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        findings.warning(
            format!(
                "pod {}/{} was hinted at {sent} that its files have changed, and has not loaded them",
                pod.namespace().unwrap_or_default(),
                pod.name_any()
            ),
            format!(
                "look at the kubelet of node {}, and whether it caches Secrets (configMapAndSecretChangeDetectionStrategy); or delete the pod",
                node.unwrap_or("…")
            ),
        );
    }
}
