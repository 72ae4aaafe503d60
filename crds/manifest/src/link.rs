//! The link's two messages (`POST /v1/link`). Level-triggered: each message contains the whole
//! state.
//!
//! No answer carries a secret, a URL, a schema or an argument. A mediator allows only what both the
//! loaded files and the allowlist allow, so the worst answer can deny. There is one exception: an
//! approval ([`crate::Decision`]) of a question that this mediator asked, holds open, and asked about a
//! call that its own files allow if a person agrees. The approval replaces the person, nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{BudgetUse, Decision, GrantRef, OpenQuestion, RateUse};

/// Limits the bytes of a report.
pub const LONGEST_REPORT: usize = 64 * 1024;
/// Limits the withheld tools and feeds that a report names. Those of a whole manifest could exceed
/// [`LONGEST_REPORT`].
pub const MOST_WITHHELD: usize = 16;
/// Limits the providers that a report names; most agents have one or two.
pub const MOST_PROVIDERS: usize = 8;
/// Limits the services without an answer that a report names.
pub const MOST_OUTAGES: usize = 8;
/// Limits the calls in a report.
pub const MOST_RECENT_CALLS: usize = 16;
/// Limits the bytes of a text in a report; longer ones are cut.
pub const LONGEST_TEXT: usize = 300;

/// A mediator's report. It does not contain the sender's identity: the operator takes pod and
/// namespace from the TokenReview of the bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUp {
    /// Chosen at process start; counters are cumulative within (pod uid, epoch).
    pub epoch: String,
    /// The sidecar's release.
    pub version: String,
    /// Names in `requires` that this release understands.
    #[serde(default)]
    pub understands: Vec<String>,
    /// `None` if no files were ever loaded.
    #[serde(default)]
    pub loaded: Option<LoadedVersion>,
    /// The reason for which the current files are not loaded; never contains their content.
    #[serde(default)]
    pub error: Option<String>,
    /// The `seq` of the newest answer that is in force.
    #[serde(default)]
    pub seen: u64,
    /// Time in milliseconds for which the operator may hold its answer while no newer one exists.
    /// If missing, it answers at once.
    #[serde(default)]
    pub hold_ms: u64,
    #[serde(default)]
    pub withheld: Vec<WithheldItem>,
    /// Providers that refuse every key that the files have for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<ProviderRefusal>,
    /// Services from which the last calls got no answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<ServiceOutage>,
    /// Providers from which the last requests got no answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provider_outages: Vec<ProviderOutage>,
    /// `None` if no request has come since the runner's tokens changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerAccess>,
    #[serde(default)]
    pub usage: Usage,
    /// This pod's use of the agent's budgets in the current periods. Unlike `usage`, it is kept
    /// when a new epoch begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetUse>,
    /// This pod's calls that rules with rates count now. At most [`crate::MOST_RATED_RULES`], those
    /// called last; kept when a new epoch begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateUse>,
    /// The questions that this pod holds open, at most [`crate::MOST_QUESTIONS`], and those whose
    /// approvals it has used. The operator withdraws a question that is not listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenQuestion>,
    /// The last line of this process's record. `None`: it is being written just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordHead>,
    /// Calls that ended since the last report that was answered, the oldest first: at most
    /// [`MOST_RECENT_CALLS`], the latest ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RecentCall>,
}

/// A call of a tool, without its arguments and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecentCall {
    /// As in the record.
    pub call_id: String,
    /// RFC 3339. The end of the call's request.
    pub at: String,
    /// The name by which the model called it, which may be no tool.
    pub tool: String,
    /// The error code that the model read; `None`: the call succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether the call was sent to the service.
    pub executed: bool,
    pub latency_ms: u64,
    /// The object that allowed the call; of a refused call, the object that gives the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantRef>,
    /// Digest of the rule that allowed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// The last line of the record of one process: whoever keeps it can tell later whether the lines up to
/// it are unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHead {
    /// Id of the chain.
    pub chain: String,
    /// Number of the line in its chain.
    pub seq: u64,
    /// SHA-256 of the line, in lower-case hexadecimal.
    pub hash: String,
}

/// The result of runner authentication since the valid tokens last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunnerAccess {
    /// At least one request had a valid token.
    Admitted,
    /// Every request with a token had an invalid one.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedVersion {
    pub manifest: String,
    pub credentials: String,
    /// RFC 3339.
    pub at: String,
}

/// A tool of the manifest that this mediator does not offer, and the code of the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WithheldItem {
    pub tool: String,
    pub reason: String,
}

/// A provider that refuses every key, and the reason. The reason continues a sentence that begins
/// with the provider's name, and never contains a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderRefusal {
    pub provider: String,
    pub reason: String,
}

/// A service from which the last calls got no answer, and the cause, without an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceOutage {
    /// The surface's name in the agent's spec.
    pub service: String,
    pub reason: String,
}

/// A provider from which the last requests got no answer, and the cause, without an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOutage {
    pub provider: String,
    pub reason: String,
}

/// Counters since the epoch began.
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
    /// RFC 3339. The time of the last executed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_call: Option<String>,
}

/// The operator's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDown {
    /// Rises with every change, also across leaders: a lower number is an older answer.
    pub seq: u64,
    #[serde(default)]
    pub want: Option<Want>,
    /// `None` if nothing is revoked, or if `agent` is `Deleted`, which revokes everything.
    #[serde(rename = "floor", default)]
    pub allowlist: Option<LinkAllowlist>,
    pub agent: AgentPresence,
    /// The use of the agent's budgets by its other pods, as far as they have reported it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetUse>,
    /// The calls of the agent's other pods that rules with rates count, as far as they have
    /// reported them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateUse>,
    /// The decisions on the questions that this pod has reported as open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    pub manifest: String,
    pub credentials: String,
}

/// The allowlist: the part of the loaded files that may still be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAllowlist {
    /// Canonical tool name → entry digest, for tools that a rule without conditions gives. Rules
    /// without conditions remain valid only for these tools.
    pub tools: BTreeMap<String, String>,
    /// Canonical tool name → the rules with conditions that remain valid. A mediator that does not
    /// read this field denies tools that only such rules give, since `tools` does not name them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, AllowedRules>,
    /// Names of the form `surface/feed`.
    pub feeds: Vec<String>,
    pub providers: Vec<String>,
    /// `None` if models are not restricted.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// Lists of globs. A model remains allowed too if it matches a glob of each list. `models` is
    /// an empty list then, so a mediator that does not read this field denies every model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models_matching: Vec<Vec<String>>,
}

/// The rules with conditions that may still be used for one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedRules {
    /// Entry digest of the tool.
    pub entry: String,
    /// Digests of the rules.
    pub rules: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentPresence {
    Present,
    /// Access is withdrawn: the agent is deleted or suspended. Mediators of every release refuse
    /// all requests and end running ones.
    Deleted,
}
