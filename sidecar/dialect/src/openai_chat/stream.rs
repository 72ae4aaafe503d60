//! Encodes a whole reply as chunks.
//!
//! Every member of the message becomes one delta; unknown members (`reasoning_content`,
//! `annotations`, `audio`, …) keep their names.

use super::answer::{legacy_message, summed_usage};
use super::reply;
use crate::json::{self, Change, Object};
use crate::read;
use crate::view::RequestView;
use crate::{DialectError, Usage, sse};

pub(crate) fn events(
    request: &RequestView,
    text: &str,
    usage: Option<Usage>,
) -> Result<String, DialectError> {
    let body = Object::scan(text)?;
    let chunk = Chunk::new(text, &body, request.include_usage);
    let own_message = reply::message(text)?;
    let message = if request.legacy_functions {
        legacy_message(own_message)?
    } else {
        own_message.to_string()
    };
    let mut out = String::with_capacity(text.len() * 2);
    for delta in std::iter::once(role(&message)?).chain(deltas(&message)?) {
        let delta = json::array(&[delta_choice(&delta, None, None)]);
        out.push_str(&sse::frame(None, &chunk.with(&delta, None)));
    }
    for data in ending(request, text, usage)? {
        out.push_str(&sse::frame(None, &data));
    }
    Ok(out)
}

/// Returns the first chunk, with the role and no text.
pub(super) fn opening(request: &RequestView, text: &str) -> Result<String, DialectError> {
    let body = Object::scan(text)?;
    let chunk = Chunk::new(text, &body, request.include_usage);
    let delta = delta_choice(&role(reply::message(text)?)?, None, None);
    Ok(chunk.with(&json::array(&[delta]), None))
}

/// Returns the chunks after the message: finish reason, usage, `[DONE]`.
pub(super) fn ending(
    request: &RequestView,
    text: &str,
    usage: Option<Usage>,
) -> Result<Vec<String>, DialectError> {
    let body = Object::scan(text)?;
    let choice = reply::first_choice(text)?;
    let choice_fields = read::scan_object(choice, "choices")?;
    let chunk = Chunk::new(text, &body, request.include_usage);
    let finish = choice_fields.get(choice, "finish_reason").unwrap_or("null");
    let finish = match finish {
        "\"tool_calls\"" if request.legacy_functions => "\"function_call\"",
        finish => finish,
    };
    let logprobs = choice_fields.get(choice, "logprobs");
    let last = delta_choice("{}", logprobs, Some(finish));
    let mut out = vec![chunk.with(&json::array(&[last]), None)];
    if request.include_usage {
        let raw = body.get(text, "usage");
        let said = match usage {
            Some(usage) => summed_usage(raw, usage)?,
            None => raw.unwrap_or("null").to_string(),
        };
        out.push(chunk.with("[]", Some(&said)));
    }
    out.push("[DONE]".into());
    Ok(out)
}

/// The members that all chunks of a reply share: the body without choices and usage.
struct Chunk<'t> {
    text: &'t str,
    body: &'t Object,
    null_usage: bool,
}

impl<'t> Chunk<'t> {
    fn new(text: &'t str, body: &'t Object, null_usage: bool) -> Self {
        Self {
            text,
            body,
            null_usage,
        }
    }

    fn with(&self, choices: &str, usage: Option<&str>) -> String {
        let usage = usage.or(self.null_usage.then_some("null"));
        let mut added = vec![("choices", choices.to_string())];
        added.extend(usage.map(|usage| ("usage", usage.to_string())));
        if self.body.member("object").is_none() {
            added.push(("object", json::quote("chat.completion.chunk")));
        }
        self.body.edit(
            self.text,
            |member| match member.key.as_str() {
                "choices" | "usage" => Change::Drop,
                "object" => Change::Set(json::quote("chat.completion.chunk")),
                _ => Change::Keep,
            },
            &added,
        )
    }
}

fn delta_choice(delta: &str, logprobs: Option<&str>, finish: Option<&str>) -> String {
    let mut members = vec![("index", "0".to_string()), ("delta", delta.to_string())];
    members.extend(logprobs.map(|logprobs| ("logprobs", logprobs.to_string())));
    members.push(("finish_reason", finish.unwrap_or("null").to_string()));
    json::object(&members)
}

/// Returns the first delta: the role, and no text.
fn role(message: &str) -> Result<String, DialectError> {
    let fields = read::scan_object(message, "message")?;
    let role = fields.get(message, "role").unwrap_or("\"assistant\"");
    let opening = match fields.get(message, "content") {
        Some(raw) if raw.starts_with('"') => json::quote(""),
        _ => "null".to_string(),
    };
    Ok(json::object(&[
        ("role", role.to_string()),
        ("content", opening),
    ]))
}

/// Returns one delta for each non-empty member except the role, and one for each call.
fn deltas(message: &str) -> Result<Vec<String>, DialectError> {
    let fields = read::scan_object(message, "message")?;
    let mut deltas = Vec::new();
    for member in &fields.members {
        let raw = &message[member.value.clone()];
        match member.key.as_str() {
            "role" => {}
            _ if json::is_null(raw) || raw == "\"\"" || raw == "[]" => {}
            "tool_calls" => {
                for (index, call) in read::scan_array(raw, "tool_calls")?.texts(raw).enumerate() {
                    let calls = json::array(&[indexed(call, index)?]);
                    deltas.push(json::object(&[("tool_calls", calls)]));
                }
            }
            key => deltas.push(json::object(&[(key, raw.to_string())])),
        }
    }
    Ok(deltas)
}

/// Adds the index to a call: chunks need one, and whole replies have none.
fn indexed(call: &str, index: usize) -> Result<String, DialectError> {
    let fields = read::scan_object(call, "tool_calls")?;
    let bare = fields.edit(
        call,
        |member| match member.key.as_str() {
            "index" => Change::Drop,
            _ => Change::Keep,
        },
        &[("index", index.to_string())],
    );
    Ok(bare)
}
