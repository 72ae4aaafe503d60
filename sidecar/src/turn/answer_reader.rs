//! Reads an answer that is passed through: its usage, its calls, and whether the provider failed.
//!
//! Here too: the tools that a request declares, and the calls that name none of them. Not here: passing
//! the bytes ([`super::passthrough`]).
//!
//! Invariant: what is kept of an answer is bounded, whatever the provider sends.

use toolcrib_dialect::{Dialect, Reassembly, Reply, Request, SseEvent, SseParser, Usage};

use crate::history::RecordBody;

/// Most bytes of one event. After a larger one the stream goes on, and its usage is not counted.
const MAX_EVENT: usize = 1024 * 1024;
/// Most undeclared calls that a line of the record names, and most bytes of a name.
const MAX_CALLS: usize = 32;
const MAX_NAME: usize = 128;
/// Most bytes of the names that a runner declares. A longer list is not compared.
const MAX_DECLARED: usize = 64 * 1024;

/// Returns the names of the tools that a request declares, if they are few enough to compare.
pub fn declared(request: &Request) -> Option<Vec<String>> {
    let names = request.tools();
    let bytes: usize = names.iter().map(String::len).sum();
    (bytes <= MAX_DECLARED).then(|| names.iter().map(|name| short(name)).collect())
}

/// Returns the called names that the runner did not declare, each once.
pub fn undeclared(called: Vec<String>, declared: &[String]) -> Vec<String> {
    let mut undeclared: Vec<String> = Vec::new();
    for name in called {
        if !declared.contains(&name) && !undeclared.contains(&name) {
            undeclared.push(name);
        }
    }
    undeclared
}

/// Reads the usage and the calls of an answer from its bytes.
pub struct AnswerReader {
    dialect: Dialect,
    kept: RecordBody,
    parser: Option<SseParser>,
    /// The events that report usage.
    events: Vec<SseEvent>,
    /// Names of calls, at most [`MAX_CALLS`].
    called: Vec<String>,
    /// The provider has ended the stream with an error.
    has_failed: bool,
    /// Bytes so far.
    received: usize,
}

impl AnswerReader {
    /// `streamed`: the answer is a stream of events.
    pub fn new(dialect: Dialect, streamed: bool) -> Self {
        Self {
            dialect,
            kept: RecordBody::default(),
            parser: streamed.then(|| SseParser::new(MAX_EVENT)),
            events: Vec::new(),
            called: Vec::new(),
            has_failed: false,
            received: 0,
        }
    }

    pub fn read(&mut self, bytes: &[u8]) {
        self.kept.push(bytes);
        self.received = self.received.saturating_add(bytes.len());
        let Some(parser) = &mut self.parser else {
            return;
        };
        match parser.push(bytes) {
            Ok(events) => {
                for event in &events {
                    let room = MAX_CALLS.saturating_sub(self.called.len());
                    let called = Reassembly::called(event, self.dialect);
                    self.called
                        .extend(called.iter().take(room).map(|name| short(name)));
                    self.has_failed |= Reassembly::is_failure(event, self.dialect);
                }
                let speaks = |event: &SseEvent| event.data.contains("\"usage\"");
                self.events.extend(events.into_iter().filter(speaks));
                // The last events have the sums. A provider that reports usage with each delta
                // must not fill the memory.
                let surplus = self.events.len().saturating_sub(4);
                self.events.drain(..surplus);
            }
            Err(_) => self.parser = None,
        }
    }

    /// The bytes that were read.
    pub fn received(&self) -> usize {
        self.received
    }

    pub fn finish(mut self) -> AnswerSummary {
        let mut reply = None;
        let usage = if !self.events.is_empty() {
            Reassembly::usage(&self.events, self.dialect)
        } else {
            let whole = self.kept.whole().filter(|it| !it.is_empty());
            let whole = whole.filter(|_| self.parser.is_none());
            reply = whole.and_then(|it| Reply::decode(self.dialect, it.to_vec()).ok());
            let calls = reply.iter().flat_map(Reply::calls).take(MAX_CALLS);
            self.called.extend(calls.map(|call| short(&call.name)));
            reply.as_ref().map(Reply::usage).unwrap_or_default()
        };
        AnswerSummary {
            usage,
            called: self.called,
            has_failed: self.has_failed || reply.as_ref().is_some_and(Reply::has_failed),
            kept: self.kept,
            reply,
        }
    }
}

/// What an answer says.
pub struct AnswerSummary {
    pub usage: Usage,
    /// Names of calls, at most [`MAX_CALLS`].
    pub called: Vec<String>,
    pub kept: RecordBody,
    /// `None`: a stream, or no valid reply.
    pub reply: Option<Reply>,
    /// The provider could not finish the answer.
    pub has_failed: bool,
}

/// Cuts a name that is too long for the record.
fn short(name: &str) -> String {
    toolcrib_bounds::cut(name, MAX_NAME).into_owned()
}
