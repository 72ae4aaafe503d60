//! Reassembles a reply from its events: the last event holds the whole reply.

use crate::json::{self, Object};
use crate::read::{present, scan_array, scan_object, text_of, with_members};
use crate::{DialectError, SseEvent, Usage};

pub(crate) fn whole(events: &[SseEvent]) -> Result<String, DialectError> {
    let mut done: Vec<(u64, String)> = Vec::new();
    for event in events {
        let data = event.data.as_str();
        if data.trim() == "[DONE]" {
            continue;
        }
        let fields = scan_object(data, "event")?;
        match text_of(data, "type").as_deref() {
            Some("response.output_item.done") => {
                let index = fields
                    .get(data, "output_index")
                    .and_then(|raw| raw.parse().ok());
                let item = fields.get(data, "item").unwrap_or("null");
                done.push((index.unwrap_or(u64::MAX), item.to_string()));
            }
            Some("response.completed" | "response.incomplete" | "response.failed") => {
                let response = fields
                    .get(data, "response")
                    .ok_or(DialectError::Missing("response"))?;
                return ended(response, done);
            }
            Some("error") => {
                let nested = fields.get(data, "error").unwrap_or(data);
                let message = text_of(data, "message").or_else(|| text_of(nested, "message"));
                return Err(DialectError::StreamError(message.unwrap_or_default()));
            }
            // All other content is repeated when its item is done.
            _ => {}
        }
    }
    Err(DialectError::StreamCut)
}

/// Adds the finished items to a response without output: some servers leave them out of the last
/// event.
fn ended(response: &str, mut done: Vec<(u64, String)>) -> Result<String, DialectError> {
    let fields = scan_object(response, "response")?;
    let output = present(response, &fields, "output").unwrap_or("[]");
    if done.is_empty() || !scan_array(output, "output")?.items.is_empty() {
        return Ok(response.to_string());
    }
    done.sort_by_key(|(index, _)| *index);
    let items: Vec<String> = done.into_iter().map(|(_, item)| item).collect();
    with_members(response, &[("output", json::array(&items))])
}

pub(crate) fn usage(events: &[SseEvent]) -> Usage {
    events
        .iter()
        .rev()
        .find_map(|event| {
            let data = event.data.as_str();
            let fields = Object::scan(data).ok()?;
            let response = fields.get(data, "response")?;
            let body = Object::scan(response).ok()?;
            present(response, &body, "usage").map(super::reply::usage)
        })
        .unwrap_or_default()
}

/// Returns the name of the call whose item begins in an event.
pub(crate) fn called(event: &SseEvent) -> Vec<String> {
    let data = event.data.as_str();
    if text_of(data, "type").as_deref() != Some("response.output_item.added") {
        return Vec::new();
    }
    let fields = Object::scan(data).ok();
    let item = fields.and_then(|fields| fields.get(data, "item"));
    let call = item.and_then(|item| super::item::call(item).ok().flatten());
    call.into_iter().map(|call| call.raw.name).collect()
}
