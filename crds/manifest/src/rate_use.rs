//! The calls that rules with rates have counted, as the link carries them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Limits the rules in a report, each for one tool. Those that were called last are reported.
pub const MOST_RATED_RULES: usize = 64;
/// Limits the slots of all rules in a report.
pub const MOST_RATE_SLOTS: usize = 1024;
/// The factor by which an answer may have more rules and slots than a report, since each pod may have
/// called other tools.
pub const ANSWER_TO_REPORT: usize = 4;

/// The calls of one tool that one rule counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateUse {
    /// Canonical tool name.
    pub tool: String,
    /// Digest of the rule. It covers the rates, so a rule with other rates begins at zero.
    pub rule: String,
    /// One for each rate of the rule, in the rule's order.
    pub counts: Vec<RateCount>,
}

/// The calls that one rate counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateCount {
    /// Calls by slot, a sixtieth of the period. Slots are numbered from the Unix epoch, so that pods
    /// agree on them without talking. A slot without calls is left out.
    pub calls: BTreeMap<i64, u64>,
    pub per_ms: u64,
}
