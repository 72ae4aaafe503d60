//! Prints an object as YAML with comments at its lines, for a reviewer.
//!
//! Invariant: the text reads back as the object. No value and no comment can add a member to it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use toolcrib_compile::yaml;

use super::documents::{commented, is_unprintable};

/// The comments of one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Comments in lines of their own, above it.
    pub above: Vec<String>,
    /// The comment at its end.
    pub beside: Option<String>,
}

/// Comments by the path of the value that they are about. The first member of an object in a list
/// shares its line with the object, so its own comments go to the end of the line.
pub type Notes = BTreeMap<Vec<String>, Note>;

/// Prints an object. `head` is above its first line.
pub fn annotated(head: &[String], object: &Value, notes: &Notes) -> anyhow::Result<String> {
    let mut writer = Writer {
        notes,
        path: Vec::new(),
        text: String::new(),
    };
    for comment in head {
        writer.text += &commented(comment);
    }
    writer.value(object, 0)?;
    let read: Value = serde_yaml::from_str(&writer.text).context("the answer is no YAML")?;
    anyhow::ensure!(read == *object, "the answer is read as another object");
    Ok(writer.text)
}

struct Writer<'n> {
    notes: &'n Notes,
    path: Vec<String>,
    text: String,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, indent: usize) -> anyhow::Result<()> {
        match value {
            Value::Object(members) => self.members(members, indent),
            Value::Array(items) => self.items(items, indent),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.text += &yaml::to_string(value)?;
                Ok(())
            }
        }
    }

    fn members(&mut self, members: &Map<String, Value>, indent: usize) -> anyhow::Result<()> {
        for (name, value) in members {
            self.path.push(name.clone());
            self.above(indent);
            let pad = " ".repeat(indent);
            if is_block(value) {
                let line = one_line(&json!({ name.as_str(): null }))?;
                let name = line.strip_suffix("null").unwrap_or(&line).trim_end();
                self.text += &format!("{pad}{name}");
                self.beside();
                let deeper = indent + if value.is_array() { 0 } else { 2 };
                self.value(value, deeper)?;
            } else {
                self.text += &format!("{pad}{}", one_line(&json!({ name.as_str(): value }))?);
                self.beside();
            }
            self.path.pop();
        }
        Ok(())
    }

    fn items(&mut self, items: &[Value], indent: usize) -> anyhow::Result<()> {
        for (index, item) in items.iter().enumerate() {
            self.path.push(index.to_string());
            self.above(indent);
            let pad = " ".repeat(indent);
            if let Value::Object(members) = item
                && !members.is_empty()
            {
                let start = self.text.len();
                self.members(members, indent + 2)?;
                self.text
                    .replace_range(start..start + indent + 2, &format!("{pad}- "));
            } else {
                self.text += &format!("{pad}{}", one_line(&json!([item]))?);
                self.beside();
            }
            self.path.pop();
        }
        Ok(())
    }

    fn above(&mut self, indent: usize) {
        let note = self.notes.get(&self.path);
        for comment in note.iter().flat_map(|note| &note.above) {
            for line in commented(comment).lines() {
                self.text += &format!("{}{line}\n", " ".repeat(indent));
            }
        }
    }

    fn beside(&mut self) {
        let note = self.notes.get(&self.path);
        match note.and_then(|note| note.beside.as_ref()) {
            Some(comment) => {
                let lines = commented(comment);
                let words: Vec<&str> = lines.lines().map(|it| it.trim_start_matches('#')).collect();
                self.text += &format!(" #{}\n", words.join(""));
            }
            None => self.text.push('\n'),
        }
    }
}

/// Whether a value has lines of its own.
fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A list or map of one entry, on one line.
fn one_line(value: &Value) -> anyhow::Result<String> {
    let text = yaml::to_string(value)?;
    let text = text.trim_end_matches('\n');
    if !text.contains(is_unprintable) {
        return Ok(text.to_owned());
    }
    if let Some(item) = value.as_array().and_then(|items| items.first()) {
        return Ok(format!("- {}", json(item)));
    }
    let mut members = value.as_object().into_iter().flatten();
    Ok(match members.next() {
        Some((name, value)) => format!("{}: {}", json(&name.as_str().into()), json(value)),
        None => json(value),
    })
}

/// Prints a value as JSON, which is YAML too, with escapes for all that is not printable. Such
/// characters are in texts alone.
fn json(value: &Value) -> String {
    let text = value.to_string();
    let escaped = text
        .chars()
        .map(|c| match (is_unprintable(c), u32::from(c)) {
            (false, _) => c.to_string(),
            (true, code @ 0..=0xffff) => format!("\\u{code:04x}"),
            (true, code) => format!("\\U{code:08x}"),
        });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(above: &str, beside: &str) -> Note {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Note {
            above: some(above).into_iter().collect(),
            beside: some(beside),
        }
    }

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn comments_are_at_their_lines() {
        let object = json!({"kind": "Pond", "spec": {"fish": ["otter", {"count": 3, "name": "no"}], "none": []}});
        let notes = Notes::from([
            (path(&["spec", "fish"]), note("", "2 entries")),
            (path(&["spec", "fish", "0"]), note("the first", "12 calls")),
            (path(&["spec", "fish", "1", "name"]), note("", "a word")),
        ]);
        let text = annotated(&["Read it.".to_owned()], &object, &notes).unwrap();
        assert_eq!(
            text,
            "# Read it.\nkind: Pond\nspec:\n  fish: # 2 entries\n  # the first\n  - otter # 12 calls\n  - count: 3\n    name: 'no' # a word\n  none: []\n"
        );
    }

    #[test]
    fn no_value_and_no_comment_adds_to_the_object() {
        let hostile = [
            "a\nb: c",
            "# x",
            "x # y",
            "- a",
            "'",
            "\"",
            "{}",
            "[",
            "*a",
            "&a",
            "!t",
            "%d",
            "---",
            "...",
            "a: b",
            "a:",
            ": a",
            "\u{2028}",
            "\u{85}",
            "\u{feff}x",
            "\u{202e}",
            "\u{1b}[2J",
            "\0",
            "",
            " ",
            "~",
            "null",
            "yes",
            "0777",
            "1e3",
            "0x1",
            "1_000",
            ".inf",
            "<<",
            "=",
            "2026-01-01",
            "a\r\nb",
            "\t",
        ];
        for text in hostile {
            let object = json!({text: {"list": [text, {text: text}, [text]], "text": text}});
            let mut notes = Notes::new();
            for place in [
                vec![text],
                vec![text, "list"],
                vec![text, "list", "0"],
                vec![text, "text"],
            ] {
                notes.insert(path(&place), note(text, text));
            }
            let printed = annotated(&[text.to_owned()], &object, &notes);
            let printed = printed.unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert!(
                !printed.contains(|c| c != '\n' && is_unprintable(c)),
                "{printed:?}"
            );
        }
    }
}
