//! Encodes a whole reply as events.
//!
//! Each item is added empty, gets its content in deltas, and is repeated whole when it is done. An
//! item that needs no delta (the provider's own calls, unknown kinds) is added with its whole
//! content.

use super::answer;
use super::item;
use super::reply;
use crate::json::{self, Object};
use crate::read::{present, scan_array, scan_object, text_of, with_members};
use crate::{DialectError, SseEvent, Usage, sse};

pub(crate) fn events(
    request: &str,
    text: &str,
    usage: Option<Usage>,
) -> Result<String, DialectError> {
    let response = answer::whole(request, text, usage)?;
    let opening = opened(&response)?;
    let mut out = Events {
        out: String::with_capacity(text.len() * 3),
        number: 0,
    };
    out.send("response.created", &[("response", opening.clone())]);
    out.send("response.in_progress", &[("response", opening)]);
    let output = reply::output(&response)?;
    for (index, item) in scan_array(output, "output")?.texts(output).enumerate() {
        ItemEvents {
            out: &mut out,
            place: vec![
                ("item_id", json::quote(&item_id(item, index))),
                ("output_index", index.to_string()),
            ],
        }
        .item(item, index)?;
    }
    let last = ending(response, out.number);
    out.out
        .push_str(&sse::frame(last.event.as_deref(), &last.data));
    Ok(out.out)
}

/// The last event, with the whole response.
pub(super) fn ending(response: String, number: u64) -> SseEvent {
    let name = match text_of(&response, "status").as_deref() {
        Some("incomplete") => "response.incomplete",
        Some("failed" | "cancelled") => "response.failed",
        _ => "response.completed",
    };
    event(name, number, &[("response", response)])
}

/// Encodes an event with its type and number.
pub(super) fn event(name: &str, number: u64, members: &[(&str, String)]) -> SseEvent {
    let mut all = vec![("type", json::quote(name))];
    all.push(("sequence_number", number.to_string()));
    all.extend(members.iter().cloned());
    SseEvent {
        event: Some(name.to_string()),
        data: json::object(&all),
    }
}

/// Returns the response for the opening events: in progress, without output.
fn opened(response: &str) -> Result<String, DialectError> {
    let fields = Object::scan(response)?;
    let mut set = vec![
        ("status", json::quote("in_progress")),
        ("output", "[]".to_string()),
    ];
    for key in ["usage", "error", "incomplete_details", "completed_at"] {
        if fields.member(key).is_some() {
            set.push((key, "null".into()));
        }
    }
    with_members(response, &set)
}

/// Generates an id for an item without one, since events need it.
fn item_id(item: &str, index: usize) -> String {
    text_of(item, "id").unwrap_or_else(|| format!("item_{index}"))
}

struct Events {
    out: String,
    number: u64,
}

impl Events {
    fn send(&mut self, event: &str, members: &[(&str, String)]) {
        let event = self::event(event, self.number, members);
        self.number += 1;
        self.out
            .push_str(&sse::frame(event.event.as_deref(), &event.data));
    }
}

/// Writes the events of one item.
struct ItemEvents<'e> {
    out: &'e mut Events,
    place: Vec<(&'static str, String)>,
}

impl ItemEvents<'_> {
    fn item(&mut self, item: &str, index: usize) -> Result<(), DialectError> {
        let fields = scan_object(item, "output")?;
        let raw = |key| present(item, &fields, key);
        let status = fields
            .member("status")
            .map(|_| ("status", json::quote("in_progress")));
        let kind = item::kind(item);
        let emptied: &[(&str, &str)] = match kind.as_str() {
            "message" => &[("content", "[]")],
            "function_call" => &[("arguments", "\"\"")],
            "custom_tool_call" => &[("input", "\"\"")],
            "reasoning" => &[("summary", "[]"), ("content", "[]")],
            _ => &[],
        };
        let mut set: Vec<(&str, String)> = emptied
            .iter()
            .filter(|(key, _)| raw(key).is_some())
            .map(|(key, empty)| (*key, (*empty).to_string()))
            .collect();
        if !emptied.is_empty() {
            set.extend(status);
        }
        let index = ("output_index", index.to_string());
        let opening = with_members(item, &set)?;
        self.out.send(
            "response.output_item.added",
            &[index.clone(), ("item", opening)],
        );
        match kind.as_str() {
            "message" => self.parts(raw("content"))?,
            "function_call" => self.grown("response.function_call_arguments", "arguments", item)?,
            "custom_tool_call" => self.grown("response.custom_tool_call_input", "input", item)?,
            "reasoning" => {
                self.summary(raw("summary"))?;
                self.parts(raw("content"))?;
            }
            _ => {}
        }
        self.out.send(
            "response.output_item.done",
            &[index, ("item", item.to_string())],
        );
        Ok(())
    }

    fn send(&mut self, event: &str, members: &[(&str, String)]) {
        let mut all: Vec<(&str, String)> = self.place.clone();
        all.extend(members.iter().cloned());
        self.out.send(event, &all);
    }

    /// Sends a text member in one delta, then as a whole.
    fn grown(&mut self, event: &str, key: &str, item: &str) -> Result<(), DialectError> {
        let fields = scan_object(item, "output")?;
        let Some(raw) = present(item, &fields, key) else {
            return Ok(());
        };
        // Some servers write the object itself, but a delta is text.
        let text = match raw.starts_with('"') {
            true => raw.to_string(),
            false => json::quote(raw),
        };
        self.send(&format!("{event}.delta"), &[("delta", text.clone())]);
        self.send(&format!("{event}.done"), &[(key, text)]);
        Ok(())
    }

    fn summary(&mut self, summary: Option<&str>) -> Result<(), DialectError> {
        let Some(summary) = summary else {
            return Ok(());
        };
        for (index, part) in scan_array(summary, "summary")?.texts(summary).enumerate() {
            let at = ("summary_index", index.to_string());
            let fields = scan_object(part, "summary")?;
            let text = present(part, &fields, "text").unwrap_or("\"\"").to_string();
            let opening = with_members(part, &[("text", json::quote(""))])?;
            let said = |name: &str| format!("response.reasoning_summary_{name}");
            self.send(&said("part.added"), &[at.clone(), ("part", opening)]);
            self.send(&said("text.delta"), &[at.clone(), ("delta", text.clone())]);
            self.send(&said("text.done"), &[at.clone(), ("text", text)]);
            self.send(&said("part.done"), &[at, ("part", part.to_string())]);
        }
        Ok(())
    }

    fn parts(&mut self, content: Option<&str>) -> Result<(), DialectError> {
        let Some(content) = content else {
            return Ok(());
        };
        for (index, part) in scan_array(content, "content")?.texts(content).enumerate() {
            self.part(part, ("content_index", index.to_string()))?;
        }
        Ok(())
    }

    fn part(&mut self, part: &str, at: (&str, String)) -> Result<(), DialectError> {
        let fields = scan_object(part, "content")?;
        let raw = |key| present(part, &fields, key);
        let (event, key) = match item::kind(part).as_str() {
            "output_text" => ("response.output_text", "text"),
            "refusal" => ("response.refusal", "refusal"),
            "reasoning_text" => ("response.reasoning_text", "text"),
            _ => ("", ""),
        };
        let mut set = vec![(key, json::quote(""))];
        for list in ["annotations", "logprobs"] {
            set.extend(raw(list).map(|_| (list, "[]".to_string())));
        }
        let opening = match event {
            "" => part.to_string(),
            _ => with_members(part, &set)?,
        };
        let added = "response.content_part.added";
        self.send(added, &[at.clone(), ("part", opening)]);
        if let Some(text) = raw(key).filter(|_| !event.is_empty()) {
            let mut delta = vec![at.clone(), ("delta", text.to_string())];
            let mut done = vec![at.clone(), (key, text.to_string())];
            if event == "response.output_text" {
                let logprobs = raw("logprobs").unwrap_or("[]").to_string();
                delta.push(("logprobs", logprobs.clone()));
                done.push(("logprobs", logprobs));
            }
            self.send(&format!("{event}.delta"), &delta);
            self.annotations(raw("annotations"), &at)?;
            self.send(&format!("{event}.done"), &done);
        }
        let done = "response.content_part.done";
        self.send(done, &[at, ("part", part.to_string())]);
        Ok(())
    }

    fn annotations(
        &mut self,
        annotations: Option<&str>,
        at: &(&str, String),
    ) -> Result<(), DialectError> {
        let Some(raw) = annotations else {
            return Ok(());
        };
        for (index, annotation) in scan_array(raw, "annotations")?.texts(raw).enumerate() {
            self.send(
                "response.output_text.annotation.added",
                &[
                    at.clone(),
                    ("annotation_index", index.to_string()),
                    ("annotation", annotation.to_string()),
                ],
            );
        }
        Ok(())
    }
}
