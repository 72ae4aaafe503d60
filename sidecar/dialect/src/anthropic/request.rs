//! The request: `messages`, `tools`, `tool_choice`.

use super::reply;
use crate::json::{self, Array, Change, Object};
use crate::read::{
    appended, declared_tools, edited_history, edits_history, elements, present, renamed,
    scan_object, streamed, text_of, with_document, with_members,
};
use crate::view::RequestView;
use crate::{DialectError, Edits, HistoryPart, ToolChoice, ToolChoiceEdit, ToolDeclaration};

/// Returns the names of the member `tools`.
pub(crate) fn tools(text: &str, fields: &Object) -> Result<Vec<String>, DialectError> {
    elements(text, fields, "tools")?
        .into_iter()
        .map(tool_name)
        .collect::<Option<Vec<_>>>()
        .ok_or(DialectError::WrongType {
            field: "tools",
            expected: "an array of named tools",
        })
}

/// `tools`: the names of the member `tools`.
pub(crate) fn view(
    text: &str,
    fields: &Object,
    mut tools: Vec<String>,
) -> Result<RequestView, DialectError> {
    if present(text, fields, "messages").is_some_and(|raw| raw.contains(INLINE)) {
        for message in elements(text, fields, "messages")? {
            tools.extend(inline_tools(message));
        }
    }
    let tool_choice = match present(text, fields, "tool_choice") {
        Some(raw) => choice(raw)?,
        None => ToolChoice::Unset,
    };
    Ok(RequestView {
        tools,
        tool_choice,
        choices: 1,
        include_usage: true,
        legacy_functions: false,
    })
}

/// Type of a block's member `tool` that defines a tool among the messages.
const INLINE: &str = "tool_definition";

/// Returns the names of the tools that a message defines. The model may call them from that message
/// on.
fn inline_tools(message: &str) -> Vec<String> {
    let part = |raw: &str, key| {
        let fields = Object::scan(raw).ok()?;
        present(raw, &fields, key).map(String::from)
    };
    let named = |block: &str| {
        let tool = part(block, "tool")?;
        let inline = text_of(&tool, "type").as_deref() == Some(INLINE);
        tool_name(&part(&tool, "definition")?).filter(|_| inline)
    };
    let content = part(message, "content").unwrap_or_default();
    match Array::scan(&content) {
        Ok(blocks) => blocks.texts(&content).filter_map(named).collect(),
        // The content is a plain text.
        Err(_) => Vec::new(),
    }
}

/// Returns the name of a tool. A toolset has no name and is named by its family, any other tool
/// without a name by its type.
fn tool_name(tool: &str) -> Option<String> {
    text_of(tool, "name").or_else(|| {
        let kind = text_of(tool, "type")?;
        Some(match kind.split_once("_toolset_") {
            Some((family, _)) => reply::toolset(family),
            None => kind,
        })
    })
}

pub(crate) fn encode(text: &str, fields: &Object, edits: &Edits) -> Result<String, DialectError> {
    // The provider stores the conversation of a `thread`, so hidden rounds cannot be inserted into
    // it.
    if !edits.tools.is_empty() && present(text, fields, "thread").is_some() {
        return Err(DialectError::HeldElsewhere("thread"));
    }
    let set = [
        ("model", Some(json::quote(&edits.model))),
        ("system", edited_system(text, fields, edits)?),
        ("messages", edited_messages(text, fields, edits)?),
        ("tools", declared_tools(text, fields, edits)?),
        ("tool_choice", edited_choice(text, fields, edits)?),
        ("container", edited_container(text, fields, edits)?),
        streamed(fields, edits),
    ];
    Ok(fields.with(text, &set, &[]))
}

/// Sets the id of the provider's container, unless the request has one. The runner's `container` is
/// an id, or an object that may lack one.
fn edited_container(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let Some(id) = &edits.container else {
        return Ok(None);
    };
    match present(text, fields, "container") {
        None => Ok(Some(json::quote(id))),
        Some(own) if own.starts_with('{') && text_of(own, "id").is_none() => {
            with_members(own, &[("id", json::quote(id))]).map(Some)
        }
        Some(_) => Ok(None),
    }
}

/// Appends the document as the last text of the system prompt. If the runner writes blocks, the
/// document is one more block, so that the runner's cache marks stay in place.
fn edited_system(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let blocks = present(text, fields, "system").filter(|system| system.starts_with('['));
    let (Some(document), Some(blocks)) = (&edits.prompt, blocks) else {
        return with_document(text, fields, "system", edits);
    };
    let block = json::object(&[
        ("type", json::quote("text")),
        ("text", json::quote(document)),
    ]);
    appended(Some(blocks), &[block]).map(Some)
}

pub(crate) fn declaration(tool: &ToolDeclaration) -> String {
    json::object(&[
        ("name", json::quote(&tool.name)),
        ("description", json::quote(&tool.description)),
        ("input_schema", tool.schema.clone()),
    ])
}

/// Returns the edited `tool_choice`. Keeps `disable_parallel_tool_use`, except with `none`, where
/// the provider refuses it.
fn edited_choice(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let raw = present(text, fields, "tool_choice");
    let (raw, kind) = match (edits.tool_choice, raw) {
        (ToolChoiceEdit::None, _) => {
            return Ok(Some(json::object(&[("type", json::quote("none"))])));
        }
        (ToolChoiceEdit::Auto, raw) => (raw.unwrap_or("{}"), Some(json::quote("auto"))),
        (ToolChoiceEdit::Keep, Some(raw)) => (raw, None),
        (ToolChoiceEdit::Keep, None) => return Ok(None),
    };
    let object = Object::scan(raw)?;
    let added = match (&kind, object.member("type")) {
        (Some(kind), None) => vec![("type", kind.clone())],
        _ => Vec::new(),
    };
    Ok(Some(object.edit(
        raw,
        |member| match (member.key.as_str(), &kind) {
            ("type", Some(kind)) => Change::Set(kind.clone()),
            ("name", Some(_)) => Change::Drop,
            ("name", None) => Change::Set(renamed(&raw[member.value.clone()], edits)),
            _ => Change::Keep,
        },
        &added,
    )))
}

fn edited_messages(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let raw = fields
        .get(text, "messages")
        .ok_or(DialectError::Missing("messages"))?;
    let empty = if edits.tools.is_empty() {
        Vec::new()
    } else {
        empty_answers(raw)?
    };
    if empty.is_empty() && !edits_history(edits) {
        return Ok(None);
    }
    edited_history(raw, edits, late, |at| empty.contains(&at)).map(Some)
}

/// Returns the indexes of empty answers, with which terminal tools end a turn. Runners send them
/// back, but the provider refuses an empty text, and accepts an empty content only in the last
/// message. The hidden rounds before an empty answer stay in the history.
fn empty_answers(raw: &str) -> Result<Vec<usize>, DialectError> {
    let messages = Array::scan(raw)?;
    let last = messages.items.len().saturating_sub(1);
    let mut empty = Vec::new();
    for (at, message) in messages.texts(raw).enumerate() {
        let fields = scan_object(message, "messages")?;
        let nothing = match fields.get(message, "content") {
            Some(content) if content.starts_with('[') => {
                let blocks = Array::scan(content)?;
                let unsaid = |block| {
                    text_of(block, "type").as_deref() == Some("text")
                        && text_of(block, "text").is_some_and(|text| text.is_empty())
                };
                blocks.texts(content).all(unsaid) && (at < last || !blocks.items.is_empty())
            }
            Some(content) => content == "\"\"" && at < last,
            None => false,
        };
        if nothing && text_of(message, "role").as_deref() == Some("assistant") {
            empty.push(at);
        }
    }
    Ok(empty)
}

/// Returns the index of the last message that the user wrote, or the end. The context message goes
/// before it: late, and never between a call and its results, which are a user message too.
fn late(messages: &[&str]) -> usize {
    let own = |message: &&str| {
        super::history::read(message).is_ok_and(|item| {
            let results = |part: &HistoryPart| matches!(part, HistoryPart::Result { .. });
            item.role == "user" && !item.parts.iter().any(results)
        })
    };
    messages.iter().rposition(own).unwrap_or(messages.len())
}

fn choice(raw: &str) -> Result<ToolChoice, DialectError> {
    let error = DialectError::WrongType {
        field: "tool_choice",
        expected: "an object of type auto, any, tool or none",
    };
    match text_of(raw, "type").as_deref() {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("any") => Ok(ToolChoice::Required),
        Some("none") => Ok(ToolChoice::None),
        Some("tool") => text_of(raw, "name").map(ToolChoice::Named).ok_or(error),
        Some(_) => Ok(ToolChoice::Other),
        None => Err(error),
    }
}
