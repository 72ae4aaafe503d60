//! ModelProvider: endpoints of model APIs, and the credentials that agents never hold.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib_manifest as manifest;

use crate::{SecretKey, TlsSpec};

/// A provider of models. Its name is the part before the first `/` of a model ref.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "ModelProvider",
    namespaced,
    status = "ModelProviderStatus",
    derive = "PartialEq",
    shortname = "provider",
    category = "toolcrib",
    doc = "Endpoints of a model API, and the credentials that agents never hold.",
    printcolumn(name = "Dialects", type_ = "string", json_path = ".spec.endpoints[*].dialect"),
    printcolumn(name = "Keys", type_ = "integer", json_path = ".status.keyCount"),
    printcolumn(name = "Consumers", type_ = "integer", json_path = ".status.consumerCount"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(
        name = "Resolved",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Resolved\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63").message("the name must be a DNS label: lower-case letters, digits and '-', at most 63, no dots"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.auth) && self.auth == 'None') != (has(self.apiKeys) && size(self.apiKeys) > 0)").message("set apiKeys, or set auth: None and remove apiKeys"))]
pub struct ModelProviderSpec {
    /// The provider's addresses, one entry per dialect.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(validation = Rule::new("self.all(x, self.exists_one(y, y.dialect == x.dialect))").message("two endpoints have the same dialect: keep one of them"))]
    pub endpoints: Vec<ProviderEndpoint>,
    /// How keys are sent. Default: Bearer for OpenAI, XApiKey if all endpoints are Anthropic's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<ProviderAuth>,
    /// A pool of keys, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub api_keys: Vec<ApiKey>,
    /// How the server's certificate is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    /// Headers of the agent's program that go to the provider beside those that always do: names,
    /// or prefixes that end in `*`. Headers that frame, address, identify or authenticate never go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*[*]?$")),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub pass_headers: Vec<String>,
    /// An HTTP proxy that the mediator goes through. With an `http` endpoint or `tls.caFrom`
    /// it could read the keys: then their Secrets must name its host, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^\\s@]+$"))]
    pub proxy: Option<String>,
}

/// One dialect of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.responses) || !self.responses || self.dialect == 'OpenAI'").message("responses needs dialect: OpenAI: set it, or remove responses"))]
pub struct ProviderEndpoint {
    /// The wire format of this endpoint.
    pub dialect: Dialect,
    /// Base address, which ends before the dialect's resource: `https://host/v1`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^\\s?#]+$"))]
    pub url: String,
    /// Whether an OpenAI endpoint also serves `/responses`. Left out: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub responses: Option<bool>,
}

/// A model API's wire format.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Dialect {
    OpenAI,
    Anthropic,
}

/// How a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum ProviderAuth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// `x-api-key: …`.
    XApiKey,
    /// No key is sent.
    None,
}

/// One key of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// The Secret key that holds it.
    #[x_kube(validation = Rule::new("has(self.key)").message("set key to the key of the Secret's data that holds the API key, such as token"))]
    pub secret_key_ref: SecretKey,
}

/// The operator's findings about the provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelProviderStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of keys that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_count: Option<u32>,
    /// Number of agents that may select this provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_count: Option<u32>,
    /// `Accepted`, `Resolved`, and `Ready`: both are True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl From<Dialect> for manifest::EndpointDialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::OpenAI => Self::Openai,
            Dialect::Anthropic => Self::Anthropic,
        }
    }
}

impl From<ProviderAuth> for manifest::ProviderAuth {
    fn from(auth: ProviderAuth) -> Self {
        match auth {
            ProviderAuth::Bearer => Self::Bearer,
            ProviderAuth::XApiKey => Self::XApiKey,
            ProviderAuth::None => Self::None,
        }
    }
}
