//! NetworkPolicies that leave agents' pods no way to the operator's link, or to the name servers.
//!
//! A pod that no policy selects for egress may reach everything; else one rule of one policy must allow it.
//! What cannot be decided here, such as a port by name, counts as allowed: the status of the Agent then
//! shows that its pods do not report.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use toolcrib_bounds::count;
use toolcrib_compile::{NetworkSettings, Range, names, selector_matches};

use super::link::ready_addresses;
use super::named;
use crate::cluster::installation::{CONTROLLER, Facts};
use crate::doctor::finding::{Check, Finding, Findings};

type Labels = BTreeMap<String, String>;

/// A destination of every mediator.
struct Destination {
    name: &'static str,
    protocol: &'static str,
    port: u16,
    namespace: String,
    namespace_labels: Labels,
    pod_labels: Labels,
    /// Empty: not known, so every range may contain it.
    addresses: Vec<IpAddr>,
}

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Network);
    let gaps = [
        facts.network_policies.as_ref().err(),
        facts.pods.as_ref().err(),
    ];
    for gap in gaps.into_iter().flatten() {
        findings.gap(gap);
    }
    let destinations = [link(facts), names_of_cluster(facts)];
    // Pods of one Deployment have the same labels, so one line for each set of policies.
    let mut blocked: BTreeMap<(String, &str, Vec<String>), Vec<String>> = BTreeMap::new();
    let pods = facts.pods.iter().flatten();
    for pod in pods {
        let policies = isolating(facts, pod);
        if policies.is_empty() {
            continue;
        }
        for destination in &destinations {
            if !policies
                .iter()
                .any(|(_, spec)| allows(spec, pod, destination))
            {
                let names = policies.iter().map(|(name, _)| name.clone()).collect();
                let namespace = pod.namespace().unwrap_or_default();
                let key = (namespace, destination.name, names);
                blocked.entry(key).or_default().push(pod.name_any());
            }
        }
    }
    for ((namespace, destination, policies), pods) in blocked {
        let Some(to) = destinations.iter().find(|it| it.name == destination) else {
            continue;
        };
        findings.error(
            format!(
                "NetworkPolicy {} in namespace {namespace} lets these pods not reach {destination}: {}",
                policies.join(", "),
                named(&pods)
            ),
            format!(
                "add an egress rule: to: [{{namespaceSelector: {{matchLabels: {{{}: {}}}}}}}], ports: [{{protocol: {}, port: {}}}]",
                names::NAMESPACE_NAME_LABEL, to.namespace, to.protocol, to.port
            ),
        );
    }
    let policies = facts.network_policies.as_ref().map_or(0, Vec::len);
    findings.or_ok(format!(
        "none of {} is in a mediator's way to the operator and the name servers",
        count(policies, "policy object")
    ))
}

fn link(facts: &Facts) -> Destination {
    let settings = NetworkSettings::default();
    let template = facts.deployment(CONTROLLER).and_then(|it| it.spec.as_ref());
    let labels = template.and_then(|spec| spec.template.metadata.as_ref());
    let mut pod_labels = labels.and_then(|it| it.labels.clone()).unwrap_or_default();
    pod_labels.insert(names::LEADER_LABEL.to_owned(), names::TRUE.to_owned());
    let endpoints = facts.endpoints.as_deref().unwrap_or_default();
    Destination {
        name: "the operator's link",
        protocol: "TCP",
        port: settings.link_port,
        namespace: facts.release.namespace.clone(),
        namespace_labels: labels_of(facts, &facts.release.namespace),
        pod_labels,
        addresses: ready_addresses(endpoints, &facts.release.link_service),
    }
}

/// The cluster's name servers, as the chart's default has them.
fn names_of_cluster(facts: &Facts) -> Destination {
    let selector = |selector: &Option<LabelSelector>| {
        let labels = selector.as_ref().and_then(|it| it.match_labels.clone());
        labels.unwrap_or_default()
    };
    let dns = NetworkSettings::default().dns;
    let peer = dns.first().and_then(|rule| rule.to.first());
    Destination {
        name: "the name servers",
        protocol: "UDP",
        port: dns
            .first()
            .and_then(|rule| rule.ports.first())
            .map_or(53, |port| port.port),
        namespace: names::DNS_NAMESPACE.to_owned(),
        namespace_labels: labels_of(facts, names::DNS_NAMESPACE),
        pod_labels: peer
            .map(|peer| selector(&peer.pod_selector))
            .unwrap_or_default(),
        addresses: Vec::new(),
    }
}

fn labels_of(facts: &Facts, namespace: &str) -> Labels {
    let found = match facts.namespaces.get(namespace) {
        Some(Ok(Some(found))) => found.metadata.labels.clone(),
        Some(Ok(None) | Err(_)) | None => None,
    };
    let mut labels = found.unwrap_or_default();
    labels.insert(names::NAMESPACE_NAME_LABEL.to_owned(), namespace.to_owned());
    labels
}

/// The policies that restrict the pod's egress, by name.
fn isolating<'a>(facts: &'a Facts, pod: &Pod) -> Vec<(String, &'a NetworkPolicySpec)> {
    let policies = facts.network_policies.iter().flatten();
    let own = policies.filter(|policy| policy.namespace() == pod.namespace());
    let restricts = |policy: &&NetworkPolicy| {
        policy.spec.as_ref().is_some_and(|spec| {
            let types = spec.policy_types.iter().flatten();
            let mut types = { types }.map(String::as_str);
            let selector = spec.pod_selector.clone().unwrap_or_default();
            types.any(|it| it == "Egress")
                && selector_matches(&selector, pod.labels()) != Some(false)
        })
    };
    let found = own.filter(restricts);
    found
        .filter_map(|policy| Some((policy.name_any(), policy.spec.as_ref()?)))
        .collect()
}

fn allows(spec: &NetworkPolicySpec, pod: &Pod, to: &Destination) -> bool {
    spec.egress.iter().flatten().any(|rule| {
        let ports = rule.ports.as_deref().unwrap_or_default();
        let peers = rule.to.as_deref().unwrap_or_default();
        (ports.is_empty() || ports.iter().any(|port| has_port(port, to)))
            && (peers.is_empty() || peers.iter().any(|peer| has_peer(peer, pod, to)))
    })
}

fn has_port(port: &NetworkPolicyPort, to: &Destination) -> bool {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let wanted = i32::from(to.port);
    protocol == to.protocol
        && match (&port.port, port.end_port) {
            (None, _) | (Some(IntOrString::String(_)), _) => true,
            (Some(IntOrString::Int(first)), Some(last)) => (*first..=last).contains(&wanted),
            (Some(IntOrString::Int(only)), None) => *only == wanted,
        }
}

fn has_peer(peer: &NetworkPolicyPeer, pod: &Pod, to: &Destination) -> bool {
    if let Some(block) = &peer.ip_block {
        return to.addresses.is_empty() || to.addresses.iter().any(|it| is_in(block, *it));
    }
    let matches =
        |selector: &LabelSelector, labels| selector_matches(selector, labels) != Some(false);
    let in_namespace = match &peer.namespace_selector {
        Some(selector) => matches(selector, &to.namespace_labels),
        // Pods of the policy's own namespace.
        None => pod.namespace().as_deref() == Some(&to.namespace),
    };
    let is_pod = peer.pod_selector.as_ref();
    in_namespace && is_pod.is_none_or(|selector| matches(selector, &to.pod_labels))
}

/// A range that cannot be read counts as one that contains the address.
fn is_in(block: &IPBlock, address: IpAddr) -> bool {
    let contains = |range: &str| Range::parse(range).map(|range| range.contains(address));
    let excepted = block
        .except
        .iter()
        .flatten()
        .any(|it| contains(it) == Ok(true));
    contains(&block.cidr) != Ok(false) && !excepted
}
