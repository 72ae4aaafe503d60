//! The line with the rules of a tool, so that a record holds the rules that its calls name.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use toolcrib_manifest::{RawJson, Rule};

/// The rules of one tool that has rules, as the compiled files have them. Written before the first line
/// after a load that changed them, and again at the beginning of each file. Rules of more than 64 KiB
/// are in several lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RulesLine<'a> {
    #[serde(borrow)]
    pub namespace: Cow<'a, str>,
    /// Name of the Agent.
    pub agent: Cow<'a, str>,
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    /// Digest of the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Cow<'a, str>>,
    /// Canonical name of the tool, `SURFACE.TOOL`.
    pub name: Cow<'a, str>,
    /// The list of rules. [`Self::read`] reads it.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<serde_json::Value>"))]
    pub rules: Cow<'a, RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

impl RulesLine<'_> {
    /// Returns the rules. A newer mediator may write rules that this release cannot read.
    pub fn read(&self) -> Result<Vec<Rule>, serde_json::Error> {
        serde_json::from_str(self.rules.get())
    }
}
