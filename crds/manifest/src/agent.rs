//! `agent.json`: the agent's identity, its runner tokens, and its models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Budget, Dns, Tier};

/// Everything about the agent except its tools, providers and feeds.
///
/// Fields with a default may be missing in hand-written files; the operator writes all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFile {
    pub agent: String,
    /// At most one for each unit and period. If there is one, `requires` contains `budgets/1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// The agent's name for surfaces of its own namespace.
    pub claw_id: String,
    #[serde(default)]
    pub context: Context,
    /// The mediator does not interpret the digests; it reports them over the link.
    #[serde(default)]
    pub digest: Option<Digests>,
    /// `None` if the files were written by hand, by `run` or by an operator of an earlier release;
    /// names then resolve as for other programs of the machine. Omitted in that case, so that such
    /// files keep their manifest digests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// File name → hex SHA-256 of the file's bytes, for the other three files.
    #[serde(default)]
    pub files: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub identity: Identity,
    #[serde(default)]
    pub link: Option<LinkConfig>,
    #[serde(default = "Tier::elevated")]
    pub max_tier: Tier,
    #[serde(default)]
    pub mode: Mode,
    /// `None` if there is no model policy.
    #[serde(default)]
    pub models: Option<Models>,
    pub namespace: String,
    #[serde(default)]
    pub native: bool,
    /// Names of the ClusterToolPolicies that match the agent, in name order, at most
    /// [`crate::names::MAX_POLICIES`]. Only the record uses them: what the policies withhold is not in the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// The text of the tools document, with `context: Prompt`.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Whether the provider may act by itself for a request.
    #[serde(default, skip_serializing_if = "ProviderTools::is_allow")]
    pub provider_tools: ProviderTools,
    /// Names of restrictions that a reader must know. A reader that does not know one refuses the
    /// whole manifest.
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub streaming: Streaming,
    /// Set while the agent is suspended: every request is refused. Needs no name in `requires`,
    /// since the files of a suspended agent have no tools, feeds and providers: a reader that
    /// ignores the field has nothing to serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// All tokens are valid at the same time, so a rotation locks no runner out. An empty list
    /// admits no runner.
    pub tokens: Vec<RunnerToken>,
    pub version: u32,
}

/// The identity in `{claw_id}` and in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    #[default]
    Agent,
    Pod,
}

/// One accepted runner token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerToken {
    pub id: String,
    /// Lower-case hex SHA-256 of the string `agent:secret`, as sent after `Bearer `.
    pub sha256: String,
}

/// The models that the agent may use. Refs are `provider/model`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Models {
    #[serde(default)]
    pub allowed: Vec<String>,
    #[serde(default)]
    pub default: Option<String>,
    /// Tried in order if a candidate failed, never if one was refused.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// Lists of globs. A ref is allowed too if it matches a glob of each list. Set by policies for
    /// an agent that names no models itself, and empty otherwise. Needs no name in `requires`: the
    /// other lists are empty then, so a reader that ignores this field allows no model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matching: Vec<Vec<String>>,
    #[serde(default)]
    pub unknown: UnknownModel,
}

/// Treatment of a model name without a provider, if no allowed ref ends in that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnknownModel {
    Default,
    #[default]
    Refuse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streaming {
    #[default]
    Buffered,
    Live,
}

/// The suspension of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// One line, for the runner's users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Delivery of the tools document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Context {
    #[default]
    Mount,
    Prompt,
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    #[default]
    Mediated,
    Native,
}

/// Whether the provider may execute tools, connect to servers and fetch urls for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderTools {
    #[default]
    Allow,
    Refuse,
}

impl ProviderTools {
    fn is_allow(&self) -> bool {
        *self == Self::Allow
    }
}

/// `manifest`: digest of the files in force, safe to publish. `credentials`: changes when a
/// credential is rotated, without a hash of a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    pub credentials: String,
    pub manifest: String,
}

/// The link's address, the CA bundle that the mediator trusts there, and the audience of its token.
/// `kubectl toolcrib run` answers the link of its own mediator on this machine, without TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkConfig {
    pub audience: String,
    /// PEM bundle, valid longer than serving certificates. Not used without TLS.
    pub ca: String,
    /// `https://host:port`, without a path; `http://` without TLS.
    pub url: String,
}
