//! Reassembles a whole reply from its events.

use std::collections::BTreeMap;

use crate::json::{self, Object};
use crate::read::{scan_object, text_of, with_members};
use crate::{DialectError, SseEvent, Usage};

/// A content block: its `content_block_start`, and its deltas.
#[derive(Default)]
struct Block {
    opening: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    input: Option<String>,
    citations: Vec<String>,
    /// Members of deltas whose kind this release does not know: texts are appended, as for known
    /// kinds, and other values are replaced.
    others: BTreeMap<String, OtherMember>,
}

enum OtherMember {
    Text(String),
    Whole(String),
}

pub(crate) fn whole(events: &[SseEvent]) -> Result<String, DialectError> {
    let mut message: Option<String> = None;
    let mut blocks: Vec<Block> = Vec::new();
    let mut ending: BTreeMap<String, String> = BTreeMap::new();
    let mut usage = String::from("{}");
    for event in events {
        let data = event.data.as_str();
        let fields = scan_object(data, "event")?;
        let part = |key| fields.get(data, key);
        match text_of(data, "type").as_deref() {
            Some("message_start") => {
                let raw = part("message").ok_or(DialectError::Missing("message"))?;
                let opening = scan_object(raw, "message")?;
                usage = opening.get(raw, "usage").unwrap_or("{}").to_string();
                message = Some(raw.to_string());
            }
            Some("content_block_start") => blocks.push(Block {
                opening: part("content_block").unwrap_or("{}").to_string(),
                ..Block::default()
            }),
            Some("content_block_delta") => {
                let index: Option<usize> = part("index").and_then(|raw| raw.parse().ok());
                let block = index.and_then(|index| blocks.get_mut(index));
                let block = block.ok_or(DialectError::Missing("content_block_start"))?;
                block.add(part("delta").unwrap_or("{}"))?;
            }
            Some("message_delta") => {
                if let Some(delta) = part("delta") {
                    for member in scan_object(delta, "delta")?.members {
                        ending.insert(member.key.to_string(), delta[member.value].to_string());
                    }
                }
                if let Some(more) = part("usage") {
                    usage = merged(&usage, more)?;
                }
                // All other members of this event belong to the message.
                let beside = |key: &str| !matches!(key, "type" | "delta" | "usage");
                for member in fields.members.iter().filter(|it| beside(&it.key)) {
                    let raw = data[member.value.clone()].to_string();
                    ending.insert(member.key.to_string(), raw);
                }
            }
            Some("message_stop") => {
                let message = message.ok_or(DialectError::Missing("message_start"))?;
                let blocks: Vec<String> = blocks
                    .into_iter()
                    .map(Block::whole)
                    .collect::<Result<_, _>>()?;
                let mut set = vec![("content", json::array(&blocks)), ("usage", usage)];
                set.extend(ending.iter().map(|(key, raw)| (key.as_str(), raw.clone())));
                return with_members(&message, &set);
            }
            Some("error") => {
                let error = part("error").and_then(|error| text_of(error, "message"));
                return Err(DialectError::StreamError(error.unwrap_or_default()));
            }
            // `ping`, `content_block_stop`, and kinds of later releases.
            _ => {}
        }
    }
    Err(DialectError::StreamCut)
}

pub(crate) fn usage(events: &[SseEvent]) -> Usage {
    let mut sum = Usage::default();
    for event in events {
        let data = event.data.as_str();
        let Ok(fields) = Object::scan(data) else {
            continue;
        };
        let message = fields.get(data, "message");
        let (holder, raw) = match message.map(|raw| (raw, Object::scan(raw))) {
            Some((raw, Ok(message))) => (message, raw),
            Some((_, Err(_))) | None => (fields, data),
        };
        if let Some(found) = holder.get(raw, "usage").map(super::reply::usage) {
            // Each count is cumulative; a count that an event leaves out keeps its value.
            sum = sum.later(found);
        }
    }
    sum
}

/// Returns the name of the call whose block begins in an event.
pub(crate) fn called(event: &SseEvent) -> Vec<String> {
    let data = event.data.as_str();
    let Ok(fields) = Object::scan(data) else {
        return Vec::new();
    };
    let block = fields.get(data, "content_block").map(str::to_string);
    let blocks = json::array(&Vec::from_iter(block));
    let calls = super::reply::calls(&blocks).unwrap_or_default();
    calls.into_iter().map(|(_, call)| call.name).collect()
}

impl Block {
    fn add(&mut self, delta: &str) -> Result<(), DialectError> {
        let fields = scan_object(delta, "delta")?;
        let text = |key| text_of(delta, key).unwrap_or_default();
        match text_of(delta, "type").as_deref() {
            Some("text_delta") => grow(&mut self.text, &text("text")),
            Some("thinking_delta") => grow(&mut self.thinking, &text("thinking")),
            Some("signature_delta") => grow(&mut self.signature, &text("signature")),
            Some("input_json_delta") => grow(&mut self.input, &text("partial_json")),
            Some("citations_delta") => self
                .citations
                .extend(fields.get(delta, "citation").map(String::from)),
            _ => {
                for member in fields.members.iter().filter(|it| it.key != "type") {
                    let raw = &delta[member.value.clone()];
                    if !json::is_null(raw) {
                        self.add_other(&member.key, raw);
                    }
                }
            }
        }
        Ok(())
    }

    fn add_other(&mut self, key: &str, raw: &str) {
        let more = json::string(raw);
        if let (Some(OtherMember::Text(text)), Some(more)) = (self.others.get_mut(key), &more) {
            text.push_str(more);
            return;
        }
        let other = more.map_or_else(|| OtherMember::Whole(raw.to_string()), OtherMember::Text);
        self.others.insert(key.to_string(), other);
    }

    fn whole(self) -> Result<String, DialectError> {
        let mut set = Vec::new();
        for (key, text) in [
            ("text", self.text),
            ("thinking", self.thinking),
            ("signature", self.signature),
        ] {
            set.extend(text.map(|text| (key, json::quote(&text))));
        }
        if let Some(input) = self.input.filter(|input| !input.is_empty()) {
            // An input that was cut off at the token limit becomes a string, which validation
            // refuses. So incomplete arguments are never executed.
            let whole = json::checked(&input).map_or(json::quote(&input), String::from);
            set.push(("input", whole));
        }
        if !self.citations.is_empty() {
            set.push(("citations", json::array(&self.citations)));
        }
        for (key, other) in &self.others {
            let raw = match other {
                OtherMember::Text(text) => json::quote(text),
                OtherMember::Whole(raw) => raw.clone(),
            };
            set.push((key.as_str(), raw));
        }
        with_members(&self.opening, &set)
    }
}

fn grow(text: &mut Option<String>, more: &str) {
    text.get_or_insert_default().push_str(more);
}

fn merged(usage: &str, more: &str) -> Result<String, DialectError> {
    let fields = scan_object(more, "usage")?;
    let set: Vec<(&str, String)> = fields
        .members
        .iter()
        .filter(|member| !json::is_null(&more[member.value.clone()]))
        .map(|member| (member.key.as_str(), more[member.value.clone()].to_string()))
        .collect();
    with_members(usage, &set)
}
