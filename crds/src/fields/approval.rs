//! Who may approve a call: in grants, in policies, and in a ToolApproval; and how a ToolApproval and a
//! ToolDecision name other objects.

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Users and groups who may approve.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Approvers {
    /// Usernames, as `kubectl auth whoami` shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub users: Vec<String>,
    /// Groups, as `kubectl auth whoami` shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub groups: Vec<String>,
}

impl Approvers {
    /// Returns whether nobody is named, so that everybody who may create ToolDecisions may approve.
    pub fn is_anybody(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

/// The rule of an object with `approvers` and `minimum`: enough users can approve.
pub(crate) fn reachable_minimum() -> Rule {
    Rule::new("!has(self.minimum) || !has(self.approvers) || (has(self.approvers.groups) && size(self.approvers.groups) > 0) || !has(self.approvers.users) || size(self.approvers.users) == 0 || size(self.approvers.users) >= self.minimum")
        .message("minimum is more than the users in approvers, so no call could be approved: lower it, or name more users or a group")
}

/// A person must approve each call.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = reachable_minimum())]
pub struct ApprovalRule {
    /// Who may approve. Left out: everybody who may create ToolDecisions in the namespace. Who is named
    /// here must have that right too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// How many different users must approve. Left out: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub minimum: Option<u32>,
}

/// An object of this namespace by name and uid.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectIdentity {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid of the object.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}
