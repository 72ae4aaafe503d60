//! Agent: an identity with its surfaces and limits, and its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Context, Egress, Mode, Models, Policy, SecretKey, Tier};

/// An identity that pods take on with the label `toolcrib.dev/agent: NAME`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "Agent",
    namespaced,
    status = "AgentStatus",
    derive = "PartialEq",
    category = "toolcrib",
    doc = "An identity that pods take on with the label toolcrib.dev/agent: NAME, and what it may reach.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".status.mode"),
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.toolCount"),
    printcolumn(name = "Read-Only", type_ = "integer", json_path = ".status.readOnlyCount"),
    printcolumn(name = "Withheld", type_ = "integer", json_path = ".status.withheldCount"),
    printcolumn(name = "Pods", type_ = "integer", json_path = ".status.pods.running"),
    printcolumn(name = "In-Force", type_ = "integer", json_path = ".status.pods.inForce"),
    printcolumn(name = "Calls", type_ = "integer", json_path = ".status.usage.calls"),
    printcolumn(name = "Denied", type_ = "integer", json_path = ".status.usage.denied"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63").message("the name must be a DNS label: lower-case letters, digits and '-', at most 63, no dots"),
)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// Mediated (built-in default) or Native.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What services and the record are told: the agent's name (left out), or the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The surfaces that this agent may reach at all. A tool needs a grant besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.all(x, self.exists_one(y, has(x.__as__) ? (has(y.__as__) ? y.__as__ == x.__as__ : y.name == x.__as__) : (has(y.__as__) ? y.__as__ == x.name : y.name == x.name)))").message("two surfaces go by the same name: give one of them another with `as`"))]
    pub surfaces: Vec<AgentSurface>,
    /// Whether the namespace's ToolDefaults add to this agent's grants. Left out: Include.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_defaults: Option<DefaultsUse>,
    /// Which models the agent may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Models>,
    /// Budgets of one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// Unrestricted (built-in) or Declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// What else the pods may reach, with `egress: Declared`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub extra_egress: Vec<EgressRule>,
    /// Where the document that describes the tools goes. Built-in: Mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// Whether the granted tools are also served at the mediator's `/mcp`, as they are with
    /// `mode: Native`. Left out: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<bool>,
    /// Which runner the pods run: decides the format of `mcp.json`. Left out: Generic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,
}

/// What `{claw_id}` and the record carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::documentation::field_speaks)]
pub enum Identity {
    /// The agent's name.
    Agent,
    /// The pod's name.
    Pod,
}

/// Whether the namespace's ToolDefaults count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::documentation::field_speaks)]
pub enum DefaultsUse {
    Include,
    Exclude,
}

/// The program in the agent's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::documentation::field_speaks)]
pub enum Runner {
    Generic,
    ClaudeCode,
    OpenClaw,
}

/// A surface that the agent may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSurface {
    /// Name of the Surface.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its namespace; the agent's own when left out. Another namespace's surface needs
    /// that surface's consent (`spec.consumers`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The name that this agent knows the surface by; the surface's own when left out.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub alias: Option<String>,
    /// The agent's own credential towards this surface, in the agent's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKey>,
}

/// Destinations that are allowed besides what tools and providers need; the shape of a
/// NetworkPolicy's egress rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressRule {
    /// Destinations; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub to: Vec<EgressPeer>,
    /// Ports; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<EgressPort>,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.ipBlock) != (has(self.namespaceSelector) || has(self.podSelector))").message("set ipBlock, or namespaceSelector and podSelector, but not both"))]
pub struct EgressPeer {
    /// A range of addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
    /// Pods of these namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// These pods, of the agent's namespace unless `namespaceSelector` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpBlock {
    /// Such as `10.0.0.0/8`.
    #[schemars(length(min = 1, max = 64))]
    pub cidr: String,
    /// Ranges within `cidr` that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
    pub except: Vec<String>,
}

/// A port or a range of ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressPort {
    #[schemars(range(min = 1, max = 65535))]
    /// The port, or the first of a range.
    pub port: u16,
    /// The last port of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub end_port: Option<u16>,
    /// Left out: TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<EgressProtocol>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::documentation::field_speaks)]
#[serde(rename_all = "UPPERCASE")]
pub enum EgressProtocol {
    Tcp,
    Udp,
    Sctp,
}

/// What is in force, what is not and why, and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The mode in effect, after ToolDefaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How many tools are compiled for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
    /// How many of them only look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_count: Option<u32>,
    /// The first 64 tools in name order; `kubectl toolcrib explain` shows all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub tools: Vec<ToolStatus>,
    /// How many tools were asked for and are withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld_count: Option<u32>,
    /// How many feeds it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_count: Option<u32>,
    /// The first 64 feeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub feeds: Vec<FeedStatus>,
    /// The first 64 of what was asked for and is withheld, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub withheld: Vec<WithheldStatus>,
    /// Digest of the compiled manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub manifest_digest: Option<String>,
    /// Changes when a credential was rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub credentials_revision: Option<String>,
    /// What the agent's pods may reach. Left out while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// What the agent's pods have loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsStatus>,
    /// A coarse copy of the mediators' counters, at most five minutes old while they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStatus>,
    /// `Accepted`, `Compiled`, `InForce`, `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One compiled tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolStatus {
    /// Canonical name, `surface.tool`.
    #[schemars(length(max = 256))]
    pub name: String,
    /// How much harm a call can do.
    pub tier: Tier,
    /// The object that gave it.
    pub grant: GrantName,
    /// Whose credential the mediator sends.
    pub credential: CredentialKind,
}

/// One compiled feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedStatus {
    /// `surface/feed`.
    #[schemars(length(max = 256))]
    pub name: String,
    /// The object that gave it.
    pub grant: GrantName,
    /// Whose credential the mediator sends.
    pub credential: CredentialKind,
}

/// A ToolGrant, or the ToolDefaults, of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantName {
    /// ToolGrant or ToolDefaults.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Namespace of the object.
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// Whose credential a call carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::documentation::field_speaks)]
pub enum CredentialKind {
    /// The agent's own.
    PerAgent,
    /// The surface's.
    Surface,
    /// No credential.
    None,
}

/// Something that was asked for and is withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WithheldStatus {
    /// What was asked for: `surface.tool`, a surface or a feed.
    #[schemars(length(max = 256))]
    pub name: String,
    /// Why not: the diagnostic's code.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Why not, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// What the agent's pods may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The egress in effect, after ToolDefaults. Declared: the NetworkPolicy
    /// `toolcrib-AGENT` is compiled.
    pub egress: Egress,
    /// How many destinations the policy could not narrow to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_narrowed_count: Option<u32>,
    /// The first 64 of them: their ports are open to every address outside the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 2304)), extend("x-kubernetes-list-type" = "atomic"))]
    pub not_narrowed: Vec<String>,
}

/// What the agent's pods have loaded, as they say themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsStatus {
    /// Pods of the agent that run.
    pub running: u32,
    /// Those that have loaded what is compiled now.
    pub in_force: u32,
    /// Up to ten that have not for over two minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub stale: Vec<String>,
}

/// Counters since `since`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    /// Requests of the runners.
    pub requests: u64,
    /// Replies of the model whose tool calls were answered.
    pub rounds: u64,
    /// Tool calls that were executed.
    pub calls: u64,
    /// Those that failed.
    pub failed: u64,
    /// Tool calls that were not permitted.
    pub denied: u64,
    /// Tokens sent to models.
    pub prompt_tokens: u64,
    /// Tokens received from models.
    pub completion_tokens: u64,
    /// When a tool was called last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_call: Option<Time>,
    /// When counting began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
