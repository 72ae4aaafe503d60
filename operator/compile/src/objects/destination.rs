//! A destination of requests: scheme, host and port, and the Service that a host names.
//!
//! Not here: which destinations objects may name (`address`), and which an owner allows
//! (`allowlist`).

use std::fmt;

use toolcrib_crds::Scheme;
use toolcrib_manifest::ClusterDomain;
use toolcrib_manifest::dns::CLUSTER_DOMAIN;
use url::{Host, Url};

use crate::ObjectRef;

/// The destination of a request: a url without its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Destination {
    pub host: String,
    pub scheme: Scheme,
    pub port: u16,
}

impl Destination {
    /// `None`: not an http or https url with a host.
    pub fn of_url(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let host = match url.host()? {
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
            Host::Domain(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                short_name(name, &ClusterDomain::default())
            }
        };
        Some(Self {
            host,
            scheme,
            port: url.port_or_known_default()?,
        })
    }

    pub fn service(&self) -> Option<ObjectRef> {
        service_of_host(&self.host, Domain::Is(&ClusterDomain::default()))
    }

    /// The same destination in a cluster of this domain.
    pub fn within(&self, domain: &ClusterDomain) -> Self {
        Self {
            host: short_name(self.host.clone(), domain),
            ..*self
        }
    }
}

impl fmt::Display for Destination {
    /// Writes the entry that allows this destination alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual) = match self.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]", self.host)?;
        } else {
            write!(f, "{scheme}://{}", self.host)?;
        }
        match self.port == usual {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}

/// Returns `NAME.NAMESPACE.svc` for a Service, with or without the cluster's domain, and any other
/// name unchanged.
pub(crate) fn short_name(host: String, domain: &ClusterDomain) -> String {
    match service_of_host(&host, Domain::Is(domain)) {
        Some(service) => service_host(&service),
        None => host,
    }
}

pub(crate) fn service_host(service: &ObjectRef) -> String {
    format!("{}.{}.svc", service.name, service.namespace)
}

/// Returns the Service of a pod's name: `pod.name.namespace.svc`, as a headless Service gives them.
pub(crate) fn service_of_pod_host(host: &str, domain: Domain<'_>) -> Option<ObjectRef> {
    let (_, service) = host.split_once('.')?;
    service_of_host(service, domain)
}

/// The domain that may follow `name.namespace.svc` in the full name of a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Domain<'a> {
    /// The cluster's domain, or the usual one: a Service stays one when the setting is wrong.
    Is(&'a ClusterDomain),
    /// Any domain, for callers that do not know the cluster's: reading an extra Service changes
    /// nothing.
    Any,
}

/// Returns the Service whose full name the host is: `name.namespace.svc`, alone or before the
/// cluster's domain.
pub(crate) fn service_of_host(host: &str, domain: Domain<'_>) -> Option<ObjectRef> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let mut parts = host.splitn(4, '.');
    let (name, namespace, svc) = (parts.next()?, parts.next()?, parts.next()?);
    let is_known = parts.next().is_none_or(|rest| match domain {
        Domain::Is(domain) => rest == domain.as_str() || rest == CLUSTER_DOMAIN,
        Domain::Any => true,
    });
    let is_service = svc == "svc" && !name.is_empty() && !namespace.is_empty();
    (is_service && is_known).then(|| ObjectRef::new(namespace, name))
}
