//! The parts of requests and replies that the mediator uses, in one form for all dialects.
//!
//! Each dialect's module reads them. Not here: the bodies themselves ([`crate::Request`],
//! [`crate::Reply`]) and the edits.

use std::ops::Range;

use crate::usage::Usage;

/// The fields of a request that the mediator uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestView {
    /// Names of the runner's tools, in order; built-in tools by their type.
    pub tools: Vec<String>,
    pub tool_choice: ToolChoice,
    pub choices: u64,
    pub include_usage: bool,
    pub legacy_functions: bool,
}

/// The runner's `tool_choice`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Unset,
    Auto,
    None,
    /// At least one call (OpenAI `required`, Anthropic `any`).
    Required,
    /// This tool.
    Named(String),
    /// One of these tools, or text.
    AllowedAuto(Vec<String>),
    /// One of these tools.
    AllowedRequired(Vec<String>),
    /// A built-in tool of the provider, or an unknown form: kept unchanged.
    Other,
}

impl ToolChoice {
    /// Returns the tools that the choice names. Each must be a tool of the runner or a managed one.
    pub fn names(&self) -> &[String] {
        match self {
            ToolChoice::Named(name) => std::slice::from_ref(name),
            ToolChoice::AllowedAuto(names) | ToolChoice::AllowedRequired(names) => names,
            ToolChoice::Unset
            | ToolChoice::Auto
            | ToolChoice::None
            | ToolChoice::Required
            | ToolChoice::Other => &[],
        }
    }
}

/// The fields of a reply that the mediator uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyView {
    pub calls: Vec<RawCall>,
    pub content: Option<String>,
    pub finish: Option<String>,
    pub usage: Usage,
    pub choices: usize,
    /// Position of the first choice's message; only in Chat Completions.
    pub message: Range<usize>,
}

/// A tool call as the model wrote it, before its owner is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCall {
    /// The server's id, or a generated one if it sent none; see [`crate::Reply::identified`].
    pub id: String,
    pub name: String,
    /// The text that the model wrote; it may be invalid JSON (`""` is common).
    pub arguments: String,
    pub kind: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Arguments should be JSON.
    Function,
    /// Free text (OpenAI `custom`).
    Custom,
}

/// The result of one call, as the content of one JSON string. Calls are referred to by index, since
/// some servers send no ids, or repeat one.
///
/// In every dialect, this string is the only part of the next request that depends on the result.
/// So Anthropic's `is_error` is never set. Instead, the string tells the model whether the call
/// succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// Index in [`crate::Reply::calls`].
    pub call: usize,
    pub content: String,
}

/// The content of a history item, without the details that runners change when they store it: order
/// of keys, white space, `null` or `""`, thinking blocks, `cache_control`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryItem {
    pub role: String,
    pub parts: Vec<HistoryPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryPart {
    Text(String),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Result {
        call_id: String,
        content: String,
    },
    /// Any other part (images, files), as its JSON text.
    Other(String),
}

/// How a live stream handles an event of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Sent at once, unless events are held.
    Plain,
    /// Continues a part whose beginning the runner has got: sent at once.
    Continuation,
    /// Begins or continues a call: held.
    Call,
    /// Sent in another form, or not at all.
    Suppressed,
}
