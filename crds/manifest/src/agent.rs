//! `agent.json`: who the agent is, who may speak for it, and which models it may use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Dns, Tier};

/// Everything about the agent but its tools, providers and feeds.
///
/// Fields with a default may be missing in hand-written files; the operator writes all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFile {
    pub agent: String,
    /// The agent's name towards surfaces of its own namespace.
    pub claw_id: String,
    #[serde(default)]
    pub context: Context,
    /// Opaque to the mediator; it reports them back.
    #[serde(default)]
    pub digest: Option<Digests>,
    /// `None`: the files were written by hand, by `run` or by an operator of an earlier release,
    /// and names resolve as they do for other programs of the machine. Left out then, so that manifest
    /// digests of such files are those of earlier releases.
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
    /// `None`: no model policy.
    #[serde(default)]
    pub models: Option<Models>,
    pub namespace: String,
    #[serde(default)]
    pub native: bool,
    /// The tools document itself, with `context: Prompt`.
    #[serde(default)]
    pub prompt: Option<String>,
    /// What the provider may do by itself for a request.
    #[serde(default, skip_serializing_if = "ProviderTools::is_allow")]
    pub provider_tools: ProviderTools,
    /// Names of restrictions a reader must know; one that it does not: the whole
    /// manifest is refused.
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub streaming: Streaming,
    /// All are valid at the same time, so a rotation locks no runner out. An empty list admits no
    /// runner.
    pub tokens: Vec<RunnerToken>,
    pub version: u32,
}

/// What `{claw_id}` and the record carry.
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

/// Which models the agent may ask for. Refs are `provider/model`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Models {
    #[serde(default)]
    pub allowed: Vec<String>,
    #[serde(default)]
    pub default: Option<String>,
    /// Tried in order when a candidate failed, never when one was refused.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    #[serde(default)]
    pub unknown: UnknownModel,
}

/// What an unprefixed model name that no allowed ref ends in means.
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

/// Where the tools document goes.
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

/// Whether a request may have the provider execute tools, connect to servers and fetch urls.
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

/// `manifest`: what is in force, safe to publish. `credentials`: proves a rotation
/// without hashing a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digests {
    pub credentials: String,
    pub manifest: String,
}

/// How to reach the operator's leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkConfig {
    pub audience: String,
    /// PEM bundle that outlives serving certificates.
    pub ca: String,
    /// `https://host:port`, without a path.
    pub url: String,
}
