//! The lines about approvals: a question before it is asked, its end, and the approval in the line of
//! the call that it allowed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use toolcrib_manifest::{GrantRef, RawJson};

#[cfg(feature = "schema")]
use crate::fields::GrantSchema;
use crate::fields::is_empty;

/// Written before the operator is asked about a call that needs an approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuestionLine<'a> {
    /// The request of the first call that asked.
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    pub call_id: Cow<'a, str>,
    pub agent_id: Cow<'a, str>,
    pub namespace: Cow<'a, str>,
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    /// `native` for calls by the runner itself, as an MCP client. Omitted for calls by a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    /// Id of the question.
    pub question: Cow<'a, str>,
    /// Digest of the exact call.
    pub call_digest: Cow<'a, str>,
    /// Canonical name of the tool, `SURFACE.TOOL`.
    pub name: Cow<'a, str>,
    /// Digest of the tool's entry in the compiled files.
    pub entry: Cow<'a, str>,
    pub tier: Cow<'a, str>,
    /// The arguments as they will be sent, with sorted keys.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub arguments: Cow<'a, RawJson>,
    /// JSON pointers to the places of `arguments` in which a known secret was replaced.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub redacted: Cow<'a, [String]>,
    /// The rules that the call meets, all of which need an approval.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub rules: Cow<'a, [QuestionRule]>,
    /// The ClusterToolPolicies that need an approval.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub policies: Cow<'a, [String]>,
    pub expires_at: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// A rule that needs an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuestionRule {
    #[cfg_attr(feature = "schema", schemars(with = "GrantSchema"))]
    pub grant: GrantRef,
    /// Digest of the rule.
    pub rule: String,
}

/// The end of a question, or an approval that can be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionLine<'a> {
    #[serde(borrow)]
    pub pod: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<Cow<'a, str>>,
    pub timestamp: Cow<'a, str>,
    /// Id of the question.
    pub question: Cow<'a, str>,
    pub call_digest: Cow<'a, str>,
    /// Canonical name of the tool, `SURFACE.TOOL`.
    pub name: Cow<'a, str>,
    pub verdict: DecisionVerdict,
    /// The ToolApproval. Omitted if none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalName>,
    /// Usernames of the persons who decided.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub decided_by: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DecisionVerdict {
    Approved,
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The grant or the ToolApproval is gone, or the same call is asked about anew.
    Withdrawn,
    /// The operator made no ToolApproval.
    Refused,
}

impl DecisionVerdict {
    pub const ALL: [Self; 5] = [
        Self::Approved,
        Self::Denied,
        Self::Expired,
        Self::Withdrawn,
        Self::Refused,
    ];

    /// The word in a line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Refused => "refused",
        }
    }
}

/// A ToolApproval in the agent's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalName {
    pub name: String,
    pub uid: String,
}

/// The approval of a call that was sent. It is used from the line on that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsedApproval {
    /// Id of the question.
    pub question: String,
    /// Name and uid of the ToolApproval.
    pub name: String,
    pub uid: String,
    /// Usernames of the persons who decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_the_word_of_its_line() {
        for verdict in DecisionVerdict::ALL {
            let written = serde_json::to_value(verdict).unwrap();
            assert_eq!(written, verdict.word());
        }
    }
}
