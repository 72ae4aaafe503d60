//! Surface: the offer of a service, and its address.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib_manifest::RawJson;

use crate::{ConfigMapKey, SecretKey, Tier, TlsSpec};

/// A service that offers tools, feeds, a skill or endpoints, and its address.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "Surface",
    namespaced,
    status = "SurfaceStatus",
    derive = "PartialEq",
    shortname = "surf",
    category = "toolcrib",
    doc = "What a service offers to agents, and how to reach it.",
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.toolCount"),
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
#[x_kube(validation = Rule::new("has(self.service) != has(self.url)").message("set exactly one of service (in this cluster) and url (anywhere)"))]
#[x_kube(validation = Rule::new("!(has(self.descriptor) && has(self.descriptorFrom))").message("descriptor and descriptorFrom are both set: remove one of them"))]
pub struct SurfaceSpec {
    /// The Service that serves the tools, in the surface's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceTarget>,
    /// The address of a server outside the cluster's Services. Loopback, link-local,
    /// metadata and API server addresses are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^\\s]+$"))]
    pub url: Option<String>,
    /// How the server's certificate is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    /// How the mediator authenticates to the service. Agents never hold this credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<SurfaceAuth>,
    /// The service's descriptor (`claw.describe`), inline: tools, feeds, skill and endpoints.
    /// Every value is stored and unknown keys are kept, so each part shows as Object here and its
    /// text names its type. The Surface's conditions and events name each faulty part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<crate::fields::descriptor::Descriptor>")]
    pub descriptor: Option<RawJson>,
    /// The ConfigMap with the descriptor, if it is not inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptor_from: Option<DescriptorSource>,
    /// The service's MCP endpoint: tools without `http` are called over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Mcp>,
    /// Tiers by tool name; they override the tools' annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub tiers: BTreeMap<String, Tier>,
    /// Other namespaces that may use the surface. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumers: Option<Consumers>,
}

/// A port of a Service in the surface's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTarget {
    /// Name of the Service. ExternalName Services are refused.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Default: http.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
}

/// The protocol of the service.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    Http,
    Https,
}

/// How the mediator authenticates to the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.type) || (self.type == 'Header') == has(self.headerName)").message("set headerName with type: Header, such as X-Api-Key, and with no other type"))]
#[x_kube(validation = Rule::new("!has(self.type) || (self.type == 'OAuth') == has(self.tokenUrl)").message("set tokenUrl with type: OAuth, and with no other type"))]
#[x_kube(validation = Rule::new("(has(self.type) && self.type == 'OAuth') || !(has(self.resource) || (has(self.scopes) && size(self.scopes) > 0))").message("resource and scopes need type: OAuth: set it, or remove them"))]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) || (has(self.perAgent) && size(self.perAgent) > 0) || (has(self.fallback) && self.fallback == 'Deny')").message("set secretKeyRef or perAgent, or fallback: Deny"))]
pub struct SurfaceAuth {
    /// Default: the descriptor's `auth.type`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<AuthType>,
    /// The header that carries the token, with type Header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
    )]
    pub header_name: Option<String>,
    /// The credential for agents without one of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKey>,
    /// The token endpoint, with type OAuth. The Secret's keys are `client_id` and
    /// `client_secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^\\s]+$"))]
    pub token_url: Option<String>,
    /// The resource in token requests, with type OAuth.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub resource: Option<String>,
    /// The scopes in token requests, with type OAuth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 256)))]
    pub scopes: Vec<String>,
    /// Credentials of single agents; they take precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub per_agent: Vec<AgentCredential>,
    /// The treatment of an agent without a credential of its own. Allow (default) gives it
    /// `secretKeyRef`, Deny gives it no tools. With Deny, `secretKeyRef` may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
}

/// How a credential is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum AuthType {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header of its own (`headerName`).
    Header,
    /// HTTP Basic; the Secret's keys are `username` and `password`.
    Basic,
    /// OAuth client credentials; the Secret's keys are `client_id` and `client_secret`.
    OAuth,
}

/// The treatment of an agent without a credential of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Fallback {
    Allow,
    Deny,
}

/// One agent's own credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCredential {
    /// The agent that the credential is for.
    pub agent: AgentName,
    /// The Secret key that holds it.
    pub secret_key_ref: SecretKey,
}

/// Names an Agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentName {
    /// Name of the Agent.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its namespace; the surface's own when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// A reference to a descriptor in a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DescriptorSource {
    /// The ConfigMap's key that holds the descriptor as JSON. Skill files are other keys
    /// of the same ConfigMap.
    pub config_map_key_ref: ConfigMapKey,
}

/// An MCP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mcp {
    /// Path of the endpoint on the service; overrides the descriptor's `mcp`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/[^\\s?#]*$"))]
    pub path: String,
}

/// Other namespaces that may use the surface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Consumers {
    /// The namespaces whose agents may call the surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespaceConsent>,
    /// The surface's credentials that foreign agents get. Default: None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialConsent>,
}

/// A choice of namespaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.from == 'Selector') == has(self.selector)").message("set selector with from: Selector, and with no other value of from"))]
pub struct NamespaceConsent {
    /// Same (this namespace only), All, or Selector.
    pub from: NamespacesFrom,
    /// Selects namespaces by label, with `from: Selector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum NamespacesFrom {
    /// Only the surface's own namespace.
    Same,
    /// Every namespace.
    All,
    /// Namespaces that the selector matches.
    Selector,
}

/// The surface's credentials that foreign agents get: permission to call does not include them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum CredentialConsent {
    /// A foreign agent brings its own credential.
    None,
    /// A foreign agent gets the credential that `perAgent` names for it.
    PerAgent,
    /// A foreign agent may also get the surface's own credential.
    Share,
}

/// The operator's findings about the surface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of tools in the descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
    /// Digest of the resolved descriptor, for pins in grants (`sha256:…`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub descriptor_digest: Option<String>,
    /// Number of agents that have this surface in their spec, and its consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_count: Option<u32>,
    /// `Accepted`, `Resolved`, and `Ready`: both are True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_keeps_its_bytes() {
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        let descriptor =
            format!(r#"{{"zeta":1.50,"unknown":{deep},"big":12345678901234567890123}}"#);
        let text = format!(
            r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"kelp"}},"spec":{{"url":"https://kelp.example","descriptor":{descriptor}}}}}"#
        );
        let surface: Surface = serde_json::from_str(&text).unwrap();
        let kept = surface.spec.descriptor.as_ref().map(RawJson::get);
        assert_eq!(kept, Some(descriptor.as_str()));
        assert!(
            serde_json::to_string(&surface)
                .unwrap()
                .contains(&descriptor)
        );
    }
}
