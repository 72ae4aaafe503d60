//! Removes invisible characters from a descriptor's texts.
//!
//! The rule holds for all texts of a descriptor, since each may reach a model. Names of members
//! stay, since the service knows them by these names. A tool whose schema has a name with such a
//! character is refused ([`hidden_name`]).

use serde_json::Value;
use toolcrib_bounds::{FieldPath, is_hidden, shown};

use super::members::Reader;
use crate::Code;

/// Limits the texts with a finding of their own; one more finding counts the others.
const NAMED: usize = 8;

/// The texts that had invisible characters.
#[derive(Default)]
struct StrippedTexts {
    /// The paths of the first texts, each with its number of invisible characters.
    first: Vec<(String, usize)>,
    /// The number of all such texts.
    texts: usize,
}

/// Returns the text without invisible characters; `None` if it has none.
pub(super) fn without(text: &str, reader: &mut Reader) -> Option<String> {
    if !may_hide(text) {
        return None;
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    let mut stripped = StrippedTexts::default();
    strip(&mut value, FieldPath::Root, &mut stripped);
    if stripped.texts == 0 {
        return None;
    }
    for (field, count) in &stripped.first {
        reader.find(field, Code::HiddenCharacters, message(*count));
    }
    let more = stripped.texts - stripped.first.len();
    if more > 0 {
        reader.find(
            "",
            Code::HiddenCharacters,
            format!("{more} more texts hold hidden characters, which are left out"),
        );
    }
    Some(value.to_string())
}

/// The warning for a text with `count` invisible characters.
pub(crate) fn message(count: usize) -> String {
    let hidden = toolcrib_bounds::count(count, "hidden character");
    format!("holds {hidden}, left out: read what is left, and remove them here")
}

/// Returns an invisible character in the name of a member, at any depth.
pub(super) fn hidden_name(text: &str) -> Option<char> {
    fn within(value: &Value) -> Option<char> {
        match value {
            Value::Object(members) => members.iter().find_map(|(name, value)| {
                name.chars()
                    .find(|c| is_hidden(*c))
                    .or_else(|| within(value))
            }),
            Value::Array(items) => items.iter().find_map(within),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    if !may_hide(text) {
        return None;
    }
    within(&serde_json::from_str(text).ok()?)
}

/// Whether the text may have an invisible character, written out or escaped.
fn may_hide(text: &str) -> bool {
    text.contains(is_hidden) || text.contains("\\u") || text.contains("\\b") || text.contains("\\f")
}

fn strip(value: &mut Value, path: FieldPath<'_>, stripped: &mut StrippedTexts) {
    match value {
        Value::String(text) => {
            let (visible, hidden) = shown(text);
            if hidden > 0 {
                if stripped.first.len() < NAMED {
                    let (field, _) = shown(&path.to_string());
                    stripped.first.push((field, hidden));
                }
                stripped.texts += 1;
                *text = visible;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                strip(item, FieldPath::Item(&path, index), stripped);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                strip(member, FieldPath::Member(&path, name), stripped);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
