//! ToolGrant: allows agents to use tools and feeds of surfaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AgentSelector, FeedRule, ToolRule};

/// Allows agents to use tools and feeds of surfaces. An agent's authority is the union of all grants
/// that name it or select it by its labels, and of the namespace's ToolDefaults: removing a grant
/// never adds a tool.
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
        name = "Active",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Active\")].status"
    ),
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
    ),
    printcolumn(
        name = "Until",
        type_ = "string",
        priority = 1,
        json_path = ".spec.notAfter"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.agents) && size(self.agents) > 0) || has(self.agentSelector)").message("set agents, such as [analyst], or agentSelector: a grant of neither is for no agent"))]
#[x_kube(validation = Rule::new("(has(self.tools) && size(self.tools) > 0) || (has(self.feeds) && size(self.feeds) > 0)").message("set tools, such as [{surface: {name: trading-api}, allow: [get_quote]}], or feeds: a grant of neither gives nothing"))]
#[x_kube(validation = Rule::new("!has(self.notBefore) || !has(self.notAfter) || self.notBefore < self.notAfter").message("notBefore is not earlier than notAfter: correct one of them"))]
pub struct ToolGrantSpec {
    /// Names of Agents of this namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub agents: Vec<String>,
    /// Selects Agents of this namespace by labels that begin with `grants.toolcrib.dev/`. The grant is
    /// for these agents and for those of `agents`. Only users who may create ToolGrants in the
    /// namespace may set, change or remove such labels on an Agent. Without the chart's admission
    /// policy that refuses everybody else, it selects no agent, and the status says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_selector: Option<AgentSelector>,
    /// The tools, surface by surface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tools: Vec<ToolRule>,
    /// The feeds, surface by surface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub feeds: Vec<FeedRule>,
    /// The grant gives nothing before this time, such as `2026-11-01T08:00:00Z`. The mediator
    /// compares it with its node's clock at each call. Feeds need a grant without times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub not_before: Option<String>,
    /// The grant gives nothing from this time on, such as `2026-12-31T00:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub not_after: Option<String>,
    /// true: the grant gives nothing, as if it were deleted. Removing the field gives it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

impl ToolGrantSpec {
    /// Returns whether `suspend` is true.
    pub fn is_suspended(&self) -> bool {
        self.suspend == Some(true)
    }
}

/// Whether the agents and tools that the grant names exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolGrantStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The first names of `spec.agents`, and of the other agents that `spec.agentSelector` selects,
    /// for `kubectl get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub agent_names: Option<String>,
    /// Number of existing agents that the grant names or selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_agents: Option<u32>,
    /// Number of existing tools that the grant names, of surfaces that at least one of its agents
    /// declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<u32>,
    /// `Accepted`, `Resolved`, `Ready` (both are True), and `Active`: whether the grant gives
    /// something now. It is False with Suspended, NotYet or Expired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
