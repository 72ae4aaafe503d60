//! The two annotations by which the owner of a Secret says where its values may go.
//!
//! [`crate::names::HOSTS_ANNOTATION`] lists hosts: `scheme://host[:port]` allows that alone, a bare
//! `NAME.NAMESPACE.svc` allows the Service on each port that it declares, and any other bare host
//! allows https on port 443. [`crate::names::CA_ANNOTATION`] lists the CA bundles that may vouch
//! for those hosts, by ConfigMap or by SHA-256; without it only the public roots may.
//!
//! Not here: whether a route is allowed (`route`).

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use toolcrib_crds::Scheme;
use url::Url;

use crate::objects::destination::Destination;

/// Entries of one annotation that are read. An annotation has room for far more than any
/// Secret has destinations, and each compilation reads it.
const MAX_ENTRIES: usize = 256;
/// `https://`, a name of 253 characters and a port.
const MAX_ENTRY: usize = 267;
/// Entries of one kind that a message lists.
pub(crate) const MAX_LISTED: usize = 5;
/// Characters that a message shows of a malformed entry.
const MAX_SHOWN: usize = 64;

/// Returns the entry of [`crate::names::HOSTS_ANNOTATION`] that allows a url's destination, as
/// short as possible without knowing the ports of a Service. `None`: not an http or https url with a host.
pub fn host_entry(url: &str) -> Option<String> {
    let destination = Destination::of_url(url)?;
    let is_usual = destination.scheme == Scheme::Https && destination.port == 443;
    Some(if is_usual || destination.service().is_some() {
        destination.host
    } else {
        destination.to_string()
    })
}

/// One entry of [`crate::names::HOSTS_ANNOTATION`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostEntry {
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
            // A port without a scheme is ambiguous.
            Ok(IpAddr::V4(_)) | Err(_) if text.contains('/') || has_port(text) => return None,
            Ok(IpAddr::V4(_)) | Err(_) => format!("https://{text}"),
        };
        Destination::of_url(&url).map(|destination| Self::Bare(destination.host))
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

/// One entry of [`crate::names::CA_ANNOTATION`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CaEntry {
    /// The SHA-256 of a bundle, in hex, in any ConfigMap.
    Digest(String),
    /// Any content of the key, for owners who trust the writers of the ConfigMap.
    ConfigMap {
        /// `None`: the Secret's namespace.
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

/// The hosts and CA bundles that a Secret's annotations allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist {
    pub(crate) hosts: BTreeSet<HostEntry>,
    pub(crate) cas: BTreeSet<CaEntry>,
    /// Texts among the entries that allow nothing; the first few.
    pub(crate) malformed_hosts: Vec<String>,
    pub(crate) malformed_cas: Vec<String>,
}

impl Allowlist {
    /// Parses the two annotations; a missing one is empty.
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

    /// Entries of [`crate::names::HOSTS_ANNOTATION`], in order.
    pub fn hosts(&self) -> impl Iterator<Item = String> {
        self.hosts.iter().map(HostEntry::to_string)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_read_up_to_a_bound() {
        let hosts: String = (0..20_000).map(|n| format!("h{n}.test,")).collect();
        let noise = "*,".repeat(100_000);
        let allowlist = Allowlist::parse(&hosts, &noise);
        assert_eq!(allowlist.hosts().count(), MAX_ENTRIES);
        assert_eq!(allowlist.malformed_cas, ["*"; MAX_LISTED]);
    }
}
