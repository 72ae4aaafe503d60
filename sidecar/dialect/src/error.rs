//! Errors in a body, and the error format of each dialect.

use crate::{Dialect, json, sse};

/// An error in a body. The texts are safe to show to the runner: they name fields, never values.
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
    /// A field that would direct a provider past policy.
    #[error("`{0}` is not accepted here")]
    FieldRefused(String),
    /// A field that some reader takes for a field that the mediator reads or refuses.
    #[error("`{name}` is not accepted here, since some providers read it as `{other}`")]
    FieldReadsAs { name: String, other: String },
    /// A field that makes the provider itself execute a tool, connect or fetch, although the
    /// agent's policy refuses that.
    #[error(
        "`{0}` asks the provider itself to execute a tool or to fetch a url, and the agent's \
         policy refuses that (policy.providerTools is Refuse, as always with egress: Declared)"
    )]
    ProviderSide(String),
    /// A conversation, or a part of it, that is stored outside of the body.
    #[error(
        "`{0}` stands for what only the provider holds, and the granted tools' calls belong into \
         it: send the whole conversation"
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

/// An error for the runner, independent of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorShape<'a> {
    /// HTTP status of the response; selects the dialect's error type.
    pub status: u16,
    /// Stable code, for programs.
    pub code: &'a str,
    /// Text for people.
    pub message: &'a str,
}

/// The JSON body of an HTTP error.
pub fn error_body(dialect: Dialect, error: ErrorShape<'_>) -> Vec<u8> {
    error_json(dialect, error).into_bytes()
}

/// Encodes an error after a stream began, and the end of the stream.
///
/// The `error` event of Anthropic and of the Responses API ends the stream itself: Anthropic's SDKs
/// raise on it, OpenAI's pass it on, and no further event is defined.
pub fn error_events(dialect: Dialect, error: ErrorShape<'_>) -> Vec<u8> {
    match dialect {
        Dialect::OpenaiChat => {
            let mut out = sse::frame(None, &error_json(dialect, error));
            out.push_str(&sse::frame(None, "[DONE]"));
            out
        }
        Dialect::AnthropicMessages => sse::frame(Some("error"), &error_json(dialect, error)),
        // The mediator sends no other event before it.
        Dialect::OpenaiResponses => responses_error(error, 0),
    }
    .into_bytes()
}

/// Encodes the error as the event with this number.
pub(crate) fn responses_error(error: ErrorShape<'_>, number: u64) -> String {
    sse::frame(
        Some("error"),
        &json::object(&[
            ("type", json::quote("error")),
            ("code", json::quote(error.code)),
            ("message", json::quote(error.message)),
            ("param", "null".into()),
            ("sequence_number", number.to_string()),
        ]),
    )
}

fn error_json(dialect: Dialect, error: ErrorShape<'_>) -> String {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses => json::object(&[(
            "error",
            json::object(&[
                ("message", json::quote(error.message)),
                ("type", json::quote(openai_type(error.status))),
                ("param", "null".into()),
                ("code", json::quote(error.code)),
            ]),
        )]),
        Dialect::AnthropicMessages => json::object(&[
            ("type", json::quote("error")),
            (
                "error",
                json::object(&[
                    ("type", json::quote(anthropic_type(error.status))),
                    ("message", json::quote(error.message)),
                    ("code", json::quote(error.code)),
                ]),
            ),
        ]),
    }
}

fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

/// Anthropic's closed vocabulary.
fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

impl From<serde_json::Error> for DialectError {
    fn from(error: serde_json::Error) -> Self {
        // serde_json names line and column, never the text around them.
        Self::NotJson(error.to_string())
    }
}
