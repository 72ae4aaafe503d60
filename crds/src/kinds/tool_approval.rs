//! ToolApproval: one exact call of an agent, about which persons decide.
//!
//! Invariant: only the controller creates one and writes its spec and status. The chart's admission
//! policy holds everybody else to that, and the definition keeps `spec` as it was created.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApprovalRule, DecisionVerdict, ObjectIdentity, Tier};

/// One exact call of an agent that runs only if persons approve it. The agent's mediator asks, the
/// controller creates the object, and persons create ToolDecisions for it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "ToolApproval",
    namespaced,
    status = "ToolApprovalStatus",
    derive = "PartialEq",
    shortname = "approval",
    category = "toolcrib",
    doc = "One exact call of an agent, about which persons decide. Only the controller writes it.",
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent.name"),
    printcolumn(name = "Tool", type_ = "string", json_path = ".spec.tool"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Decided-By", type_ = "string", json_path = ".status.decidedBy"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expiresAt"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Arguments",
        type_ = "string",
        priority = 1,
        json_path = ".spec.arguments"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("an approval is about one exact call, so its spec cannot change"))]
pub struct ToolApprovalSpec {
    /// The agent that wants to make the call.
    pub agent: ObjectIdentity,
    /// The pod that asks. The approval is for this pod alone.
    pub pod: ObjectIdentity,
    /// Canonical name of the tool, `surface.tool`.
    #[schemars(length(min = 1, max = 256))]
    pub tool: String,
    /// The harm that the call can do.
    pub tier: Tier,
    /// The call's arguments in canonical JSON. Characters that could be mistaken for others are escaped,
    /// and known secrets are replaced, in the places that `redacted` names.
    #[schemars(length(max = 98_304))]
    pub arguments: String,
    /// JSON pointers to the places of the arguments in which a known secret was replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)), extend("x-kubernetes-list-type" = "atomic"))]
    pub redacted: Vec<String>,
    /// Digest of the exact call. A ToolDecision repeats it.
    #[schemars(length(min = 1, max = 80))]
    pub call_digest: String,
    /// Digest of the tool as it was offered to the agent.
    #[schemars(length(min = 1, max = 80))]
    pub entry_digest: String,
    /// The rules that the call meets, all of which ask for an approval. One of them must be satisfied.
    /// Empty: only the tool's tier or a policy asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<RuleRequirement>,
    /// The ClusterToolPolicies that ask for an approval of the call. Each of them must be satisfied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub policies: Vec<PolicyRequirement>,
    /// Time at which the mediator asked.
    pub requested_at: Time,
    /// The call cannot be approved from this time on.
    pub expires_at: Time,
    /// Id of the mediator's question, as its record has it.
    #[serde(rename = "requestID")]
    #[schemars(length(min = 1, max = 64))]
    pub request_id: String,
}

/// A rule of a grant that asks for an approval.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleRequirement {
    /// The kind of `grant`.
    pub kind: GrantKind,
    /// Name of the ToolGrant or ToolDefaults.
    #[schemars(length(min = 1, max = 253))]
    pub grant: String,
    /// Digest of the rule. It covers who may approve.
    #[schemars(length(min = 1, max = 80))]
    pub rule: String,
    /// Who may approve, as the grant said when the mediator asked.
    pub approval: ApprovalRule,
}

/// The kinds whose rules give tools.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum GrantKind {
    ToolGrant,
    ToolDefaults,
}

impl GrantKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolGrant => "ToolGrant",
            Self::ToolDefaults => "ToolDefaults",
        }
    }
}

/// A ClusterToolPolicy that asks for an approval.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRequirement {
    /// Name of the ClusterToolPolicy.
    #[schemars(length(min = 1, max = 253))]
    pub policy: String,
    /// Who may approve, as the policy said when the mediator asked.
    pub approval: ApprovalRule,
}

/// The decisions so far, and what became of the call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprovalStatus {
    /// For people: the conditions in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ApprovalPhase>,
    /// For people: the usernames of those whose decisions count, for `kubectl get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub decided_by: Option<String>,
    /// The ToolDecisions that count, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub decisions: Vec<CountedDecision>,
    /// `Decided` (Approved, Denied, Expired, Withdrawn) and `Used` (Succeeded, Failed, Unknown).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The state of a ToolApproval in one word.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum ApprovalPhase {
    /// Persons may decide.
    Pending,
    /// Approved, and not used yet.
    Approved,
    Denied,
    Expired,
    Withdrawn,
    /// The call ran and succeeded.
    Succeeded,
    /// The call ran and failed.
    Failed,
    /// The mediator ended between the call and its result.
    Unknown,
}

impl ApprovalPhase {
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Withdrawn,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Approved => "Approved",
            Self::Denied => "Denied",
            Self::Expired => "Expired",
            Self::Withdrawn => "Withdrawn",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// A ToolDecision that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CountedDecision {
    /// The ToolDecision.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The person.
    #[schemars(length(min = 1, max = 256))]
    pub username: String,
    /// What the person decided.
    pub verdict: DecisionVerdict,
    /// The person's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub reason: String,
    /// Time at which the ToolDecision was created.
    pub at: Time,
}
