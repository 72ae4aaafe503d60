//! The link's two messages (`POST /v1/link`). Level-triggered: each message is whole.
//!
//! Nothing that comes down carries a secret, a URL or a schema: effective authority is
//! what is loaded ∩ the floor, so the worst answer can deny, never grant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest report that the operator reads, in bytes.
pub const LONGEST_REPORT: usize = 64 * 1024;
/// How many withheld tools and feeds a report names. Those of a whole manifest could be longer
/// than [`LONGEST_REPORT`].
pub const MOST_WITHHELD: usize = 16;
/// How long a text of a report is, in bytes, before it is cut.
pub const LONGEST_TEXT: usize = 300;

/// What a mediator says of itself. The sender's identity is not in here: the operator
/// takes pod and namespace from the TokenReview of the bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUp {
    /// Chosen at process start; counters are cumulative within (pod uid, epoch).
    pub epoch: String,
    /// The sidecar's release.
    pub version: String,
    /// Names this release understands in `requires`.
    #[serde(default)]
    pub understands: Vec<String>,
    /// `None`: nothing was ever loaded.
    #[serde(default)]
    pub loaded: Option<Loaded>,
    /// Why the files that are there now are not loaded; never a file's content.
    #[serde(default)]
    pub error: Option<String>,
    /// The `seq` of the last answer that is in force.
    #[serde(default)]
    pub seen: u64,
    /// How long the operator may hold its answer while that is still the latest one, in
    /// milliseconds. Missing: it answers at once.
    #[serde(default)]
    pub hold_ms: u64,
    #[serde(default)]
    pub withheld: Vec<Withheld>,
    /// `None`: no request has come since the runner's tokens changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerAccess>,
    #[serde(default)]
    pub usage: Usage,
}

/// How the mediator answered the runner's token since the valid tokens last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunnerAccess {
    /// At least one request had a valid token.
    Admitted,
    /// Every request that had a token had one that is not valid.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    pub manifest: String,
    pub credentials: String,
    /// RFC 3339.
    pub at: String,
}

/// A tool of the manifest that this mediator does not offer, and why (a code).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Withheld {
    pub tool: String,
    pub reason: String,
}

/// Cumulative since the epoch began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub requests: u64,
    pub rounds: u64,
    pub calls: u64,
    pub failed: u64,
    pub denied: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// RFC 3339 of the last executed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_call: Option<String>,
}

/// The operator's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDown {
    /// Rises with every change, over changes of the leader too: a lower one is an older one.
    pub seq: u64,
    #[serde(default)]
    pub want: Option<Want>,
    /// `None`: takes nothing away.
    #[serde(default)]
    pub floor: Option<Floor>,
    pub agent: AgentPresence,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    pub manifest: String,
    pub credentials: String,
}

/// What is left standing of what the volume gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// Canonical tool name → entry digest.
    pub tools: BTreeMap<String, String>,
    /// `surface/feed`.
    pub feeds: Vec<String>,
    pub providers: Vec<String>,
    /// `None`: models are not restricted.
    #[serde(default)]
    pub models: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentPresence {
    Present,
    Deleted,
}
