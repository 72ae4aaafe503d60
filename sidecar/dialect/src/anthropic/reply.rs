//! The reply: content blocks.

use crate::json::{self, Array, Change, Object};
use crate::read::{count_of, scan_array, scan_object, text_of, with_members};
use crate::reply::View;
use crate::{CallKind, DialectError, RawCall, ToolResult, Usage};

pub(crate) fn view(text: &str) -> Result<View, DialectError> {
    let body = Object::scan(text)?;
    let content = content(text)?;
    let blocks = scan_array(content, "content")?;
    let mut said = String::new();
    for block in blocks.texts(content) {
        if text_of(block, "type").as_deref() == Some("text") {
            said.push_str(&text_of(block, "text").unwrap_or_default());
        }
    }
    Ok(View {
        calls: calls(content)?.into_iter().map(|(_, call)| call).collect(),
        content: Some(said),
        finish: body.get(text, "stop_reason").and_then(json::string),
        usage: body.get(text, "usage").map(usage).unwrap_or_default(),
        choices: 1,
    })
}

pub(crate) fn items(
    text: &str,
    results: &[ToolResult],
    spell: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>, DialectError> {
    let content = content(text)?;
    let calls = calls(content)?;
    let kept = with_calls(content, &calls, spell, |index| {
        results.iter().any(|result| result.call == index)
    })?;
    let answers: Vec<String> = results
        .iter()
        .map(|result| {
            let id = calls.get(result.call).map(|(_, call)| call.id.as_str());
            json::object(&[
                ("type", json::quote("tool_result")),
                ("tool_use_id", json::quote(id.unwrap_or_default())),
                ("content", json::quote(&result.content)),
            ])
        })
        .collect();
    let mut items = vec![message("assistant", kept)];
    if !answers.is_empty() {
        items.push(message("user", json::array(&answers)));
    }
    Ok(items)
}

pub(super) fn message(role: &str, content: String) -> String {
    json::object(&[("role", json::quote(role)), ("content", content)])
}

pub(super) fn content(text: &str) -> Result<&str, DialectError> {
    let body = Object::scan(text)?;
    body.get(text, "content")
        .ok_or(DialectError::Missing("content"))
}

/// The `tool_use` blocks, each with its place among all blocks.
pub(super) fn calls(content: &str) -> Result<Vec<(usize, RawCall)>, DialectError> {
    let mut calls: Vec<(usize, RawCall)> = Vec::new();
    for (at, block) in scan_array(content, "content")?.texts(content).enumerate() {
        if text_of(block, "type").as_deref() != Some("tool_use") {
            continue;
        }
        let fields = scan_object(block, "content")?;
        let name = text_of(block, "name").ok_or(DialectError::Missing("content[].name"))?;
        let call = RawCall {
            id: text_of(block, "id").unwrap_or_else(|| format!("toolu_{}", calls.len())),
            name,
            arguments: fields.get(block, "input").unwrap_or("{}").to_string(),
            kind: CallKind::Function,
        };
        calls.push((at, call));
    }
    Ok(calls)
}

/// The blocks with only the calls to keep, under their presented names.
pub(super) fn with_calls(
    content: &str,
    calls: &[(usize, RawCall)],
    spell: &dyn Fn(&str) -> Option<String>,
    keep: impl Fn(usize) -> bool,
) -> Result<String, DialectError> {
    let blocks: Array = scan_array(content, "content")?;
    let mut changes: Vec<Change> = blocks.items.iter().map(|_| Change::Keep).collect();
    for (index, (at, call)) in calls.iter().enumerate() {
        let block = &content[blocks.items[*at].value.clone()];
        let mut set = Vec::new();
        set.extend(spell(&call.name).map(|name| ("name", json::quote(&name))));
        if text_of(block, "id").is_none() {
            set.push(("id", json::quote(&call.id)));
        }
        changes[*at] = match (keep(index), set.is_empty()) {
            (false, _) => Change::Drop,
            (true, true) => Change::Keep,
            (true, false) => Change::Set(with_members(block, &set)?),
        };
    }
    Ok(blocks.edit(content, |at| changes[at].clone(), &[]))
}

pub(super) fn usage(raw: &str) -> Usage {
    Usage {
        prompt_tokens: count_of(raw, "input_tokens"),
        completion_tokens: count_of(raw, "output_tokens"),
    }
}
