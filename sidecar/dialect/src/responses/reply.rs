//! The reply: output items.

use std::ops::Range;

use super::item::{self, Call, OutputForm};
use crate::json::{self, Array, Object};
use crate::read::{
    hide_what_leads_to_hidden, present, scan_array, scan_object, text_of, with_members,
};
use crate::usage::Names;
use crate::view::ReplyView;
use crate::{CallKind, DialectError, RawCall, ToolResult, Usage};

pub(crate) fn view(text: &str) -> Result<ReplyView, DialectError> {
    let body = Object::scan(text)?;
    let output = output(text)?;
    let mut content = String::new();
    for item in scan_array(output, "output")?.texts(output) {
        if item::kind(item) == "message" {
            content.push_str(&message_text(item)?);
        }
    }
    let reason =
        present(text, &body, "incomplete_details").and_then(|details| text_of(details, "reason"));
    Ok(ReplyView {
        calls: calls(output)?
            .into_iter()
            .map(|(_, call)| call.raw)
            .collect(),
        content: Some(content),
        finish: reason.or_else(|| text_of(text, "status")),
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
    let output = output(text)?;
    let mut calls = calls(output)?;
    for ((_, call), identified) in calls.iter_mut().zip(identified) {
        call.raw.id.clone_from(&identified.id);
    }
    let array: Array = scan_array(output, "output")?;
    let texts: Vec<&str> = array.texts(output).collect();
    let mut hidden = vec![false; texts.len()];
    for (nth, (at, call)) in calls.iter().enumerate() {
        let answered = results.iter().any(|result| result.call == nth);
        // A call that only the runner can answer is hidden too, since no result can be encoded for
        // it.
        hidden[*at] = !answered || call.output == OutputForm::RunnersOwn;
    }
    hide_what_leads_to_hidden(&mut hidden, |at| item::kind(texts[at]) == "reasoning");
    let mut items = Vec::new();
    for (at, item) in texts.iter().enumerate().filter(|(at, _)| !hidden[*at]) {
        items.push(match calls.iter().find(|(place, _)| *place == at) {
            Some((_, call)) => presented(item, call, rename)?,
            None => (*item).to_string(),
        });
    }
    for result in results {
        if let Some((at, call)) = calls.get(result.call)
            && let OutputForm::Text(kind) = call.output
        {
            let mut members = vec![
                ("type", json::quote(kind)),
                ("call_id", json::quote(&call.raw.id)),
                ("output", json::quote(&result.content)),
            ];
            // If a program of the model made the call, `caller` names it, and the result repeats
            // `caller`.
            let fields = scan_object(texts[*at], "output")?;
            let caller = present(texts[*at], &fields, "caller");
            members.extend(caller.map(|caller| ("caller", caller.to_string())));
            items.push(json::object(&members));
        }
    }
    Ok(items)
}

pub(super) fn output(text: &str) -> Result<&str, DialectError> {
    let body = Object::scan(text)?;
    body.get(text, "output")
        .ok_or(DialectError::Missing("output"))
}

/// Returns the calls, each with its index among all items.
fn calls(output: &str) -> Result<Vec<(usize, Call)>, DialectError> {
    let mut calls = Vec::new();
    for (at, raw) in scan_array(output, "output")?.texts(output).enumerate() {
        if let Some(call) = item::call(raw)? {
            calls.push((at, call));
        }
    }
    Ok(calls)
}

/// Returns the call's item under its presented name, with an id and with text arguments.
fn presented(
    item: &str,
    call: &Call,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let mut set = Vec::new();
    set.extend(rename(&call.raw.name).map(|name| ("name", json::quote(&name))));
    if text_of(item, "call_id").is_none_or(|id| id.is_empty()) {
        set.push(("call_id", json::quote(&call.raw.id)));
    }
    let member = arguments_member(call.raw.kind);
    let fields = scan_object(item, "output")?;
    if !fields
        .get(item, member)
        .is_some_and(|raw| raw.starts_with('"'))
    {
        set.push((member, json::quote(&call.raw.arguments)));
    }
    if set.is_empty() {
        return Ok(item.to_string());
    }
    with_members(item, &set)
}

pub(super) fn arguments_member(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Function => "arguments",
        CallKind::Custom => "input",
    }
}

/// Joins the text parts of a message.
pub(super) fn message_text(item: &str) -> Result<String, DialectError> {
    let fields = scan_object(item, "output")?;
    let Some(content) = present(item, &fields, "content") else {
        return Ok(String::new());
    };
    if let Some(text) = json::string(content) {
        return Ok(text);
    }
    Ok(scan_array(content, "content")?
        .texts(content)
        .filter_map(|part| text_of(part, "text"))
        .collect())
}

pub(super) const USAGE: Names = Names {
    prompt: "input_tokens",
    completion: "output_tokens",
    prompt_details: "input_tokens_details",
    completion_details: "output_tokens_details",
};

pub(super) fn usage(raw: &str) -> Usage {
    USAGE.read(raw)
}
