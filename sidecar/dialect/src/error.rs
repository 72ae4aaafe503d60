//! The errors of decoding and encoding requests, replies and streams.

/// A request, reply or stream that cannot be decoded or is refused. The texts are safe to show to
/// the runner: they name fields, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    #[error("the body is not UTF-8")]
    NotUtf8,
    #[error("the body is not valid JSON: {0}")]
    NotJson(String),
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{field}` must be {expected}")]
    WrongType {
        field: &'static str,
        expected: &'static str,
    },
    #[error("`{0}` stands twice in the body")]
    Repeated(String),
    /// A field that could make a provider bypass policy, or that asks to fetch the answer later
    /// (`background`).
    #[error("`{0}` is not accepted here")]
    FieldRefused(String),
    /// A field that a lenient parser could decode as another field.
    #[error("`{name}` is not accepted here, since some providers read it as `{other}`")]
    FieldReadsAs { name: String, other: String },
    /// A field that makes the provider itself execute a tool, connect or fetch, although the
    /// agent's policy refuses that.
    #[error(
        "`{0}` makes the provider execute a tool or fetch a URL, which the agent's \
         policy.providerTools refuses (with egress: Declared it always does): leave it out"
    )]
    ProviderSide(String),
    /// A conversation, or a part of it, that is stored outside of the body.
    #[error(
        "`{0}` refers to a conversation that the provider stores, to which the mediator cannot add \
         the calls of granted tools: send the whole conversation"
    )]
    HeldElsewhere(&'static str),
    #[error("an event of the stream is larger than {limit} bytes")]
    StreamTooLarge { limit: usize },
    #[error("the reply is larger than {limit} bytes")]
    ReplyTooLarge { limit: usize },
    #[error("the stream ended before the reply was complete")]
    StreamCut,
    #[error("the stream holds an error of the provider: {0}")]
    StreamError(String),
}

impl From<serde_json::Error> for DialectError {
    fn from(error: serde_json::Error) -> Self {
        // serde_json names line and column, never the text around them.
        Self::NotJson(error.to_string())
    }
}
