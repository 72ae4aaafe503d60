//! Settings that an Agent and the namespace's ToolDefaults share.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib_manifest as manifest;

use crate::DurationText;

/// How the agent gets its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Mode {
    /// The mediator presents the tools to the model and executes the calls.
    Mediated,
    /// The runner calls the tools itself, over MCP at the mediator's `/mcp`. Nothing is
    /// added to its model requests.
    Native,
}

/// The harm that a call can do, from least to most.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Tier {
    /// Reads only.
    ReadOnly,
    /// Changes the agent's own data.
    Workspace,
    /// Changes other systems.
    System,
    /// Destructive, or needs a confirmation.
    Elevated,
}

/// Whether the runner gets text while the model still writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Streaming {
    /// The final reply is streamed once it is complete.
    Buffered,
    /// Text is streamed as the model writes it.
    Live,
}

/// Destination of the document that describes the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Context {
    /// The runner's file system.
    Mount,
    /// The model's prompt.
    Prompt,
    /// No document.
    None,
}

/// The network destinations that the agent's pods may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum Egress {
    /// No NetworkPolicy is written.
    Unrestricted,
    /// A NetworkPolicy allows the destinations of the agent's surfaces and providers, and
    /// `extraEgress`.
    Declared,
}

/// The treatment of an unprefixed model name that matches no allowed ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum UnknownModel {
    /// The request is served with the default model.
    Default,
    /// The request is refused.
    Refuse,
}

/// Whether a request may have the model's provider execute tools, connect to MCP servers and
/// fetch urls. The provider does that from its own network, past grants and egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum ProviderTools {
    /// Such requests pass.
    Allow,
    /// Such requests are refused.
    Refuse,
}

/// The models that the agent may request. Refs are `provider/model`, where the provider is a
/// ModelProvider of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Models {
    /// The model for requests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub default: Option<String>,
    /// The only refs that may be requested, besides `default`. Empty: `default` alone. Leave
    /// `models` out to allow every model of the namespace's providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub allowed: Vec<String>,
    /// Tried in order if a model fails, never if a model is refused. They need not be
    /// in `allowed`, and must speak the default's dialect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub fallbacks: Vec<String>,
    /// The treatment of an unprefixed name that matches no allowed ref. Built-in: Refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownModel>,
}

/// Budgets of one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.approvalWait) || !self.approvalWait.matches('^([0-9]{1,9}(ms|s|m|h)){1,4}$') || duration(self.approvalWait) <= duration('10m')").message("approvalWait is more than 10m: write at most that, since the same call can be made again later and meets the same question"))]
pub struct Policy {
    /// Limit on replies of the model with tool calls that are answered. Built-in: 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_rounds: Option<u32>,
    /// Deadline of one tool call. Built-in: 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_timeout: Option<DurationText>,
    /// Deadline of the whole turn. Built-in: 120s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_timeout: Option<DurationText>,
    /// Longest result; longer ones are visibly cut. Built-in: 16384.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_tool_result_bytes: Option<u32>,
    /// Whether the runner gets text while the model still writes it. Built-in: Buffered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// Tools above this tier are withheld. Built-in: System, which withholds Elevated tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tier: Option<Tier>,
    /// Whether a request may have the model's provider execute tools (web search, code, MCP
    /// servers) and fetch urls. Refuse wins over Allow, of Agent and ToolDefaults alike, and is
    /// always in force with egress: Declared. Built-in: Allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_tools: Option<ProviderTools>,
    /// Time for which a call waits for an approval, at most 10m. After it, the model is told to make the
    /// same call again later. Built-in: 2m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_wait: Option<DurationText>,
}

impl From<Mode> for manifest::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Mediated => Self::Mediated,
            Mode::Native => Self::Native,
        }
    }
}

impl From<Tier> for manifest::Tier {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::ReadOnly => Self::ReadOnly,
            Tier::Workspace => Self::Workspace,
            Tier::System => Self::System,
            Tier::Elevated => Self::Elevated,
        }
    }
}

impl From<manifest::Tier> for Tier {
    fn from(tier: manifest::Tier) -> Self {
        match tier {
            manifest::Tier::ReadOnly => Self::ReadOnly,
            manifest::Tier::Workspace => Self::Workspace,
            manifest::Tier::System => Self::System,
            manifest::Tier::Elevated => Self::Elevated,
        }
    }
}

impl From<Streaming> for manifest::Streaming {
    fn from(streaming: Streaming) -> Self {
        match streaming {
            Streaming::Buffered => Self::Buffered,
            Streaming::Live => Self::Live,
        }
    }
}

impl From<Context> for manifest::Context {
    fn from(context: Context) -> Self {
        match context {
            Context::Mount => Self::Mount,
            Context::Prompt => Self::Prompt,
            Context::None => Self::None,
        }
    }
}

impl From<UnknownModel> for manifest::UnknownModel {
    fn from(unknown: UnknownModel) -> Self {
        match unknown {
            UnknownModel::Default => Self::Default,
            UnknownModel::Refuse => Self::Refuse,
        }
    }
}
