//! Streams several replies as one message, block by block.

use std::collections::{BTreeSet, HashMap};

use super::stream;
use crate::read::{scan_object, text_of, with_members};
use crate::view::Treatment;
use crate::{DialectError, SseEvent, Usage};

#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    opened: bool,
    /// Number of blocks that were sent to the runner, which is the index of the next one.
    blocks: u64,
    places: HashMap<u64, u64>,
    open: BTreeSet<u64>,
}

impl Blocks {
    pub(crate) fn has_sent(&self) -> bool {
        !self.places.is_empty()
    }

    pub(crate) fn treatment(&mut self, event: &SseEvent) -> Result<Treatment, DialectError> {
        let data = event.data.as_str();
        Ok(match text_of(data, "type").as_deref() {
            Some("message_start") if self.opened => Treatment::Suppressed,
            Some("message_delta" | "message_stop" | "error" | "ping") => Treatment::Suppressed,
            Some("content_block_start") if is_call(data)? => Treatment::Call,
            Some("content_block_delta" | "content_block_stop") => {
                match index(data)?.is_some_and(|index| self.places.contains_key(&index)) {
                    true => Treatment::Continuation,
                    false => Treatment::Call,
                }
            }
            _ => Treatment::Plain,
        })
    }

    pub(crate) fn send(&mut self, event: &SseEvent) -> Result<Option<SseEvent>, DialectError> {
        let data = event.data.as_str();
        let kind = text_of(data, "type");
        let place = match (kind.as_deref(), index(data)?) {
            (Some("message_start"), _) => {
                self.opened = true;
                None
            }
            (Some("content_block_start"), Some(index)) => {
                self.places.insert(index, self.blocks);
                self.open.insert(self.blocks);
                self.blocks += 1;
                self.places.get(&index)
            }
            (_, Some(index)) => self.places.get(&index),
            (_, None) => None,
        };
        if let (Some("content_block_stop"), Some(place)) = (kind.as_deref(), place) {
            self.open.remove(place);
        }
        let data = match place {
            Some(place) => with_members(data, &[("index", place.to_string())])?,
            None => data.to_string(),
        };
        Ok(Some(SseEvent { event: kind, data }))
    }

    pub(crate) fn close(&mut self) -> Vec<SseEvent> {
        self.places.clear();
        std::mem::take(&mut self.open)
            .into_iter()
            .map(|place| stream::event("content_block_stop", &[("index", place.to_string())]))
            .collect()
    }
}

pub(crate) fn end(text: &str, usage: Option<Usage>) -> Result<Vec<SseEvent>, DialectError> {
    stream::ending(text, usage)
}

fn index(data: &str) -> Result<Option<u64>, DialectError> {
    let fields = scan_object(data, "event")?;
    Ok(fields.get(data, "index").and_then(|raw| raw.parse().ok()))
}

fn is_call(data: &str) -> Result<bool, DialectError> {
    let fields = scan_object(data, "event")?;
    let block = fields.get(data, "content_block").unwrap_or("{}");
    Ok(text_of(block, "type").as_deref() == Some("tool_use"))
}
