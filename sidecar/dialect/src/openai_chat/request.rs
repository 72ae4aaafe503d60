//! The request: `messages`, `tools` (and legacy `functions`), `tool_choice`.

use super::{legacy, reply};
use crate::json::{self, Array, Change, Object};
use crate::read::{
    appended, edit_member, edited_history, edits_history, elements, flag, message, named, optional,
    present, renamed, streamed, with_members,
};
use crate::view::RequestView;
use crate::{DialectError, Edits, StreamEdit, ToolChoice, ToolChoiceEdit, ToolDeclaration};

/// Returns the names of the member `tools`.
pub(crate) fn tools(text: &str, fields: &Object) -> Result<Vec<String>, DialectError> {
    let tools = elements(text, fields, "tools")?;
    tools.into_iter().map(tool_name).collect()
}

/// `tools`: the names of the member `tools`.
pub(crate) fn view(
    text: &str,
    fields: &Object,
    mut tools: Vec<String>,
) -> Result<RequestView, DialectError> {
    let functions = elements(text, fields, "functions")?;
    for function in &functions {
        tools.push(named(function, "functions")?);
    }
    let legacy_choice = present(text, fields, "function_call");
    let tool_choice = match (present(text, fields, "tool_choice"), legacy_choice) {
        (Some(raw), _) => choice(raw)?,
        (None, Some(raw)) => function_choice(raw)?,
        (None, None) => ToolChoice::Unset,
    };
    let include_usage = match present(text, fields, "stream_options") {
        Some(raw) => {
            let options = Object::scan(raw).map_err(|_| DialectError::WrongType {
                field: "stream_options",
                expected: "an object",
            })?;
            optional(raw, &options, "include_usage", "true or false", flag)?.unwrap_or_default()
        }
        None => false,
    };
    Ok(RequestView {
        tools,
        tool_choice,
        choices: optional(text, fields, "n", "a number", |raw| raw.parse().ok())?.unwrap_or(1),
        include_usage,
        legacy_functions: !functions.is_empty() || legacy_choice.is_some(),
    })
}

pub(crate) fn encode(text: &str, fields: &Object, edits: &Edits) -> Result<String, DialectError> {
    let unparallel = edits.normalize_legacy && fields.member("parallel_tool_calls").is_none();
    let set = [
        ("model", Some(json::quote(&edits.model))),
        ("messages", edited_messages(text, fields, edits)?),
        ("tools", declared_tools(text, fields, edits)?),
        ("tool_choice", edited_choice(text, fields, edits)?),
        // `function_call` can hold one call only.
        (
            "parallel_tool_calls",
            unparallel.then(|| "false".to_string()),
        ),
        streamed(fields, edits),
        ("stream_options", usage_too(text, fields, edits)?),
    ];
    let mut dropped = Vec::new();
    if edits.stream == StreamEdit::Whole {
        dropped.push("stream_options");
    }
    if edits.normalize_legacy {
        dropped.extend(["functions", "function_call"]);
    }
    Ok(fields.with(text, &set, &dropped))
}

/// Requests usage on a stream: servers send it only on request.
fn usage_too(text: &str, fields: &Object, edits: &Edits) -> Result<Option<String>, DialectError> {
    if edits.stream != StreamEdit::Stream {
        return Ok(None);
    }
    let options = present(text, fields, "stream_options").unwrap_or("{}");
    with_members(options, &[("include_usage", "true".into())]).map(Some)
}

/// Returns the member `tools` with converted legacy functions and the managed tools at its end.
/// `None` if nothing changes.
fn declared_tools(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let mut more = Vec::new();
    if edits.normalize_legacy {
        for function in elements(text, fields, "functions")? {
            more.push(json::object(&[
                ("type", json::quote("function")),
                ("function", function.to_string()),
            ]));
        }
    }
    more.extend(edits.tools.elements());
    if more.is_empty() {
        return Ok(None);
    }
    appended(present(text, fields, "tools"), &more).map(Some)
}

pub(crate) fn declaration(tool: &ToolDeclaration) -> String {
    json::object(&[
        ("type", json::quote("function")),
        (
            "function",
            json::object(&[
                ("name", json::quote(&tool.name)),
                ("description", json::quote(&tool.description)),
                ("parameters", tool.schema.clone()),
            ]),
        ),
    ])
}

fn edited_choice(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let legacy = present(text, fields, "function_call").filter(|_| edits.normalize_legacy);
    let as_came = match (present(text, fields, "tool_choice"), legacy) {
        (Some(raw), _) => Some(raw.to_string()),
        (None, Some(raw)) => Some(match function_choice(raw)? {
            ToolChoice::Named(name) => json::object(&[
                ("type", json::quote("function")),
                ("function", json::object(&[("name", json::quote(&name))])),
            ]),
            ToolChoice::Unset
            | ToolChoice::Auto
            | ToolChoice::None
            | ToolChoice::Required
            | ToolChoice::AllowedAuto(_)
            | ToolChoice::AllowedRequired(_)
            | ToolChoice::Other => raw.to_string(),
        }),
        (None, None) => None,
    };
    match (edits.tool_choice, as_came) {
        (ToolChoiceEdit::None, _) => Ok(Some(json::quote("none"))),
        (ToolChoiceEdit::Auto, Some(raw)) if allowed(&raw).is_some() => {
            let choice = renamed_choice(&raw, edits)?;
            edit_member(&choice, "allowed_tools", |allowed| {
                edit_member(allowed, "mode", |_| Ok(json::quote("auto")))
            })
            .map(Some)
        }
        (ToolChoiceEdit::Auto, _) => Ok(Some(json::quote("auto"))),
        (ToolChoiceEdit::Keep, Some(raw)) => renamed_choice(&raw, edits).map(Some),
        (ToolChoiceEdit::Keep, None) => Ok(None),
    }
}

/// Renames the tools in `tool_choice` to their presented names.
fn renamed_choice(raw: &str, edits: &Edits) -> Result<String, DialectError> {
    if edits.choice_names.is_empty() || raw.starts_with('"') {
        return Ok(raw.to_string());
    }
    let rename = |entry: &str| {
        edit_member(entry, "function", |function| {
            edit_member(function, "name", |name| Ok(renamed(name, edits)))
        })
    };
    match allowed(raw) {
        None => rename(raw),
        Some(_) => edit_member(raw, "allowed_tools", |allowed| {
            edit_member(allowed, "tools", |tools| {
                let scan = Array::scan(tools)?;
                let entries: Vec<String> =
                    scan.texts(tools).map(rename).collect::<Result<_, _>>()?;
                Ok(scan.edit(tools, |at| Change::Set(entries[at].clone()), &[]))
            })
        }),
    }
}

fn edited_messages(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let raw = fields
        .get(text, "messages")
        .ok_or(DialectError::Missing("messages"))?;
    let legacy = (edits.normalize_legacy || !edits.tools.is_empty()) && legacy::mentioned(raw);
    if !edits_history(edits) && edits.prompt.is_none() && !legacy {
        return Ok(None);
    }
    let mut edited = edited_history(raw, edits, late, |_| false)?;
    if legacy {
        // Inserted items may contain legacy messages too, such as the answer after a hidden round.
        edited = legacy::normalized(&edited)?;
    }
    let Some(document) = &edits.prompt else {
        return Ok(Some(edited));
    };
    let messages = Array::scan(&edited)?;
    let begins = messages
        .texts(&edited)
        .position(|message| !is_system(message))
        .unwrap_or(messages.items.len());
    let document = [message("system", document)];
    Ok(Some(messages.edit(
        &edited,
        |_| Change::Keep,
        &[(begins, &document)],
    )))
}

/// Returns true for a message of the system prompt, which precedes the conversation.
fn is_system(message: &str) -> bool {
    let role = reply::role(message);
    matches!(role.as_deref(), Some("system" | "developer"))
}

/// Returns the index of the last user message, or the end. The context message goes before it:
/// late, and never between a call and its result.
fn late(messages: &[&str]) -> usize {
    messages
        .iter()
        .rposition(|message| reply::role(message).as_deref() == Some("user"))
        .unwrap_or(messages.len())
}

fn tool_name(raw: &str) -> Result<String, DialectError> {
    let tool = Object::scan(raw).map_err(|_| DialectError::WrongType {
        field: "tools",
        expected: "an array of objects",
    })?;
    for kind in ["function", "custom"] {
        if let Some(inner) = tool.get(raw, kind) {
            return named(inner, "tools");
        }
    }
    // A built-in tool of the provider is named by its type.
    Ok(tool
        .get(raw, "type")
        .and_then(json::string)
        .unwrap_or_default())
}

const CHOICE: DialectError = DialectError::WrongType {
    field: "tool_choice",
    expected: "auto, none, required or an object that names a tool",
};

fn choice(raw: &str) -> Result<ToolChoice, DialectError> {
    if let Some(word) = json::string(raw) {
        return match word.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            _ => Err(CHOICE),
        };
    }
    if let Some((mode, names)) = allowed(raw) {
        return Ok(match mode.as_str() {
            "required" => ToolChoice::AllowedRequired(names),
            _ => ToolChoice::AllowedAuto(names),
        });
    }
    let object = Object::scan(raw).map_err(|_| CHOICE)?;
    for kind in ["function", "custom"] {
        if let Some(inner) = object.get(raw, kind) {
            return named(inner, "tool_choice").map(ToolChoice::Named);
        }
    }
    Ok(ToolChoice::Other)
}

/// Returns mode and names of `{"type": "allowed_tools", …}`.
fn allowed(raw: &str) -> Option<(String, Vec<String>)> {
    let object = Object::scan(raw).ok()?;
    let inner = object.get(raw, "allowed_tools")?;
    let allowed = Object::scan(inner).ok()?;
    let mode = allowed.get(inner, "mode").and_then(json::string)?;
    let tools = allowed.get(inner, "tools")?;
    let names = Array::scan(tools)
        .ok()?
        .texts(tools)
        .filter_map(|tool| tool_name(tool).ok())
        .collect();
    Some((mode, names))
}

fn function_choice(raw: &str) -> Result<ToolChoice, DialectError> {
    match json::string(raw).as_deref() {
        Some("auto") => Ok(ToolChoice::Auto),
        Some("none") => Ok(ToolChoice::None),
        Some(_) => Err(CHOICE),
        None => named(raw, "function_call").map(ToolChoice::Named),
    }
}
