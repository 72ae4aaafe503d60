//! Where a credential may go: the one rule, for compile, status, admission and the CLI.
//!
//! The owner of a Secret writes two annotations. [`names::HOSTS_ANNOTATION`] lists hosts:
//! `scheme://host[:port]` allows that alone, a bare `NAME.NAMESPACE.svc` allows the Service on
//! each port that it declares, and any other bare host allows https on port 443.
//! [`names::CA_ANNOTATION`] lists the CA bundles that may vouch for those hosts, by ConfigMap
//! or by SHA-256; without it the public roots alone do.
//!
//! A [`Route`] is what the author of a Surface or ModelProvider asks for. It needs
//!
//! - each destination in the hosts;
//! - its private CA in the CAs, unless bare Service names cover all that is reached over TLS: a
//!   bare Service name allows plain http too, so a CA gives nobody more;
//! - its proxy in the hosts, where the proxy can read what it passes on: with plain http, and
//!   with a private CA. TLS under the public roots is a tunnel.
//!
//! Not here: which hosts nobody may name ([`crate::address`]).

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use toolcrib_crds::Scheme;
use toolcrib_manifest::ClusterDomain;
use url::{Host, Url};

use crate::address::{Domain, service_of_host};
use crate::digest::sha256;
use crate::{Code, ObjectRef, Objects, SecretFacts, names};

/// Entries of one annotation that are read. An annotation has room for far more than any
/// Secret has destinations, and each compilation reads it.
const MAX_ENTRIES: usize = 256;
/// `https://`, a name of 253 characters and a port.
const MAX_ENTRY: usize = 267;
/// Entries of one kind that a message lists.
const MAX_LISTED: usize = 5;
/// Characters of an entry that is not read.
const MAX_SHOWN: usize = 64;
/// Longer commands are not shown: a message is part of a status.
const MAX_COMMAND: usize = 1024;

/// Where a request goes: what a url says, without its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Destination {
    host: String,
    scheme: Scheme,
    port: u16,
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

    fn service(&self) -> Option<ObjectRef> {
        service_of_host(&self.host, Domain::Is(&ClusterDomain::default()))
    }

    /// The same destination in a cluster of this domain.
    fn within(&self, domain: &ClusterDomain) -> Self {
        Self {
            host: short_name(self.host.clone(), domain),
            ..*self
        }
    }

    /// The shortest entry that allows it.
    fn entry(&self, objects: &dyn Objects) -> HostEntry {
        let destination = self.within(&objects.settings().cluster_domain);
        let bare = HostEntry::Bare(destination.host.clone());
        if bare.allows(&destination, objects) {
            bare
        } else {
            HostEntry::Exact(destination)
        }
    }
}

impl fmt::Display for Destination {
    /// As an entry that allows this destination and no other one.
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

/// `NAME.NAMESPACE.svc` for a Service, however much of the cluster's domain is written; another
/// name as it is.
fn short_name(host: String, domain: &ClusterDomain) -> String {
    match service_of_host(&host, Domain::Is(domain)) {
        Some(service) => service_host(&service),
        None => host,
    }
}

fn service_host(service: &ObjectRef) -> String {
    format!("{}.{}.svc", service.name, service.namespace)
}

/// The entry of [`names::HOSTS_ANNOTATION`] that allows what a url leads to, as short as it
/// can be without knowing the ports of a Service. `None`: not an http or https url with a host.
pub fn host_entry(url: &str) -> Option<String> {
    let destination = Destination::of_url(url)?;
    let is_usual = destination.scheme == Scheme::Https && destination.port == 443;
    Some(if is_usual || destination.service().is_some() {
        destination.host
    } else {
        destination.to_string()
    })
}

/// One entry of [`names::HOSTS_ANNOTATION`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostEntry {
    Bare(String),
    Exact(Destination),
}

impl HostEntry {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ENTRY {
            return None;
        }
        let is_plain = |c: char| c.is_alphanumeric() || "-._:/[]".contains(c);
        if !text.chars().all(is_plain) {
            return None;
        }
        if text.contains("://") {
            let url = Url::parse(text).ok()?;
            return (url.path() == "/")
                .then(|| Destination::of_url(text).map(Self::Exact))
                .flatten();
        }
        let url = match text.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("https://[{address}]"),
            // A port without a scheme says too little.
            Ok(IpAddr::V4(_)) | Err(_) if text.contains('/') || has_port(text) => return None,
            Ok(IpAddr::V4(_)) | Err(_) => format!("https://{text}"),
        };
        Destination::of_url(&url).map(|destination| Self::Bare(destination.host))
    }

    fn allows(&self, destination: &Destination, objects: &dyn Objects) -> bool {
        let domain = &objects.settings().cluster_domain;
        let destination = &destination.within(domain);
        match self {
            Self::Exact(exact) => &exact.within(domain) == destination,
            Self::Bare(host) if short_name(host.clone(), domain) != destination.host => false,
            Self::Bare(_) => match destination.service() {
                Some(service) => declares(objects, &service, destination.port),
                None => destination.scheme == Scheme::Https && destination.port == 443,
            },
        }
    }
}

impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare(host) => f.write_str(host),
            Self::Exact(destination) => destination.fmt(f),
        }
    }
}

/// Whether anything follows the name, or the bracket of an IPv6 address, after a colon.
fn has_port(text: &str) -> bool {
    text.rsplit(']').next().unwrap_or(text).contains(':')
}

/// A Service that is not known answers on no port, or is one of other files.
fn declares(objects: &dyn Objects, service: &ObjectRef, port: u16) -> bool {
    objects
        .service(service)
        .is_none_or(|facts| facts.ports.contains_key(&port))
}

/// A CA bundle that stands in a ConfigMap, chosen by whoever wrote the Surface or ModelProvider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PrivateCa {
    pub config_map: ObjectRef,
    pub key: String,
    /// SHA-256 of the bundle, in hex.
    digest: String,
}

impl PrivateCa {
    pub fn new(config_map: ObjectRef, key: &str, pem: &str) -> Self {
        Self {
            config_map,
            key: key.to_owned(),
            digest: sha256(pem.as_bytes()),
        }
    }

    fn entry(&self, secret_namespace: &str) -> CaEntry {
        let foreign = self.config_map.namespace != secret_namespace;
        CaEntry::ConfigMap {
            namespace: foreign.then(|| self.config_map.namespace.clone()),
            name: self.config_map.name.clone(),
            key: self.key.clone(),
        }
    }
}

/// One entry of [`names::CA_ANNOTATION`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CaEntry {
    /// The SHA-256 of a bundle, in hex, wherever it stands.
    Digest(String),
    /// Whatever the key holds: for owners who trust those who may write the ConfigMap.
    ConfigMap {
        /// `None`: the Secret's.
        namespace: Option<String>,
        name: String,
        key: String,
    },
}

impl CaEntry {
    fn parse(text: &str) -> Option<Self> {
        if let Some(digest) = text.strip_prefix("sha256:") {
            let is_hex = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            return is_hex.then(|| Self::Digest(digest.to_ascii_lowercase()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        let is_name = |part: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            !part.is_empty() && part.len() <= 253 && part.chars().all(plain)
        };
        if !parts.iter().all(is_name) {
            return None;
        }
        let (namespace, name, key) = match parts[..] {
            [name, key] => (None, name, key),
            [namespace, name, key] => (Some(namespace.to_owned()), name, key),
            _ => return None,
        };
        Some(Self::ConfigMap {
            namespace,
            name: name.to_owned(),
            key: key.to_owned(),
        })
    }

    fn allows(&self, ca: &PrivateCa, secret_namespace: &str) -> bool {
        match self {
            Self::Digest(digest) => *digest == ca.digest,
            Self::ConfigMap {
                namespace,
                name,
                key,
            } => {
                let namespace = namespace.as_deref().unwrap_or(secret_namespace);
                namespace == ca.config_map.namespace
                    && *name == ca.config_map.name
                    && *key == ca.key
            }
        }
    }
}

impl fmt::Display for CaEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => write!(f, "sha256:{digest}"),
            Self::ConfigMap {
                namespace,
                name,
                key,
            } => {
                if let Some(namespace) = namespace {
                    write!(f, "{namespace}/")?;
                }
                write!(f, "{name}/{key}")
            }
        }
    }
}

/// What a Secret's annotations allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist {
    hosts: BTreeSet<HostEntry>,
    cas: BTreeSet<CaEntry>,
    /// Texts among the entries that allow nothing; the first few.
    malformed_hosts: Vec<String>,
    malformed_cas: Vec<String>,
}

impl Allowlist {
    /// From the two annotations; empty where one is missing.
    pub fn parse(hosts: &str, cas: &str) -> Self {
        let (hosts, malformed_hosts) = parse_entries(hosts, HostEntry::parse);
        let (cas, malformed_cas) = parse_entries(cas, CaEntry::parse);
        Self {
            hosts,
            cas,
            malformed_hosts,
            malformed_cas,
        }
    }

    /// Entries of [`names::HOSTS_ANNOTATION`], in order.
    pub fn hosts(&self) -> impl Iterator<Item = String> {
        self.hosts.iter().map(HostEntry::to_string)
    }

    /// An allowlist of exactly these routes.
    pub(crate) fn of_routes(routes: impl Iterator<Item = Route>) -> Self {
        let mut all = Self::default();
        for route in routes {
            all.hosts
                .extend(route.needed().cloned().map(HostEntry::Exact));
            let digest = route.ca.iter().map(|ca| CaEntry::Digest(ca.digest.clone()));
            all.cas.extend(digest);
        }
        all
    }

    fn allows(&self, destination: &Destination, objects: &dyn Objects) -> bool {
        self.hosts
            .iter()
            .any(|entry| entry.allows(destination, objects))
    }

    /// Whether a bare Service name covers it, which allows plain http as well.
    fn trusts_service(&self, destination: &Destination, objects: &dyn Objects) -> bool {
        destination.service().is_some()
            && HostEntry::Bare(destination.host.clone()).allows(destination, objects)
            && self
                .hosts
                .contains(&HostEntry::Bare(destination.host.clone()))
    }

    fn missing_ca<'r>(
        &self,
        route: &'r Route,
        secret_namespace: &str,
        objects: &dyn Objects,
    ) -> Option<&'r PrivateCa> {
        let ca = route.ca.as_ref()?;
        let mut over_tls = route
            .needed()
            .filter(|destination| destination.scheme == Scheme::Https);
        let needed = over_tls.any(|destination| !self.trusts_service(destination, objects));
        let named = self
            .cas
            .iter()
            .any(|entry| entry.allows(ca, secret_namespace));
        (needed && !named).then_some(ca)
    }
}

/// Entries are separated by commas, spaces or line breaks.
fn parse_entries<T: Ord>(
    text: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> (BTreeSet<T>, Vec<String>) {
    let mut entries = BTreeSet::new();
    let mut malformed = Vec::new();
    let parts = text.split([',', ' ', '\n', '\r', '\t']);
    for part in parts.filter(|part| !part.is_empty()).take(MAX_ENTRIES) {
        match parse(part) {
            Some(entry) => {
                entries.insert(entry);
            }
            None if malformed.len() < MAX_LISTED => {
                malformed.push(part.chars().take(MAX_SHOWN).collect());
            }
            None => {}
        }
    }
    (entries, malformed)
}

/// Where a Surface or ModelProvider would have a credential sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub destinations: BTreeSet<Destination>,
    pub ca: Option<PrivateCa>,
    pub proxy: Option<Destination>,
}

impl Route {
    /// Every destination that can read what is sent.
    fn needed(&self) -> impl Iterator<Item = &Destination> {
        let is_plain = |destination: &Destination| destination.scheme == Scheme::Http;
        let proxy_reads = self.ca.is_some() || self.destinations.iter().any(is_plain);
        let proxy = self.proxy.iter().filter(move |_| proxy_reads);
        self.destinations.iter().chain(proxy)
    }

    /// The note that is kept beside a value that was sent this way. The same texts, or an entry that
    /// allows them, must stand there for the value to be used again while its Secret cannot
    /// be read.
    pub fn record(&self) -> BTreeSet<String> {
        let ca = self.ca.as_ref();
        let ca = ca.map(|ca| format!("ca {}/{} sha256:{}", ca.config_map, ca.key, ca.digest));
        self.needed()
            .map(Destination::to_string)
            .chain(ca)
            .collect()
    }
}

/// Whether what was noted beside a value ([`Route::record`]) covers `route`. Releases before
/// this one noted bare hosts.
pub(crate) fn recorded(record: &BTreeSet<String>, route: &BTreeSet<String>) -> bool {
    let is_bare = |destination: &Destination| {
        let usual = destination.scheme == Scheme::Https && destination.port == 443;
        (usual || destination.service().is_some()) && record.contains(&destination.host)
    };
    route.iter().all(|text| {
        record.contains(text)
            || Destination::of_url(text).is_some_and(|destination| is_bare(&destination))
    })
}

/// Why values of a Secret may not go a way, and what its owner must run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: Code,
    pub message: String,
}

/// May values of this Secret go this way?
pub(crate) fn check(
    objects: &dyn Objects,
    secret: &ObjectRef,
    facts: &SecretFacts,
    route: &Route,
) -> Result<(), Refusal> {
    let allowlist = &facts.allowlist;
    let hosts: Vec<&Destination> = route
        .needed()
        .filter(|destination| !allowlist.allows(destination, objects))
        .collect();
    // The CA that is still missing once the hosts are named as the command below names them.
    let mut named = allowlist.clone();
    named
        .hosts
        .extend(hosts.iter().map(|destination| destination.entry(objects)));
    let ca = named.missing_ca(route, &secret.namespace, objects);
    let code = match (facts.labelled, hosts.is_empty(), ca) {
        (true, true, None) => return Ok(()),
        (false, _, _) => Code::SecretNotLabelled,
        (true, false, _) => Code::SecretHostNotAllowed,
        (true, true, Some(_)) => Code::SecretCaNotAllowed,
    };

    let mut reasons = Vec::new();
    let mut commands = Vec::new();
    let target = format!("secret --namespace {} {}", secret.namespace, secret.name);
    if !facts.labelled {
        let label = format!("{}={}", names::CREDENTIAL_LABEL, names::TRUE);
        reasons.push(format!(
            "it is not marked as a credential by the label {label}"
        ));
        commands.push(format!("kubectl label {target} {label}"));
    }
    if !hosts.is_empty() {
        reasons.push(allowlist.why_not_hosts(&hosts));
        commands.push(annotate(&target, names::HOSTS_ANNOTATION, &named.hosts));
    }
    if let Some(ca) = ca {
        let entry = ca.entry(&secret.namespace);
        let malformed = allows_nothing(
            &allowlist.malformed_cas,
            "CONFIGMAP/KEY, NAMESPACE/CONFIGMAP/KEY or sha256:HEX",
        );
        reasons.push(format!(
            "its annotation {} does not name the CA bundle {entry}, whose holder could read what is sent{malformed}",
            names::CA_ANNOTATION
        ));
        named.cas.insert(entry);
        commands.push(annotate(&target, names::CA_ANNOTATION, &named.cas));
    }
    let going: Vec<String> = if hosts.is_empty() {
        route.needed().map(Destination::to_string).collect()
    } else {
        hosts.iter().map(ToString::to_string).collect()
    };
    let going = listed(going.into_iter());
    let mut message = format!(
        "Secret {secret} may not be sent to {going}: {}",
        reasons.join("; ")
    );
    let commands = commands.join(" && ");
    if commands.len() <= MAX_COMMAND {
        message.push_str(&format!(". If it may be, its owner runs: {commands}"));
    } else {
        message.push_str(". If it may be, its owner adds that");
    }
    Err(Refusal { code, message })
}

impl Allowlist {
    fn why_not_hosts(&self, missing: &[&Destination]) -> String {
        let annotation = names::HOSTS_ANNOTATION;
        let mut why = if self.hosts.is_empty() {
            format!("no annotation {annotation} of it names a host")
        } else {
            let said = listed(self.hosts.iter().map(HostEntry::to_string));
            format!("its annotation {annotation} names {said}")
        };
        let bare = |destination: &&&Destination| {
            self.hosts
                .contains(&HostEntry::Bare(destination.host.clone()))
        };
        if let Some(destination) = missing.iter().find(bare) {
            why.push_str(&match destination.service() {
                Some(service) => format!(
                    " (Service {service} declares no port {}, and a bare name allows those that it declares)",
                    destination.port
                ),
                None => " (a bare name allows https on port 443)".to_owned(),
            });
        }
        why.push_str(&allows_nothing(
            &self.malformed_hosts,
            "HOST or SCHEME://HOST[:PORT]",
        ));
        why
    }
}

fn annotate<T: fmt::Display>(target: &str, annotation: &str, entries: &BTreeSet<T>) -> String {
    let entries: Vec<String> = entries.iter().map(T::to_string).collect();
    let entries = entries.join(",");
    // A shell takes brackets for a pattern.
    let quote = if entries.contains('[') { "'" } else { "" };
    format!("kubectl annotate {target} --overwrite {quote}{annotation}={entries}{quote}")
}

/// Says which entries were not read, and how they are written.
fn allows_nothing(malformed: &[String], form: &str) -> String {
    if malformed.is_empty() {
        return String::new();
    }
    let malformed = listed(malformed.iter().map(|text| format!("{text:?}")));
    format!(" ({malformed} allows nothing: an entry is {form})")
}

/// At most [`MAX_LISTED`] of them, so that a message stays short.
fn listed(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.collect();
    let shown = texts[..texts.len().min(MAX_LISTED)].join(", ");
    match texts.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_the_entry_that_allows_it() {
        let inputs = crate::Inputs::offline(crate::Settings::default());
        for (url, entry) in [
            ("https://API.Reed.test/v1", Some("api.reed.test")),
            ("http://reed.test", Some("http://reed.test")),
            ("https://reed.test:8443/x", Some("https://reed.test:8443")),
            ("http://fish.pond.svc:4000", Some("fish.pond.svc")),
            ("https://fish.pond.svc.cluster.local", Some("fish.pond.svc")),
            ("http://fish:4000", Some("http://fish:4000")),
            ("https://[2001:db8::7]", Some("2001:db8::7")),
            ("http://[2001:db8::7]:80", Some("http://[2001:db8::7]")),
            ("ftp://reed.test", None),
            ("reed", None),
        ] {
            assert_eq!(host_entry(url).as_deref(), entry, "{url}");
            if let Some(entry) = entry {
                let destination = Destination::of_url(url).expect("a destination");
                let allowlist = Allowlist::parse(entry, "");
                assert!(allowlist.allows(&destination, &inputs), "{url}");
                assert_eq!(Vec::from_iter(allowlist.hosts()), [entry]);
            }
        }
    }

    #[test]
    fn a_service_is_allowed_under_each_of_its_full_names() {
        let inputs = crate::Inputs::offline(crate::Settings {
            cluster_domain: "reef.example".parse().expect("a domain"),
            ..crate::Settings::default()
        });
        let allows = |entry: &str, url: &str| {
            let destination = Destination::of_url(url).expect("a destination");
            Allowlist::parse(entry, "").allows(&destination, &inputs)
        };
        let long = "http://fish.pond.svc.reef.example:4000";
        let names = ["fish.pond.svc", "fish.pond.svc.reef.example"];
        for name in names {
            let exact = format!("http://{name}:4000");
            assert!(allows(&exact, long), "{exact}");
            for url in names.map(|name| format!("http://{name}:4000")) {
                assert!(allows(name, &url), "{name}: {url}");
            }
        }
        assert!(!allows("fish.pond.svc.example.test", long));
        assert!(!allows("https://fish.pond.svc.reef.example:4000", long));
    }

    #[test]
    fn an_annotation_is_read_up_to_a_bound() {
        let hosts: String = (0..20_000).map(|n| format!("h{n}.test,")).collect();
        let noise = "*,".repeat(100_000);
        let allowlist = Allowlist::parse(&hosts, &noise);
        assert_eq!(allowlist.hosts().count(), MAX_ENTRIES);
        assert_eq!(allowlist.malformed_cas, ["*"; MAX_LISTED]);
    }
}
