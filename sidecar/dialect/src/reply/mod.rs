//! A whole (not streamed) reply of a model.

pub mod reassembly;

use crate::read::text_of;
use crate::view::{RawCall, ReplyView, ToolResult};
use crate::{Dialect, DialectError, Usage, anthropic, openai_chat, responses};

/// Limits the bytes of a whole reply, streamed or not; a model that sends more is broken.
pub const MAX_REPLY: usize = 32 * 1024 * 1024;

/// A model's reply, with its body as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    dialect: Dialect,
    text: String,
    view: ReplyView,
    /// Indexes of calls without an id from the server.
    unnamed: Vec<usize>,
}

impl Reply {
    /// Decodes a body of a 2xx response. Errors: not UTF-8, not JSON, not this dialect's shape.
    pub fn decode(dialect: Dialect, body: Vec<u8>) -> Result<Self, DialectError> {
        let text = String::from_utf8(body).map_err(|_| DialectError::NotUtf8)?;
        let mut view = match dialect {
            Dialect::OpenaiChat => openai_chat::reply::view(&text),
            Dialect::AnthropicMessages => anthropic::reply::view(&text),
            Dialect::OpenaiResponses => responses::reply::view(&text),
        }?;
        let without = |(at, call): (usize, &RawCall)| call.id.is_empty().then_some(at);
        let unnamed = view.calls.iter().enumerate();
        let unnamed: Vec<usize> = unnamed.filter_map(without).collect();
        for at in &unnamed {
            view.calls[*at].id = placed_id(dialect, "", *at);
        }
        Ok(Self {
            dialect,
            text,
            view,
            unnamed,
        })
    }

    /// Gives an id to each call without one. `seed` is called only if such a call exists. It
    /// returns at most 24 letters and digits, which must differ for each reply of a conversation,
    /// since providers accept an id only once.
    #[must_use]
    pub fn identified(mut self, seed: impl FnOnce() -> String) -> Self {
        if self.unnamed.is_empty() {
            return self;
        }
        let seed = format!("{}_", seed());
        for at in &self.unnamed {
            self.view.calls[*at].id = placed_id(self.dialect, &seed, *at);
        }
        self
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The body as received.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    pub fn calls(&self) -> &[RawCall] {
        &self.view.calls
    }

    /// Returns the assistant's text, all blocks joined; `None` if it is empty.
    pub fn content(&self) -> Option<&str> {
        self.view.content.as_deref().filter(|text| !text.is_empty())
    }

    /// The finish reason in the dialect's own words.
    pub fn finish(&self) -> Option<&str> {
        self.view.finish.as_deref()
    }

    /// Returns true if the reply says that the provider could not finish it (the Responses API's
    /// status `failed`).
    pub fn has_failed(&self) -> bool {
        self.dialect == Dialect::OpenaiResponses && self.finish() == Some("failed")
    }

    pub fn usage(&self) -> Usage {
        self.view.usage
    }

    pub fn choices(&self) -> usize {
        self.view.choices
    }

    /// Returns the id by which a later request may continue this reply. `None` in the dialects that
    /// repeat the conversation in each request.
    pub fn response_id(&self) -> Option<String> {
        match self.dialect {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => None,
            Dialect::OpenaiResponses => text_of(&self.text, "id"),
        }
    }

    /// Returns the id of the provider's container that the model used, for
    /// [`crate::Edits::container`].
    pub fn container(&self) -> Option<String> {
        match self.dialect {
            Dialect::AnthropicMessages => anthropic::reply::container(&self.text),
            // In these dialects the items name the container.
            Dialect::OpenaiChat | Dialect::OpenaiResponses => None,
        }
    }

    /// Returns the items of a hidden round for the history: the reply's message with exactly the
    /// calls that have a result (in the reply's order; the others are hidden), then the results.
    /// `rename` returns the new name of a call.
    ///
    /// The rest of the message stays, thinking blocks included, except parts that a provider would
    /// refuse: blank texts, and reasoning directly before a hidden call.
    pub fn items(
        &self,
        results: &[ToolResult],
        rename: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<String>, DialectError> {
        let (text, calls) = (&*self.text, &*self.view.calls);
        match self.dialect {
            Dialect::OpenaiChat => {
                let message = &text[self.view.message.clone()];
                openai_chat::reply::items(message, calls, results, &rename)
            }
            Dialect::AnthropicMessages => anthropic::reply::items(text, calls, results, &rename),
            Dialect::OpenaiResponses => responses::reply::items(text, calls, results, &rename),
        }
    }
}

/// Generates the id of a call that came without one.
fn placed_id(dialect: Dialect, seed: &str, at: usize) -> String {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses => format!("call_{seed}{at}"),
        Dialect::AnthropicMessages => format!("toolu_{seed}{at}"),
    }
}
