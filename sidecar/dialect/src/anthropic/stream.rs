//! Encodes a whole reply as events.
//!
//! Each block starts empty, gets its content in deltas, and stops. A block without a defined delta
//! (search results, redacted thinking, unknown kinds) starts with its whole content.

use super::answer::summed_usage;
use super::reply;
use crate::json::{self, Change, Object};
use crate::read::{scan_array, scan_object, text_of, with_members};
use crate::{DialectError, SseEvent, Usage, sse};

pub(crate) fn events(text: &str, usage: Option<Usage>) -> Result<String, DialectError> {
    let body = Object::scan(text)?;
    let summed = summed(text, &body, usage)?;
    let mut out = Events {
        out: String::with_capacity(text.len() * 2),
    };
    let mut opening = vec![
        ("content", "[]".to_string()),
        (
            "usage",
            with_members(&summed, &[("output_tokens", "0".into())])?,
        ),
    ];
    let late = ENDING.iter().chain([&CONTEXT]);
    let said = late.filter(|key| body.member(key).is_some());
    opening.extend(said.map(|key| (*key, "null".to_string())));
    let opening = with_members(text, &opening)?;
    out.send("message_start", &[("message", opening)]);
    let content = reply::content(text)?;
    for (index, block) in scan_array(content, "content")?.texts(content).enumerate() {
        let (opening, deltas) = pieces(block)?;
        let index = ("index", index.to_string());
        out.send(
            "content_block_start",
            &[index.clone(), ("content_block", opening)],
        );
        for delta in deltas {
            out.send("content_block_delta", &[index.clone(), ("delta", delta)]);
        }
        out.send("content_block_stop", &[index]);
    }
    for event in ending(text, usage)? {
        out.out
            .push_str(&sse::frame(event.event.as_deref(), &event.data));
    }
    Ok(out.out)
}

/// Returns the events after the last block.
pub(super) fn ending(text: &str, usage: Option<Usage>) -> Result<Vec<SseEvent>, DialectError> {
    let body = Object::scan(text)?;
    let delta: Vec<(&str, String)> = ENDING
        .iter()
        .filter_map(|key| Some((*key, body.get(text, key)?.to_string())))
        .collect();
    let delta = json::object(&delta);
    let usage = summed(text, &body, usage)?;
    let mut members = vec![("delta", delta), ("usage", usage)];
    let context = body.get(text, CONTEXT).map(str::to_string);
    members.extend(context.map(|context| (CONTEXT, context)));
    Ok(vec![
        event("message_delta", &members),
        event("message_stop", &[]),
    ])
}

fn summed(text: &str, body: &Object, usage: Option<Usage>) -> Result<String, DialectError> {
    match (usage, body.get(text, "usage")) {
        (Some(usage), raw) => summed_usage(raw, usage),
        (None, raw) => Ok(raw.unwrap_or("{}").to_string()),
    }
}

/// Members of a message that are known only at its end.
const ENDING: [&str; 4] = ["stop_reason", "stop_sequence", "stop_details", "container"];
/// A member that is known only at the end too, but belongs to the event and not to its delta.
const CONTEXT: &str = "context_management";

struct Events {
    out: String,
}

impl Events {
    fn send(&mut self, event: &str, members: &[(&str, String)]) {
        let event = self::event(event, members);
        self.out
            .push_str(&sse::frame(event.event.as_deref(), &event.data));
    }
}

pub(super) fn event(name: &str, members: &[(&str, String)]) -> SseEvent {
    let mut all = vec![("type", json::quote(name))];
    all.extend(members.iter().cloned());
    SseEvent {
        event: Some(name.to_string()),
        data: json::object(&all),
    }
}

/// Returns the block of `content_block_start`, and the deltas.
fn pieces(block: &str) -> Result<(String, Vec<String>), DialectError> {
    let fields = scan_object(block, "content")?;
    let raw = |key| fields.get(block, key).filter(|raw| !json::is_null(raw));
    let delta = |kind: &str, key: &str, value: &str| {
        json::object(&[("type", json::quote(kind)), (key, value.to_string())])
    };
    let mut deltas = Vec::new();
    match text_of(block, "type").as_deref() {
        Some("text") => {
            if let Some(citations) = raw("citations") {
                for citation in scan_array(citations, "citations")?.texts(citations) {
                    deltas.push(delta("citations_delta", "citation", citation));
                }
            }
            deltas.extend(raw("text").map(|text| delta("text_delta", "text", text)));
            let opening = fields.edit(
                block,
                |member| match member.key.as_str() {
                    "text" => Change::Set(json::quote("")),
                    "citations" if raw("citations").is_some() => Change::Set("[]".into()),
                    _ => Change::Keep,
                },
                &[],
            );
            Ok((opening, deltas))
        }
        Some("thinking") => {
            deltas.extend(raw("thinking").map(|text| delta("thinking_delta", "thinking", text)));
            deltas.extend(raw("signature").map(|s| delta("signature_delta", "signature", s)));
            let empty = json::quote("");
            let opening =
                with_members(block, &[("thinking", empty.clone()), ("signature", empty)])?;
            Ok((opening, deltas))
        }
        Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
            let input = raw("input").unwrap_or("{}");
            deltas.push(delta(
                "input_json_delta",
                "partial_json",
                &json::quote(input),
            ));
            Ok((with_members(block, &[("input", "{}".into())])?, deltas))
        }
        _ => Ok((block.to_string(), deltas)),
    }
}
