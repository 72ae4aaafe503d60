//! References to objects of the same namespace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret. It must carry the label `toolcrib.dev/credential: "true"` and
    /// the annotation `toolcrib.dev/hosts`, which says where it may be sent.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Key within the Secret. On a Surface it may be left out: then the descriptor's
    /// `auth.env` names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
}

/// A key of a ConfigMap in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Key within the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// How the server's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// Where the CA bundle is. Without it the public roots are trusted. A Secret that goes
    /// there must name the bundle in its annotation `toolcrib.dev/ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_from: Option<CaSource>,
}

/// A PEM bundle that is trusted instead of the public roots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaSource {
    /// The ConfigMap's key that holds the bundle.
    pub config_map_key_ref: ConfigMapKey,
}
