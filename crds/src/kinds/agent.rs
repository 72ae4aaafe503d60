//! Agent: an identity with its surfaces and limits, and its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Budget, BudgetPeriod, BudgetUnit, Context, Egress, Mode, Models, Policy, SecretKey, Tier,
};

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
    /// The identity in calls to services and in the record: the agent's name (default), or the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The surfaces that this agent may reach at all. A tool also needs a grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.all(x, self.exists_one(y, has(x.__as__) ? (has(y.__as__) ? y.__as__ == x.__as__ : y.name == x.__as__) : (has(y.__as__) ? y.__as__ == x.name : y.name == x.name)))").message("two surfaces go by the same name: give one of them another with `as`"))]
    pub surfaces: Vec<AgentSurface>,
    /// Whether the namespace's ToolDefaults add to this agent's grants. Left out: Include.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_defaults: Option<DefaultsUse>,
    /// The models that the agent may request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Models>,
    /// Budgets of one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// How many calls and tokens the agent may use in a period, by all its pods together. A budget
    /// replaces the one of the ToolDefaults with the same unit and period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    #[x_kube(validation = crate::fields::budget::one_of_each())]
    pub budgets: Vec<Budget>,
    /// Unrestricted (built-in) or Declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Further destinations for the pods, with `egress: Declared`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub extra_egress: Vec<EgressRule>,
    /// Destination of the document that describes the tools. Built-in: Mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// Whether the granted tools are also served at the mediator's `/mcp`, as they are with
    /// `mode: Native`. Left out: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<bool>,
    /// The runner in the pods; it decides the format of `mcp.json`. Default: Generic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<Runner>,
    /// Whether the agent is stopped: its mediators refuse every request, end running calls, and it
    /// gets no tool, feed or model provider. The annotation `toolcrib.dev/suspend-reason` says why.
    /// Left out: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

impl AgentSpec {
    pub fn is_suspended(&self) -> bool {
        self.suspend == Some(true)
    }
}

/// The identity in `{claw_id}` and in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Identity {
    /// The agent's name.
    Agent,
    /// The pod's name.
    Pod,
}

/// Whether the namespace's ToolDefaults apply to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum DefaultsUse {
    Include,
    Exclude,
}

/// The program in the agent's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
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
    /// The agent's alias of the surface. Default: the Surface's name.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub alias: Option<String>,
    /// The agent's own credential for this surface, in the agent's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKey>,
}

/// Destinations that are allowed in addition to those of tools and providers, in the form of a
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
    /// Pods with these labels, in the agent's namespace unless `namespaceSelector` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpBlock {
    /// The range, such as `10.0.0.0/8`.
    #[schemars(length(min = 1, max = 64))]
    pub cidr: String,
    /// Ranges within `cidr` that are excluded.
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
#[schemars(transform = crate::fields::documentation::field_speaks)]
#[serde(rename_all = "UPPERCASE")]
pub enum EgressProtocol {
    Tcp,
    Udp,
    Sctp,
}

impl EgressProtocol {
    /// The word of the Kubernetes API.
    pub fn name(self) -> &'static str {
        match self {
            EgressProtocol::Tcp => "TCP",
            EgressProtocol::Udp => "UDP",
            EgressProtocol::Sctp => "SCTP",
        }
    }
}

/// The tools in force and the withheld ones with their reasons, the pods, and the usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The mode in effect, after ToolDefaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Number of tools that are compiled for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
    /// Number of these tools that are ReadOnly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_count: Option<u32>,
    /// The first 64 tools in name order; `kubectl toolcrib explain` shows all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub tools: Vec<ToolStatus>,
    /// Number of tools that are requested and withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld_count: Option<u32>,
    /// Number of feeds that are compiled for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_count: Option<u32>,
    /// The first 64 feeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub feeds: Vec<FeedStatus>,
    /// The first 64 requested items that are withheld, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub withheld: Vec<WithheldStatus>,
    /// Digest of the compiled manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub manifest_digest: Option<String>,
    /// Changes when a credential is rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub credentials_revision: Option<String>,
    /// The ClusterToolPolicies that restrict the agent, in name order; the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub policies: Vec<String>,
    /// The network restriction of the agent's pods. Left out while it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// The manifest versions that the agent's pods have loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsStatus>,
    /// A coarse copy of the mediators' counters, at most five minutes old while they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStatus>,
    /// The budgets in force, and what is used of them: at most five minutes old, and written at once
    /// when a budget is used up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["unit", "per"]))]
    pub budgets: Vec<BudgetStatus>,
    /// The last lines of the records of the agent's pods that the operator knows, the latest first: at
    /// most five minutes old, and written when a pod ends. `kubectl toolcrib audit verify --agent`
    /// compares a record with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub record: Vec<RecordHeadStatus>,
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
    /// The harm that a call can do.
    pub tier: Tier,
    /// The object that grants it.
    pub grant: GrantName,
    /// The owner of the credential that the mediator sends.
    pub credential: CredentialKind,
    /// The limits within which it may be called, such as `amount at most 100`. Missing: a grant
    /// without limits gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub limits: Option<String>,
    /// The first ClusterToolPolicy with `enforcement: Audit` that would deny it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub would_deny: Option<String>,
}

/// One compiled feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedStatus {
    /// `surface/feed`.
    #[schemars(length(max = 256))]
    pub name: String,
    /// The object that grants it.
    pub grant: GrantName,
    /// The owner of the credential that the mediator sends.
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

/// The owner of the credential in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum CredentialKind {
    /// The agent's own credential.
    PerAgent,
    /// The surface's credential.
    Surface,
    /// No credential.
    None,
}

/// A requested item that is withheld.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WithheldStatus {
    /// The requested item: `surface.tool`, a surface or a feed.
    #[schemars(length(max = 256))]
    pub name: String,
    /// The reason: the diagnostic's code, or the reason of `Compiled` if nothing could be written.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// The reason, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// The network restriction of the agent's pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The egress in effect, after ToolDefaults and ClusterToolPolicies. Declared: the NetworkPolicy
    /// `toolcrib-AGENT` is compiled.
    pub egress: Egress,
    /// Number of destinations to which the policy could not be narrowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_narrowed_count: Option<u32>,
    /// The first 64 of these destinations. Their ports are open to every address outside the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 2304)), extend("x-kubernetes-list-type" = "atomic"))]
    pub not_narrowed: Vec<String>,
    /// The ClusterToolPolicies that set `egress: Declared` for the agent, in name order; the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub policies: Vec<String>,
}

/// The manifest versions that the agent's pods have loaded, as they report them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsStatus {
    /// Number of running pods of the agent.
    pub running: u32,
    /// Number of these pods that have loaded the current manifest.
    pub in_force: u32,
    /// Up to ten pods that have not loaded it, or not reported, for over two minutes.
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
    /// Replies of the model with tool calls that were answered.
    pub rounds: u64,
    /// Permitted tool calls, failed ones too.
    pub calls: u64,
    /// Permitted tool calls that failed, at the service or before they were sent.
    pub failed: u64,
    /// Tool calls that were not permitted.
    pub denied: u64,
    /// Tokens sent to models.
    pub prompt_tokens: u64,
    /// Tokens received from models.
    pub completion_tokens: u64,
    /// Time of the last tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_call: Option<Time>,
    /// Time at which counting began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// One line of the record of a pod: the lines up to it are unchanged if it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordHeadStatus {
    /// Name of the pod.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Uid of the pod.
    #[schemars(length(max = 64))]
    pub pod_uid: String,
    /// Id of the chain: each process of the mediator begins one.
    #[schemars(length(max = 64))]
    pub chain: String,
    /// Number of the line in its chain.
    pub seq: u64,
    /// SHA-256 of the line, in hexadecimal.
    #[schemars(length(max = 64))]
    pub hash: String,
    /// Time at which the operator learned of the line.
    pub time: Time,
}

/// One budget, and what is used of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    /// The unit that is counted.
    pub unit: BudgetUnit,
    /// The length of the period.
    pub per: BudgetPeriod,
    /// The most that may be used in the period: the lowest limit of the Agent, or else the
    /// ToolDefaults, and of all ClusterToolPolicies.
    pub limit: u64,
    /// What all pods of the agent have used in the period.
    pub used: u64,
    /// The part of `used` that pods have used which do not exist any more.
    #[serde(default)]
    pub used_by_deleted_pods: u64,
    /// Time at which the period began.
    pub since: Time,
}
