//! ToolDefaults: the default settings and grants of a namespace's agents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Budget, Context, Egress, FeedRule, Mode, Models, Policy, ToolRule};

/// One per namespace, named `default`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "ToolDefaults",
    plural = "tooldefaults",
    namespaced,
    status = "ToolDefaultsStatus",
    derive = "PartialEq",
    category = "toolcrib",
    doc = "What the agents of a namespace have unless they say otherwise. One per namespace, named default.",
    printcolumn(name = "Matched", type_ = "integer", json_path = ".status.matchedAgents"),
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.toolCount"),
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
    validation = Rule::new("self.metadata.name == 'default'").message("a namespace has one ToolDefaults, and its name is default"),
)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefaultsSpec {
    /// Tools that every agent with `toolDefaults: Include` is granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tools: Vec<ToolRule>,
    /// Feeds that every agent with `toolDefaults: Include` is granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub feeds: Vec<FeedRule>,
    /// Budgets of one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// How many calls and tokens each agent may use in a period, by all its pods together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    #[x_kube(validation = crate::fields::budget::one_of_each())]
    pub budgets: Vec<Budget>,
    /// Mediated (built-in) or Native.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The models that agents may request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Models>,
    /// Unrestricted (built-in) or Declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Destination of the document that describes the tools. Built-in: Mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
}

/// Whether the tools that the defaults name exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefaultsStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of agents that include these defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_agents: Option<u32>,
    /// Number of existing tools that the defaults name, of surfaces that at least one of the agents
    /// that include them declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
    /// `Accepted`, `Resolved`, and `Ready`: both are True.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
