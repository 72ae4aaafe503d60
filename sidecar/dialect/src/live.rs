//! Streams several replies of the model to the runner as one reply, while they arrive.
//!
//! Text, reasoning and everything else except calls is sent at once. From a reply's first call on,
//! events are held back, because only the whole reply tells the owners of its calls. If the reply
//! was a hidden round ([`Live::hide`]), the held events are dropped; if it is the answer
//! ([`Live::end`]), they are sent.
//!
//! Text of a hidden round before its calls cannot be taken back: it is the beginning of the
//! runner's answer. [`Live::said`] returns that answer as the runner assembles it, so that the next
//! request can be recognized.
//!
//! The runner sees one reply: id and model of the first one, blocks and items numbered
//! consecutively, and one end with the usage of all.

use crate::{
    Dialect, DialectError, ErrorShape, Reassembly, Reply, Request, SseEvent, SseParser, Usage,
    answer, anthropic, error, openai_chat, responses, sse,
};

/// The runner's stream, and the reply that is being received.
#[derive(Clone, Debug)]
pub struct Live {
    form: Form,
    heard: Reassembly,
    said: Reassembly,
    /// Text that was received and is not yet sent to the runner.
    held: Vec<usize>,
    hidden_said: bool,
    limit: usize,
}

#[derive(Clone, Debug)]
enum Form {
    Chunks(openai_chat::live::Chunks),
    Blocks(anthropic::live::Blocks),
    Items(responses::live::Items),
}

/// The treatment of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Sent at once, unless events are held.
    Plain,
    /// Continues a part that was opened already: sent at once.
    Opened,
    /// Begins or continues a call: held.
    Call,
    /// Sent in another form, or not at all.
    Unsaid,
}

impl Live {
    /// `limit`: bytes of one reply, and of everything that is sent.
    pub fn new(request: &Request, limit: usize) -> Self {
        let dialect = request.dialect();
        let form = match dialect {
            Dialect::OpenaiChat => Form::Chunks(openai_chat::live::Chunks::new(request)),
            Dialect::AnthropicMessages => Form::Blocks(anthropic::live::Blocks::default()),
            Dialect::OpenaiResponses => Form::Items(responses::live::Items::default()),
        };
        Self {
            form,
            heard: Reassembly::new(dialect, limit),
            said: Reassembly::new(dialect, limit),
            held: Vec::new(),
            hidden_said: false,
            limit,
        }
    }

    /// Takes events of the reply; returns the frames to send at once.
    pub fn hear(
        &mut self,
        request: &Request,
        events: impl IntoIterator<Item = SseEvent>,
    ) -> Result<String, DialectError> {
        let mut out = String::new();
        for event in events {
            let place = self.form.place(&event)?;
            let at = self.heard.events().len();
            self.heard.push(event)?;
            match place {
                Place::Unsaid => {}
                Place::Plain if self.held.is_empty() => self.say(request, at, &mut out)?,
                Place::Plain | Place::Call => self.held.push(at),
                Place::Opened => self.say(request, at, &mut out)?,
            }
        }
        Ok(out)
    }

    /// The same for a whole reply, from a server that does not stream.
    pub fn hear_whole(&mut self, request: &Request, reply: &Reply) -> Result<String, DialectError> {
        let body = answer::events(request, reply, None)?;
        let events = SseParser::new(self.limit).push(body.as_bytes())?;
        self.hear(request, events)
    }

    /// Returns the reply, after its stream has ended.
    pub fn heard(&self) -> Result<Reply, DialectError> {
        self.heard.finish()
    }

    /// Returns the usage that the current reply has reported so far.
    pub fn usage(&self) -> Usage {
        Reassembly::usage(self.heard.events(), self.heard.dialect())
    }

    /// Ends the reply as a hidden round; another one follows.
    pub fn hide(&mut self, reply: &Reply) -> Result<String, DialectError> {
        let mut out = String::new();
        self.hidden_said |= self.form.said_something();
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
            self.say(request, at, &mut out)?;
        }
        let mut ending = self.form.close(reply)?;
        ending.extend(match &mut self.form {
            Form::Chunks(chunks) => chunks.end(request, reply.as_text(), usage),
            Form::Blocks(_) => anthropic::live::end(reply.as_text(), usage),
            Form::Items(items) => items.end(request, reply.as_text(), usage),
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
            Form::Chunks(_) => error::error_events(Dialect::OpenaiChat, error),
            Form::Blocks(_) => error::error_events(Dialect::AnthropicMessages, error),
            Form::Items(items) => error::responses_error(error, items.number()).into_bytes(),
        }
    }

    /// Returns true if a hidden round or the current reply has sent anything.
    pub fn said_something(&self) -> bool {
        self.hidden_said || self.form.said_something()
    }

    /// Returns true if a hidden round has sent anything.
    pub fn hidden_said(&self) -> bool {
        self.hidden_said
    }

    /// Returns the answer as the runner assembles it, after [`Live::end`].
    pub fn said(&self) -> Result<Reply, DialectError> {
        self.said.finish()
    }

    fn say(&mut self, request: &Request, at: usize, out: &mut String) -> Result<(), DialectError> {
        let Some(event) = self.heard.events().get(at) else {
            return Ok(());
        };
        let said = match &mut self.form {
            Form::Chunks(chunks) => chunks.say(event),
            Form::Blocks(blocks) => blocks.say(event),
            Form::Items(items) => items.say(request, event),
        }?;
        match said {
            Some(event) => self.write(event, out),
            None => Ok(()),
        }
    }

    fn write(&mut self, event: SseEvent, out: &mut String) -> Result<(), DialectError> {
        out.push_str(&sse::frame(event.event.as_deref(), &event.data));
        self.said.push(event)
    }

    fn next(&mut self) {
        self.heard = Reassembly::new(self.heard.dialect(), self.limit);
        self.held.clear();
    }
}

impl Form {
    fn place(&mut self, event: &SseEvent) -> Result<Place, DialectError> {
        match self {
            Form::Chunks(chunks) => chunks.place(event),
            Form::Blocks(blocks) => blocks.place(event),
            Form::Items(items) => items.place(event),
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
    fn said_something(&self) -> bool {
        match self {
            Form::Chunks(chunks) => chunks.said_something(),
            Form::Blocks(blocks) => blocks.said_something(),
            Form::Items(items) => items.said_something(),
        }
    }
}
