//! Server-sent events: `push(bytes) -> events`, and the frames that are written.
//!
//! Any chunking of the same bytes gives the same events. Only `event` and `data` are read; model
//! APIs give comments, ids and retry hints no meaning.

use crate::DialectError;

/// One event. `data` lines are joined by `\n`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub event: Option<String>,
    pub data: String,
}

/// Parses bytes into events. Buffers at most `limit` bytes of an unfinished event.
#[derive(Clone, Debug)]
pub struct SseParser {
    line: Vec<u8>,
    event: Option<String>,
    data: Option<String>,
    held: usize,
    limit: usize,
    after_cr: bool,
    started: bool,
}

impl SseParser {
    /// `limit`: maximum bytes of one event.
    pub fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            event: None,
            data: None,
            held: 0,
            limit,
            after_cr: false,
            started: false,
        }
    }

    /// Returns the events that these bytes complete. Errors: an event over the limit, or text that
    /// is not UTF-8; the stream is unusable afterwards.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, DialectError> {
        let mut events = Vec::new();
        for &byte in bytes {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                continue;
            }
            match byte {
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_of_line(&mut events)?;
                }
                other => {
                    self.held += 1;
                    if self.held > self.limit {
                        return Err(DialectError::StreamTooLarge { limit: self.limit });
                    }
                    self.line.push(other);
                }
            }
        }
        Ok(events)
    }

    fn end_of_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), DialectError> {
        let bytes = std::mem::take(&mut self.line);
        let mut line = std::str::from_utf8(&bytes).map_err(|_| DialectError::NotUtf8)?;
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            let event = self.event.take();
            self.held = 0;
            if let Some(data) = self.data.take() {
                events.push(SseEvent { event, data });
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = Some(value.to_string()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_string()),
            },
            // Comments and ignored fields do not count: a stream may send any number of keepalives.
            _ => self.held = self.held.saturating_sub(bytes.len()),
        }
        Ok(())
    }
}

/// Returns a comment that keeps the connection alive and that no client shows.
pub fn keepalive() -> &'static [u8] {
    b": keepalive\n\n"
}

/// Encodes one event, and replaces line breaks by blanks. `data` is JSON text, in which a line
/// break can only be white space, and not every client joins several `data:` lines. The event's
/// name may come from the provider's JSON; with a line break, it could forge another event.
pub fn frame(event: Option<&str>, data: &str) -> String {
    fn in_one_line(text: &str) -> impl Iterator<Item = char> {
        text.chars().map(|c| match c {
            '\n' | '\r' => ' ',
            other => other,
        })
    }
    let mut out = String::with_capacity(data.len() + 32);
    if let Some(event) = event {
        out.push_str("event: ");
        out.extend(in_one_line(event));
        out.push('\n');
    }
    out.push_str("data: ");
    out.extend(in_one_line(data.trim_ascii()));
    out.push_str("\n\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_in_an_event_s_name_begins_no_frame() {
        let said = frame(Some("a\n\ndata: forged\r\rb"), "{\n}");
        assert_eq!(said, "event: a  data: forged  b\ndata: { }\n\n");
        let events = SseParser::new(1024).push(said.as_bytes()).expect("frames");
        let data: Vec<&str> = events.iter().map(|event| &*event.data).collect();
        assert_eq!(data, ["{ }"]);
    }
}
