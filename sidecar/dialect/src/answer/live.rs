//! Streams several replies of the model to the runner as one reply, while they arrive.
//!
//! Text, reasoning and everything else except calls is sent at once. From a reply's first call on,
//! events are held back, because only the whole reply tells the owners of its calls. If the reply
//! was a hidden round ([`Live::hide`]), the held events are dropped; if it is the answer
//! ([`Live::end`]), they are sent.
//!
//! The text of a hidden round before its calls (the preamble) cannot be taken back, so it becomes
//! the beginning of the runner's answer. [`Live::answer`] returns that answer as the runner
//! assembles it, so that the next request can be recognized.
//!
//! The runner sees one reply: with the id and model of the first one, blocks and items that are
//! numbered consecutively, and one end with the total usage.

use super::error_body::{error_events, responses_error};
use crate::view::Treatment;
use crate::{
    Dialect, DialectError, ErrorShape, Reassembly, Reply, Request, SseEvent, SseParser, Usage,
    answer, anthropic, openai_chat, responses, sse,
};

/// The runner's stream, and the reply that is being received.
#[derive(Clone, Debug)]
pub struct Live {
    form: Form,
    current: Reassembly,
    sent: Reassembly,
    /// Indexes of the received events that are held back.
    held: Vec<usize>,
    has_sent_hidden: bool,
    limit: usize,
}

#[derive(Clone, Debug)]
enum Form {
    Chunks(openai_chat::live::Chunks),
    Blocks(anthropic::live::Blocks),
    Items(responses::live::Items),
}

impl Live {
    /// `limit`: maximum bytes of one reply, and of all events that are sent to the runner.
    pub fn new(request: &Request, limit: usize) -> Self {
        let dialect = request.dialect();
        let form = match dialect {
            Dialect::OpenaiChat => Form::Chunks(openai_chat::live::Chunks::new(request.view())),
            Dialect::AnthropicMessages => Form::Blocks(anthropic::live::Blocks::default()),
            Dialect::OpenaiResponses => Form::Items(responses::live::Items::default()),
        };
        Self {
            form,
            current: Reassembly::new(dialect, limit),
            sent: Reassembly::new(dialect, limit),
            held: Vec::new(),
            has_sent_hidden: false,
            limit,
        }
    }

    /// Takes events of the reply; returns the frames to send at once.
    pub fn push(
        &mut self,
        request: &Request,
        events: impl IntoIterator<Item = SseEvent>,
    ) -> Result<String, DialectError> {
        let mut out = String::new();
        for event in events {
            let treatment = self.form.treatment(&event)?;
            let at = self.current.events().len();
            self.current.push(event)?;
            match treatment {
                Treatment::Suppressed => {}
                Treatment::Plain if self.held.is_empty() => self.send(request, at, &mut out)?,
                Treatment::Plain | Treatment::Call => self.held.push(at),
                Treatment::Continuation => self.send(request, at, &mut out)?,
            }
        }
        Ok(out)
    }

    /// Does the same as [`Self::push`] for a whole reply, from a server that does not stream.
    pub fn push_whole(&mut self, request: &Request, reply: &Reply) -> Result<String, DialectError> {
        let body = answer::events(request, reply, None)?;
        let events = SseParser::new(self.limit).push(body.as_bytes())?;
        self.push(request, events)
    }

    /// Returns the reply, after its stream has ended.
    pub fn reply(&self) -> Result<Reply, DialectError> {
        self.current.finish()
    }

    /// Returns the usage that the current reply has reported so far.
    pub fn usage(&self) -> Usage {
        Reassembly::usage(self.current.events(), self.current.dialect())
    }

    /// Ends the reply as a hidden round; another reply follows.
    pub fn hide(&mut self, reply: &Reply) -> Result<String, DialectError> {
        let mut out = String::new();
        self.has_sent_hidden |= self.form.has_sent();
        for event in self.form.close(reply)? {
            self.write(event, &mut out)?;
        }
        self.next();
        Ok(out)
    }

    /// Ends the reply as the answer: returns the rest of it and the end of the stream. `usage` as
    /// for [`crate::answer`].
    pub fn end(
        &mut self,
        request: &Request,
        reply: &Reply,
        usage: Option<Usage>,
    ) -> Result<String, DialectError> {
        let mut out = String::new();
        for at in std::mem::take(&mut self.held) {
            self.send(request, at, &mut out)?;
        }
        let mut ending = self.form.close(reply)?;
        ending.extend(match &mut self.form {
            Form::Chunks(chunks) => chunks.end(request.view(), reply.as_text(), usage),
            Form::Blocks(_) => anthropic::live::end(reply.as_text(), usage),
            Form::Items(items) => items.end(request.as_text(), reply.as_text(), usage),
        }?);
        for event in ending {
            self.write(event, &mut out)?;
        }
        self.next();
        Ok(out)
    }

    /// Encodes an error of the mediator and the end of the stream.
    pub fn error(&self, error: ErrorShape<'_>) -> Vec<u8> {
        match &self.form {
            Form::Chunks(_) => error_events(Dialect::OpenaiChat, error),
            Form::Blocks(_) => error_events(Dialect::AnthropicMessages, error),
            Form::Items(items) => responses_error(error, items.number()).into_bytes(),
        }
    }

    /// Returns true if a hidden round or the current reply has sent anything.
    pub fn has_sent(&self) -> bool {
        self.has_sent_hidden || self.form.has_sent()
    }

    /// Returns true if a hidden round has sent anything.
    pub fn has_sent_hidden(&self) -> bool {
        self.has_sent_hidden
    }

    /// Returns the answer as the runner assembles it, after [`Live::end`].
    pub fn answer(&self) -> Result<Reply, DialectError> {
        self.sent.finish()
    }

    fn send(&mut self, request: &Request, at: usize, out: &mut String) -> Result<(), DialectError> {
        let Some(event) = self.current.events().get(at) else {
            return Ok(());
        };
        let sent = match &mut self.form {
            Form::Chunks(chunks) => chunks.send(event),
            Form::Blocks(blocks) => blocks.send(event),
            Form::Items(items) => items.send(request.as_text(), event),
        }?;
        match sent {
            Some(event) => self.write(event, out),
            None => Ok(()),
        }
    }

    fn write(&mut self, event: SseEvent, out: &mut String) -> Result<(), DialectError> {
        out.push_str(&sse::frame(event.event.as_deref(), &event.data));
        self.sent.push(event)
    }

    fn next(&mut self) {
        self.current = Reassembly::new(self.current.dialect(), self.limit);
        self.held.clear();
    }
}

impl Form {
    fn treatment(&mut self, event: &SseEvent) -> Result<Treatment, DialectError> {
        match self {
            Form::Chunks(chunks) => chunks.treatment(event),
            Form::Blocks(blocks) => blocks.treatment(event),
            Form::Items(items) => items.treatment(event),
        }
    }

    /// Closes the parts that the reply has left open, and advances the numbering.
    fn close(&mut self, reply: &Reply) -> Result<Vec<SseEvent>, DialectError> {
        match self {
            Form::Chunks(chunks) => {
                chunks.close();
                Ok(Vec::new())
            }
            Form::Blocks(blocks) => Ok(blocks.close()),
            Form::Items(items) => items.close(reply.as_text()),
        }
    }

    /// Returns true if the current reply has sent anything except its beginning.
    fn has_sent(&self) -> bool {
        match self {
            Form::Chunks(chunks) => chunks.has_sent(),
            Form::Blocks(blocks) => blocks.has_sent(),
            Form::Items(items) => items.has_sent(),
        }
    }
}
