//! The operator's settings, the same for every agent. Compile reads them, so compiling elsewhere
//! needs the same settings for the same result.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use toolcrib_crds::{EgressPeer, EgressPort, EgressProtocol, EgressRule, IpBlock};

use toolcrib_manifest::dns::CLUSTER_DOMAIN;
use toolcrib_manifest::{ClusterDomain, Dns, LinkConfig};

use crate::names;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `None`: compiled files name no link.
    pub link: Option<LinkConfig>,
    /// How mediators resolve names. `None`: compiled files do not say, and the mediator of `run`
    /// uses the resolver of its machine.
    pub dns: Option<Dns>,
    /// The domain after `name.namespace.svc` in the full name of a Service.
    pub cluster_domain: ClusterDomain,
    /// Hosts of the API server and of the operator itself, and those that its flag names,
    /// which no object may have. In lower case.
    pub refused_hosts: BTreeSet<String>,
    /// Settings of NetworkPolicies beyond the destinations that objects name.
    pub network: NetworkSettings,
    /// Host of the operator's own service for agents, if it runs. Its certificate is signed by the
    /// operator's authority, the same as the link's.
    pub claw_api_host: Option<String>,
    /// Whether grants may select agents by labels.
    pub agent_selectors: AgentSelectors,
}

/// Whether the cluster refuses the labels that grants select by to users who may not create
/// ToolGrants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSelectors {
    /// An admission policy refuses them, or, for files, is assumed to.
    Guarded,
    /// It is not known that a policy refuses them, for this reason. Selectors select no agent.
    Off(String),
}

impl Default for Settings {
    /// The chart's default.
    fn default() -> Self {
        let network = NetworkSettings::default();
        let services = ["toolcrib-link", "toolcrib-webhook"];
        Self {
            link: None,
            dns: None,
            cluster_domain: ClusterDomain::default(),
            refused_hosts: refused_hosts(
                &network.operator_namespace,
                services,
                &ClusterDomain::default(),
                &[],
            ),
            network,
            claw_api_host: None,
            agent_selectors: AgentSelectors::Guarded,
        }
    }
}

/// The operator's network settings.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkSettings {
    /// The operator's namespace; its leader's pod serves the link.
    pub operator_namespace: String,
    /// Port of the link in that pod.
    pub link_port: u16,
    /// Egress rules for the name servers.
    pub dns: Vec<EgressRule>,
    /// Address ranges inside the cluster, which a url's host name never opens.
    pub cluster_ranges: Vec<String>,
    /// URL of the OpenTelemetry receiver of mediators. `None`: there is none.
    pub collector: Option<String>,
}

/// Address ranges that are never public: private, shared (pods of some clouds), link-local,
/// loopback.
const CLUSTER_RANGES: [&str; 9] = [
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

impl Default for NetworkSettings {
    /// The chart's default.
    fn default() -> Self {
        Self {
            operator_namespace: "toolcrib-system".to_owned(),
            link_port: 8443,
            dns: default_dns(),
            cluster_ranges: CLUSTER_RANGES.map(str::to_owned).into(),
            collector: None,
        }
    }
}

/// Opens the name servers of most clusters, and the cache on the node.
fn default_dns() -> Vec<EgressRule> {
    let selector = |key: &str, value: &str| {
        Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
            match_expressions: None,
        })
    };
    let port = |protocol| EgressPort {
        port: 53,
        end_port: None,
        protocol: Some(protocol),
    };
    vec![EgressRule {
        to: vec![
            EgressPeer {
                ip_block: None,
                namespace_selector: selector(names::NAMESPACE_NAME_LABEL, names::DNS_NAMESPACE),
                pod_selector: selector("k8s-app", "kube-dns"),
            },
            EgressPeer {
                ip_block: Some(IpBlock {
                    cidr: "169.254.20.10/32".to_owned(),
                    except: Vec::new(),
                }),
                namespace_selector: None,
                pod_selector: None,
            },
        ],
        ports: vec![port(EgressProtocol::Udp), port(EgressProtocol::Tcp)],
    }]
}

/// Returns the hosts of the API server, of the operator's own Services, and of its flag.
pub fn refused_hosts(
    operator_namespace: &str,
    services: [&str; 2],
    cluster_domain: &ClusterDomain,
    named: &[String],
) -> BTreeSet<String> {
    let mut refused: BTreeSet<String> = named
        .iter()
        .map(|host| host.trim().trim_end_matches('.').to_ascii_lowercase())
        .filter(|host| !host.is_empty())
        .collect();
    refused.insert("kubernetes".to_owned());
    let own = services.map(|service| format!("{service}.{operator_namespace}"));
    for host in own.into_iter().chain(["kubernetes.default".to_owned()]) {
        // The usual domain is refused too, as `address::service_of_host` reads it everywhere.
        for domain in [cluster_domain.as_str(), CLUSTER_DOMAIN] {
            refused.insert(format!("{host}.svc.{domain}"));
        }
        refused.insert(format!("{host}.svc"));
        refused.insert(host);
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_refused_in_every_spelling() {
        let named = ["Vault.Example.com.".to_owned(), " ".to_owned()];
        let domain = "reef.example".parse().unwrap();
        let refused = refused_hosts("den", ["link", "hook"], &domain, &named);
        for host in [
            "vault.example.com",
            "kubernetes.default.svc.cluster.local",
            "kubernetes.default.svc.reef.example",
            "link.den.svc",
            "link.den",
            "hook.den.svc.cluster.local",
        ] {
            assert!(refused.contains(host), "{host} of {refused:?}");
        }
        assert!(!refused.contains(""));
    }
}
