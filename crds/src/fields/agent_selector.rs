//! The selector of a ToolGrant over the labels of Agents.
//!
//! A type of its own beside Kubernetes' LabelSelector: it is bounded, and it can only select an Agent
//! by labels that the Agent has. So a label that is missing gives nothing.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Selects Agents by labels that begin with `grants.toolcrib.dev/`. All parts must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)").message("set matchLabels, such as {grants.toolcrib.dev/role: analyst}, or matchExpressions: an empty selector would select every agent"))]
#[x_kube(validation = Rule::new("!has(self.matchLabels) || self.matchLabels.all(key, key.startsWith('grants.toolcrib.dev/'))").message("write keys that begin with grants.toolcrib.dev/, such as grants.toolcrib.dev/role: users who may edit an Agent can change its other labels"))]
pub struct AgentSelector {
    /// Labels with their values, such as `{grants.toolcrib.dev/role: analyst}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub match_expressions: Vec<LabelExpression>,
}

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.key.startsWith('grants.toolcrib.dev/')").message("write a key that begins with grants.toolcrib.dev/, such as grants.toolcrib.dev/role: users who may edit an Agent can change its other labels"))]
#[x_kube(validation = Rule::new("self.operator in ['In', 'Exists']").message("write In or Exists: NotIn and DoesNotExist would select agents that lack the label"))]
#[x_kube(validation = Rule::new("self.operator != 'In' || (has(self.values) && size(self.values) > 0)").message("In needs values, such as [analyst]"))]
#[x_kube(validation = Rule::new("self.operator != 'Exists' || !has(self.values) || size(self.values) == 0").message("Exists takes no values: remove them, or write In"))]
pub struct LabelExpression {
    /// Name of the label.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// `In`: the label has one of `values`. `Exists`: the Agent has the label, with any value.
    #[schemars(length(min = 1, max = 32))]
    pub operator: String,
    /// The values for `In`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    pub values: Vec<String>,
}
