//! The reply: the first choice's message.

use std::ops::Range;

use crate::json::{self, Change, Object};
use crate::read::{scan_array, scan_object};
use crate::usage::Names;
use crate::view::ReplyView;
use crate::{CallKind, DialectError, RawCall, ToolResult, Usage};

pub(crate) fn view(text: &str) -> Result<ReplyView, DialectError> {
    let body = Object::scan(text)?;
    let listed = body
        .member("choices")
        .ok_or(DialectError::Missing("choices"))?
        .value
        .clone();
    let choices = scan_array(&text[listed.clone()], "choices")?;
    let first = choices
        .items
        .first()
        .ok_or(DialectError::Missing("choices[0]"))?;
    let first = within(&listed, &first.value);
    let choice = &text[first.clone()];
    let fields = scan_object(choice, "choices")?;
    let place = fields
        .member("message")
        .ok_or(DialectError::Missing("choices[0].message"))?;
    let place = within(&first, &place.value);
    let message = &text[place.clone()];
    let parts = scan_object(message, "message")?;
    Ok(ReplyView {
        calls: calls_of(message, &parts)?,
        content: content(message, &parts)?,
        finish: fields.get(choice, "finish_reason").and_then(json::string),
        usage: body.get(text, "usage").map(usage).unwrap_or_default(),
        choices: choices.items.len(),
        message: place,
    })
}

/// The place of a part of a part.
fn within(outer: &Range<usize>, inner: &Range<usize>) -> Range<usize> {
    outer.start + inner.start..outer.start + inner.end
}

/// `message`: that of the reply.
pub(crate) fn items(
    message: &str,
    calls: &[RawCall],
    results: &[ToolResult],
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>, DialectError> {
    let mut items = vec![with_calls(message, calls, results, rename)?];
    for result in results {
        let id = calls.get(result.call).map(|call| call.id.as_str());
        items.push(json::object(&[
            ("role", json::quote("tool")),
            ("tool_call_id", json::quote(id.unwrap_or_default())),
            ("content", json::quote(&result.content)),
        ]));
    }
    Ok(items)
}

/// Returns the text of the first choice's message.
pub(super) fn message(text: &str) -> Result<&str, DialectError> {
    let choice = first_choice(text)?;
    let fields = scan_object(choice, "choices")?;
    fields
        .get(choice, "message")
        .ok_or(DialectError::Missing("choices[0].message"))
}

pub(super) fn first_choice(text: &str) -> Result<&str, DialectError> {
    let body = Object::scan(text)?;
    let choices = body
        .get(text, "choices")
        .ok_or(DialectError::Missing("choices"))?;
    scan_array(choices, "choices")?
        .texts(choices)
        .next()
        .ok_or(DialectError::Missing("choices[0]"))
}

/// Returns the message's calls, or the single call of a legacy `function_call`. A missing id
/// becomes empty.
pub(super) fn calls(message: &str) -> Result<Vec<RawCall>, DialectError> {
    calls_of(message, &scan_object(message, "message")?)
}

/// Does the same as [`calls`] for a message that is scanned already.
pub(super) fn calls_of(message: &str, fields: &Object) -> Result<Vec<RawCall>, DialectError> {
    let tool_calls = fields
        .get(message, "tool_calls")
        .filter(|raw| !json::is_null(raw));
    let mut calls = Vec::new();
    if let Some(raw) = tool_calls {
        for call in scan_array(raw, "tool_calls")?.texts(raw) {
            calls.push(one_call(call)?);
        }
    }
    if calls.is_empty() {
        let legacy = fields
            .get(message, "function_call")
            .filter(|raw| !json::is_null(raw));
        if let Some(raw) = legacy {
            calls.push(function(
                raw,
                "arguments",
                String::new(),
                CallKind::Function,
            )?);
        }
    }
    Ok(calls)
}

fn one_call(raw: &str) -> Result<RawCall, DialectError> {
    let fields = scan_object(raw, "tool_calls")?;
    let id = fields
        .get(raw, "id")
        .and_then(json::string)
        .unwrap_or_default();
    match (fields.get(raw, "function"), fields.get(raw, "custom")) {
        (Some(inner), _) => function(inner, "arguments", id, CallKind::Function),
        (None, Some(inner)) => function(inner, "input", id, CallKind::Custom),
        (None, None) => Err(DialectError::Missing("tool_calls[].function")),
    }
}

fn function(
    raw: &str,
    arguments: &str,
    id: String,
    kind: CallKind,
) -> Result<RawCall, DialectError> {
    let fields = scan_object(raw, "tool_calls")?;
    let name = fields
        .get(raw, "name")
        .and_then(json::string)
        .ok_or(DialectError::Missing("tool_calls[].function.name"))?;
    let arguments = match fields.get(raw, arguments).filter(|raw| !json::is_null(raw)) {
        // Some servers write the object itself instead of a string.
        Some(raw) => json::string(raw).unwrap_or_else(|| raw.to_string()),
        None => String::new(),
    };
    Ok(RawCall {
        id,
        name,
        arguments,
        kind,
    })
}

/// Returns the message's text. Several text parts are joined.
pub(super) fn content(message: &str, fields: &Object) -> Result<Option<String>, DialectError> {
    let Some(raw) = fields
        .get(message, "content")
        .filter(|raw| !json::is_null(raw))
    else {
        return Ok(None);
    };
    if let Some(text) = json::string(raw) {
        return Ok(Some(text));
    }
    let parts = scan_array(raw, "content")?;
    Ok(Some(
        parts
            .texts(raw)
            .filter_map(|part| {
                let fields = Object::scan(part).ok()?;
                fields.get(part, "text").and_then(json::string)
            })
            .collect(),
    ))
}

pub(super) const USAGE: Names = Names {
    prompt: "prompt_tokens",
    completion: "completion_tokens",
    prompt_details: "prompt_tokens_details",
    completion_details: "completion_tokens_details",
};

pub(super) fn usage(raw: &str) -> Usage {
    USAGE.read(raw)
}

/// Keeps only the answered calls of the message, under their presented names.
pub(super) fn with_calls(
    message: &str,
    calls: &[RawCall],
    results: &[ToolResult],
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let fields = scan_object(message, "message")?;
    let answered = |index: usize| results.iter().any(|result| result.call == index);
    let tool_calls = fields
        .get(message, "tool_calls")
        .filter(|raw| !json::is_null(raw));
    let kept = match tool_calls {
        Some(raw) => {
            let array = scan_array(raw, "tool_calls")?;
            let mut edited = Vec::with_capacity(calls.len());
            for (call, raw) in calls.iter().zip(array.texts(raw)) {
                edited.push(renamed_call(raw, call, rename)?);
            }
            array.edit(
                raw,
                |at| match edited.get(at) {
                    Some(call) if answered(at) => Change::Set(call.clone()),
                    _ => Change::Drop,
                },
                &[],
            )
        }
        None => json::array(
            &calls
                .iter()
                .map(|call| {
                    json::object(&[
                        ("id", json::quote(&call.id)),
                        ("type", json::quote("function")),
                        (
                            "function",
                            json::object(&[
                                (
                                    "name",
                                    json::quote(&rename(&call.name).unwrap_or(call.name.clone())),
                                ),
                                ("arguments", json::quote(&call.arguments)),
                            ]),
                        ),
                    ])
                })
                .collect::<Vec<_>>(),
        ),
    };
    let mut added = Vec::new();
    if fields.member("role").is_none() {
        added.push(("role", json::quote("assistant")));
    }
    if fields.member("tool_calls").is_none() && !results.is_empty() {
        added.push(("tool_calls", kept.clone()));
    }
    Ok(fields.edit(
        message,
        |member| match member.key.as_str() {
            // Providers refuse an empty list.
            "tool_calls" if results.is_empty() => Change::Drop,
            "tool_calls" => Change::Set(kept.clone()),
            "function_call" => Change::Drop,
            _ => Change::Keep,
        },
        &added,
    ))
}

fn renamed_call(
    raw: &str,
    call: &RawCall,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let fields = scan_object(raw, "tool_calls")?;
    let has_id = fields
        .get(raw, "id")
        .and_then(json::string)
        .is_some_and(|id| !id.is_empty());
    let name = rename(&call.name);
    let inner = |raw: &str| -> Result<Change, DialectError> {
        let Some(name) = &name else {
            return Ok(Change::Keep);
        };
        let fields = scan_object(raw, "tool_calls")?;
        Ok(Change::Set(fields.edit(
            raw,
            |member| match member.key.as_str() {
                "name" => Change::Set(json::quote(name)),
                _ => Change::Keep,
            },
            &[],
        )))
    };
    let mut failed = None;
    let mut added = Vec::new();
    let missing = !has_id && !call.id.is_empty();
    if missing && fields.member("id").is_none() {
        added.push(("id", json::quote(&call.id)));
    }
    let edited = fields.edit(
        raw,
        |member| match member.key.as_str() {
            "function" | "custom" => inner(&raw[member.value.clone()]).unwrap_or_else(|error| {
                failed = Some(error);
                Change::Keep
            }),
            "id" if missing => Change::Set(json::quote(&call.id)),
            _ => Change::Keep,
        },
        &added,
    );
    failed.map_or(Ok(edited), Err)
}

/// Returns the role of a message.
pub(super) fn role(message: &str) -> Option<String> {
    let fields = Object::scan(message).ok()?;
    fields.get(message, "role").and_then(json::string)
}
