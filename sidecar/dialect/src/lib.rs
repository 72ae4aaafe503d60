//! The wire formats of the model APIs: reading a few fields, lossless edits, SSE.
//!
//! A body stays the text that was received. [`Request::decode`] reads the model, tools and messages
//! of a runner's request; [`Request::encode`] writes it with an [`Edits`] applied, and leaves every
//! other byte unchanged. [`Reply::decode`] reads a model's reply; [`Reply::items`] returns the
//! history items of a hidden round; [`answer`] encodes it for the runner, as JSON or as a stream.
//!
//! [`Dialect`] is a closed enum: each function below matches on it once and calls the dialect's
//! module. Not here: the meaning of tools, the owner of a call, and the end of a turn.
//!
//! No function panics on any input, and none waits.
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
mod edits;
mod error;
pub mod json;
mod openai_chat;
mod read;
mod reply;
mod request;
mod responses;
mod sse;
mod usage;
mod view;

pub use answer::error_body::{ErrorShape, error_body, error_events};
pub use answer::live::Live;
pub use answer::{AnswerBody, answer, models_body, stored_items, terminal_answer};
pub use edits::{
    DeclaredTools, Edits, Insertion, PreviousResponse, StreamEdit, ToolChoiceEdit, ToolDeclaration,
};
pub use error::DialectError;
pub use reply::reassembly::Reassembly;
pub use reply::{MAX_REPLY, Reply};
pub use request::known_tools::KnownTools;
pub use request::{Request, UndecodedRequest, history_item, may_be_reply, reference, rename_calls};
pub use sse::{SseEvent, SseParser, frame, keepalive};
pub use usage::Usage;
pub use view::{CallKind, HistoryItem, HistoryPart, RawCall, ToolChoice, ToolResult};

/// Path of token counting, appended to a provider's `base_url`. Only Anthropic's dialect has it.
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

    /// Returns the path of the model API, to append to a provider's `base_url`.
    pub fn resource(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "/chat/completions",
            Dialect::AnthropicMessages => "/messages",
            Dialect::OpenaiResponses => "/responses",
        }
    }
}
