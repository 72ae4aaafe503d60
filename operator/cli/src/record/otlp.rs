//! The record as an OpenTelemetry Collector's file exporter writes it: OTLP in JSON, one message of many
//! lines on one line.
//!
//! Not here: other stores, and messages with white space before `resourceLogs`, which the file exporter
//! does not write. A text that is no such message is a line of its own.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib_record::{Digest, Link, LinkKind};

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordLine<'a> {
    /// A line of the mediator's file or log.
    Written(&'a [u8]),
    /// A line that a collector stored. `claim`: the place and hash that the mediator gave for a line
    /// whose arguments it did not export.
    Exported {
        text: &'a [u8],
        claim: Option<Link<'a>>,
    },
}

impl RecordLine<'_> {
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Written(text) | Self::Exported { text, claim: _ } => text,
        }
    }
}

/// Calls `each` with the lines of the record in one line of a file.
pub fn lines_of(line: &[u8], mut each: impl FnMut(RecordLine<'_>)) {
    if !line.starts_with(br#"{"resourceLogs":"#) {
        return each(RecordLine::Written(line));
    }
    // A collector that was killed between a message and its line break leaves two on one line.
    let mut messages = serde_json::Deserializer::from_slice(line).into_iter::<Message<'_>>();
    loop {
        let begin = messages.byte_offset();
        match messages.next() {
            Some(Ok(message)) => lines_of_message(&message, &mut each),
            // Not a message, or half of one: the reader counts it.
            Some(Err(_)) => return each(RecordLine::Written(&line[begin..])),
            None => return,
        }
    }
}

fn lines_of_message(message: &Message<'_>, each: &mut impl FnMut(RecordLine<'_>)) {
    let scopes = message.resource_logs.iter().flat_map(|it| &it.scope_logs);
    for record in scopes.flat_map(|it| &it.log_records) {
        // Records of other programs can have bodies that are no text.
        let Some(Text(text)) = record.body.as_ref().and_then(|it| it.string_value.as_ref()) else {
            continue;
        };
        each(RecordLine::Exported {
            text: text.as_bytes(),
            claim: record.claim(),
        });
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default, rename = "resourceLogs")]
    resource_logs: Vec<ResourceLogs<'a>>,
}

#[derive(Deserialize)]
struct ResourceLogs<'a> {
    #[serde(borrow, default, rename = "scopeLogs")]
    scope_logs: Vec<ScopeLogs<'a>>,
}

#[derive(Deserialize)]
struct ScopeLogs<'a> {
    #[serde(borrow, default, rename = "logRecords")]
    log_records: Vec<LogRecord<'a>>,
}

#[derive(Deserialize)]
struct LogRecord<'a> {
    #[serde(borrow, default)]
    body: Option<AnyValue<'a>>,
    #[serde(borrow, default)]
    attributes: Vec<Attribute<'a>>,
}

#[derive(Deserialize)]
struct Attribute<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<AnyValue<'a>>,
}

#[derive(Deserialize)]
struct AnyValue<'a> {
    #[serde(borrow, default, rename = "stringValue")]
    string_value: Option<Text<'a>>,
    /// A number, or a text of digits.
    #[serde(borrow, default, rename = "intValue")]
    int_value: Option<&'a RawValue>,
    #[serde(default, rename = "boolValue")]
    bool_value: Option<bool>,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl LogRecord<'_> {
    fn value(&self, key: &str) -> Option<&AnyValue<'_>> {
        let found = self.attributes.iter().find(|it| it.key == key)?;
        found.value.as_ref()
    }

    fn text(&self, key: &str) -> Option<&str> {
        Some(&*self.value(key)?.string_value.as_ref()?.0)
    }

    fn number(&self, key: &str) -> Option<u64> {
        let raw = self.value(key)?.int_value?.get();
        raw.trim_matches('"').parse().ok()
    }

    fn digest(&self, key: &str) -> Option<Digest> {
        Digest::parse(self.text(key)?)
    }

    /// The place that the mediator gave for a line without its arguments.
    fn claim(&self) -> Option<Link<'_>> {
        if self.value("toolcrib.arguments")?.bool_value != Some(false) {
            return None;
        }
        let kind = match self.number("toolcrib.seq") {
            Some(seq) => LinkKind::Chained {
                seq,
                aside: self.digest("toolcrib.aside"),
            },
            None => LinkKind::Aside {
                after: self.number("toolcrib.after")?,
            },
        };
        Some(Link {
            chain: self.text("toolcrib.chain")?.into(),
            kind,
            prev: self.digest("toolcrib.prev")?,
            digest: self.digest("toolcrib.hash")?,
            covered: b"",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(line: &str) -> Vec<(String, Option<LinkKind>)> {
        let mut found = Vec::new();
        lines_of(line.as_bytes(), |line| {
            let kind = match &line {
                RecordLine::Exported { claim, .. } => claim.as_ref().map(|it| it.kind),
                RecordLine::Written(_) => None,
            };
            found.push((String::from_utf8(line.text().to_vec()).unwrap(), kind));
        });
        found
    }

    #[test]
    fn a_message_is_its_lines_in_order() {
        let zeros = "0".repeat(64);
        let text = |key: &str, value: &str| {
            format!(r#"{{"key":"toolcrib.{key}","value":{{"stringValue":"{value}"}}}}"#)
        };
        let place = [
            text("chain", "c1"),
            text("prev", &zeros),
            text("hash", &zeros),
            r#"{"key":"toolcrib.arguments","value":{"boolValue":false}}"#.to_owned(),
        ]
        .join(",");
        let message = format!(
            r#"{{"resourceLogs":[{{"resource":{{"attributes":[]}},"scopeLogs":[{{"scope":{{"name":"toolcrib.mediator"}},"logRecords":[
            {{"timeUnixNano":"1","body":{{"stringValue":"{{\"kind\":\"gap\"}}"}},"attributes":[]}},
            {{"body":{{"stringValue":"one"}},"attributes":[{place},{{"key":"toolcrib.seq","value":{{"intValue":"7"}}}}]}},
            {{"body":{{"stringValue":"two"}},"attributes":[{place},{{"key":"toolcrib.after","value":{{"intValue":8}}}}]}},
            {{"body":{{"stringValue":"three"}},"attributes":[{place}]}},
            {{"body":{{"kvlistValue":{{"values":[]}}}}}},{{}}]}}]}},{{}}]}}"#
        );
        assert_eq!(
            lines(&message),
            [
                (r#"{"kind":"gap"}"#.to_owned(), None),
                (
                    "one".to_owned(),
                    Some(LinkKind::Chained {
                        seq: 7,
                        aside: None
                    })
                ),
                ("two".to_owned(), Some(LinkKind::Aside { after: 8 })),
                ("three".to_owned(), None),
            ]
        );
    }

    #[test]
    fn two_messages_on_a_line_are_both_read() {
        let message =
            r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"one"}}]}]}]}"#;
        let one = ("one".to_owned(), None);
        assert_eq!(
            lines(&format!("{message}{message}")),
            [one.clone(), one.clone()]
        );
        let half = &message[..30];
        assert_eq!(
            lines(&format!("{message}{half}")),
            [one, (half.to_owned(), None)]
        );
    }

    #[test]
    fn other_texts_are_lines_of_their_own() {
        for line in [
            r#"{"kind":"turn"}"#,
            r#"{"resourceLogs":[{"#,
            r#"{"resourceLogs":7}"#,
            "",
        ] {
            assert_eq!(lines(line), [(line.to_owned(), None)]);
        }
    }
}
