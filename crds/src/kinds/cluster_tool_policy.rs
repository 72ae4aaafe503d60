//! ClusterToolPolicy: restricts the agents of many namespaces. It gives nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Approvers, Budget, Enforcement, Tier};

/// Restricts agents, whatever their namespaces grant. All policies that match an agent apply
/// together. Deleting or loosening a policy lifts what it restricted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "ClusterToolPolicy",
    plural = "clustertoolpolicies",
    status = "ClusterToolPolicyStatus",
    derive = "PartialEq",
    shortname = "ctp",
    category = "toolcrib",
    doc = "What agents may not do, whatever their namespaces grant.",
    printcolumn(
        name = "Agents",
        type_ = "integer",
        json_path = ".status.matchedAgents"
    ),
    printcolumn(name = "Max-Tier", type_ = "string", json_path = ".spec.maxTier"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(
        name = "Would-Deny",
        type_ = "integer",
        json_path = ".status.wouldDenyTools",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.maxTier) || has(self.suspend) || has(self.models) || (has(self.deny) && size(self.deny) > 0) || (has(self.budgets) && size(self.budgets) > 0) || has(self.egress) || has(self.requireApproval)").message("set maxTier, deny, requireApproval, models, budgets, egress or suspend: a policy of none restricts nothing"))]
#[x_kube(validation = Rule::new("!has(self.trustTiersOf) || has(self.maxTier) || (has(self.requireApproval) && has(self.requireApproval.tiers))").message("trustTiersOf says whose tiers maxTier and requireApproval believe: set maxTier or requireApproval.tiers, or remove it"))]
#[x_kube(validation = Rule::new("!has(self.enforcement) || self.enforcement != 'Audit' || ((has(self.maxTier) || (has(self.deny) && size(self.deny) > 0)) && !has(self.models) && !has(self.budgets) && !has(self.egress) && !has(self.requireApproval) && !(has(self.suspend) && self.suspend))").message("enforcement: Audit tries out maxTier and deny: set one of them, and write requireApproval, models, budgets, egress and suspend: true in a policy of their own"))]
pub struct ClusterToolPolicySpec {
    /// The namespaces whose agents are restricted. Left out: all. A namespace whose labels are not
    /// known is matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Restricts these agents alone, in namespaces that `namespaceSelector` matches. Left out: all
    /// agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub agents: Vec<NamespacedName>,
    /// Tools above this tier are withheld. It adds to `policy.maxTier` of Agents and ToolDefaults:
    /// the lowest applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tier: Option<Tier>,
    /// The namespaces whose Surfaces may declare tiers below System. Tools of all other Surfaces count
    /// as System or higher, unless they use GET or HEAD over HTTP. It holds for `maxTier` and
    /// `requireApproval.tiers`. Left out: none may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_tiers_of: Option<LabelSelector>,
    /// Tools that no agent gets. A tool that one entry matches is withheld.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub deny: Vec<DenyRule>,
    /// Calls that run only if a person approves them, whatever the grants say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_approval: Option<RequireApproval>,
    /// The models that the agents may use. It adds to `models` of Agents and ToolDefaults, and
    /// gives no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<AllowedModels>,
    /// How many calls and tokens each agent may use in a period, for each agent by itself. The lowest
    /// limit holds of those of Agent, ToolDefaults and policies with the same unit and period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    #[x_kube(validation = crate::fields::budget::one_of_each())]
    pub budgets: Vec<Budget>,
    /// Declared: the operator writes a NetworkPolicy for the pods of each agent, and a model's
    /// provider executes no tools, whatever `egress` of Agent and ToolDefaults says. Left out: they
    /// decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<PolicyEgress>,
    /// Enforce withholds what `maxTier` and `deny` match. Audit tries them out: the tools are given,
    /// calls of them run, and the record has `would_deny`. Not for `requireApproval`, `models`,
    /// `budgets`, `egress` and `suspend`. Left out: Enforce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    /// true: the agents are suspended, as by `spec.suspend` of each Agent. Agents that are created
    /// later are suspended too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

impl ClusterToolPolicySpec {
    /// Returns whether `maxTier` and `deny` withhold nothing.
    pub fn is_tried_out(&self) -> bool {
        self.enforcement == Some(Enforcement::Audit)
    }

    /// Returns whether `suspend` is true.
    pub fn is_suspending(&self) -> bool {
        self.suspend == Some(true)
    }
}

/// What a policy asks for the network of agents' pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum PolicyEgress {
    /// As `Agent.spec.egress: Declared`.
    Declared,
}

/// Names an object of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// Namespace of the object.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// Matches tools of a surface, of a host, or of both together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.surface) || has(self.host)").message("set surface, host or both: a rule of neither has no meaning"))]
pub struct DenyRule {
    /// The Surface. Its owner can declare the same service under another name, which `host` also
    /// matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<NamespacedName>,
    /// The host of the surface's address, such as `api.example.com`, `payments.trading.svc` or
    /// `10.0.0.7`, with or without a port. Without one, all its ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 260),
        regex(pattern = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?|\\[[0-9a-f:.]+\\])(:[0-9]{1,5})?$")
    )]
    pub host: Option<String>,
    /// Names of tools as the descriptor spells them; `*` stands for any characters, such as
    /// `delete_*`. Left out: all tools and feeds. The owner of a Surface chooses the names of its
    /// tools, so for a host of owners whom you do not trust, leave the names out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    pub tools: Vec<String>,
}

/// The calls for which a policy asks for an approval, and who may approve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.tiers) && size(self.tiers) > 0) || (has(self.tools) && size(self.tools) > 0)").message("set tiers, such as [System], or tools: an approval of neither is of no call"))]
#[x_kube(validation = crate::fields::approval::reachable_minimum())]
pub struct RequireApproval {
    /// All tools of these tiers. Calls of Elevated tools always need an approval; here, they need one of
    /// these approvers besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "set"))]
    pub tiers: Vec<Tier>,
    /// The tools that one of these entries matches, besides those of `tiers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub tools: Vec<DenyRule>,
    /// Who may approve. Left out: everybody who may create ToolDecisions in the agent's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// How many different users must approve. Left out: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub minimum: Option<u32>,
}

/// The models that a policy allows agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedModels {
    /// `provider/model`, in which `*` stands for any characters on its side of the first `/`, such
    /// as `openai/gpt-5*` or `*/claude-*`. A model that no entry matches is refused, also as a
    /// fallback. The provider is the name of a ModelProvider of the agent's own namespace: the users
    /// who may write ModelProviders there choose the name and the address behind it.
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 3, max = 256), regex(pattern = "^[-.a-z0-9*]+/\\S+$"))
    )]
    pub allowed: Vec<String>,
}

/// The agents that the policy restricts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterToolPolicyStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of agents that the policy matches, at most 30 seconds old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_agents: Option<u32>,
    /// Number of tools that it would deny, of all agents together, at most 30 seconds old. Only with
    /// `enforcement: Audit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_deny_tools: Option<u32>,
    /// `Accepted`, `Resolved`, and `Ready`: the policy is in force as its spec says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
