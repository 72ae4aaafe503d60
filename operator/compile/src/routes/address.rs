//! Base addresses of surfaces and providers, and the addresses that are refused.
//!
//! Literal addresses that lead to the pod itself, to the node's metadata or to the API server are
//! refused here, in every spelling that `url` accepts. The mediator checks names again, against
//! the address to which it connects.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use toolcrib_crds::{Scheme, ServiceTarget};
use toolcrib_manifest::ClusterDomain;
use toolcrib_manifest::addresses::{embedded_v4, is_refused};
use url::{Host, Url};

use crate::diagnostics::finding::Finding;
use crate::objects::destination::{Destination, Domain, service_of_host};
use crate::{Code, ObjectRef, Objects, ServiceFacts};

/// A base address that has passed the checks of this module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Without a trailing slash.
    pub base_url: String,
    /// Host in the form of a Secret's hosts annotation: a name, `name.namespace.svc`, or a
    /// literal.
    pub host: String,
}

impl Address {
    pub fn destination(&self) -> Destination {
        Destination::of_url(&self.base_url).expect("it was read as an http or https url")
    }
}

/// Returns the address of the Service port that a Surface of `namespace` names.
pub(crate) fn of_target(target: &ServiceTarget, namespace: &str) -> Address {
    let scheme = match target.scheme.unwrap_or(Scheme::Http) {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let host = format!("{}.{namespace}.svc", target.name);
    Address {
        base_url: format!("{scheme}://{host}:{}", target.port),
        host,
    }
}

/// Checks a url that a user wrote. `Err` holds the reason for refusing it, and what to do.
pub(crate) fn of_url(text: &str, refused_hosts: &BTreeSet<String>) -> Result<Address, String> {
    let url = Url::parse(text).map_err(|error| {
        format!("{text:?} is not a url ({error}): write http:// or https:// and a host")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{text:?} must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password: use auth".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!(
            "{text:?} must not have a query or fragment: remove it"
        ));
    }
    let host = match url.host() {
        None => {
            return Err(format!(
                "{text:?} names no host: write http:// or https:// and a host"
            ));
        }
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            if is_refused_name(&name) {
                return Err(format!(
                    "{name:?} is the pod itself, the node's metadata or the API server: name another host"
                ));
            }
            name
        }
        Some(Host::Ipv4(address)) => literal(IpAddr::V4(address))?,
        Some(Host::Ipv6(address)) => literal(IpAddr::V6(address))?,
    };
    if refused_hosts.contains(&host) || refused_hosts.contains(&plain(&host)) {
        return Err(format!(
            "{host:?} is the API server, the operator, or refused by the operator's --refused-hosts: name another host"
        ));
    }
    Ok(Address {
        base_url: url.as_str().trim_end_matches('/').to_owned(),
        host,
    })
}

/// Checks a url of an object in `namespace`, including the Services that it may lead to. The
/// finding's field is empty: the caller knows the url's field.
pub(crate) fn of_url_in(
    objects: &dyn Objects,
    namespace: &str,
    url: &str,
) -> Result<Address, Finding> {
    let refused = |message| Finding::new("", Code::AddressRefused, message);
    let address = of_url(url, &objects.settings().refused_hosts).map_err(refused)?;
    if let Some(literal) = address_of_url(url)
        && let Some(service) = objects.service_at(literal)
    {
        return Err(refused(format!(
            "{} is the address of Service {service}: name the Service",
            address.host
        )));
    }
    let domain = Domain::Is(&objects.settings().cluster_domain);
    let external = services_of_url(namespace, url, domain)
        .into_iter()
        .find(|service| {
            objects
                .service(service)
                .is_some_and(|facts| facts.external_name)
        });
    if let Some(service) = external {
        return Err(Finding::new(
            "",
            Code::ExternalNameRefused,
            format!(
                "leads to Service {service}, an ExternalName, whose author chooses the destination: name the host itself"
            ),
        ));
    }
    Ok(address)
}

/// Returns the Service whose full name is the url's host.
pub(crate) fn service_of_url(url: &str, domain: Domain<'_>) -> Option<ObjectRef> {
    service_of_host(&host_name(url)?, domain)
}

/// Returns the Services that a url of an object in `namespace` may lead to: by full name, or by
/// the short names that pods resolve (`name` in their own namespace, `name.namespace`). Only the
/// cluster knows whether such a Service exists.
pub(crate) fn services_of_url(namespace: &str, url: &str, domain: Domain<'_>) -> Vec<ObjectRef> {
    let Some(host) = host_name(url) else {
        return Vec::new();
    };
    let (name, short) = host.split_once('.').unwrap_or((&host, namespace));
    let plain = |part: &str| !part.is_empty() && !part.contains('.');
    let short = (plain(name) && plain(short)).then(|| ObjectRef::new(short, name));
    service_of_host(&host, domain)
        .into_iter()
        .chain(short)
        .collect()
}

/// Warns of a host of two labels that is also the `name.namespace` of a Service: a mediator
/// resolves it as a public name. The finding's field is empty: the caller knows the url's field.
fn public_name(objects: &dyn Objects, url: &str) -> Option<Finding> {
    // A dot at the end marks a public name.
    let host = host_name(url).filter(|_| !is_absolute(url))?;
    let (name, namespace) = host.split_once('.')?;
    let service = ObjectRef::new(namespace, name);
    // An ExternalName Service is refused by the check of the url, under every name.
    objects
        .service(&service)
        .filter(|facts| !facts.external_name)?;
    Some(Finding::new(
        "",
        Code::NameTakenAsPublic,
        format!(
            "{host:?} is taken as a public name, and not as Service {service}: for the Service write {host}.svc, or in a Surface of its namespace spec.service; for the public host write a dot at its end"
        ),
    ))
}

/// Warns of a url of an object in `namespace` whose host leads elsewhere than it seems, or whose
/// Service in that namespace does not exist or does not have its port. The finding's field is empty:
/// the caller knows the url's field.
pub(crate) fn doubt(objects: &dyn Objects, namespace: &str, url: &str) -> Option<Finding> {
    public_name(objects, url).or_else(|| no_connection(objects, namespace, url))
}

/// Returns the first of an object's findings that is about an address, after its field.
pub(crate) fn first_wrong(findings: &[Finding]) -> Option<String> {
    const OF_ADDRESSES: [Code; 5] = [
        Code::AddressRefused,
        Code::ExternalNameRefused,
        Code::NameTakenAsPublic,
        Code::UrlPortNotFound,
        Code::UrlServiceNotFound,
    ];
    let mut findings = findings.iter();
    let wrong = findings.find(|finding| OF_ADDRESSES.contains(&finding.code))?;
    Some(format!("{}: {}", wrong.field, wrong.message))
}

/// Returns the Service of `namespace` that a url of an object in it names, and the port. Other
/// namespaces' Services are left out: the operator may read all of them, and a warning about one would
/// tell a tenant what others have.
pub fn own_service_of_url(
    namespace: &str,
    url: &str,
    domain: &ClusterDomain,
) -> Option<(ObjectRef, u16)> {
    let port = Url::parse(url).ok()?.port_or_known_default()?;
    let host = host_name(url)?;
    let short = || (!host.contains('.')).then(|| ObjectRef::new(namespace, host.clone()));
    let service = service_of_host(&host, Domain::Is(domain)).or_else(short)?;
    (service.namespace == namespace).then_some((service, port))
}

/// Warns of a url whose Service does not exist, or does not have its port. A headless Service leads to
/// its pods, which may listen on other ports.
fn no_connection(objects: &dyn Objects, namespace: &str, url: &str) -> Option<Finding> {
    let domain = &objects.settings().cluster_domain;
    let (service, port) = own_service_of_url(namespace, url, domain)?;
    let Some(facts) = objects.service(&service) else {
        let message = format!(
            "calls cannot connect: Service {service} not found: correct the url, or create the Service"
        );
        return Some(Finding::new("", Code::UrlServiceNotFound, message));
    };
    if facts.headless || facts.external_name || facts.ports.contains_key(&port) {
        return None;
    }
    let message = no_such_port(&service, &facts, port);
    let message = format!("calls cannot connect: {message}");
    Some(Finding::new("", Code::UrlPortNotFound, message))
}

/// Returns the message about a port that a Service of the own namespace does not have.
pub(crate) fn no_such_port(service: &ObjectRef, facts: &ServiceFacts, port: u16) -> String {
    let ports: Vec<String> = facts.ports.keys().map(u16::to_string).collect();
    let ports = match ports.is_empty() {
        true => "none".to_owned(),
        false => ports.join(", "),
    };
    format!("Service {service} has no TCP port {port} (it has {ports}): correct the port")
}

/// Whether the host of a url ends with a dot.
fn is_absolute(url: &str) -> bool {
    let url = Url::parse(url).ok();
    url.is_some_and(|url| url.host_str().is_some_and(|host| host.ends_with('.')))
}

/// Whether a url's host may resolve to something else in each namespace. A host of one label is a
/// Service there. A host of two labels may be a pod of a headless Service (`hostname.service`),
/// which pods' search domains find first. With https such a pod would need a certificate for the
/// name. A host with a dot at the end is resolved without search domains.
pub(crate) fn is_relative(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let Some(Host::Domain(host)) = url.host() else {
        return false;
    };
    match host.trim_end_matches('.').split('.').count() {
        1 => true,
        2 => url.scheme() == "http" && !host.ends_with('.'),
        _ => false,
    }
}

/// Returns the host of a url if it is a name, in lower case and without a dot at the end.
fn host_name(url: &str) -> Option<String> {
    match Url::parse(url).ok()?.host()? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_ascii_lowercase()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

/// Returns the host of a url if it is a literal address, which may be a Service's.
pub(crate) fn address_of_url(url: &str) -> Option<IpAddr> {
    match Url::parse(url).ok()?.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(reached(address)),
    }
}

/// Converts an IPv6 literal to the address that it leads to.
pub(crate) fn reached(address: Ipv6Addr) -> IpAddr {
    embedded_v4(address).map_or(IpAddr::V6(address), IpAddr::V4)
}

/// Converts a literal host to the address that it leads to; other hosts stay as they are.
fn plain(host: &str) -> String {
    host.parse()
        .map_or_else(|_| host.to_owned(), |address| reached(address).to_string())
}

fn literal(address: IpAddr) -> Result<String, String> {
    if is_refused(address) {
        Err(format!(
            "{address} is a loopback, link-local, metadata or otherwise reserved address: name another host"
        ))
    } else {
        Ok(address.to_string())
    }
}

fn is_refused_name(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "localhost",
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.azure.internal",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
        "instance-data",
        "instance-data.ec2.internal",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    NAMES.contains(&name)
        || name.ends_with(".localhost")
        || name.starts_with("kubernetes.default.svc.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn taken(text: &str, base_url: &str, host: &str) {
        let expected = Address {
            base_url: base_url.to_owned(),
            host: host.to_owned(),
        };
        assert_eq!(of_url(text, &BTreeSet::new()), Ok(expected));
    }

    #[test]
    fn short_names_depend_on_the_namespace() {
        for (url, relative) in [
            ("http://perch:8080", true),
            ("https://perch", true),
            ("http://perch.", true),
            ("http://perch.lake:8080", true),
            ("https://perch.test", false),
            ("http://perch.test.", false),
            ("http://perch.lake.svc", false),
            ("http://192.0.2.7", false),
        ] {
            assert_eq!(is_relative(url), relative, "{url}");
        }
    }

    #[test]
    fn urls_are_read_into_one_form() {
        taken(
            "https://API.Fish.test/",
            "https://api.fish.test",
            "api.fish.test",
        );
        taken(
            "https://api.fish.test/v1/",
            "https://api.fish.test/v1",
            "api.fish.test",
        );
        taken("http://10.1.2.3:8080", "http://10.1.2.3:8080", "10.1.2.3");
        taken(
            "http://model.pond.svc:80/v1",
            "http://model.pond.svc/v1",
            "model.pond.svc",
        );
    }

    #[test]
    fn addresses_of_the_pod_the_node_and_the_cluster_are_refused() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "0xa9fea9fe",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::169.254.169.254]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "[fd00:ec2::23]",
            "[fd20:ce::254]",
            "[fd00:c1::a9fe:a9fe]",
            "[fd00:42::42]",
            "metadata.goog",
            "metadata.azure.internal",
            "instance-data.ec2.internal",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "localhost",
            "LOCALHOST.",
            "fish.localhost",
            "metadata.google.internal",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "１２７.0.0.1",
        ] {
            let url = format!("http://{host}/x");
            assert!(of_url(&url, &BTreeSet::new()).is_err(), "{url}");
        }
        let refused = ["toolcrib.system.svc", "10.96.0.1"].map(str::to_owned);
        let refused = BTreeSet::from(refused);
        for host in [
            "toolcrib.system.svc:8443",
            "10.96.0.1",
            "[::ffff:10.96.0.1]:443",
        ] {
            let url = format!("https://{host}");
            assert!(of_url(&url, &refused).is_err(), "{url}");
        }
    }

    #[test]
    fn services_are_recognized_by_their_names() {
        for (url, service) in [
            ("http://model.pond.svc:80/v1", Some("pond/model")),
            (
                "https://MODEL.pond.svc.cluster.local./v1",
                Some("pond/model"),
            ),
            ("https://model.pond.svc.reef.example", Some("pond/model")),
            ("https://model.pond.svc.example.test", None),
            ("https://a.model.pond.svc", None),
            ("https://.pond.svc", None),
            ("http://model:8080", Some("reef/model")),
            ("http://Model.pond.:8080", Some("pond/model")),
            ("http://10.1.2.3", None),
            ("http://[fd00::1]", None),
        ] {
            let domain = "reef.example".parse().expect("a domain");
            let found: Vec<String> = services_of_url("reef", url, Domain::Is(&domain))
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, Vec::from_iter(service), "{url}");
        }
    }

    #[test]
    fn an_unknown_cluster_domain_matches_every_domain() {
        let url = "https://model.pond.svc.example.test";
        let service = service_of_url(url, Domain::Any);
        assert_eq!(service, Some(ObjectRef::new("pond", "model")));
        assert_eq!(service_of_url("https://model.pond.test", Domain::Any), None);
    }

    #[test]
    fn an_external_name_is_refused_by_its_full_name_in_every_domain() {
        const POND: &str = "\
apiVersion: v1
kind: Service
metadata: {name: alias, namespace: pond}
spec: {type: ExternalName, externalName: evil.test, ports: [{port: 80}]}
";
        let refused = |domain: &str, url: &str| {
            let settings = crate::Settings {
                cluster_domain: domain.parse().expect("a domain"),
                ..crate::Settings::default()
            };
            let inputs = crate::load([("pond.yaml".to_owned(), POND.to_owned())], settings).inputs;
            let address = of_url_in(&inputs, "pond", url);
            address.is_err_and(|finding| finding.code == Code::ExternalNameRefused)
        };
        for (domain, url, expected) in [
            ("reef.example", "http://alias.pond.svc.reef.example", true),
            (
                "reef.example",
                "http://ALIAS.pond.svc.Reef.Example.:80",
                true,
            ),
            ("reef.example", "http://alias.pond.svc", true),
            ("reef.example", "http://alias.pond.svc.cluster.local", true),
            ("cluster.local", "http://alias.pond.svc.cluster.local", true),
            ("cluster.local", "http://alias.pond.svc.reef.example", false),
        ] {
            assert_eq!(refused(domain, url), expected, "{domain}: {url}");
        }
    }

    #[test]
    fn urls_with_credentials_query_or_fragment_are_refused() {
        for url in [
            "ftp://fish.test",
            "fish.test",
            "https://",
            "https://otter:secret@fish.test",
            "https://fish.test/?x=1",
            "https://fish.test/#x",
        ] {
            assert!(of_url(url, &BTreeSet::new()).is_err(), "{url}");
        }
    }
}
