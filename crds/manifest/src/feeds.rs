//! `feeds.json`: live data that is put into the agent's context.

use serde::{Deserialize, Serialize};

use crate::tools::in_order;
use crate::{Auth, SecretText};

/// An array at the top level, as ADR-020 has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeedsFile(pub Vec<Feed>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "in_order"
    )]
    pub auth: Option<FeedAuth>,
    /// See [`crate::ToolExtension::foreign`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    pub name: String,
    /// The descriptor's template, for the record.
    pub path: String,
    /// The surface it comes from.
    pub source: String,
    /// Seconds.
    #[serde(default = "default_ttl")]
    pub ttl: u64,
    /// What is fetched; `{claw_id}` is filled in by the placeholder rules.
    pub url: String,
}

fn default_ttl() -> u64 {
    60
}

/// As in `tools.json`, or a bare bearer string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FeedAuth {
    Full(Auth),
    Bearer(SecretText),
}
