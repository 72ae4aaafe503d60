//! Decodes messages of the history so that the mediator recognizes its earlier answers.

use super::reply;
use crate::json;
use crate::read::{scan_array, scan_object, text_of, with_members, without_cache_mark};
use crate::{DialectError, HistoryItem, HistoryPart};

pub(crate) fn read(item: &str) -> Result<HistoryItem, DialectError> {
    let fields = scan_object(item, "messages")?;
    let role = fields
        .get(item, "role")
        .and_then(json::string)
        .ok_or(DialectError::Missing("messages[].role"))?;
    let content = fields.get(item, "content").unwrap_or("\"\"");
    let mut parts: Vec<HistoryPart> = Vec::new();
    if let Some(text) = json::string(content) {
        add_text(&mut parts, text);
        return Ok(HistoryItem { role, parts });
    }
    for block in scan_array(content, "content")?.texts(content) {
        match text_of(block, "type").as_deref() {
            Some("text") => add_text(&mut parts, text_of(block, "text").unwrap_or_default()),
            // Not compared: runners may drop these blocks, and must not change them.
            Some("thinking" | "redacted_thinking") => {}
            Some("tool_use") => parts.push(call(block)?),
            Some("tool_result") => parts.push(HistoryPart::Result {
                call_id: text_of(block, "tool_use_id").unwrap_or_default(),
                content: result_text(block)?,
            }),
            _ => parts.push(HistoryPart::Other(without_cache_mark(block))),
        }
    }
    Ok(HistoryItem { role, parts })
}

pub(crate) fn rename_calls(
    item: &str,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let fields = scan_object(item, "messages")?;
    let Some(content) = fields
        .get(item, "content")
        .filter(|content| content.starts_with('['))
    else {
        return Ok(item.to_string());
    };
    let calls = reply::calls(content)?;
    if calls.iter().all(|(_, call)| rename(&call.name).is_none()) {
        return Ok(item.to_string());
    }
    let content = reply::with_calls(content, &calls, rename, |_| true)?;
    with_members(item, &[("content", content)])
}

fn add_text(parts: &mut Vec<HistoryPart>, text: String) {
    match parts.last_mut() {
        Some(HistoryPart::Text(before)) => before.push_str(&text),
        _ if text.is_empty() => {}
        _ => parts.push(HistoryPart::Text(text)),
    }
}

fn call(block: &str) -> Result<HistoryPart, DialectError> {
    let fields = scan_object(block, "content")?;
    let input = fields.get(block, "input").unwrap_or("{}");
    Ok(HistoryPart::Call {
        id: text_of(block, "id").unwrap_or_default(),
        name: text_of(block, "name").unwrap_or_default(),
        arguments: json::canonical(input).unwrap_or_else(|| input.to_string()),
    })
}

fn result_text(block: &str) -> Result<String, DialectError> {
    let fields = scan_object(block, "content")?;
    let content = fields.get(block, "content").unwrap_or("\"\"");
    if let Some(text) = json::string(content) {
        return Ok(text);
    }
    if json::is_null(content) {
        return Ok(String::new());
    }
    let blocks = scan_array(content, "content")?;
    Ok(blocks
        .texts(content)
        .map(|part| text_of(part, "text").unwrap_or_else(|| without_cache_mark(part)))
        .collect())
}
