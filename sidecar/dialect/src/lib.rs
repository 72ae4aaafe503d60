//! The model APIs' wire formats: reading the few fields that matter, lossless edits, SSE.
//!
//! A body stays the text it came in. [`Request::decode`] reads which model, tools and
//! messages a runner sent; [`Request::encode`] writes it again with an [`Edits`] applied,
//! and every byte that no edit names comes out as it went in. [`Reply::decode`] reads
//! what a model answered; [`Reply::items`] are what of it goes back into the history;
//! [`answer`] is what the runner gets, as JSON or re-streamed.
//!
//! [`Dialect`] is a closed enum: each function below matches on it once and calls the
//! dialect's module. What tools are, who owns a call and when to stop is not here.
//!
//! Nothing here panics on any input, and nothing here waits.
//!
//! ```
//! use toolcrib_dialect::{
//!     DeclaredTools, Dialect, Edits, Reply, Request, ToolDeclaration, ToolResult,
//! };
//!
//! let body = br#"{"model":"house/otter-1","messages":[{"role":"user","content":"hi"}]}"#;
//! let request = Request::decode(Dialect::OpenaiChat, body.to_vec())?;
//! let mut edits = Edits::new("otter-1");
//! let depth = ToolDeclaration {
//!     name: "pond__depth".into(),
//!     description: "How deep it is".into(),
//!     schema: r#"{"type":"object"}"#.into(),
//! };
//! edits.tools = DeclaredTools::new(Dialect::OpenaiChat, &[depth]);
//! let _upstream: Vec<u8> = request.encode(&edits)?;
//!
//! let reply = Reply::decode(Dialect::OpenaiChat, br#"{"choices":[{"finish_reason":"tool_calls",
//!     "message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",
//!     "function":{"name":"pond__depth","arguments":"{}"}}]}}]}"#.to_vec())?;
//! let results = vec![ToolResult {
//!     call: 0,
//!     content: r#"{"ok":true}"#.into(),
//! }];
//! edits.appended.extend(reply.items(&results, |_| None)?);
//! let _next: Vec<u8> = request.encode(&edits)?;
//! # Ok::<(), toolcrib_dialect::DialectError>(())
//! ```

mod answer;
mod anthropic;
mod error;
mod fields;
pub mod json;
mod live;
mod openai_chat;
mod provider_tools;
mod read;
mod reassembly;
mod reply;
mod request;
mod responses;
mod sse;
mod usage;

pub use answer::{Answered, answer, models_body, stored_items, terminal_answer};
pub use error::{DialectError, ErrorShape, error_body, error_events};
pub use live::Live;
pub use reassembly::Reassembly;
pub use reply::{CallKind, MAX_REPLY, RawCall, Reply, ToolResult};
pub use request::{
    DeclaredTools, Edits, HistoryItem, HistoryPart, Insertion, Request, StreamEdit, ToolChoice,
    ToolChoiceEdit, ToolDeclaration, history_item, may_be_reply, reference, respell,
};
pub use sse::{SseEvent, SseParser, frame, keepalive};
pub use usage::Usage;

/// What is joined to a provider's `base_url` to have the tokens of a request counted. Of the three
/// dialects only Anthropic's has that.
pub const COUNT_TOKENS: &str = "/messages/count_tokens";

/// A model API's wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// `POST /v1/chat/completions`
    OpenaiChat,
    /// `POST /v1/messages`
    AnthropicMessages,
    /// `POST /v1/responses`
    OpenaiResponses,
}

impl Dialect {
    pub const ALL: [Dialect; 3] = [
        Dialect::OpenaiChat,
        Dialect::AnthropicMessages,
        Dialect::OpenaiResponses,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "openai_chat",
            Dialect::AnthropicMessages => "anthropic_messages",
            Dialect::OpenaiResponses => "openai_responses",
        }
    }

    /// What is joined to a provider's `base_url`.
    pub fn resource(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "/chat/completions",
            Dialect::AnthropicMessages => "/messages",
            Dialect::OpenaiResponses => "/responses",
        }
    }
}
