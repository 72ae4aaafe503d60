//! Decodes messages of the history so that the mediator recognizes its earlier answers.

use super::{legacy, reply};
use crate::json::{self, Array};
use crate::read;
use crate::{DialectError, HistoryItem, HistoryPart, ToolResult};

pub(crate) fn read(item: &str) -> Result<HistoryItem, DialectError> {
    let fields = read::scan_object(item, "messages")?;
    let role = fields
        .get(item, "role")
        .and_then(json::string)
        .ok_or(DialectError::Missing("messages[].role"))?;
    let content = fields.get(item, "content").unwrap_or("null");
    let mut parts = Vec::new();
    match role.as_str() {
        "tool" | "function" => {
            let key = if role == "tool" {
                "tool_call_id"
            } else {
                "name"
            };
            parts.push(HistoryPart::Result {
                call_id: fields
                    .get(item, key)
                    .and_then(json::string)
                    .unwrap_or_default(),
                content: reply::content(item, &fields)?.unwrap_or_default(),
            });
        }
        _ => {
            parts.extend(content_parts(content)?);
            for call in reply::calls_of(item, &fields)? {
                parts.push(HistoryPart::Call {
                    arguments: json::canonical(&call.arguments).unwrap_or(call.arguments),
                    id: call.id,
                    name: call.name,
                });
            }
        }
    }
    Ok(HistoryItem { role, parts })
}

pub(crate) fn rename_calls(
    item: &str,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let calls = reply::calls(item)?;
    if calls.iter().all(|call| rename(&call.name).is_none()) {
        return Ok(item.to_string());
    }
    if legacy::call(item)?.is_some() {
        return legacy::renamed_call(item, rename);
    }
    let all: Vec<ToolResult> = (0..calls.len())
        .map(|call| ToolResult {
            call,
            content: String::new(),
        })
        .collect();
    reply::with_calls(item, &calls, &all, rename)
}

/// Joins adjacent texts and drops empty ones, so that the same content in different forms compares
/// equal.
fn content_parts(raw: &str) -> Result<Vec<HistoryPart>, DialectError> {
    if json::is_null(raw) {
        return Ok(Vec::new());
    }
    if let Some(text) = json::string(raw) {
        return Ok(text_part(text).into_iter().collect());
    }
    let array: Array = read::scan_array(raw, "content")?;
    let mut parts: Vec<HistoryPart> = Vec::new();
    for part in array.texts(raw) {
        let fields = read::scan_object(part, "content")?;
        match fields.get(part, "text").and_then(json::string) {
            Some(text) => match parts.last_mut() {
                Some(HistoryPart::Text(before)) => before.push_str(&text),
                _ => parts.extend(text_part(text)),
            },
            None => parts.push(HistoryPart::Other(read::without_cache_mark(part))),
        }
    }
    Ok(parts)
}

fn text_part(text: String) -> Option<HistoryPart> {
    (!text.is_empty()).then_some(HistoryPart::Text(text))
}
