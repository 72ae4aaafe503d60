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
use toolcrib_crds::EgressProtocol;

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
    /// `None`: not known, so every selector may match.
    namespace_labels: Option<Labels>,
    /// `None`: not known, so every selector may match.
    pod_labels: Option<Labels>,
    /// Empty: not known, so every range may contain it.
    addresses: Vec<IpAddr>,
}

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Network);
    let gaps = [
        facts.network_policies.as_ref().err(),
        facts.pods.as_ref().err(),
        facts.objects.as_ref().err(),
        facts.deployments.as_ref().err(),
    ];
    for gap in gaps.into_iter().flatten() {
        findings.gap(gap);
    }
    if facts.deployments.is_err() {
        // The place of the link is a guess, and so are the name servers.
        return findings.finish("");
    }
    let destinations: Vec<Destination> = [Some(link(facts)), name_servers(facts)]
        .into_iter()
        .flatten()
        .collect();
    let mut policies: BTreeMap<&str, Vec<&NetworkPolicy>> = BTreeMap::new();
    for policy in facts.network_policies.iter().flatten() {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        policies.entry(namespace).or_default().push(policy);
    }
    // Pods of one Deployment have the same labels, so one line for each set of policies.
    let mut blocked: BTreeMap<(&str, usize, Vec<&str>), Vec<String>> = BTreeMap::new();
    for pod in facts.pods.iter().flatten() {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let own = policies.get(namespace).map_or(&[][..], Vec::as_slice);
        let restricting = restricting(own, pod);
        if restricting.is_empty() {
            continue;
        }
        for (index, destination) in destinations.iter().enumerate() {
            if !restricting
                .iter()
                .any(|(_, spec)| allows(spec, pod, destination))
            {
                let names = restricting.iter().map(|(name, _)| *name).collect();
                let key = (namespace, index, names);
                blocked.entry(key).or_default().push(pod.name_any());
            }
        }
    }
    for ((namespace, index, policies), pods) in blocked {
        let to = &destinations[index];
        findings.error(
            format!(
                "NetworkPolicy {} in namespace {namespace} blocks {} for pods {}",
                policies.join(", "),
                to.name,
                named(&pods)
            ),
            format!(
                "add an egress rule: to: [{{namespaceSelector: {{matchLabels: {{{}: {}}}}}}}], ports: [{{protocol: {}, port: {}}}]",
                names::NAMESPACE_NAME_LABEL, to.namespace, to.protocol, to.port
            ),
        );
    }
    let policies = facts.network_policies.as_ref().map_or(0, Vec::len);
    findings.finish(format!(
        "no NetworkPolicy blocks a mediator's way to the operator or the name servers ({} checked)",
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
        pod_labels: Some(pod_labels),
        addresses: ready_addresses(endpoints, &facts.release.link_service),
    }
}

/// The cluster's name servers, by the operator's first rule for them. `None`: that rule names no namespace.
fn name_servers(facts: &Facts) -> Option<Destination> {
    let rule = facts
        .objects
        .as_ref()
        .ok()?
        .settings()
        .network
        .dns
        .first()?;
    let port = rule.ports.first()?;
    let namespace = rule.to.iter().find_map(|peer| {
        let labels = peer.namespace_selector.as_ref()?.match_labels.as_ref()?;
        labels.get(names::NAMESPACE_NAME_LABEL)
    })?;
    Some(Destination {
        name: "the name servers",
        protocol: port.protocol.unwrap_or(EgressProtocol::Tcp).name(),
        port: port.port,
        namespace: namespace.clone(),
        namespace_labels: labels_of(facts, namespace),
        pod_labels: None,
        addresses: Vec::new(),
    })
}

fn labels_of(facts: &Facts, namespace: &str) -> Option<Labels> {
    match facts.namespaces.get(namespace) {
        Some(Ok(Some(found))) => Some(found.metadata.labels.clone().unwrap_or_default()),
        Some(Ok(None) | Err(_)) | None => None,
    }
}

/// The names and specs of the policies that restrict the pod's egress.
fn restricting<'a>(
    policies: &[&'a NetworkPolicy],
    pod: &Pod,
) -> Vec<(&'a str, &'a NetworkPolicySpec)> {
    let all = LabelSelector::default();
    let named = policies
        .iter()
        .filter_map(|policy| Some((policy.metadata.name.as_deref()?, policy.spec.as_ref()?)));
    named
        .filter(|(_, spec)| {
            let is_egress = |it: &String| it == "Egress";
            let selector = spec.pod_selector.as_ref().unwrap_or(&all);
            spec.policy_types.iter().flatten().any(is_egress)
                && selector_matches(selector, pod.labels()) != Some(false)
        })
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
    let matches = |selector: &LabelSelector, labels: &Option<Labels>| {
        let matches = |labels| selector_matches(selector, labels) != Some(false);
        labels.as_ref().is_none_or(matches)
    };
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
