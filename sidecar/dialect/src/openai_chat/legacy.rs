//! Rewrites `function_call` and role `function` in the history as `tool_calls` and tool results:
//! providers accept no other form beside `tools`.
//!
//! Rewrites a call only if the next message is its result, because providers refuse `tool_calls`
//! without a result. Call and result get an id from the number of their pair, so that a longer
//! history begins with the same bytes.

use super::reply;
use crate::json::{self, Array, Change};
use crate::read::{edit_member, present, scan_object};
use crate::{DialectError, RawCall};

/// Returns true if the history may contain legacy messages.
pub(super) fn mentioned(messages: &str) -> bool {
    memchr::memmem::find(messages.as_bytes(), b"function_call").is_some()
}

/// Rewrites each pair of a legacy call and its result, and nothing else.
pub(super) fn normalized(messages: &str) -> Result<String, DialectError> {
    let array = Array::scan(messages)?;
    let texts: Vec<&str> = array.texts(messages).collect();
    let mut changes = vec![Change::Keep; texts.len()];
    let mut number = 0;
    for (at, pair) in texts.windows(2).enumerate() {
        if reply::role(pair[1]).as_deref() != Some("function") {
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

/// Renames the message's call.
pub(super) fn renamed_call(
    message: &str,
    rename: &dyn Fn(&str) -> Option<String>,
) -> Result<String, DialectError> {
    let name = |raw: &str| json::string(raw).and_then(|name| rename(&name));
    edit_member(message, "function_call", |call| {
        edit_member(call, "name", |raw| {
            Ok(name(raw).map_or(raw.to_string(), |name| json::quote(&name)))
        })
    })
}

/// Returns the message's single legacy call.
pub(super) fn call(message: &str) -> Result<Option<RawCall>, DialectError> {
    let fields = scan_object(message, "messages")?;
    let old = present(message, &fields, "function_call").is_some()
        && present(message, &fields, "tool_calls").is_none();
    if !old || reply::role(message).as_deref() != Some("assistant") {
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
