//! The reply: content blocks.

use std::ops::Range;

use crate::json::{self, Array, Change, Object};
use crate::read::{
    Counts, hide_what_leads_to_hidden, scan_array, scan_object, text_of, with_members,
};
use crate::view::ReplyView;
use crate::{CallKind, DialectError, RawCall, ToolResult, Usage};

pub(crate) fn view(text: &str) -> Result<ReplyView, DialectError> {
    let body = Object::scan(text)?;
    let content = content(text)?;
    let blocks = scan_array(content, "content")?;
    let mut joined = String::new();
    for block in blocks.texts(content) {
        if text_of(block, "type").as_deref() == Some("text") {
            joined.push_str(&text_of(block, "text").unwrap_or_default());
        }
    }
    Ok(ReplyView {
        calls: calls(content)?.into_iter().map(|(_, call)| call).collect(),
        content: Some(joined),
        finish: body.get(text, "stop_reason").and_then(json::string),
        usage: body.get(text, "usage").map(usage).unwrap_or_default(),
        choices: 1,
        message: Range::default(),
    })
}

pub(crate) fn items(
    text: &str,
    identified: &[RawCall],
    results: &[ToolResult],
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>, DialectError> {
    let content = content(text)?;
    let mut calls = calls(content)?;
    for ((_, call), identified) in calls.iter_mut().zip(identified) {
        call.id.clone_from(&identified.id);
    }
    let kept = with_calls(content, &calls, rename, |index| {
        results.iter().any(|result| result.call == index)
    })?;
    let array = scan_array(content, "content")?;
    let blocks: Vec<&str> = array.texts(content).collect();
    let answers: Vec<String> = results
        .iter()
        .map(|result| {
            let call = calls.get(result.call);
            let id = call.map(|(_, call)| call.id.as_str());
            let mut members = vec![
                ("type", json::quote("tool_result")),
                ("tool_use_id", json::quote(id.unwrap_or_default())),
                ("content", json::quote(&result.content)),
            ];
            let family = call.and_then(|(at, _)| blocks.get(*at).and_then(|block| family(block)));
            members.extend(family.map(|family| ("toolset_name", json::quote(&family))));
            json::object(&members)
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

pub(crate) fn container(text: &str) -> Option<String> {
    let body = Object::scan(text).ok()?;
    text_of(body.get(text, "container")?, "id")
}

/// Returns the `tool_use` blocks, each with its index among all blocks. A missing id is empty.
pub(super) fn calls(content: &str) -> Result<Vec<(usize, RawCall)>, DialectError> {
    let mut calls: Vec<(usize, RawCall)> = Vec::new();
    for (at, block) in scan_array(content, "content")?.texts(content).enumerate() {
        if text_of(block, "type").as_deref() != Some("tool_use") {
            continue;
        }
        let fields = scan_object(block, "content")?;
        let name = match family(block) {
            Some(family) => toolset(&family),
            None => text_of(block, "name").ok_or(DialectError::Missing("content[].name"))?,
        };
        let call = RawCall {
            id: text_of(block, "id").unwrap_or_default(),
            name,
            arguments: arguments(fields.get(block, "input").unwrap_or("{}")),
            kind: CallKind::Function,
        };
        calls.push((at, call));
    }
    Ok(calls)
}

/// Returns the arguments as text. An input that was cut off at the token limit is a JSON string
/// that holds its text.
fn arguments(input: &str) -> String {
    json::string(input).unwrap_or_else(|| input.to_string())
}

/// Returns the family of the toolset that the called tool belongs to. The runner declares the
/// toolset, not its tools.
pub(super) fn family(block: &str) -> Option<String> {
    text_of(block, "toolset_name")
}

pub(super) fn toolset(family: &str) -> String {
    format!("{family}_toolset")
}

/// Drops the calls for which `keep` returns false (it gets a call's index), and writes the others
/// under their presented names.
pub(super) fn with_calls(
    content: &str,
    calls: &[(usize, RawCall)],
    rename: &dyn Fn(&str) -> Option<String>,
    keep: impl Fn(usize) -> bool,
) -> Result<String, DialectError> {
    let blocks: Array = scan_array(content, "content")?;
    let texts: Vec<&str> = blocks.texts(content).collect();
    let mut hidden = vec![false; texts.len()];
    let mut changes = vec![Change::Keep; texts.len()];
    for (index, (at, call)) in calls.iter().enumerate() {
        hidden[*at] = !keep(index);
        let block = texts[*at];
        let mut set = Vec::new();
        set.extend(rename(&call.name).map(|name| ("name", json::quote(&name))));
        if !call.id.is_empty() && text_of(block, "id").is_none_or(|id| id.is_empty()) {
            set.push(("id", json::quote(&call.id)));
        }
        // Providers accept only objects here; the call's result describes the error in the
        // arguments.
        if !call.arguments.starts_with('{') {
            set.push(("input", "{}".into()));
        }
        if !set.is_empty() {
            changes[*at] = Change::Set(with_members(block, &set)?);
        }
    }
    let kind = |at: usize| text_of(texts[at], "type");
    // The provider sometimes sends a blank text, but refuses it in a request.
    let blank = |at: usize| {
        kind(at).as_deref() == Some("text")
            && text_of(texts[at], "text").is_none_or(|text| text.trim().is_empty())
    };
    hide_what_leads_to_hidden(&mut hidden, |at| {
        matches!(kind(at).as_deref(), Some("thinking" | "redacted_thinking")) || blank(at)
    });
    let change = |at: usize| match hidden[at] || blank(at) {
        true => Change::Drop,
        false => changes[at].clone(),
    };
    Ok(blocks.edit(content, change, &[]))
}

pub(super) const DETAILS: &str = "output_tokens_details";
pub(super) const THINKING: &str = "thinking_tokens";
pub(super) const CACHE_READ: &str = "cache_read_input_tokens";
pub(super) const CACHE_WRITE: &str = "cache_creation_input_tokens";

/// Reads a usage object, whose `input_tokens` do not include cached tokens.
pub(super) fn usage(raw: &str) -> Usage {
    let counts = Counts::of(raw);
    let (cache_read_tokens, cache_write_tokens) = (counts.get(CACHE_READ), counts.get(CACHE_WRITE));
    Usage {
        prompt_tokens: counts
            .get("input_tokens")
            .saturating_add(cache_read_tokens)
            .saturating_add(cache_write_tokens),
        completion_tokens: counts.get("output_tokens"),
        cache_read_tokens,
        cache_write_tokens,
        reasoning_tokens: counts.within(DETAILS).get(THINKING),
    }
}
