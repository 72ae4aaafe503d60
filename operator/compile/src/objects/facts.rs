//! What is known of Kubernetes' own objects: Services, Secrets without their values, ConfigMaps.
//!
//! Whether an object does not exist and whether it could not be read are different answers
//! ([`Presence`]), because a cache that is half filled after a restart must not look like a
//! revocation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use toolcrib_manifest::SecretText;

use crate::{Allowlist, Code, names};

/// What is known of something that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence<T> {
    Present(T),
    /// It is certain that it is not there.
    Absent,
    /// It could not be read; why, in words for the user.
    Unknown(String),
}

/// What is known of a ConfigMap. It holds material (descriptors, CA bundles), so what it
/// held before stands in while it cannot be read; it never holds authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigMapFacts {
    /// `data` as text; keys whose bytes are not UTF-8 are left out. Shared, and known by where
    /// it is: what was read of one is not read again in the next compilation.
    Present(Arc<BTreeMap<String, String>>),
    /// It could not be read now, and why; this is what it held when it last was.
    LastGood {
        data: Arc<BTreeMap<String, String>>,
        why: String,
    },
    /// It is certain that it is not there.
    Absent,
    /// It could not be read; why, in words for the user.
    Unknown(String),
    /// It takes more memory than it may; over what, in words for the user.
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
    /// Why it could not be read now, if `data` is what it held before.
    pub stale: Option<String>,
}

impl ConfigMapFacts {
    /// The content that may be used. `None`: there is no ConfigMap. `Err`: why nothing may be
    /// used; `otherwise` is the code of a ConfigMap that could not be read.
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
    /// Its TCP ports, and where each leads.
    pub ports: BTreeMap<u16, PodPort>,
    pub external_name: bool,
    /// It has no address: clients are given those of its pods.
    pub headless: bool,
    /// Labels of its pods; empty: it selects none by itself.
    pub selector: BTreeMap<String, String>,
    /// Its cluster addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// A port of a Service's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPort {
    Number(u16),
    /// Each pod says which number it is.
    Name(String),
}

/// A Secret without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Carries [`names::CREDENTIAL_LABEL`].
    pub labelled: bool,
    /// Where its values may go.
    pub allowlist: Allowlist,
    /// `None`: only its metadata was read so far; every key is taken to be there.
    pub keys: Option<BTreeSet<String>>,
    pub uid: String,
    pub resource_version: String,
}

impl SecretFacts {
    /// From an object's metadata: the same reading of label and annotation everywhere.
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

/// The value of a Secret's key. `None`: it is no text, and so no credential. One trailing newline
/// comes from `echo` or an editor and is never meant.
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
