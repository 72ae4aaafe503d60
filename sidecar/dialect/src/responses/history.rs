//! Decodes items of the history so that the mediator recognizes its earlier answers.
//!
//! Items of a reply get the assistant's role. Items that a runner may leave out when it stores a
//! reply (reasoning, the provider's own calls) get no content.

use super::{item, reply};
use crate::json;
use crate::read::{present, scan_array, scan_object, text_of, with_members, without_cache_mark};
use crate::{CallKind, DialectError, HistoryItem, HistoryPart};

const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

pub(crate) fn read(item: &str) -> Result<HistoryItem, DialectError> {
    // The input is a plain text instead of a list.
    if let Some(text) = json::string(item) {
        return Ok(history_item("user", text_part(text)));
    }
    let fields = scan_object(item, "input")?;
    let kind = item::kind(item);
    let role = text_of(item, "role");
    if let ("" | "message", Some(role)) = (kind.as_str(), role) {
        let content = present(item, &fields, "content").unwrap_or("\"\"");
        return Ok(history_item(&role, message_parts(content)?));
    }
    if let Some(call) = item::call(item)? {
        let arguments = match (call.output, call.raw.kind) {
            (item::OutputForm::RunnersOwn, _) => String::new(),
            (item::OutputForm::Text(_), CallKind::Function) => {
                json::canonical(&call.raw.arguments).unwrap_or(call.raw.arguments)
            }
            (item::OutputForm::Text(_), CallKind::Custom) => call.raw.arguments,
        };
        let part = HistoryPart::Call {
            id: call.raw.id,
            name: call.raw.name,
            arguments,
        };
        return Ok(history_item(ASSISTANT, vec![part]));
    }
    Ok(match kind.as_str() {
        "program_output" => history_item(ASSISTANT, Vec::new()),
        "tool_search_output" if text_of(item, "execution").as_deref() == Some("server") => {
            history_item(ASSISTANT, Vec::new())
        }
        _ if kind.ends_with("_output") => {
            let output = present(item, &fields, "output").unwrap_or("\"\"");
            let part = HistoryPart::Result {
                call_id: text_of(item, "call_id").unwrap_or_default(),
                content: output_text(output),
            };
            history_item(TOOL, vec![part])
        }
        "mcp_approval_response"
        | "additional_tools"
        | "configuration_update"
        | "compaction_trigger" => {
            history_item(TOOL, vec![HistoryPart::Other(without_cache_mark(item))])
        }
        "item_reference" if text_of(item, "id").is_some_and(|id| id.starts_with("rs_")) => {
            history_item(ASSISTANT, Vec::new())
        }
        // The reference itself counts as the content. Only the provider, or a mediator that saw the
        // item, can resolve it: see `reference`.
        "" | "item_reference" => history_item(
            ASSISTANT,
            vec![HistoryPart::Other(without_cache_mark(item))],
        ),
        _ => history_item(ASSISTANT, Vec::new()),
    })
}

pub(crate) fn rename_calls(
    item: &str,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    if !matches!(
        item::kind(item).as_str(),
        "function_call" | "custom_tool_call"
    ) {
        return Ok(item.to_string());
    }
    match text_of(item, "name").and_then(|name| rename(&name)) {
        Some(name) => with_members(item, &[("name", json::quote(&name))]),
        None => Ok(item.to_string()),
    }
}

/// Returns the reference to an item of a reply, for a runner that lets the provider store items.
pub(crate) fn reference(item: &str) -> Option<String> {
    Some(json::object(&[
        ("type", json::quote("item_reference")),
        ("id", json::quote(&text_of(item, "id")?)),
    ]))
}

fn history_item(role: &str, parts: Vec<HistoryPart>) -> HistoryItem {
    HistoryItem {
        role: role.to_string(),
        parts,
    }
}

/// Joins adjacent texts and drops empty ones, so that the same content in different forms compares
/// equal.
fn message_parts(content: &str) -> Result<Vec<HistoryPart>, DialectError> {
    if let Some(text) = json::string(content) {
        return Ok(text_part(text));
    }
    let mut parts: Vec<HistoryPart> = Vec::new();
    for part in scan_array(content, "content")?.texts(content) {
        match (text_of(part, "text"), parts.last_mut()) {
            (Some(text), Some(HistoryPart::Text(before))) => before.push_str(&text),
            (Some(text), _) => parts.extend(text_part(text)),
            (None, _) => parts.push(HistoryPart::Other(without_cache_mark(part))),
        }
    }
    Ok(parts)
}

fn text_part(text: String) -> Vec<HistoryPart> {
    (!text.is_empty())
        .then_some(HistoryPart::Text(text))
        .into_iter()
        .collect()
}

/// Returns the text, the text parts joined, or the JSON text of anything else.
fn output_text(output: &str) -> String {
    if let Some(text) = json::string(output) {
        return text;
    }
    let wrapped = json::object(&[("content", output.to_string())]);
    match reply::message_text(&wrapped) {
        Ok(text) if !text.is_empty() => text,
        Ok(_) | Err(_) => json::canonical(output).unwrap_or_else(|| output.to_string()),
    }
}
