//! YAML values with their lines.
//!
//! Aliases are replaced by their values and merge keys (`<<`) are applied, so a reader sees plain
//! lists and maps. All scalars stay text: Compose reads `4000`, `"4000"` and `yes` as text in a
//! text field.
//!
//! Invariant: time and memory are linear in the file. Depth has a bound, and so have values and bytes
//! after aliases are replaced: nine lines cannot make a billion values, and an alias of
//! a long text cannot fill the memory.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use toolcrib_compile::yaml::CURE;

const MAX_DEPTH: usize = 64;
const MAX_VALUES: usize = 50_000;
/// Limit on the bytes of all texts once aliases are replaced: four times the largest file.
const MAX_TEXT: usize = 4 << 20;
/// Longest key, in bytes. Messages print the keys above a value.
const MAX_KEY: usize = 1024;

/// A value and its first line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub line: usize,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Null,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub line: usize,
    pub text: String,
}

/// A syntax error and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    pub line: usize,
    pub message: String,
}

impl YamlError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
        }
    }
}

impl From<ScanError> for YamlError {
    fn from(error: ScanError) -> Self {
        let message = format!("cannot be read as YAML: {}; {CURE}", error.info());
        Self::new(error.marker().line(), message)
    }
}

impl Node {
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(key, _)| key.text == name)
                .map(|(_, value)| value),
            Value::Null | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// The number of values, itself included, and the bytes of their texts.
    pub fn size(&self) -> Size {
        let own = Size::VALUE;
        match &self.value {
            Value::Null => own,
            Value::Text(text) => Size {
                text: text.len(),
                ..own
            },
            Value::List(items) => items.iter().map(Node::size).fold(own, Size::and),
            Value::Map(entries) => {
                let keys = entries.iter().map(|(key, _)| key.text.len()).sum();
                let own = Size { text: keys, ..own };
                let values = entries.iter().map(|(_, value)| value.size());
                values.fold(own, Size::and)
            }
        }
    }

    /// Describes the value in messages.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// The size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub values: usize,
    /// In bytes.
    pub text: usize,
}

impl Size {
    /// One value without a text.
    const VALUE: Self = Self { values: 1, text: 0 };

    pub fn and(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            text: self.text + other.text,
        }
    }
}

/// Parses `text`, which must have one document.
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let mut composer = Composer {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        size: Size::default(),
    };
    loop {
        match composer.next()? {
            (Event::DocumentStart(_), _) => break,
            (Event::StreamEnd, span) => {
                return Err(YamlError::new(
                    span.start.line(),
                    "the file is empty: write services and x-claw",
                ));
            }
            _ => {}
        }
    }
    let root = composer.node(0)?;
    loop {
        match composer.next()? {
            (Event::DocumentStart(_), span) => {
                return Err(YamlError::new(
                    span.start.line(),
                    "a second document begins here: a pod file is one document, so remove the line ---, or give objects of Kubernetes with -f, beside the pod file",
                ));
            }
            (Event::StreamEnd, _) => return Ok(root),
            _ => {}
        }
    }
}

struct Composer<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    /// The size of the values so far, with aliases replaced.
    size: Size,
}

impl<'a> Composer<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.parser.next_event() {
            Some(event) => Ok(event?),
            None => Err(YamlError::new(0, "the file ends too early")),
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, YamlError> {
        let (event, span) = self.next()?;
        self.node_of(event, span, depth)
    }

    fn node_of(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, YamlError> {
        let line = span.start.line();
        if depth > MAX_DEPTH {
            return Err(YamlError::new(
                line,
                format!("is nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => {
                let Some(known) = self.anchors.get(&anchor) else {
                    return Err(YamlError::new(
                        line,
                        "an alias stands inside its own anchor",
                    ));
                };
                let more = known.size();
                let value = known.value.clone();
                self.count(line, more)?;
                return Ok(Node { line, value });
            }
            Event::Scalar(text, style, anchor, _) => {
                let size = Size {
                    text: text.len(),
                    ..Size::VALUE
                };
                self.count(line, size)?;
                (anchor, scalar(&text, style))
            }
            Event::SequenceStart(anchor, _) => {
                self.count(line, Size::VALUE)?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break (anchor, Value::List(items)),
                        (event, span) => items.push(self.node_of(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(anchor, _) => {
                self.count(line, Size::VALUE)?;
                (anchor, self.map(depth)?)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => {
                return Err(YamlError::new(line, "a value is missing here: write one"));
            }
        };
        let node = Node { line, value };
        // Anchors are numbered from 1; 0 means no anchor.
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn map(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        let mut merged: Vec<Node> = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => break,
                (event, span) => self.node_of(event, span, depth + 1)?,
            };
            let value = self.node(depth + 1)?;
            let text = match key.value {
                Value::Text(text) => text,
                Value::Null => "null".to_owned(),
                Value::List(_) | Value::Map(_) => {
                    return Err(YamlError::new(
                        key.line,
                        "a key must be text: put it into quotes",
                    ));
                }
            };
            if text.len() > MAX_KEY {
                return Err(YamlError::new(
                    key.line,
                    format!("a key is longer than {MAX_KEY} bytes: write a shorter one"),
                ));
            }
            if text == "<<" {
                merged.extend(match value.value {
                    Value::List(items) => items,
                    Value::Null | Value::Text(_) | Value::Map(_) => vec![value],
                });
            } else if !known.insert(text.clone()) {
                return Err(YamlError::new(
                    key.line,
                    format!("{text:?} stands here a second time: keep one"),
                ));
            } else {
                let line = key.line;
                entries.push((Key { line, text }, value));
            }
        }
        // Own keys win over merged ones, an earlier merge over a later one.
        for from in merged {
            let Value::Map(more) = from.value else {
                return Err(YamlError::new(
                    from.line,
                    "only maps can be merged with <<: write an alias of one (*NAME)",
                ));
            };
            for (key, value) in more {
                if known.insert(key.text.clone()) {
                    entries.push((key, value));
                }
            }
        }
        Ok(Value::Map(entries))
    }

    fn count(&mut self, line: usize, more: Size) -> Result<(), YamlError> {
        self.size = self.size.and(more);
        let over = if self.size.values > MAX_VALUES {
            format!("{MAX_VALUES} values")
        } else if self.size.text > MAX_TEXT {
            format!("{MAX_TEXT} bytes of text")
        } else {
            return Ok(());
        };
        Err(YamlError::new(
            line,
            format!("the file has more than {over} once aliases are followed"),
        ))
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    let is_plain = matches!(style, ScalarStyle::Plain);
    if is_plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        Value::Null
    } else {
        Value::Text(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_lines() {
        let node = parse("a: 1\nb:\n  - ...\n  - x\n").unwrap();
        let list = node.get("b").unwrap();
        let Value::List(items) = &list.value else {
            panic!("{list:?}")
        };
        assert_eq!(
            items
                .iter()
                .map(|item| (item.line, item.text().unwrap()))
                .collect::<Vec<_>>(),
            [(3, "..."), (4, "x")]
        );
    }

    #[test]
    fn own_keys_win_over_merged_keys() {
        let text = "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\nx:\n  <<: [*base, *other]\n  a: 9\n";
        let node = parse(text).unwrap();
        let x = node.get("x").unwrap();
        let value = |name| x.get(name).and_then(Node::text);
        assert_eq!(
            (value("a"), value("b"), value("c")),
            (Some("9"), Some("2"), Some("4"))
        );
    }

    #[test]
    fn errors_have_their_line() {
        for (text, line) in [
            ("a: 1\na: 2\n", 2),
            ("a: 1\n---\nb: 2\n", 2),
            ("a:\n  <<: text\n", 2),
            ("a: [\n", 2),
            ("? [x]\n: 1\n", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut laughs = "l0: &l0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
        for level in 1..9 {
            let before = level - 1;
            let aliases = vec![format!("*l{before}"); 10].join(", ");
            laughs += &format!("l{level}: &l{level} [{aliases}]\n");
        }
        assert!(parse(&laughs).unwrap_err().message.contains("aliases"));
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 19), "*a,".repeat(99));
        let error = parse(&long).unwrap_err();
        assert!(error.message.contains("bytes of text"), "{error:?}");
        let error = parse(&format!("? {}\n: 1", "x".repeat(2000))).unwrap_err();
        assert!(error.message.contains("a key is longer"), "{error:?}");
        assert!(parse(&"[".repeat(500)).is_err());
        assert!(parse("a: &a [*a]\n").is_err());
    }
}
