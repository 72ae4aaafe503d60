//! A streamed reply put together again.

use crate::{Dialect, DialectError, Reply, SseEvent, Usage, anthropic, openai_chat, responses};

/// Events in, and at the end the reply that a request without streaming would have given.
#[derive(Clone, Debug)]
pub struct Reassembly {
    dialect: Dialect,
    events: Vec<SseEvent>,
}

impl Reassembly {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            events: Vec::new(),
        }
    }

    pub fn push(&mut self, event: SseEvent) {
        self.events.push(event);
    }

    /// Errors: the stream ended early, held an error, or is not this dialect's.
    pub fn finish(self) -> Result<Reply, DialectError> {
        let text = match self.dialect {
            Dialect::OpenaiChat => openai_chat::reassembly::whole(&self.events),
            Dialect::AnthropicMessages => anthropic::reassembly::whole(&self.events),
            Dialect::OpenaiResponses => responses::reassembly::whole(&self.events),
        }?;
        Reply::decode(self.dialect, text.into_bytes())
    }

    /// What the stream says of its tokens, for a stream that is passed through.
    pub fn usage(events: &[SseEvent], dialect: Dialect) -> Usage {
        match dialect {
            Dialect::OpenaiChat => openai_chat::reassembly::usage(events),
            Dialect::AnthropicMessages => anthropic::reassembly::usage(events),
            Dialect::OpenaiResponses => responses::reassembly::usage(events),
        }
    }
}
