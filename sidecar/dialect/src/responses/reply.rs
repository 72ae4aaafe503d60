//! The reply: output items.

use super::item::{self, Answer, Call};
use crate::json::{self, Array, Object};
use crate::read::{count_of, present, scan_array, scan_object, text_of, with_members};
use crate::reply::View;
use crate::{DialectError, ToolResult, Usage};

pub(crate) fn view(text: &str) -> Result<View, DialectError> {
    let body = Object::scan(text)?;
    let output = output(text)?;
    let mut said = String::new();
    for item in scan_array(output, "output")?.texts(output) {
        if item::kind(item) == "message" {
            said.push_str(&message_text(item)?);
        }
    }
    let reason =
        present(text, &body, "incomplete_details").and_then(|details| text_of(details, "reason"));
    Ok(View {
        calls: calls(output)?
            .into_iter()
            .map(|(_, call)| call.raw)
            .collect(),
        content: Some(said),
        finish: reason.or_else(|| text_of(text, "status")),
        usage: body.get(text, "usage").map(usage).unwrap_or_default(),
        choices: 1,
    })
}

pub(crate) fn items(
    text: &str,
    results: &[ToolResult],
    spell: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>, DialectError> {
    let output = output(text)?;
    let calls = calls(output)?;
    let array: Array = scan_array(output, "output")?;
    let answered = |nth: usize| results.iter().any(|result| result.call == nth);
    let mut fates = vec![Fate::Stays; array.items.len()];
    for (nth, (at, call)) in calls.iter().enumerate() {
        // A call that no text can answer would be an open one.
        fates[*at] = match call.answer {
            Answer::Text(_) if answered(nth) => Fate::Call(nth),
            Answer::Text(_) | Answer::RunnersOwn => Fate::Hidden,
        };
    }
    let texts: Vec<&str> = array.texts(output).collect();
    // A provider refuses reasoning that leads to nothing.
    let mut next_hidden = false;
    for (at, item) in texts.iter().enumerate().rev() {
        match fates[at] {
            Fate::Hidden => next_hidden = true,
            Fate::Stays if next_hidden && item::kind(item) == "reasoning" => {
                fates[at] = Fate::Hidden;
            }
            Fate::Stays | Fate::Call(_) => next_hidden = false,
        }
    }
    let mut items = Vec::new();
    for (item, fate) in texts.iter().zip(&fates) {
        match fate {
            Fate::Hidden => {}
            Fate::Stays => items.push((*item).to_string()),
            Fate::Call(nth) => items.push(presented(item, &calls[*nth].1, spell)?),
        }
    }
    for result in results {
        if let Some((at, call)) = calls.get(result.call)
            && let Answer::Text(kind) = call.answer
        {
            let mut members = vec![
                ("type", json::quote(kind)),
                ("call_id", json::quote(&call.raw.id)),
                ("output", json::quote(&result.content)),
            ];
            // A program's call is answered to the program.
            let fields = scan_object(texts[*at], "output")?;
            let caller = present(texts[*at], &fields, "caller");
            members.extend(caller.map(|caller| ("caller", caller.to_string())));
            items.push(json::object(&members));
        }
    }
    Ok(items)
}

#[derive(Clone, Copy)]
enum Fate {
    Stays,
    Hidden,
    Call(usize),
}

pub(super) fn output(text: &str) -> Result<&str, DialectError> {
    let body = Object::scan(text)?;
    body.get(text, "output")
        .ok_or(DialectError::Missing("output"))
}

/// The calls, each with its place among all items.
fn calls(output: &str) -> Result<Vec<(usize, Call)>, DialectError> {
    let mut calls = Vec::new();
    for (at, raw) in scan_array(output, "output")?.texts(output).enumerate() {
        if let Some(call) = item::call(raw, calls.len())? {
            calls.push((at, call));
        }
    }
    Ok(calls)
}

/// The call's item under its presented name, and with an id.
fn presented(
    item: &str,
    call: &Call,
    spell: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let mut set = Vec::new();
    set.extend(spell(&call.raw.name).map(|name| ("name", json::quote(&name))));
    if text_of(item, "call_id").is_none_or(|id| id.is_empty()) {
        set.push(("call_id", json::quote(&call.raw.id)));
    }
    if set.is_empty() {
        return Ok(item.to_string());
    }
    with_members(item, &set)
}

/// The text parts of a message, joined.
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

pub(super) fn usage(raw: &str) -> Usage {
    Usage {
        prompt_tokens: count_of(raw, "input_tokens"),
        completion_tokens: count_of(raw, "output_tokens"),
    }
}
