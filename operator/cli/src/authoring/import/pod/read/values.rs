//! Reads single values: texts, numbers, names, ports and variables, with a finding for a wrong one.

use std::num::NonZeroU16;

use super::Reader;
use crate::authoring::import::finding::{Cause, Weight};
use crate::authoring::import::names::dns_label;
use crate::authoring::import::pod::LineValue;
use crate::authoring::import::pod::scalar::{duration_seconds, split_words};
use crate::authoring::import::variables::Template;
use crate::authoring::import::yaml::{Node, Value};

impl Reader<'_> {
    /// Reads `NAME: value` or `- NAME=value`; without a value, the variable of that name.
    pub(super) fn environment(&mut self, node: &Node) -> Vec<(String, LineValue<Template>)> {
        let pairs: Vec<(String, usize, Option<String>)> = match &node.value {
            Value::Map(_) => self
                .map(node, "environment")
                .into_iter()
                .map(|(name, line, value)| (name.to_owned(), line, value.text().map(String::from)))
                .collect(),
            Value::List(items) => items
                .iter()
                .filter_map(|item| {
                    let text = self.text(item, "environment")?;
                    Some(match text.value.split_once('=') {
                        Some((name, value)) => (name.to_owned(), item.line, Some(value.to_owned())),
                        None => (text.value, item.line, None),
                    })
                })
                .collect(),
            Value::Null => Vec::new(),
            Value::Text(_) => {
                // The text is not quoted: it may be a credential.
                self.found
                    .error(node.line, "environment is a text: write a map or a list");
                Vec::new()
            }
        };
        pairs
            .into_iter()
            .filter_map(|(name, line, value)| {
                let template = match value {
                    None => Template::variable(&name),
                    Some(value) => self.parsed(line, &name, &value)?,
                };
                Some((name, LineValue::new(line, template)))
            })
            .collect()
    }

    /// Reads container ports: `"4000"`, `"8080:4000/tcp"`, `{target: 4000}`.
    pub(super) fn ports(&mut self, service: &str, node: &Node) -> Vec<LineValue<u16>> {
        let items: &[Node] = match &node.value {
            Value::List(items) => items,
            Value::Null | Value::Text(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let mut ports = Vec::new();
        for item in items {
            let target = item.get("target").unwrap_or(item);
            let port = target
                .text()
                .and_then(|text| text.strip_suffix("/tcp").unwrap_or(text).rsplit(':').next())
                .and_then(|port| port.parse::<NonZeroU16>().ok());
            match port {
                Some(port) => ports.push(LineValue::new(item.line, port.get())),
                None => self.found.add_cause(
                    item.line,
                    Weight::Error,
                    format!(
                        "a port is {}: write one TCP port, such as \"4000\"",
                        item.shown()
                    ),
                    Cause::Port(dns_label(service)),
                ),
            }
        }
        ports
    }

    /// Reads a command: a list, or a text that is split like in a shell.
    pub(super) fn words(&mut self, node: &Node, key: &str) -> Option<Vec<Template>> {
        let words = match &node.value {
            Value::Null => return None,
            Value::Text(text) => match split_words(text) {
                Some(words) => words,
                None => {
                    self.wrong(node, key, "words with closed quotes, or a list");
                    return None;
                }
            },
            Value::List(_) | Value::Map(_) => self.names(node, key).value,
        };
        words
            .iter()
            .map(|word| self.parsed(node.line, key, word))
            .collect()
    }

    /// Reads a text, or a list of texts.
    pub(super) fn names(&mut self, node: &Node, key: &str) -> LineValue<Vec<String>> {
        let items: &[Node] = match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            Value::Text(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let names = items
            .iter()
            .filter_map(|item| self.text(item, key))
            .map(|text| text.value)
            .collect();
        LineValue::new(node.line, names)
    }

    pub(super) fn number<T: std::str::FromStr>(
        &mut self,
        node: &Node,
        key: &str,
    ) -> Option<LineValue<T>> {
        let number = node.text().and_then(|text| text.parse().ok());
        if number.is_none() {
            self.wrong(node, key, "a number");
        }
        number.map(|number| LineValue::new(node.line, number))
    }

    pub(super) fn seconds(&mut self, node: &Node) -> Option<u64> {
        let seconds = node.text().and_then(duration_seconds);
        if seconds.is_none() {
            self.wrong(node, "ttl", "seconds, or a duration such as 5m");
        }
        seconds
    }

    pub(super) fn template(&mut self, node: &Node, key: &str) -> Option<LineValue<Template>> {
        let text = self.text(node, key)?;
        let template = self.parsed(text.line, key, &text.value)?;
        Some(LineValue::new(text.line, template))
    }

    pub(super) fn parsed(&mut self, line: usize, key: &str, text: &str) -> Option<Template> {
        match Template::parse(text) {
            Ok(template) => Some(template),
            Err(message) => {
                self.found.error(line, format!("{key} {message}"));
                None
            }
        }
    }

    pub(super) fn text(&mut self, node: &Node, key: &str) -> Option<LineValue<String>> {
        match node.text() {
            Some(text) => Some(LineValue::new(node.line, text.to_owned())),
            None => {
                self.wrong(node, key, "text");
                None
            }
        }
    }

    pub(super) fn map<'n>(&mut self, node: &'n Node, key: &str) -> Vec<(&'n str, usize, &'n Node)> {
        match &node.value {
            Value::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.text.as_str(), key.line, value))
                .collect(),
            Value::Null => Vec::new(),
            Value::Text(_) | Value::List(_) => {
                self.wrong(node, key, "a map");
                Vec::new()
            }
        }
    }

    pub(super) fn wrong(&mut self, node: &Node, what: &str, wanted: &str) {
        self.found.error(
            node.line,
            format!("{what} is {}: write {wanted}", node.shown()),
        );
    }
}
