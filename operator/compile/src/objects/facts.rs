//! The parts of Kubernetes objects that compile reads: Services, Secrets without their values,
//! ConfigMaps.
//!
//! An absent object and an unreadable one are different answers ([`Presence`]), because a cache
//! that is half filled after a restart must not look like a revocation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use toolcrib_manifest::SecretText;

use crate::{Allowlist, Code, names};

/// The answer to a question about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence<T> {
    Present(T),
    /// The object certainly does not exist.
    Absent,
    /// The object could not be read; the reason, in words for the user.
    Unknown(String),
}

/// The answer to a question about a ConfigMap. A ConfigMap holds material (descriptors, CA
/// bundles) and never authority, so its last content stays in use while it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigMapFacts {
    /// `data` as text, without keys that are not UTF-8. Shared and identified by its address, so
    /// the next compilation does not parse the same content again.
    Present(Arc<BTreeMap<String, String>>),
    /// The ConfigMap could not be read now, and why; with its last content.
    LastGood {
        data: Arc<BTreeMap<String, String>>,
        why: String,
    },
    /// The ConfigMap certainly does not exist.
    Absent,
    /// The ConfigMap could not be read; the reason, in words for the user.
    Unknown(String),
    /// The ConfigMap is over a memory budget; which one, in words for the user.
    TooExpensive(String),
}

impl From<Presence<BTreeMap<String, String>>> for ConfigMapFacts {
    fn from(presence: Presence<BTreeMap<String, String>>) -> Self {
        match presence {
            Presence::Present(data) => Self::Present(Arc::new(data)),
            Presence::Absent => Self::Absent,
            Presence::Unknown(why) => Self::Unknown(why),
        }
    }
}

/// The content of a ConfigMap that may be used.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    pub data: Arc<BTreeMap<String, String>>,
    /// Why the ConfigMap could not be read now, if `data` is its last content.
    pub stale: Option<String>,
}

impl ConfigMapFacts {
    /// Returns the usable content. `None`: the ConfigMap does not exist. `Err`: the reason for
    /// which no content may be used; `otherwise` is the code for a ConfigMap that could not be
    /// read.
    pub(crate) fn material(self, otherwise: Code) -> Result<Option<Material>, (Code, String)> {
        let material = |data, stale| Ok(Some(Material { data, stale }));
        match self {
            Self::Present(data) => material(data, None),
            Self::LastGood { data, why } => material(data, Some(why)),
            Self::Absent => Ok(None),
            Self::Unknown(why) => Err((otherwise, why)),
            Self::TooExpensive(why) => Err((Code::TooExpensive, why)),
        }
    }
}

/// A Service, as far as an address and a NetworkPolicy need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// The TCP ports, each with the pod port that it forwards to.
    pub ports: BTreeMap<u16, PodPort>,
    pub external_name: bool,
    /// Whether the Service has no address, so that clients get those of its pods.
    pub headless: bool,
    /// Labels of the selected pods; empty: the Service has no selector.
    pub selector: BTreeMap<String, String>,
    /// The cluster addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// A port of a Service's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPort {
    Number(u16),
    /// A named port; each pod sets its number.
    Name(String),
}

/// A Secret without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Whether the Secret has [`names::CREDENTIAL_LABEL`].
    pub labelled: bool,
    /// The destinations that the values may go to.
    pub allowlist: Allowlist,
    /// `None`: only metadata was read so far; every key is assumed to exist.
    pub keys: Option<BTreeSet<String>>,
    pub uid: String,
    pub resource_version: String,
}

impl SecretFacts {
    /// Reads label and annotations from an object's metadata, for all callers alike.
    pub fn from_metadata(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        uid: &str,
        resource_version: &str,
        keys: Option<BTreeSet<String>>,
    ) -> Self {
        let annotation = |name: &str| annotations.get(name).map_or("", String::as_str);
        Self {
            labelled: labels.get(names::CREDENTIAL_LABEL).map(String::as_str) == Some(names::TRUE),
            allowlist: Allowlist::parse(
                annotation(names::HOSTS_ANNOTATION),
                annotation(names::CA_ANNOTATION),
            ),
            keys,
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
        }
    }
}

/// Decodes the value of a Secret's key. `None`: the value is not text, so no credential. One
/// trailing newline is removed: it comes from `echo` or an editor and is never intended.
pub fn credential_value(bytes: Vec<u8>) -> Option<SecretText> {
    let mut text = String::from_utf8(bytes).ok()?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Some(SecretText::new(text))
}
