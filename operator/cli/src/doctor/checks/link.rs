//! The link: mediators reach the leader, and report to it.

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use toolcrib_bounds::count;
use toolcrib_compile::{NetworkSettings, names};
use toolcrib_crds::{Agent, ConditionType, HasConditions as _, StateReason};

use super::named;
use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

/// Label of an EndpointSlice with the name of its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Link);
    let (namespace, service) = (&facts.release.namespace, &facts.release.link_service);
    match &facts.endpoints {
        Err(gap) => findings.gap(gap),
        Ok(slices) if ready(slices, service).is_empty() => findings.absent(
            facts,
            format!("Service {namespace}/{service} has no ready pod: mediators report nothing, and hear of no revocation"),
            format!("find out whether a controller leads, which labels its own pod for this Service: `kubectl get pods -n {namespace} -L {}`", names::LEADER_LABEL),
        ),
        Ok(_) => {}
    }
    let mut reporting = 0;
    match &facts.agents {
        Err(gap) => findings.gap(gap),
        Ok(agents) => {
            for agent in agents {
                silent(agent, &mut findings);
                let pods = agent.status.as_ref().and_then(|it| it.pods.as_ref());
                reporting += pods.map_or(0, |pods| pods.in_force as usize);
            }
        }
    }
    findings.finish(format!(
        "{} reported the current files",
        count(reporting, "pod")
    ))
}

/// The addresses of a Service's ready pods.
pub(super) fn ready(slices: &[EndpointSlice], service: &str) -> Vec<String> {
    let own = slices.iter().filter(|slice| {
        let label = slice.labels().get(SERVICE_LABEL);
        label.map(String::as_str) == Some(service)
    });
    let endpoints = own.flat_map(|slice| slice.endpoints.iter());
    let is_ready = |it: &&Endpoint| {
        let conditions = it.conditions.as_ref();
        // Unknown counts as ready, by the API.
        conditions.and_then(|it| it.ready).unwrap_or(true)
    };
    let ready = endpoints.filter(is_ready);
    ready
        .flat_map(|endpoint| endpoint.addresses.clone())
        .collect()
}

/// Parses the addresses of a Service's ready pods.
pub(super) fn ready_addresses(slices: &[EndpointSlice], service: &str) -> Vec<IpAddr> {
    let texts = ready(slices, service).into_iter();
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Pods of the agent that do not report, by its status.
fn silent(agent: &Agent, findings: &mut Findings) {
    let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
    let pods = agent.status.as_ref().and_then(|it| it.pods.as_ref());
    let stale = pods.map_or(&[][..], |pods| &pods.stale);
    let cure = |pod: &str| {
        format!(
            "let the pods reach port {} of the controller's pods (NetworkPolicies, firewalls); `kubectl logs -n {namespace} {pod} -c {}` says why a report fails",
            NetworkSettings::default().link_port,
            names::MEDIATOR_CONTAINER
        )
    };
    if let Some(first) = stale.first() {
        findings.error(
            format!("Agent {namespace}/{name}: these pods have not reported, or have not loaded the current files, for over two minutes: {}", named(stale)),
            cure(first),
        );
        return;
    }
    let no_report = agent.conditions().iter().find(|condition| {
        condition.type_ == ConditionType::InForce.as_str()
            && condition.reason == StateReason::NoReport.as_str()
    });
    if let Some(no_report) = no_report {
        findings.warning(
            format!("Agent {namespace}/{name}: {}", no_report.message),
            cure("POD"),
        );
    }
}
