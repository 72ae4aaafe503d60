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

/// A tool call as the model wrote it; nobody owns it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCall {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// Index in [`Reply::calls`].
    pub call: usize,
    pub content: String,
    /// The mediator's own verdict, for a format that has a place for it. Always said, so
    /// that results differ in values alone.
    pub is_error: bool,
}

impl Reply {
    /// Reads a body of status 2xx. Errors: not UTF-8, not JSON, not this dialect's shape.
    pub fn decode(dialect: Dialect, body: Vec<u8>) -> Result<Self, DialectError> {
        let text = String::from_utf8(body).map_err(|_| DialectError::NotUtf8)?;
        let view = match dialect {
            Dialect::OpenaiChat => openai_chat::reply::view(&text),
            Dialect::AnthropicMessages => anthropic::reply::view(&text),
            Dialect::OpenaiResponses => responses::reply::view(&text),
        }?;
        Ok(Self {
            dialect,
            text,
            view,
        })
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
        match self.dialect {
            Dialect::OpenaiChat => openai_chat::reply::items(&self.text, results, &spell),
            Dialect::AnthropicMessages => anthropic::reply::items(&self.text, results, &spell),
            Dialect::OpenaiResponses => responses::reply::items(&self.text, results, &spell),
        }
    }
}
