//! Reassembles a whole reply from its chunks.

use serde_json::{Map, Value};

use super::reply;
use crate::json::{self, Object};
use crate::{DialectError, SseEvent, Usage};

/// Merges deltas by their type: texts are joined, lists merged by `index`, objects by key, and
/// other values replaced. So members that this release does not know are kept too.
pub(crate) fn whole(events: &[SseEvent]) -> Result<String, DialectError> {
    let mut body = Map::new();
    let mut choice = Map::new();
    let mut message = Map::new();
    let mut done = false;
    for event in events {
        if event.data.trim() == "[DONE]" {
            done = true;
            continue;
        }
        let Value::Object(chunk) = serde_json::from_str(&event.data)? else {
            return Err(DialectError::WrongType {
                field: "chunk",
                expected: "an object",
            });
        };
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str);
            return Err(DialectError::StreamError(
                message.unwrap_or("no message").to_string(),
            ));
        }
        for (key, value) in chunk {
            match (key.as_str(), value) {
                ("choices", Value::Array(choices)) => {
                    for part in choices {
                        take_choice(part, &mut choice, &mut message);
                    }
                }
                ("usage", Value::Null) => {}
                ("object", _) => {
                    body.insert("object".into(), "chat.completion".into());
                }
                (_, value) => {
                    body.insert(key, value);
                }
            }
        }
    }
    // Some servers omit `[DONE]`; a finish reason also shows that the reply is complete.
    if !done && !choice.contains_key("finish_reason") {
        return Err(DialectError::StreamCut);
    }
    if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
        for call in calls.iter_mut().filter_map(Value::as_object_mut) {
            call.remove("index");
        }
    }
    choice.insert("index".into(), 0.into());
    choice.insert("message".into(), Value::Object(message));
    body.insert("choices".into(), Value::Array(vec![Value::Object(choice)]));
    Ok(Value::Object(body).to_string())
}

pub(crate) fn usage(events: &[SseEvent]) -> Usage {
    events
        .iter()
        .rev()
        .find_map(|event| {
            let fields = Object::scan(&event.data).ok()?;
            let raw = fields.get(&event.data, "usage")?;
            (!json::is_null(raw)).then(|| reply::usage(raw))
        })
        .unwrap_or_default()
}

pub(crate) fn is_failure(data: &str) -> bool {
    let fields = Object::scan(data).ok();
    let error = fields.as_ref().and_then(|it| it.get(data, "error"));
    error.is_some_and(|error| !json::is_null(error))
}

/// Returns the names of the calls that begin in a chunk. Servers send a call's name in its first
/// delta.
pub(crate) fn called(event: &SseEvent) -> Vec<String> {
    let chunk: Value = serde_json::from_str(&event.data).unwrap_or_default();
    let mut called = Vec::new();
    for choice in chunk["choices"].as_array().into_iter().flatten() {
        let delta = &choice["delta"];
        let calls = delta["tool_calls"].as_array().into_iter().flatten();
        let named = calls.flat_map(|call| [&call["function"], &call["custom"]]);
        let names = named.chain([&delta["function_call"]]);
        let names = names.filter_map(|call| call["name"].as_str());
        called.extend(names.filter(|name| !name.is_empty()).map(str::to_string));
    }
    called
}

fn take_choice(part: Value, choice: &mut Map<String, Value>, message: &mut Map<String, Value>) {
    let Value::Object(part) = part else { return };
    if part.get("index").and_then(Value::as_u64).unwrap_or(0) != 0 {
        return;
    }
    for (key, value) in part {
        match (key.as_str(), value) {
            ("delta", Value::Object(delta)) => merge_members(message, delta),
            ("index", _) | (_, Value::Null) => {}
            ("finish_reason", value) => {
                choice.insert(key, value);
            }
            (_, value) => merge(choice.entry(key).or_insert(Value::Null), value),
        }
    }
}

fn merge_members(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        // Deltas repeat these members and never split them.
        let whole = matches!(key.as_str(), "role" | "id" | "type" | "index");
        let slot = into.entry(key).or_insert(Value::Null);
        if whole {
            if !value.is_null() {
                *slot = value;
            }
        } else {
            merge(slot, value);
        }
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Object(members), Value::Object(more)) => merge_members(members, more),
        (Value::Array(items), Value::Array(more)) => {
            for item in more {
                merge_item(items, item);
            }
        }
        (slot @ Value::Null, Value::Array(more)) => {
            let mut items = Vec::new();
            for item in more {
                merge_item(&mut items, item);
            }
            *slot = Value::Array(items);
        }
        (slot, value) => *slot = value,
    }
}

/// Limits the search for the item that a delta belongs to. Otherwise a server that sends ever more
/// items could make each delta search all of them.
const NEAR: usize = 128;

fn merge_item(items: &mut Vec<Value>, item: Value) {
    let index = item.get("index").and_then(Value::as_u64);
    let known = items
        .iter_mut()
        .rev()
        .take(NEAR)
        .find(|known| index.is_some() && known.get("index").and_then(Value::as_u64) == index);
    match known {
        Some(known) => merge(known, item),
        None => items.push(item),
    }
}
