//! The pods with an agent's label: each has a mediator, and its Agent exists.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use toolcrib_bounds::count;
use toolcrib_compile::{ObjectRef, names};

use super::named;
use crate::cluster::PodFacts;
use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Pods);
    let pods = match &facts.pods {
        Ok(pods) => pods,
        Err(gap) => {
            findings.gap(gap);
            return findings.finish("");
        }
    };
    let living: Vec<PodFacts> = pods
        .iter()
        .filter(|pod| !is_over(pod))
        .filter_map(PodFacts::of)
        .collect();
    let bare: Vec<&ObjectRef> = living
        .iter()
        .filter(|pod| !pod.mediated)
        .map(|pod| &pod.pod)
        .collect();
    if let Some(first) = bare.first() {
        findings.error(
            format!("pods with the label {} and no mediator: {}", names::AGENT_LABEL, named(&bare)),
            format!(
                "once the checks of webhook and policies are OK, delete them, so that their Deployment or Job creates new ones: kubectl delete pod {} -n {}",
                first.name, first.namespace
            ),
        );
    }
    match &facts.agents {
        Err(gap) => findings.gap(gap),
        Ok(agents) => {
            let known: BTreeSet<ObjectRef> = agents
                .iter()
                .map(|agent| {
                    ObjectRef::new(agent.namespace().unwrap_or_default(), agent.name_any())
                })
                .collect();
            let is_known = |agent| known.contains(agent) || facts.undecodable.contains_key(agent);
            let lost = living.iter().filter(|pod| !is_known(&pod.agent));
            let lost: Vec<String> = lost
                .map(|pod| format!("{} (Agent {})", pod.pod, pod.agent))
                .collect();
            if !lost.is_empty() {
                findings.error(
                    format!(
                        "pods of an Agent that does not exist, so every call is denied: {}",
                        named(&lost)
                    ),
                    "create the Agent and then delete the pods, or correct the label in the pods' template",
                );
            }
        }
    }
    findings.finish(format!(
        "{}, each with a mediator",
        count(living.len(), "pod")
    ))
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some()
}
