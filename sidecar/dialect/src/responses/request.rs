//! The request: `input`, `tools`, `tool_choice`.

use super::{history, item};
use crate::json::{self, Array, Change, Object};
use crate::read::{
    declared_tools, edit_member, edited_history, edits_history, elements, present, renamed,
    streamed, text_of, with_document, with_members,
};
use crate::view::RequestView;
use crate::{
    DialectError, Edits, PreviousResponse, StreamEdit, ToolChoice, ToolChoiceEdit, ToolDeclaration,
};

const PREVIOUS: &str = "previous_response_id";
/// Fields that refer to state at the provider to which each round, or each managed tool, would do
/// damage. Each response adds its items to a `conversation`, the calls of hidden rounds included; the
/// tools of a request replace those of a `prompt`.
const STATE_ELSEWHERE: [&str; 2] = ["conversation", "prompt"];

/// Returns the names of the member `tools`.
pub(crate) fn tools(text: &str, fields: &Object) -> Result<Vec<String>, DialectError> {
    let mut tools = Vec::new();
    for tool in elements(text, fields, "tools")? {
        tools.extend(item::declared(tool)?);
    }
    Ok(tools)
}

/// `tools`: the names of the member `tools`.
pub(crate) fn view(
    text: &str,
    fields: &Object,
    mut tools: Vec<String>,
) -> Result<RequestView, DialectError> {
    if present(text, fields, "input").is_some_and(|input| input.starts_with('[')) {
        for item in elements(text, fields, "input")? {
            tools.extend(found_tools(item)?);
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

/// Returns the names of the tools that an item of the history declares: the results of a tool
/// search, and tools that were added later.
fn found_tools(item: &str) -> Result<Vec<String>, DialectError> {
    if !matches!(
        item::kind(item).as_str(),
        "tool_search_output" | "additional_tools"
    ) {
        return Ok(Vec::new());
    }
    let fields = Object::scan(item)?;
    let names = elements(item, &fields, "tools")?
        .into_iter()
        .map(item::declared)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(names.concat())
}

pub(crate) fn encode(text: &str, fields: &Object, edits: &Edits) -> Result<String, DialectError> {
    if !edits.tools.is_empty() {
        mediable(text, fields)?;
    }
    let set = [
        ("model", Some(json::quote(&edits.model))),
        // The document goes here, not into the input: a stored conversation would get one more copy
        // with each request.
        (
            "instructions",
            with_document(text, fields, "instructions", edits)?,
        ),
        ("input", edited_input(text, fields, edits)?),
        ("tools", declared_tools(text, fields, edits)?),
        ("tool_choice", edited_choice(text, fields, edits)?),
        streamed(fields, edits),
        (
            PREVIOUS,
            match &edits.previous {
                PreviousResponse::Set(id) => Some(json::quote(id)),
                PreviousResponse::Keep | PreviousResponse::Drop => None,
            },
        ),
    ];
    let mut dropped = Vec::new();
    if edits.stream == StreamEdit::Whole {
        dropped.push("stream_options");
    }
    if edits.previous == PreviousResponse::Drop {
        dropped.push(PREVIOUS);
    }
    Ok(fields.with(text, &set, &dropped))
}

/// Returns the id of the response that the runner continues.
pub(crate) fn previous_response(text: &str, fields: &Object) -> Option<String> {
    present(text, fields, PREVIOUS).and_then(json::string)
}

/// Returns true unless the runner asks the provider not to store the response.
pub(crate) fn stores(text: &str, fields: &Object) -> bool {
    present(text, fields, "store") != Some("false")
}

/// Returns the items of the input as the provider gets them, without the context message.
pub(crate) fn input_items(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Vec<String>, DialectError> {
    let input = input_list(text, fields);
    let edits = Edits {
        context: None,
        ..edits.clone()
    };
    let edited = edited_history(&input, &edits, late, |_| false)?;
    let items = Array::scan(&edited)?;
    Ok(items.texts(&edited).map(String::from).collect())
}

fn mediable(text: &str, fields: &Object) -> Result<(), DialectError> {
    let held = |field: &&str| present(text, fields, field).is_some();
    if let Some(field) = STATE_ELSEWHERE.into_iter().find(held) {
        return Err(DialectError::HeldElsewhere(field));
    }
    match present(text, fields, "background") {
        Some("true") => Err(DialectError::FieldRefused("background".into())),
        _ => Ok(()),
    }
}

pub(crate) fn declaration(tool: &ToolDeclaration) -> String {
    json::object(&[
        ("type", json::quote("function")),
        ("name", json::quote(&tool.name)),
        ("description", json::quote(&tool.description)),
        ("parameters", tool.schema.clone()),
        // Without this member, optional arguments would become required.
        ("strict", "false".into()),
    ])
}

fn edited_choice(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let raw = present(text, fields, "tool_choice");
    match (edits.tool_choice, raw) {
        (ToolChoiceEdit::None, _) => Ok(Some(json::quote("none"))),
        (ToolChoiceEdit::Auto, Some(raw)) if item::kind(raw) == "allowed_tools" => {
            let relaxed = with_members(raw, &[("mode", json::quote("auto"))])?;
            renamed_choice(&relaxed, edits).map(Some)
        }
        (ToolChoiceEdit::Auto, _) => Ok(Some(json::quote("auto"))),
        (ToolChoiceEdit::Keep, Some(raw)) => renamed_choice(raw, edits).map(Some),
        (ToolChoiceEdit::Keep, None) => Ok(None),
    }
}

/// Renames the tools in `tool_choice` to their presented names.
fn renamed_choice(raw: &str, edits: &Edits) -> Result<String, DialectError> {
    let rename = |entry: &str| match item::kind(entry).as_str() {
        "function" | "custom" => edit_member(entry, "name", |name| Ok(renamed(name, edits))),
        _ => Ok(entry.to_string()),
    };
    if item::kind(raw) != "allowed_tools" {
        return rename(raw);
    }
    edit_member(raw, "tools", |tools| {
        let scan = Array::scan(tools)?;
        let entries: Vec<String> = scan.texts(tools).map(rename).collect::<Result<_, _>>()?;
        Ok(scan.edit(tools, |at| Change::Set(entries[at].clone()), &[]))
    })
}

/// Returns the input as a list; a plain text becomes a message.
fn input_list(text: &str, fields: &Object) -> String {
    match present(text, fields, "input") {
        Some(raw) if raw.starts_with('"') => json::array(&[json::object(&[
            ("role", json::quote("user")),
            ("content", raw.to_string()),
        ])]),
        Some(raw) => raw.to_string(),
        None => "[]".to_string(),
    }
}

/// Returns the input with all insertions.
fn edited_input(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    if !edits_history(edits) {
        return Ok(None);
    }
    let raw = input_list(text, fields);
    let sendable = (!stores(text, fields)).then(|| unstored(edits));
    let edits = sendable.as_ref().unwrap_or(edits);
    edited_history(&raw, edits, late, |_| false).map(Some)
}

/// Drops the inserted reasoning items that have only an id. A provider that did not store them
/// would refuse the request.
fn unstored(edits: &Edits) -> Edits {
    let has_content = |item: &String| {
        let encrypted = || text_of(item, "encrypted_content");
        item::kind(item) != "reasoning" || encrypted().is_some()
    };
    let mut edits = edits.clone();
    edits.appended.retain(has_content);
    for insertion in &mut edits.inserted {
        insertion.items.retain(has_content);
    }
    edits
}

/// Returns the index of the last user message, or the end. The context message goes before it:
/// late, and never between a call and its result.
fn late(items: &[&str]) -> usize {
    items
        .iter()
        .rposition(|item| history::read(item).is_ok_and(|item| item.role == "user"))
        .unwrap_or(items.len())
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
    let object = Object::scan(raw).map_err(|_| CHOICE)?;
    match item::kind(raw).as_str() {
        "function" | "custom" => text_of(raw, "name").map(ToolChoice::Named).ok_or(CHOICE),
        "allowed_tools" => {
            let tools = object.get(raw, "tools").ok_or(CHOICE)?;
            let names = Array::scan(tools)
                .map_err(|_| CHOICE)?
                .texts(tools)
                .filter(|tool| matches!(item::kind(tool).as_str(), "function" | "custom"))
                .filter_map(|tool| text_of(tool, "name"))
                .collect();
            Ok(match text_of(raw, "mode").as_deref() {
                Some("required") => ToolChoice::AllowedRequired(names),
                _ => ToolChoice::AllowedAuto(names),
            })
        }
        _ => Ok(ToolChoice::Other),
    }
}
