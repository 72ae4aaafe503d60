//! Errors for the runner, in the format of each dialect.

use crate::{Dialect, json, sse};

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

/// Encodes an error for a stream that has begun, and the end of the stream.
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
        // 0, because the mediator sends no other event before this one.
        Dialect::OpenaiResponses => responses_error(error, 0),
    }
    .into_bytes()
}

/// Encodes an error event of the Responses API. `number`: its sequence number.
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

/// Returns an error type from Anthropic's closed list.
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
