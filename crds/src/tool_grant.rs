//! ToolGrant: allows agents to use tools and feeds of surfaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FeedRule, ToolRule};

/// Allows agents to use tools and feeds of surfaces. An agent's authority is the union of all grants
/// that name it, and of the namespace's ToolDefaults: removing a grant never adds a tool.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "toolcrib.dev",
    version = "v1alpha1",
    kind = "ToolGrant",
    namespaced,
    status = "ToolGrantStatus",
    derive = "PartialEq",
    shortname = "grant",
    category = "toolcrib",
    doc = "Which tools and feeds of which surfaces which agents may use.",
    printcolumn(name = "Agents", type_ = "string", json_path = ".status.agentNames"),
    printcolumn(
        name = "Matched",
        type_ = "integer",
        json_path = ".status.matchedAgents"
    ),
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
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.tools) && size(self.tools) > 0) || (has(self.feeds) && size(self.feeds) > 0)").message("set tools, such as [{surface: {name: trading-api}, allow: [get_quote]}], or feeds: a grant of neither gives nothing"))]
pub struct ToolGrantSpec {
    /// Names of Agents of this namespace.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub agents: Vec<String>,
    /// The tools, surface by surface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tools: Vec<ToolRule>,
    /// The feeds, surface by surface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub feeds: Vec<FeedRule>,
}

/// Whether the agents and tools that the grant names exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolGrantStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The first names of `spec.agents`, for `kubectl get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub agent_names: Option<String>,
    /// Number of named agents that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_agents: Option<u32>,
    /// Number of existing tools that the grant names, of surfaces that at least one of its agents
    /// declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
    /// `Accepted`, `Resolved`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
