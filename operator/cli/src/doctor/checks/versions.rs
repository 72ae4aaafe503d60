//! Versions: of the cluster, the operator, this command, and the mediators of running pods.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use toolcrib_bounds::count;
use toolcrib_compile::names;
use toolcrib_crds::{ConditionStatus, ConditionType, HasConditions as _};

use super::named;
use crate::cluster::installation::{CONTROLLER, Facts, WEBHOOK};
use crate::doctor::finding::{Check, Finding, Findings};
use crate::operator;

/// The oldest release of Kubernetes with everything that the chart uses, as in Chart.yaml.
pub(super) const OLDEST: (u32, u32) = (1, 33);
const VERSION_LABEL: &str = "app.kubernetes.io/version";
const OWN: &str = env!("CARGO_PKG_VERSION");

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Versions);
    if release(&facts.server).is_some_and(|server| server < OLDEST) {
        let (major, minor) = OLDEST;
        findings.error(
            format!(
                "the API server is {}, and Toolcrib needs {major}.{minor}",
                facts.server
            ),
            format!("upgrade the cluster to Kubernetes {major}.{minor} or newer"),
        );
    }
    if let Err(gap) = &facts.deployments {
        findings.gap(gap);
    }
    let version = |component| {
        let deployment = facts.deployment(component)?;
        deployment.labels().get(VERSION_LABEL).map(String::as_str)
    };
    let operator = version(CONTROLLER);
    for (component, found) in [(CONTROLLER, operator), (WEBHOOK, version(WEBHOOK))] {
        if let Some(found) = found.filter(|found| *found != OWN) {
            findings.warning(
                format!("the {component} is of release {found}, and this command of {OWN}"),
                format!(
                    "use the kubectl-toolcrib of release {found}, or upgrade the chart: {}",
                    facts.release.upgrade()
                ),
            );
        }
    }
    let mediators = mediators(facts, &mut findings);
    withheld(facts, &mut findings);
    findings.finish(format!(
        "Kubernetes {}, operator {}, this command {OWN}, {mediators}",
        facts.server,
        operator.unwrap_or("not known"),
    ))
}

/// Parses `v1.35.2`.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts
        .next()?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Some((major, minor.parse().ok()?))
}

/// Compares the mediators of running pods with the one that is injected now.
fn mediators(facts: &Facts, findings: &mut Findings) -> String {
    let pods = match &facts.pods {
        Ok(pods) => pods,
        Err(gap) => {
            findings.gap(gap);
            return String::new();
        }
    };
    let running = pods.iter().filter(|pod| is_running(pod));
    let images: Vec<(String, &str)> = running
        .filter_map(|pod| Some((key(pod), mediator_image(pod)?)))
        .collect();
    let Some(injected) = facts.deployment(WEBHOOK).and_then(injected_image) else {
        return count(images.len(), "mediator");
    };
    let others = images
        .iter()
        .filter(|(_, image)| last_part(image) != last_part(&injected));
    let others: Vec<String> = others
        .map(|(pod, image)| format!("{pod} ({image})"))
        .collect();
    if !others.is_empty() {
        findings.warning(
            format!("the webhook injects {injected}, and these pods run another mediator: {}", named(&others)),
            "delete the pods: their Deployment or Job creates new ones with the mediator of this release",
        );
    }
    format!("{} of this release", count(images.len(), "mediator"))
}

fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}

fn mediator_image(pod: &Pod) -> Option<&str> {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let mut mediators = { containers }.filter(|it| it.name == names::MEDIATOR_CONTAINER);
    mediators.next()?.image.as_deref()
}

fn injected_image(webhook: &Deployment) -> Option<String> {
    operator::flags(webhook).remove("--mediator-image")
}

/// The part of an image's name that a registry's mirror keeps.
fn last_part(image: &str) -> &str {
    image.rsplit('/').next().unwrap_or(image)
}

/// Warns about tools that a pod's mediator does not offer, by the message of `InForce`.
fn withheld(facts: &Facts, findings: &mut Findings) {
    for agent in facts.agents.iter().flatten() {
        let in_force = agent.conditions().iter().find(|condition| {
            condition.type_ == ConditionType::InForce.as_str()
                && condition.status == ConditionStatus::True.as_str()
                && !condition.message.is_empty()
        });
        if let Some(in_force) = in_force {
            let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
            findings.warning(
                format!("Agent {namespace}/{name}: {}", in_force.message),
                "if a mediator is older than the operator, delete its pod; else `kubectl describe agent` says what to change",
            );
        }
    }
}
