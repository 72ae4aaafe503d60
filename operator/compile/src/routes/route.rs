//! Where a credential may go: the one rule for compile, status, admission and the CLI.
//!
//! The author of a Surface or ModelProvider asks for a [`Route`]. The owner of a Secret allows it
//! with two annotations ([`Allowlist`]). A route needs
//!
//! - each destination in the hosts;
//! - its private CA in the CAs, unless bare Service names cover every destination with TLS: a
//!   bare Service name allows plain http too, so a CA gives no further access;
//! - its proxy in the hosts, if the proxy can read the traffic: with plain http, and with a
//!   private CA. TLS under the public roots is a tunnel.
//!
//! Not here: hosts that are refused for all objects (`address`), and the parser of the annotations
//! (`allowlist`).

use std::collections::BTreeSet;
use std::fmt;

use toolcrib_bounds::listed;
use toolcrib_crds::Scheme;

use crate::canonical::digest::sha256;
use crate::objects::allowlist::{Allowlist, CaEntry, HostEntry, MAX_LISTED};
use crate::objects::destination::{Destination, short_name};
use crate::{Code, ObjectRef, Objects, SecretFacts, names};

/// Longest command that a message shows, in bytes: a message is part of a status.
const MAX_COMMAND: usize = 1024;

/// A CA bundle in a ConfigMap, chosen by the author of the Surface or ModelProvider.
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

impl HostEntry {
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

impl Destination {
    /// Returns the shortest entry that allows the destination.
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

impl CaEntry {
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

/// Whether the Service has the port. A Service that is not found counts as having it: it answers
/// on no port, or it is in files that were not given.
fn declares(objects: &dyn Objects, service: &ObjectRef, port: u16) -> bool {
    objects
        .service(service)
        .is_none_or(|facts| facts.ports.contains_key(&port))
}

impl Allowlist {
    /// Builds an allowlist of exactly these routes.
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

    /// Whether a bare Service name covers the destination. Such a name allows plain http as well.
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

/// The route of a credential, as a Surface or ModelProvider asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub destinations: BTreeSet<Destination>,
    pub ca: Option<PrivateCa>,
    pub proxy: Option<Destination>,
    /// The problem of an address of the object, with field and cure: it is refused, leads elsewhere
    /// than it seems, or leads nowhere.
    pub wrong_address: Option<String>,
}

impl Route {
    /// Every destination that can read the credential.
    fn needed(&self) -> impl Iterator<Item = &Destination> {
        let is_plain = |destination: &Destination| destination.scheme == Scheme::Http;
        let proxy_reads = self.ca.is_some() || self.destinations.iter().any(is_plain);
        let proxy = self.proxy.iter().filter(move |_| proxy_reads);
        self.destinations.iter().chain(proxy)
    }

    /// Returns the note that is stored beside a value that was sent on this route. While the
    /// Secret cannot be read, the value is used again only for routes that its note covers
    /// ([`recorded`]).
    pub fn record(&self) -> BTreeSet<String> {
        let ca = self.ca.as_ref();
        let ca = ca.map(|ca| format!("ca {}/{} sha256:{}", ca.config_map, ca.key, ca.digest));
        self.needed()
            .map(Destination::to_string)
            .chain(ca)
            .collect()
    }
}

/// Whether the note beside a value ([`Route::record`]) covers `route`. Earlier releases noted
/// bare hosts.
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

/// Why a Secret's values may not take a route, and the command that its owner must run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: Code,
    pub message: String,
}

/// Checks that the values of this Secret may take the route.
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
    // An annotation may have thousands of entries, and the Secret many users, so an allowed route
    // is checked without a copy.
    if facts.labelled
        && hosts.is_empty()
        && allowlist
            .missing_ca(route, &secret.namespace, objects)
            .is_none()
    {
        return Ok(());
    }
    // The CA that is still missing after the command below has added the hosts.
    let mut named = allowlist.clone();
    named
        .hosts
        .extend(hosts.iter().map(|destination| destination.entry(objects)));
    let ca = named.missing_ca(route, &secret.namespace, objects);
    let code = match (facts.labelled, hosts.is_empty()) {
        (false, _) => Code::SecretNotLabelled,
        (true, false) => Code::SecretHostNotAllowed,
        (true, true) => Code::SecretCaNotAllowed,
    };

    let going: Vec<String> = if hosts.is_empty() {
        route.needed().map(Destination::to_string).collect()
    } else {
        hosts.iter().map(ToString::to_string).collect()
    };
    let going = listed(going, MAX_LISTED);
    // After the address is corrected the owner would have to consent again.
    if let Some(wrong) = &route.wrong_address {
        let message = format!(
            "Secret {secret} may not be sent to {going}; first correct the address: {wrong}"
        );
        return Err(Refusal { code, message });
    }

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
            let said = listed(&self.hosts, MAX_LISTED);
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
    // Shells read brackets as a pattern.
    let quote = if entries.contains('[') { "'" } else { "" };
    format!("kubectl annotate {target} --overwrite {quote}{annotation}={entries}{quote}")
}

/// Names the entries that could not be parsed, and the form of a valid one.
fn allows_nothing(malformed: &[String], form: &str) -> String {
    if malformed.is_empty() {
        return String::new();
    }
    let malformed = listed(malformed.iter().map(|text| format!("{text:?}")), MAX_LISTED);
    format!(" ({malformed} allows nothing: an entry is {form})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_entry;

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
}
