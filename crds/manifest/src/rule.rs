//! The rules by which grants give one tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{GrantRef, RawJson};

/// One entry of a grant, for one tool. A call may run if it meets one rule of its tool.
///
/// A rule without conditions is met by every call. `toolcrib-rules` decides whether a call meets a
/// rule, for mediator and command line alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// A person must approve each call that meets the rule. Who may approve is the operator's
    /// matter. `requires` of the tool contains [`crate::names::APPROVAL`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval: bool,
    /// JSON Schema with `properties` and `required` that the arguments must match, in addition to
    /// the tool's own schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RawJson>,
    /// The entry has `enforcement: Audit`: a call that `arguments`, `rate` or `when` would refuse
    /// still runs, and the record says so. A mediator that does not know this field refuses the
    /// call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub audit: bool,
    /// Digest over the conditions in a versioned form (`r1:<hex>`). Names of grants are not in it:
    /// two grants with the same conditions have the same digest.
    pub digest: String,
    pub grant: GrantRef,
    /// RFC 3339. The rule gives nothing from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
    /// RFC 3339. The rule gives nothing before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Top-level arguments with the only value that they may have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pin: BTreeMap<String, RawJson>,
    /// Limits on the number of calls that the rule allows. A call must be within each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<Rate>,
    /// Conditions that must all hold for a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<Condition>,
}

/// An expression over a call, and the message for a call for which it does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// An expression in the subset of CEL that `toolcrib_rules::expression` defines.
    pub expression: String,
    /// The text for the model. It has no influence on the decision, so the rule's digest does not
    /// cover it.
    pub message: String,
}

/// A rate limit: at most `calls` calls of one tool in any period of `per_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rate {
    pub calls: u32,
    /// Milliseconds, at most 24 hours.
    pub per_ms: u64,
}

impl Rule {
    /// Returns true if every call meets the rule at any time.
    pub fn is_unconditional(&self) -> bool {
        let Self {
            approval,
            arguments,
            // The compiler sets `audit` only with one of the conditions that are checked below.
            audit: _,
            digest: _,
            grant: _,
            not_after,
            not_before,
            pin,
            rate,
            when,
        } = self;
        !approval
            && arguments.is_none()
            && not_after.is_none()
            && not_before.is_none()
            && pin.is_empty()
            && rate.is_empty()
            && when.is_empty()
    }
}
