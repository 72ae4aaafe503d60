//! `function_call` and role `function` in the history, as the calls and results of today:
//! beside `tools`, providers take no others.
//!
//! Only a call whose result follows at once is written anew, since an open one is refused
//! among `tool_calls`. Both get an id by their place among such calls, so that a history
//! that grows stays the same from its beginning.

use super::history::role;
use super::reply;
use crate::json::{self, Array, Change};
use crate::read::{edit_member, present, scan_object};
use crate::{DialectError, RawCall};

/// Whether there may be something to write anew.
pub(super) fn mentioned(messages: &str) -> bool {
    messages.contains("function_call")
}

/// The messages, with nothing but such pairs changed.
pub(super) fn normalized(messages: &str) -> Result<String, DialectError> {
    let array = Array::scan(messages)?;
    let texts: Vec<&str> = array.texts(messages).collect();
    let mut changes = vec![Change::Keep; texts.len()];
    let mut number = 0;
    for (at, pair) in texts.windows(2).enumerate() {
        if role(pair[1]).as_deref() != Some("function") {
            continue;
        }
        if let Some(call) = call(pair[0])? {
            number += 1;
            let id = json::quote(&format!("call_fn_{number}"));
            changes[at] = Change::Set(as_call(pair[0], &call, &id)?);
            changes[at + 1] = Change::Set(as_result(pair[1], id)?);
        }
    }
    Ok(array.edit(messages, |at| changes[at].clone(), &[]))
}

/// The message with its call under another name.
pub(super) fn respelled(
    message: &str,
    spell: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let name = |raw: &str| json::string(raw).and_then(|name| spell(&name));
    edit_member(message, "function_call", |call| {
        edit_member(call, "name", |raw| {
            Ok(name(raw).map_or(raw.to_string(), |name| json::quote(&name)))
        })
    })
}

/// The one call that the message makes as of old.
pub(super) fn call(message: &str) -> Result<Option<RawCall>, DialectError> {
    let fields = scan_object(message, "messages")?;
    let old = present(message, &fields, "function_call").is_some()
        && present(message, &fields, "tool_calls").is_none();
    if !old || role(message).as_deref() != Some("assistant") {
        return Ok(None);
    }
    Ok(reply::calls(message)?.pop())
}

fn as_call(message: &str, call: &RawCall, id: &str) -> Result<String, DialectError> {
    let function = json::object(&[
        ("name", json::quote(&call.name)),
        ("arguments", json::quote(&call.arguments)),
    ]);
    let call = json::object(&[
        ("id", id.to_string()),
        ("type", json::quote("function")),
        ("function", function),
    ]);
    let fields = scan_object(message, "messages")?;
    let calls = json::array(&[call]);
    Ok(fields.with(message, &[("tool_calls", Some(calls))], &["function_call"]))
}

fn as_result(message: &str, id: String) -> Result<String, DialectError> {
    let fields = scan_object(message, "messages")?;
    let content = present(message, &fields, "content").is_none();
    let set = [
        ("role", Some(json::quote("tool"))),
        ("tool_call_id", Some(id)),
        ("content", content.then(|| json::quote(""))),
    ];
    Ok(fields.with(message, &set, &["name"]))
}
