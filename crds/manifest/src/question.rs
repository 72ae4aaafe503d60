//! Questions of a mediator to persons, and their answers.
//!
//! A mediator asks with a request of its own ([`crate::names::QUESTIONS_PATH`]), names its open
//! questions in each report, and gets the decisions in the link's answers.
//!
//! Invariant: a decision carries no argument, URL, schema or secret. An approval stands for the
//! person and for nothing else: the mediator takes it only for a question that it asked and holds
//! open, with the digest that it computed itself.

use serde::{Deserialize, Serialize};

use crate::GrantRef;

/// Limits the open questions of one pod.
pub const MOST_QUESTIONS: usize = 8;
/// Limits the bytes of a question's request.
pub const LONGEST_QUESTION: usize = 32 * 1024;
/// Limits the bytes of [`Question::arguments`].
pub const LONGEST_QUESTION_ARGUMENTS: usize = 16 * 1024;
/// Limits [`Question::rules`]. A person who may approve by one of them is enough.
pub const MOST_ASKING_RULES: usize = 32;
/// Limits [`Question::redacted`].
pub const MOST_REDACTED: usize = 64;
/// Limits the bytes of [`OpenQuestion::code`].
pub const LONGEST_CODE: usize = 64;
/// Limits the bytes of [`Decision::reason`].
pub const LONGEST_REASON: usize = 512;

/// One call that needs an approval. The sender's identity is not in it: the operator takes pod,
/// agent and namespace from the TokenReview of the bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// 128 random bits in lower-case hex. The record has it before the question is sent.
    pub id: String,
    /// Digest of the call, `c1:<hex>` (`toolcrib_rules::CallIdentity`).
    pub call_digest: String,
    /// Canonical tool name.
    pub tool: String,
    /// Digest of the tool's entry in the loaded files.
    pub entry: String,
    /// The call's arguments in canonical JSON, as they will be sent, but for known secrets, which are
    /// replaced.
    pub arguments: String,
    /// JSON pointers to the places of [`Self::arguments`] in which a known secret was replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// The rules that the call meets. All of them need an approval; empty if only the tool's tier or a
    /// policy asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AskingRule>,
    /// RFC 3339, by the clock of the pod's node.
    pub asked_at: String,
    /// Milliseconds for which the question stays open.
    pub open_for_ms: u64,
}

/// A rule that needs an approval for a call that meets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskingRule {
    pub grant: GrantRef,
    /// Digest of the rule.
    pub rule: String,
}

/// The operator's answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuestionAnswer {
    /// The ToolApproval exists.
    Asked(ApprovalRef),
    /// No ToolApproval was made.
    Refused {
        why: QuestionRefusal,
        /// Continues a sentence that begins with the tool's name.
        message: String,
    },
}

/// The reason for which the operator makes no ToolApproval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuestionRefusal {
    /// Pod, agent, namespace or cluster have as many open questions as they may have.
    TooManyPending,
    /// People denied this agent several times within an hour.
    TooManyDenied,
    /// The operator's own compilation does not give the tool with this entry digest.
    NotGranted,
    /// The chart's admission policies for decisions do not hold, so no decision could be trusted.
    NotProtected,
    /// `kubectl toolcrib run` has no terminal on which to ask. An operator never says so.
    NoTerminal,
}

/// A ToolApproval in the agent's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ApprovalRef {
    pub name: String,
    pub uid: String,
}

/// The end of a question. Level-triggered: sent in each answer while the mediator reports the
/// question as open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The question's id.
    pub id: String,
    /// Empty if the operator knows no ToolApproval of the question; never with [`Verdict::Approved`].
    pub call_digest: String,
    pub verdict: Verdict,
    /// `None` if no ToolApproval was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalRef>,
    /// Usernames of the persons who decided, for the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<String>,
    /// A person's words, or the operator's. At most [`LONGEST_REASON`] bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Approved,
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The pod, the grant, or the ToolApproval is gone.
    Withdrawn,
}

/// An open question in a mediator's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    pub id: String,
    /// Set once the question's approval was used, with the result; the mediator reports it until the
    /// operator no longer lists a decision for the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ApprovalUse>,
    /// With [`ApprovalUse::Refused`], the result code of the call, such as `rate_limited`: `a` to `z`, digits
    /// and `_`, at most [`LONGEST_CODE`]. Mediators of earlier releases do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What became of an approved call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApprovalUse {
    Succeeded,
    Failed,
    /// The mediator ended between the call and its result.
    Unknown,
    /// The call was refused when it was decided again, although it was approved.
    Refused,
}
