//! Name resolution of a mediator: its name servers, and the absolute name of each host.
//!
//! The containers of a pod share `/etc/hosts` and `/etc/resolv.conf`, and a container that runs as
//! root can write both. So a mediator reads neither and resolves names only by this configuration.
//! It never tries a search domain: otherwise a Service in a namespace called `svc` or `com` would
//! answer in place of the name's owner.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::addresses::embedded_v4;

/// The default port of a name server.
const PORT: u16 = 53;

/// The default domain of a cluster.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// Settings for the name resolution of a mediator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    pub cluster_domain: ClusterDomain,
    /// If empty, no name resolves.
    pub name_servers: Vec<NameServer>,
}

/// The cluster's DNS domain: lower case, no dot at either end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterDomain(String);

/// Address and port of a name server, written `IP` or `IP:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NameServer(SocketAddr);

/// The reason for which a text is not a valid [`NameServer`] or [`ClusterDomain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsError {
    NotAnAddress,
    /// Containers of the agent's own pod could answer at this address.
    PodAddress,
    NotADomain,
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DnsError::NotAnAddress => {
                "a name server is an IP address, with a port if it is not 53, like 10.96.0.10 or [fd00::a]:5353"
            }
            DnsError::PodAddress => {
                "a name server at a loopback, unspecified or multicast address would be the agent's own pod: name the cluster's"
            }
            DnsError::NotADomain => "the cluster's domain is a DNS name, like cluster.local",
        })
    }
}

impl std::error::Error for DnsError {}

impl NameServer {
    /// Returns the name server at this address, on the default port.
    pub fn at(ip: IpAddr) -> Self {
        Self(SocketAddr::new(ip, PORT))
    }

    /// Parses a name server, and refuses addresses inside of the pod.
    pub fn outside(text: &str) -> Result<Self, DnsError> {
        let server: NameServer = text.parse()?;
        if server.is_in_pod() {
            return Err(DnsError::PodAddress);
        }
        Ok(server)
    }

    /// Returns true if a container of the pod could answer at the address.
    pub fn is_in_pod(self) -> bool {
        let is_own = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
        let embedded = match self.0.ip() {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => embedded_v4(ip),
        };
        is_own(self.0.ip()) || embedded.is_some_and(|ip| is_own(IpAddr::V4(ip)))
    }

    pub fn address(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for NameServer {
    type Err = DnsError;

    fn from_str(text: &str) -> Result<Self, DnsError> {
        let address = match text.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, PORT),
            Err(_) => text.parse().map_err(|_| DnsError::NotAnAddress)?,
        };
        if address.port() == 0 {
            return Err(DnsError::NotAnAddress);
        }
        Ok(Self(address))
    }
}

impl TryFrom<String> for NameServer {
    type Error = DnsError;

    fn try_from(text: String) -> Result<Self, DnsError> {
        text.parse()
    }
}

impl fmt::Display for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.port() == PORT {
            self.0.ip().fmt(f)
        } else {
            self.0.fmt(f)
        }
    }
}

impl From<NameServer> for String {
    fn from(server: NameServer) -> String {
        server.to_string()
    }
}

impl ClusterDomain {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ClusterDomain {
    fn default() -> Self {
        Self(CLUSTER_DOMAIN.to_owned())
    }
}

impl FromStr for ClusterDomain {
    type Err = DnsError;

    fn from_str(text: &str) -> Result<Self, DnsError> {
        let domain = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        // Leaves room for `name.namespace.svc.`: a whole name has at most 253 characters.
        if domain.len() > 120 || !domain.split('.').all(is_label) {
            return Err(DnsError::NotADomain);
        }
        Ok(Self(domain))
    }
}

impl TryFrom<String> for ClusterDomain {
    type Error = DnsError;

    fn try_from(text: String) -> Result<Self, DnsError> {
        text.parse()
    }
}

impl From<ClusterDomain> for String {
    fn from(domain: ClusterDomain) -> String {
        domain.0
    }
}

/// Returns the name to resolve for `host` in a URL, with a final dot. A name of one label is a
/// Service of `namespace`, and a name that ends in `.svc` belongs to the cluster. Every other name,
/// and every name with a final dot, is absolute already.
pub fn absolute_name(host: &str, namespace: &str, domain: &ClusterDomain) -> String {
    let domain = domain.as_str();
    if host.ends_with('.') {
        return host.to_owned();
    }
    match host.rsplit_once('.') {
        None => format!("{host}.{namespace}.svc.{domain}."),
        Some((_, last)) if last.eq_ignore_ascii_case("svc") => format!("{host}.{domain}."),
        Some(_) => format!("{host}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_one_absolute_name() {
        let domain: ClusterDomain = "Reef.Example.".parse().unwrap();
        for (host, absolute) in [
            ("perch", "perch.pond.svc.reef.example."),
            ("perch.lake.svc", "perch.lake.svc.reef.example."),
            ("PERCH.lake.SVC", "PERCH.lake.SVC.reef.example."),
            (
                "perch-0.perch.lake.svc",
                "perch-0.perch.lake.svc.reef.example.",
            ),
            (
                "perch.lake.svc.reef.example",
                "perch.lake.svc.reef.example.",
            ),
            ("perch.lake", "perch.lake."),
            ("api.example.com", "api.example.com."),
            ("api.example.com.", "api.example.com."),
            ("perch.", "perch."),
            ("perch.lake.svc.", "perch.lake.svc."),
        ] {
            assert_eq!(absolute_name(host, "pond", &domain), absolute, "{host}");
        }
    }

    #[test]
    fn name_servers_are_addresses_outside_of_the_pod() {
        for (text, written) in [
            ("10.96.0.10", "10.96.0.10"),
            ("10.96.0.10:53", "10.96.0.10"),
            ("10.96.0.10:5353", "10.96.0.10:5353"),
            ("fd00::a", "fd00::a"),
            ("[fd00::a]:5353", "[fd00::a]:5353"),
            // The node-local cache, whose address is link-local.
            ("169.254.20.10", "169.254.20.10"),
        ] {
            let server = NameServer::outside(text).unwrap();
            assert_eq!(server.to_string(), written);
            assert_eq!(written.parse(), Ok(server));
        }
        for own in [
            "127.0.0.1",
            "127.0.0.53:53",
            "0.0.0.0",
            "::1",
            "[::]:53",
            "::ffff:127.0.0.1",
            "224.0.0.251",
            "ff02::fb",
        ] {
            assert_eq!(NameServer::outside(own), Err(DnsError::PodAddress), "{own}");
            assert!(own.parse::<NameServer>().unwrap().is_in_pod(), "{own}");
        }
        for text in [
            "",
            "kube-dns",
            "10.96.0.10:0",
            "10.96.0.10:dns",
            "10.96.0.10/32",
        ] {
            assert_eq!(
                text.parse::<NameServer>(),
                Err(DnsError::NotAnAddress),
                "{text}"
            );
        }
    }

    #[test]
    fn a_cluster_s_domain_is_a_name() {
        for text in ["", ".", "a..b", "a b", "é.example", &"a".repeat(64)] {
            assert_eq!(
                text.parse::<ClusterDomain>(),
                Err(DnsError::NotADomain),
                "{text}"
            );
        }
    }

    #[test]
    fn dns_settings_are_text_and_invalid_ones_are_refused() {
        let parse = |text| serde_json::from_str::<Dns>(text);
        let written = r#"{"cluster_domain":"cluster.local","name_servers":["10.96.0.10"]}"#;
        let dns = parse(written).unwrap();
        assert_eq!(serde_json::to_string(&dns).unwrap(), written);
        for bad in [
            r#"{"cluster_domain":"cluster.local","name_servers":["kube-dns"]}"#,
            r#"{"cluster_domain":"a b","name_servers":[]}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
