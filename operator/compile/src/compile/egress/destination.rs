//! Opens one destination: a Service's pods, one address, or, for a name, a port of every
//! address outside the cluster.
//!
//! A policy is enforced where packets arrive, so a Service means its pods and their ports
//! (a headless one has no port of its own: clients dial the pods with the port they were
//! told).
//!
//! Invariant: a name opens nothing inside the cluster's ranges.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use url::{Host, Url};

use crate::NetworkSettings;
use crate::objects::destination::{Domain, service_of_host};
use crate::objects::facts::PodPort;
use crate::{ObjectRef, Objects, ServiceFacts, names};

/// A URL that the agent's pods must reach.
pub(super) struct Destination {
    /// The object that names it: `surface pond/fish-api`.
    pub who: String,
    pub url: String,
}

impl Destination {
    pub fn new(who: &str, url: &str) -> Self {
        Self {
            who: who.to_owned(),
            url: url.to_owned(),
        }
    }
}

/// The rule for a destination, and the reason if it opens more than the destination. `None`: it
/// opens nothing.
pub(super) struct EgressRule {
    pub rule: Option<NetworkPolicyEgressRule>,
    pub wide: Option<String>,
}

pub(super) fn open(objects: &dyn Objects, agent: &ObjectRef, place: &Destination) -> EgressRule {
    let settings = &objects.settings().network;
    let domain = &objects.settings().cluster_domain;
    let parsed = Url::parse(&place.url).ok();
    let port = parsed.as_ref().and_then(Url::port_or_known_default);
    let (Some(url), Some(port)) = (parsed, port) else {
        return nothing(
            "the address is no URL, so nothing is opened for it: write http:// or https://, a host and a port",
        );
    };
    match url.host() {
        Some(Host::Ipv4(address)) => one(IpAddr::V4(address), port),
        Some(Host::Ipv6(address)) => one(IpAddr::V6(address), port),
        Some(Host::Domain(name)) => match service_of_host(name, Domain::Is(domain)) {
            Some(service) => of_service(objects, agent, &service, port),
            None => outside(
                settings,
                port,
                "is a name, and a NetworkPolicy knows addresses only: its port is open to every address outside the cluster's ranges; name a Service or a literal address to narrow it",
            ),
        },
        None => nothing(
            "the address names no host, so nothing is opened for it: name a Service or a literal address",
        ),
    }
}

fn of_service(
    objects: &dyn Objects,
    agent: &ObjectRef,
    service: &ObjectRef,
    port: u16,
) -> EgressRule {
    let settings = &objects.settings().network;
    let Some(facts) = objects.service(service) else {
        return outside(
            settings,
            port,
            "its Service was not found: the port is open to every address outside the cluster's ranges; name a Service or a literal address to narrow it",
        );
    };
    let (false, false, Some(pod_port)) = (
        facts.external_name,
        facts.selector.is_empty(),
        facts.ports.get(&port),
    ) else {
        return outside(
            settings,
            port,
            "its Service selects no pods by that port: the port is open to every address outside the cluster's ranges; declare what is inside under extraEgress",
        );
    };
    let peer = NetworkPolicyPeer {
        namespace_selector: (service.namespace != agent.namespace)
            .then(|| namespace(&service.namespace)),
        pod_selector: Some(labels(facts.selector.clone())),
        ip_block: None,
    };
    EgressRule {
        rule: Some(ports(vec![peer], reached(&facts, port, pod_port))),
        wide: None,
    }
}

/// Returns the port of packets that reach a pod of the Service.
fn reached(facts: &ServiceFacts, port: u16, pod_port: &PodPort) -> IntOrString {
    if facts.headless {
        return IntOrString::Int(port.into());
    }
    match pod_port {
        PodPort::Number(number) => IntOrString::Int((*number).into()),
        PodPort::Name(name) => IntOrString::String(name.clone()),
    }
}

fn one(address: IpAddr, port: u16) -> EgressRule {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let peer = block(format!("{address}/{bits}"), Vec::new());
    EgressRule {
        rule: Some(rule(vec![peer], port)),
        wide: None,
    }
}

/// Opens a port of every address outside the cluster's ranges.
fn outside(settings: &NetworkSettings, port: u16, why: &str) -> EgressRule {
    let (six, four): (Vec<String>, Vec<String>) = settings
        .cluster_ranges
        .iter()
        .cloned()
        .partition(|range| range.contains(':'));
    let peers = vec![
        block("0.0.0.0/0".to_owned(), four),
        block("::/0".to_owned(), six),
    ];
    EgressRule {
        rule: Some(rule(peers, port)),
        wide: Some(why.to_owned()),
    }
}

fn nothing(why: &str) -> EgressRule {
    EgressRule {
        rule: None,
        wide: Some(why.to_owned()),
    }
}

/// Opens the operator's leading pod, the only one that mediators dial.
pub(super) fn link(settings: &NetworkSettings) -> NetworkPolicyEgressRule {
    let leader = BTreeMap::from([(names::LEADER_LABEL.to_owned(), names::TRUE.to_owned())]);
    let peer = NetworkPolicyPeer {
        namespace_selector: Some(namespace(&settings.operator_namespace)),
        pod_selector: Some(labels(leader)),
        ip_block: None,
    };
    rule(vec![peer], settings.link_port)
}

fn rule(to: Vec<NetworkPolicyPeer>, port: u16) -> NetworkPolicyEgressRule {
    ports(to, IntOrString::Int(port.into()))
}

fn ports(to: Vec<NetworkPolicyPeer>, port: IntOrString) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule {
        to: Some(to),
        ports: Some(vec![NetworkPolicyPort {
            port: Some(port),
            protocol: Some("TCP".to_owned()),
            end_port: None,
        }]),
    }
}

fn block(cidr: String, except: Vec<String>) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        ip_block: Some(IPBlock {
            cidr,
            except: (!except.is_empty()).then_some(except),
        }),
        ..NetworkPolicyPeer::default()
    }
}

fn namespace(name: &str) -> LabelSelector {
    labels(BTreeMap::from([(
        names::NAMESPACE_NAME_LABEL.to_owned(),
        name.to_owned(),
    )]))
}

fn labels(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        match_expressions: None,
    }
}
