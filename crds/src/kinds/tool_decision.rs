//! ToolDecision: what one person decides about a ToolApproval.
//!
//! Invariant: `decidedBy` is the user who created the object. The chart's admission policy refuses
//! every other one, and the definition keeps `spec` as it was created.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ObjectIdentity;

/// What one person decides about one ToolApproval. `kubectl toolcrib approve` and `deny` create it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "ToolDecision",
    namespaced,
    status = "ToolDecisionStatus",
    derive = "PartialEq",
    shortname = "decision",
    category = "toolcrib",
    doc = "What one person decides about a ToolApproval.",
    printcolumn(name = "Approval", type_ = "string", json_path = ".spec.approval.name"),
    printcolumn(name = "Verdict", type_ = "string", json_path = ".spec.verdict"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.decidedBy.username"),
    printcolumn(
        name = "Counted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Counted\")].status"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Counted\")].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("a decision cannot change: create another one, which counts while the approval is pending"))]
pub struct ToolDecisionSpec {
    /// The ToolApproval of this namespace.
    pub approval: ObjectIdentity,
    /// `spec.callDigest` of the ToolApproval.
    #[schemars(length(min = 1, max = 80))]
    pub call_digest: String,
    /// Approve or Deny.
    pub verdict: DecisionVerdict,
    /// The person's words. The agent reads them if its call is denied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub reason: String,
    /// The user who creates this object. The API server refuses every other one.
    pub decided_by: UserIdentity,
}

/// The decision of one person.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum DecisionVerdict {
    Approve,
    Deny,
}

impl DecisionVerdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Deny => "Deny",
        }
    }
}

/// A user of the API server, as `kubectl auth whoami` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserIdentity {
    /// The username.
    #[schemars(length(min = 1, max = 256))]
    pub username: String,
    /// The uid, if the API server knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub uid: Option<String>,
    /// Groups of the user. Those by which the user may approve are enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub groups: Vec<String>,
}

/// Whether the decision counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDecisionStatus {
    /// `Counted`: True, or False with NotAnApprover, OtherDigest, AlreadyDecided, Gone or NotProtected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
