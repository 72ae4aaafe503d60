//! A model's whole (not streamed) reply.

use crate::{Dialect, DialectError, Usage, anthropic, openai_chat, responses};

/// A whole reply, streamed or not, is at most this long; a model that says more is broken.
pub const MAX_REPLY: usize = 32 * 1024 * 1024;

/// What a model answered, with its body as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    dialect: Dialect,
    text: String,
    view: View,
    /// Calls, by place, that the server gave no id.
    unnamed: Vec<usize>,
}

/// The few fields that matter; each dialect's module reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub calls: Vec<RawCall>,
    pub content: Option<String>,
    pub finish: Option<String>,
    pub usage: Usage,
    pub choices: usize,
}

/// A tool call as the model wrote it, before its owner is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCall {
    /// The server's, or one made up where it gave none; see [`Reply::identified`].
    pub id: String,
    pub name: String,
    /// The text the model wrote, which need not be JSON (`""` is common).
    pub arguments: String,
    pub kind: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Arguments are meant to be JSON.
    Function,
    /// Free text (OpenAI `custom`).
    Custom,
}

/// What one call is answered with, as the text of one JSON string. Calls are named by
/// their place, since some servers give no ids, or one twice.
///
/// There is no more to it: for any two results the next requests are equal but for that
/// string, in every dialect. Hence Anthropic's `is_error` is not said; whether it went well
/// stands in the result, where each dialect's model reads it alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// Index in [`Reply::calls`].
    pub call: usize,
    pub content: String,
}

impl Reply {
    /// Reads a body of status 2xx. Errors: not UTF-8, not JSON, not this dialect's shape.
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

    /// Gives the calls that have no id of the server's ids of this reply's own: `seed` is
    /// asked for where there are any, and is to be another one for each reply of a
    /// conversation, since providers take an id once. Letters and digits, at most 24.
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

    /// The body as it came.
    pub fn as_text(&self) -> &str {
        &self.text
    }

    pub fn calls(&self) -> &[RawCall] {
        &self.view.calls
    }

    /// The assistant's text, all blocks joined. `None`: there was none, or it was empty.
    pub fn content(&self) -> Option<&str> {
        self.view.content.as_deref().filter(|text| !text.is_empty())
    }

    /// The dialect's own word for why it stopped.
    pub fn finish(&self) -> Option<&str> {
        self.view.finish.as_deref()
    }

    pub fn usage(&self) -> Usage {
        self.view.usage
    }

    pub fn choices(&self) -> usize {
        self.view.choices
    }

    /// The provider's machine on which the model worked, for [`crate::Edits::container`].
    pub fn container(&self) -> Option<String> {
        match self.dialect {
            Dialect::AnthropicMessages => anthropic::reply::container(&self.text),
            // Theirs is named by the items.
            Dialect::OpenaiChat | Dialect::OpenaiResponses => None,
        }
    }

    /// What goes into the history after a hidden round: the reply's message with exactly
    /// the calls that have a result (in the reply's order; the others are hidden), then the
    /// results. `spell` gives a call another name.
    ///
    /// Everything else of the message stays as it came, thinking blocks included.
    pub fn items(
        &self,
        results: &[ToolResult],
        spell: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<String>, DialectError> {
        let (text, calls) = (&*self.text, &*self.view.calls);
        match self.dialect {
            Dialect::OpenaiChat => openai_chat::reply::items(text, calls, results, &spell),
            Dialect::AnthropicMessages => anthropic::reply::items(text, calls, results, &spell),
            Dialect::OpenaiResponses => responses::reply::items(text, calls, results, &spell),
        }
    }
}

/// The id of a call that the server gave none.
fn placed_id(dialect: Dialect, seed: &str, at: usize) -> String {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses => format!("call_{seed}{at}"),
        Dialect::AnthropicMessages => format!("toolu_{seed}{at}"),
    }
}
