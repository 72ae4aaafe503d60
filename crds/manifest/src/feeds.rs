//! `feeds.json`: live data that is put into the agent's context.

use serde::{Deserialize, Serialize};

use crate::tools::in_order;
use crate::{Auth, SecretText};

/// The file is an array at the top level (ADR-020).
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
    /// The descriptor's path template, for the record.
    pub path: String,
    /// The name of the feed's surface.
    pub source: String,
    /// Seconds for which a fetched copy is fresh.
    #[serde(default = "default_ttl")]
    pub ttl: u64,
    /// The address of the feed; `{claw_id}` is filled in like a placeholder of a path.
    pub url: String,
}

fn default_ttl() -> u64 {
    60
}

/// An object as in `tools.json`, or a bare bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FeedAuth {
    Full(Auth),
    Bearer(SecretText),
}
