//! An answer in each dialect: as one JSON document, and as the server-sent events that add
//! up to it. Pure; ids and the clock's second are part of the [`ModelReply`].

mod anthropic;
mod openai;
mod responses;

use serde_json::{Value, json};

use super::script::Call;
use crate::services::model::{Dialect, UsageSpec};

/// A reply whose templates are filled in.
#[derive(Clone, Debug)]
pub struct ModelReply {
    /// Unique within the process; every id of the answer is derived from it.
    pub number: u64,
    /// In Unix seconds.
    pub created: u64,
    pub model: String,
    pub text: Option<String>,
    pub reasoning: Option<String>,
    pub calls: Vec<Call>,
    pub finish: Option<String>,
    pub usage: UsageSpec,
    /// Of the request; the Responses API repeats it.
    pub previous_response_id: Option<String>,
    /// Set by OpenAI's `stream_options.include_usage`.
    pub usage_in_stream: bool,
}

/// The whole answer as one document.
pub fn document(dialect: Dialect, answer: &ModelReply) -> Value {
    match dialect {
        Dialect::OpenAi => openai::document(answer),
        Dialect::Anthropic => anthropic::document(answer),
        Dialect::Responses => responses::document(answer),
    }
}

/// The frames of a stream with its terminator, each ending in an empty line.
pub fn frames(dialect: Dialect, answer: &ModelReply) -> Vec<String> {
    match dialect {
        Dialect::OpenAi => openai::frames(answer),
        Dialect::Anthropic => anthropic::frames(answer),
        Dialect::Responses => responses::frames(answer),
    }
}

/// An error in the dialect's shape.
pub fn error(dialect: Dialect, status: u16, code: &str, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    match dialect {
        Dialect::OpenAi | Dialect::Responses => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
        Dialect::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
    }
}

/// A frame with data only, as in OpenAI's chat completions.
fn data_frame(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A frame whose event name is the data's own `type`.
fn typed_frame(data: &Value) -> String {
    format!(
        "event: {}\ndata: {data}\n\n",
        data["type"].as_str().unwrap_or_default()
    )
}

/// Splits text into pieces of a few characters, as models stream it. Returns at least one piece.
fn pieces(text: &str) -> Vec<String> {
    const PIECE: usize = 12;
    let characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return vec![String::new()];
    }
    characters
        .chunks(PIECE)
        .map(|piece| piece.iter().collect())
        .collect()
}
