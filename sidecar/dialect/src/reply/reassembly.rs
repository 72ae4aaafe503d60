//! Reassembles a streamed reply.

use crate::read::text_of;
use crate::{Dialect, DialectError, Reply, SseEvent, Usage, anthropic, openai_chat, responses};

/// Collects events, and returns the reply that a request without streaming would have given. Holds
/// at most `limit` bytes.
#[derive(Clone, Debug)]
pub struct Reassembly {
    dialect: Dialect,
    events: Vec<SseEvent>,
    held: usize,
    limit: usize,
}

impl Reassembly {
    pub fn new(dialect: Dialect, limit: usize) -> Self {
        Self {
            dialect,
            events: Vec::new(),
            held: 0,
            limit,
        }
    }

    /// Adds an event. Errors: the limit is exceeded; the event is dropped.
    pub fn push(&mut self, event: SseEvent) -> Result<(), DialectError> {
        // Counts a minimum size for each event, so that many small events cannot take many times
        // the limit in memory.
        let size =
            size_of::<SseEvent>() + event.data.len() + event.event.as_ref().map_or(0, String::len);
        self.held = self.held.saturating_add(size);
        if self.held > self.limit {
            return Err(DialectError::ReplyTooLarge { limit: self.limit });
        }
        self.events.push(event);
        Ok(())
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn events(&self) -> &[SseEvent] {
        &self.events
    }

    /// Returns the whole reply. Errors: the stream ended early, held an error, or is not in this
    /// dialect.
    pub fn finish(&self) -> Result<Reply, DialectError> {
        let text = match self.dialect {
            Dialect::OpenaiChat => openai_chat::reassembly::whole(&self.events),
            Dialect::AnthropicMessages => anthropic::reassembly::whole(&self.events),
            Dialect::OpenaiResponses => responses::reassembly::whole(&self.events),
        }?;
        Reply::decode(self.dialect, text.into_bytes())
    }

    /// Returns the usage that the events report, for a stream that is passed through.
    pub fn usage(events: &[SseEvent], dialect: Dialect) -> Usage {
        match dialect {
            Dialect::OpenaiChat => openai_chat::reassembly::usage(events),
            Dialect::AnthropicMessages => anthropic::reassembly::usage(events),
            Dialect::OpenaiResponses => responses::reassembly::usage(events),
        }
    }

    /// Returns the names of the calls that begin in an event, for a stream that is passed through.
    pub fn called(event: &SseEvent, dialect: Dialect) -> Vec<String> {
        // Most events are pieces of text, which need not be decoded.
        if !event.data.contains("\"name\"") {
            return Vec::new();
        }
        match dialect {
            Dialect::OpenaiChat => openai_chat::reassembly::called(event),
            Dialect::AnthropicMessages => anthropic::reassembly::called(event),
            Dialect::OpenaiResponses => responses::reassembly::called(event),
        }
    }

    /// Returns true for the event with which a provider ends its answer with an error, for a stream that
    /// is passed through.
    pub fn is_failure(event: &SseEvent, dialect: Dialect) -> bool {
        let data = event.data.as_str();
        if !data.contains("\"error\"") {
            return false;
        }
        match dialect {
            Dialect::OpenaiChat => openai_chat::reassembly::is_failure(data),
            Dialect::AnthropicMessages => text_of(data, "type").as_deref() == Some("error"),
            Dialect::OpenaiResponses => {
                let kind = text_of(data, "type");
                matches!(kind.as_deref(), Some("error" | "response.failed"))
            }
        }
    }
}
