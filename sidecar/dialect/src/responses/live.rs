//! Streams several replies as one response, item by item.

use std::collections::{BTreeSet, HashMap};

use super::{answer, item, reply, stream};
use crate::json;
use crate::read::{present, scan_array, scan_object, text_of, with_members};
use crate::view::Treatment;
use crate::{DialectError, SseEvent, Usage};

/// Members that identify a response, equal from its first event to its last.
const HEAD: [&str; 3] = ["id", "created_at", "model"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    number: u64,
    head: Vec<(&'static str, String)>,
    /// Types of the opening events that were sent, such as `response.created`.
    opened: Vec<String>,
    replies: u32,
    /// The sent items of the replies that have ended.
    done: Vec<String>,
    /// Number of items that were sent to the runner, which is the index of the next one.
    items: u64,
    /// Maps an item's index in the current reply to its index in the runner's response.
    places: HashMap<u64, u64>,
    /// Indexes, in the runner's response, of the items that were added and are not done.
    open: BTreeSet<u64>,
}

impl Items {
    /// Sequence number of the next event.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn has_sent(&self) -> bool {
        !self.places.is_empty()
    }

    pub(crate) fn treatment(&mut self, event: &SseEvent) -> Result<Treatment, DialectError> {
        let data = event.data.as_str();
        if data.trim() == "[DONE]" {
            return Ok(Treatment::Suppressed);
        }
        let kind = text_of(data, "type").unwrap_or_default();
        Ok(match kind.as_str() {
            "response.created" | "response.queued" | "response.in_progress" => {
                match self.replies == 0 && !self.opened.contains(&kind) {
                    true => Treatment::Plain,
                    false => Treatment::Suppressed,
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" | "error" => {
                Treatment::Suppressed
            }
            "response.output_item.added" if is_call(data)? => Treatment::Call,
            "response.output_item.added" => Treatment::Plain,
            _ => match index(data)? {
                Some(index) if self.places.contains_key(&index) => Treatment::Continuation,
                Some(_) => Treatment::Call,
                None => Treatment::Plain,
            },
        })
    }

    pub(crate) fn send(
        &mut self,
        request: &str,
        event: &SseEvent,
    ) -> Result<Option<SseEvent>, DialectError> {
        let data = event.data.as_str();
        let kind = text_of(data, "type").unwrap_or_default();
        let fields = scan_object(data, "event")?;
        let mut set = vec![("sequence_number", self.number.to_string())];
        if let Some(response) = present(data, &fields, "response") {
            if self.head.is_empty() {
                self.head = head(response)?;
            }
            set.push(("response", answer::whole(request, response, None)?));
            self.opened.push(kind.clone());
        }
        if let Some(index) = index(data)? {
            let place = *self.places.entry(index).or_insert(self.items);
            self.items = self.items.max(place + 1);
            match kind.as_str() {
                "response.output_item.added" => self.open.insert(place),
                "response.output_item.done" => self.open.remove(&place),
                _ => false,
            };
            set.push(("output_index", place.to_string()));
        }
        self.number += 1;
        Ok(Some(SseEvent {
            event: Some(kind),
            data: with_members(data, &set)?,
        }))
    }

    /// Keeps the items of this reply that were sent, and ends those that are still open.
    pub(crate) fn close(&mut self, text: &str) -> Result<Vec<SseEvent>, DialectError> {
        let output = reply::output(text)?;
        let array = scan_array(output, "output")?;
        let items: Vec<&str> = array.texts(output).collect();
        let mut places: Vec<(u64, u64)> = self
            .places
            .drain()
            .map(|(index, place)| (place, index))
            .collect();
        places.sort_unstable();
        let mut events = Vec::new();
        for (place, index) in places {
            let Some(item) = usize::try_from(index).ok().and_then(|at| items.get(at)) else {
                continue;
            };
            if self.open.contains(&place) {
                let members = [
                    ("output_index", place.to_string()),
                    ("item", (*item).to_string()),
                ];
                let name = "response.output_item.done";
                events.push(stream::event(name, self.number, &members));
                self.number += 1;
            }
            self.done.push((*item).to_string());
        }
        self.open.clear();
        self.replies += 1;
        Ok(events)
    }

    pub(crate) fn end(
        &mut self,
        request: &str,
        text: &str,
        usage: Option<Usage>,
    ) -> Result<Vec<SseEvent>, DialectError> {
        let response = answer::whole(request, text, usage)?;
        let mut set: Vec<(&str, String)> = self.head.clone();
        set.push(("output", json::array(&self.done)));
        let response = with_members(&response, &set)?;
        let number = self.number;
        self.number += 1;
        Ok(vec![stream::ending(response, number)])
    }
}

fn head(response: &str) -> Result<Vec<(&'static str, String)>, DialectError> {
    let fields = scan_object(response, "response")?;
    Ok(HEAD
        .into_iter()
        .filter_map(|key| Some((key, present(response, &fields, key)?.to_string())))
        .collect())
}

fn index(data: &str) -> Result<Option<u64>, DialectError> {
    let fields = scan_object(data, "event")?;
    let index = fields.get(data, "output_index");
    Ok(index.and_then(|raw| raw.parse().ok()))
}

fn is_call(data: &str) -> Result<bool, DialectError> {
    let fields = scan_object(data, "event")?;
    let item = fields.get(data, "item").unwrap_or("{}");
    Ok(item::call(item)?.is_some())
}
