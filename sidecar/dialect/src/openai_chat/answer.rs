//! The reply as JSON for the runner.

use super::reply;
use crate::json::{self, Change, Object};
use crate::read;
use crate::view::RequestView;
use crate::{DialectError, Usage};

pub(crate) fn whole(
    request: &RequestView,
    text: &str,
    usage: Option<Usage>,
) -> Result<String, DialectError> {
    let summed = match usage {
        Some(usage) => edit_usage(text, usage)?,
        None => text.to_string(),
    };
    if request.legacy_functions {
        return edit_choice(&summed, legacy_choice);
    }
    Ok(summed)
}

pub(crate) fn stored(request: &RequestView, text: &str) -> Result<Vec<String>, DialectError> {
    let message = reply::message(text)?;
    Ok(vec![if request.legacy_functions {
        legacy_message(message)?
    } else {
        message.to_string()
    }])
}

pub(crate) fn emptied(text: &str) -> Result<String, DialectError> {
    edit_choice(text, |choice| {
        let fields = read::scan_object(choice, "choices")?;
        let message = json::object(&[
            ("role", json::quote("assistant")),
            ("content", json::quote("")),
        ]);
        Ok(fields.edit(
            choice,
            |member| match member.key.as_str() {
                "message" => Change::Set(message.clone()),
                "finish_reason" => Change::Set(json::quote("stop")),
                "logprobs" => Change::Set("null".into()),
                _ => Change::Keep,
            },
            &[],
        ))
    })
}

/// Writes the turn's sums into the usage object.
pub(super) fn summed_usage(raw: Option<&str>, usage: Usage) -> Result<String, DialectError> {
    reply::USAGE.write(raw.filter(|raw| !json::is_null(raw)), usage)
}

fn edit_usage(text: &str, usage: Usage) -> Result<String, DialectError> {
    let body = Object::scan(text)?;
    let summed = summed_usage(body.get(text, "usage"), usage)?;
    let added = match body.member("usage") {
        Some(_) => Vec::new(),
        None => vec![("usage", summed.clone())],
    };
    Ok(body.edit(
        text,
        |member| match member.key.as_str() {
            "usage" => Change::Set(summed.clone()),
            _ => Change::Keep,
        },
        &added,
    ))
}

fn edit_choice(
    text: &str,
    edit: impl FnOnce(&str) -> Result<String, DialectError>,
) -> Result<String, DialectError> {
    let body = Object::scan(text)?;
    let raw = body
        .get(text, "choices")
        .ok_or(DialectError::Missing("choices"))?;
    let choices = read::scan_array(raw, "choices")?;
    let edited = edit(reply::first_choice(text)?)?;
    let choices = choices.edit(
        raw,
        |at| {
            if at == 0 {
                Change::Set(edited.clone())
            } else {
                Change::Keep
            }
        },
        &[],
    );
    Ok(body.edit(
        text,
        |member| match member.key.as_str() {
            "choices" => Change::Set(choices.clone()),
            _ => Change::Keep,
        },
        &[],
    ))
}

/// Writes `tool_calls` as `function_call`, for runners of legacy `functions`.
fn legacy_choice(choice: &str) -> Result<String, DialectError> {
    let fields = read::scan_object(choice, "choices")?;
    let message = fields
        .get(choice, "message")
        .ok_or(DialectError::Missing("choices[0].message"))?;
    let message = legacy_message(message)?;
    Ok(fields.edit(
        choice,
        |member| match member.key.as_str() {
            "message" => Change::Set(message.clone()),
            "finish_reason" if choice[member.value.clone()] == *"\"tool_calls\"" => {
                Change::Set(json::quote("function_call"))
            }
            _ => Change::Keep,
        },
        &[],
    ))
}

pub(super) fn legacy_message(message: &str) -> Result<String, DialectError> {
    let fields = read::scan_object(message, "message")?;
    let calls = reply::calls(message)?;
    let added = match (calls.first(), fields.member("function_call")) {
        (Some(call), None) => vec![(
            "function_call",
            json::object(&[
                ("name", json::quote(&call.name)),
                ("arguments", json::quote(&call.arguments)),
            ]),
        )],
        _ => Vec::new(),
    };
    Ok(fields.edit(
        message,
        |member| match member.key.as_str() {
            "tool_calls" => Change::Drop,
            _ => Change::Keep,
        },
        &added,
    ))
}
