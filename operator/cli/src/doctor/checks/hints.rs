//! Refresh hints: they are sent, and kubelets heed them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use toolcrib_compile::names;
use toolcrib_crds::AgentStatus;

use super::rights::allows;
use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

/// Time in which a kubelet refreshes the files after a hint.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Hints);
    if let Err(gap) = &facts.deployments {
        findings.gap(gap);
        return findings.finish("");
    }
    if !facts.release.has_hints {
        return findings
            .finish("off (hints.enabled): a new grant reaches running pods in about a minute");
    }
    let gaps = [
        facts.agent_role.as_ref().err(),
        facts.agents.as_ref().err(),
        facts.pods.as_ref().err(),
    ];
    for gap in gaps.into_iter().flatten() {
        findings.gap(gap);
    }
    if let Ok(Some(role)) = &facts.agent_role
        && !allows(role, "pods", "patch")
    {
        findings.warning(
            format!(
                "ClusterRole {} does not give the controller `patch` on pods: no hint is sent, and a new grant reaches running pods in about a minute",
                facts.release.agent_role()
            ),
            format!(
                "install it again: {} --set hints.enabled=true",
                facts.release.upgrade()
            ),
        );
    }
    let agents = facts.agents.iter().flatten();
    let agents: BTreeMap<(&str, &str), &AgentStatus> = agents
        .filter_map(|agent| {
            let metadata = &agent.metadata;
            let key = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
            Some((key, agent.status.as_ref()?))
        })
        .collect();
    for pod in facts.pods.iter().flatten() {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let label = pod.labels().get(names::AGENT_LABEL);
        if let Some(status) = label.and_then(|agent| agents.get(&(namespace, &**agent))) {
            unheeded(facts, pod, status, &mut findings);
        }
    }
    findings.finish("on (hints.enabled)")
}

/// Reports a pod that got a hint about the current files and has not loaded them since.
fn unheeded(facts: &Facts, pod: &Pod, status: &AgentStatus, findings: &mut Findings) {
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
                "pod {}/{} got a refresh hint at {sent} and has not loaded the new files",
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
