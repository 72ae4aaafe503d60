//! Streams several replies as one stream of chunks.
//!
//! A message has one text, so an empty line separates the text of a hidden round from the text
//! after it, as between two messages.

use super::stream;
use crate::json::{self, Array, Change, Object};
use crate::read::{present, scan_object};
use crate::view::{RequestView, Treatment};
use crate::{DialectError, SseEvent, Usage};

/// Members that are equal in all chunks of a stream.
const HEAD: [&str; 3] = ["id", "created", "model"];

#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    legacy: bool,
    null_usage: bool,
    head: Option<Vec<(&'static str, String)>>,
    opened: bool,
    /// The current reply has sent something besides its role.
    something: bool,
    /// The current reply has sent text.
    text: bool,
    /// An earlier reply has sent text, so the next text begins with an empty line.
    part: bool,
}

impl Chunks {
    pub(crate) fn new(request: &RequestView) -> Self {
        Self {
            legacy: request.legacy_functions,
            null_usage: request.include_usage,
            head: None,
            opened: false,
            something: false,
            text: false,
            part: false,
        }
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.something
    }

    pub(crate) fn treatment(&mut self, event: &SseEvent) -> Result<Treatment, DialectError> {
        let data = event.data.as_str();
        if data.trim() == "[DONE]" {
            return Ok(Treatment::Suppressed);
        }
        let chunk = scan_object(data, "chunk")?;
        if present(data, &chunk, "error").is_some() {
            return Ok(Treatment::Suppressed);
        }
        if self.head.is_none() {
            self.head = Some(head(data, &chunk));
        }
        let Some(choice) = first_choice(data, &chunk)? else {
            // A chunk with usage is not sent, since the last chunk has the sum; other chunks
            // without choices pass.
            let ends = present(data, &chunk, "usage").is_some();
            return Ok(if ends {
                Treatment::Suppressed
            } else {
                Treatment::Plain
            });
        };
        let fields = scan_object(choice, "choices")?;
        let Some(delta) = present(choice, &fields, "delta") else {
            return Ok(Treatment::Suppressed);
        };
        let members = scan_object(delta, "delta")?;
        let calls = ["tool_calls", "function_call"]
            .into_iter()
            .filter_map(|key| present(delta, &members, key))
            .any(|raw| raw != "[]");
        Ok(if calls {
            Treatment::Call
        } else {
            Treatment::Plain
        })
    }

    pub(crate) fn send(&mut self, event: &SseEvent) -> Result<Option<SseEvent>, DialectError> {
        let data = event.data.as_str();
        let chunk = scan_object(data, "chunk")?;
        let choices = match first_choice(data, &chunk)? {
            None => "[]".to_string(),
            Some(choice) => match self.choice(choice)? {
                None => return Ok(None),
                Some(choice) => json::array(&[choice]),
            },
        };
        let mut set = vec![("choices", Some(choices))];
        set.extend(self.head().map(|(key, raw)| (key, Some(raw))));
        let mut dropped = Vec::new();
        if self.null_usage {
            set.push(("usage", Some("null".into())));
        } else {
            dropped.push("usage");
        }
        Ok(Some(chunk_event(chunk.with(data, &set, &dropped))))
    }

    pub(crate) fn close(&mut self) {
        self.part |= self.text;
        (self.something, self.text) = (false, false);
    }

    pub(crate) fn end(
        &mut self,
        request: &RequestView,
        text: &str,
        usage: Option<Usage>,
    ) -> Result<Vec<SseEvent>, DialectError> {
        let body = Object::scan(text)?;
        let set: Vec<_> = self.head().map(|(key, raw)| (key, Some(raw))).collect();
        let text = body.with(text, &set, &[]);
        let mut events = stream::ending(request, &text, usage)?;
        if !std::mem::replace(&mut self.opened, true) {
            events.insert(0, stream::opening(request, &text)?);
        }
        Ok(events.into_iter().map(chunk_event).collect())
    }

    fn head(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.head.iter().flatten().cloned()
    }

    /// Returns the choice for the runner, or `None` if nothing is left to send.
    fn choice(&mut self, choice: &str) -> Result<Option<String>, DialectError> {
        let fields = scan_object(choice, "choices")?;
        let delta = self.delta(present(choice, &fields, "delta").unwrap_or("{}"))?;
        if delta == "{}" && present(choice, &fields, "logprobs").is_none() {
            return Ok(None);
        }
        self.opened = true;
        // The finish reason is sent once the reply is known to be the answer.
        Ok(Some(fields.with(
            choice,
            &[
                ("delta", Some(delta)),
                ("finish_reason", Some("null".into())),
            ],
            &[],
        )))
    }

    fn delta(&mut self, delta: &str) -> Result<String, DialectError> {
        let fields = scan_object(delta, "delta")?;
        let opened = self.opened;
        let content = present(delta, &fields, "content").and_then(json::string);
        let text = content.filter(|text| !text.is_empty());
        let calls = present(delta, &fields, "tool_calls");
        let legacy = match calls.filter(|_| self.legacy) {
            Some(calls) => legacy_call(calls)?,
            None => None,
        };
        self.text |= text.is_some();
        self.something |= fields.members.iter().any(|member| {
            let raw = &delta[member.value.clone()];
            member.key != "role" && !json::is_null(raw) && raw != "\"\"" && raw != "[]"
        });
        let parted = text.filter(|_| std::mem::take(&mut self.part));
        let added: Vec<(&str, String)> =
            legacy.into_iter().map(|it| ("function_call", it)).collect();
        Ok(fields.edit(
            delta,
            |member| match (member.key.as_str(), &parted) {
                // The runner's message has begun already, with its role.
                ("role", _) if opened => Change::Drop,
                ("content", _) if opened && is_empty(&delta[member.value.clone()]) => Change::Drop,
                ("content", Some(text)) => Change::Set(json::quote(&format!("\n\n{text}"))),
                ("tool_calls", _) if self.legacy => Change::Drop,
                _ => Change::Keep,
            },
            &added,
        ))
    }
}

fn is_empty(content: &str) -> bool {
    json::is_null(content) || content == "\"\""
}

fn chunk_event(data: String) -> SseEvent {
    SseEvent { event: None, data }
}

fn head(data: &str, chunk: &Object) -> Vec<(&'static str, String)> {
    HEAD.into_iter()
        .filter_map(|key| Some((key, present(data, chunk, key)?.to_string())))
        .collect()
}

fn first_choice<'t>(data: &'t str, chunk: &Object) -> Result<Option<&'t str>, DialectError> {
    let Some(raw) = present(data, chunk, "choices") else {
        return Ok(None);
    };
    let choices = Array::scan(raw)?;
    Ok(choices.texts(raw).find(|choice| {
        let index = Object::scan(choice).ok();
        let index = index.and_then(|fields| fields.get(choice, "index"));
        index.is_none_or(|raw| raw == "0")
    }))
}

/// Returns the delta of the first call as a `function_call`, for a runner that uses legacy
/// `functions`.
fn legacy_call(calls: &str) -> Result<Option<String>, DialectError> {
    let array = Array::scan(calls)?;
    let Some(call) = array.texts(calls).next() else {
        return Ok(None);
    };
    let fields = scan_object(call, "tool_calls")?;
    Ok(present(call, &fields, "function").map(String::from))
}
