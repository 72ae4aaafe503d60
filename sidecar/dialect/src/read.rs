//! Helpers for reading and editing a part of a body, for all dialects.

use crate::json::{self, Array, Change, Object};
use crate::{DialectError, Edits, StreamEdit};

/// Returns a field that is present and not `null`.
pub(crate) fn present<'t>(text: &'t str, fields: &Object, field: &str) -> Option<&'t str> {
    fields.get(text, field).filter(|raw| !json::is_null(raw))
}

/// Reads a field that may be missing or `null`, but not of another type.
pub(crate) fn optional<T>(
    text: &str,
    fields: &Object,
    field: &'static str,
    expected: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, DialectError> {
    match fields.get(text, field).filter(|raw| !json::is_null(raw)) {
        None => Ok(None),
        Some(raw) => read(raw)
            .map(Some)
            .ok_or(DialectError::WrongType { field, expected }),
    }
}

pub(crate) fn flag(raw: &str) -> Option<bool> {
    match raw {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

pub(crate) fn elements<'t>(
    text: &'t str,
    fields: &Object,
    field: &'static str,
) -> Result<Vec<&'t str>, DialectError> {
    let Some(raw) = present(text, fields, field) else {
        return Ok(Vec::new());
    };
    let array = Array::scan(raw).map_err(|_| DialectError::WrongType {
        field,
        expected: "an array",
    })?;
    Ok(array.texts(raw).collect())
}

pub(crate) fn named(raw: &str, field: &'static str) -> Result<String, DialectError> {
    Object::scan(raw)
        .ok()
        .and_then(|object| object.get(raw, "name").and_then(json::string))
        .ok_or(DialectError::WrongType {
            field,
            expected: "an array of named tools",
        })
}

pub(crate) fn edit_member(
    raw: &str,
    key: &str,
    edit: impl FnOnce(&str) -> Result<String, DialectError>,
) -> Result<String, DialectError> {
    let object = Object::scan(raw)?;
    let Some(value) = object.get(raw, key) else {
        return Ok(raw.to_string());
    };
    let new = edit(value)?;
    Ok(object.edit(
        raw,
        |member| {
            if member.key == key {
                Change::Set(new.clone())
            } else {
                Change::Keep
            }
        },
        &[],
    ))
}

pub(crate) fn renamed(name: &str, edits: &Edits) -> String {
    let plain = json::string(name);
    edits
        .choice_names
        .iter()
        .find(|(from, _)| Some(from) == plain.as_ref())
        .map_or(name.to_string(), |(_, to)| json::quote(to))
}

pub(crate) fn scan_object(raw: &str, field: &'static str) -> Result<Object, DialectError> {
    Object::scan(raw).map_err(|_| DialectError::WrongType {
        field,
        expected: "an object",
    })
}

pub(crate) fn scan_array(raw: &str, field: &'static str) -> Result<Array, DialectError> {
    Array::scan(raw).map_err(|_| DialectError::WrongType {
        field,
        expected: "an array",
    })
}

/// Sets members of an object: replaces existing ones in place, and adds new ones at the end.
pub(crate) fn with_members(raw: &str, set: &[(&str, String)]) -> Result<String, DialectError> {
    let object = scan_object(raw, "body")?;
    let set: Vec<(&str, Option<String>)> = set
        .iter()
        .map(|(key, value)| (*key, Some(value.clone())))
        .collect();
    Ok(object.with(raw, &set, &[]))
}

/// Returns the text of a string member.
pub(crate) fn text_of(raw: &str, key: &str) -> Option<String> {
    let object = Object::scan(raw).ok()?;
    object.get(raw, key).and_then(json::string)
}

/// The number members of an object, which is scanned once. A value that is no object has none.
pub(crate) struct Counts<'t> {
    raw: &'t str,
    fields: Option<Object>,
}

impl<'t> Counts<'t> {
    pub(crate) fn of(raw: &'t str) -> Self {
        Self {
            raw,
            fields: Object::scan(raw).ok(),
        }
    }

    /// Returns the value of a number member, or 0.
    pub(crate) fn get(&self, key: &str) -> u64 {
        self.text(key).and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    /// Returns the counts of a member.
    pub(crate) fn within(&self, key: &str) -> Counts<'t> {
        match self.text(key) {
            Some(raw) => Counts::of(raw),
            None => Counts {
                raw: "",
                fields: None,
            },
        }
    }

    fn text(&self, key: &str) -> Option<&'t str> {
        self.fields.as_ref()?.get(self.raw, key)
    }
}

/// Returns a part in canonical form, without `cache_control`, which runners add and move.
pub(crate) fn without_cache_mark(part: &str) -> String {
    let Ok(object) = Object::scan(part) else {
        return part.to_string();
    };
    let bare = object.edit(
        part,
        |member| match member.key.as_str() {
            "cache_control" => Change::Drop,
            _ => Change::Keep,
        },
        &[],
    );
    json::canonical(&bare).unwrap_or(bare)
}

/// Appends `more` to the runner's `tools`, which are `None` if it sent none.
pub(crate) fn appended(tools: Option<&str>, more: &[String]) -> Result<String, DialectError> {
    let Some(raw) = tools else {
        return Ok(json::array(more));
    };
    json::appended(raw, more).ok_or(DialectError::WrongType {
        field: "tools",
        expected: "an array",
    })
}

/// Returns the member `tools` with the managed tools at its end, or `None` if the edits add none.
pub(crate) fn declared_tools(
    text: &str,
    fields: &Object,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    match edits.tools.elements() {
        Some(more) => appended(present(text, fields, "tools"), &[more]).map(Some),
        None => Ok(None),
    }
}

/// Returns the member `stream` as the edits require. Sets `false` only if the runner sent the
/// member.
pub(crate) fn streamed(fields: &Object, edits: &Edits) -> (&'static str, Option<String>) {
    let value = match edits.stream {
        StreamEdit::Keep => None,
        StreamEdit::Whole => fields.member("stream").map(|_| "false"),
        StreamEdit::Stream => Some("true"),
    };
    ("stream", value.map(String::from))
}

/// Returns true if the edits change the history. Ignores `prompt`, which goes into the history only
/// in the dialect `openai_chat`.
pub(crate) fn edits_history(edits: &Edits) -> bool {
    !edits.inserted.is_empty() || !edits.appended.is_empty() || edits.context.is_some()
}

/// Returns the history with all insertions and replacements. `late` returns the index of the item
/// before which the context message goes. `left_out` returns true for an item that the provider
/// would refuse.
pub(crate) fn edited_history(
    raw: &str,
    edits: &Edits,
    late: impl FnOnce(&[&str]) -> usize,
    left_out: impl Fn(usize) -> bool,
) -> Result<String, DialectError> {
    let items = Array::scan(raw)?;
    let context = edits
        .context
        .as_ref()
        .map(|context| vec![message("user", context)]);
    let mut inserted: Vec<(usize, &[String])> = edits
        .inserted
        .iter()
        .map(|insertion| (insertion.before, insertion.items.as_slice()))
        .collect();
    if let Some(context) = &context {
        let texts: Vec<&str> = items.texts(raw).collect();
        inserted.push((late(&texts), context));
    }
    inserted.push((items.items.len(), &edits.appended));
    let replaced = |at| {
        edits
            .inserted
            .iter()
            .any(|it| (it.before..it.before + it.replaced).contains(&at))
    };
    let change = |at| match left_out(at) || replaced(at) {
        true => Change::Drop,
        false => Change::Keep,
    };
    Ok(items.edit(raw, change, &inserted))
}

/// Builds a message with plain text, in a form that every dialect accepts.
pub(crate) fn message(role: &str, text: &str) -> String {
    json::object(&[("role", json::quote(role)), ("content", json::quote(text))])
}

/// Appends `edits.prompt` to a system prompt that is one string. Returns `None` if there is nothing
/// to append.
pub(crate) fn with_document(
    text: &str,
    fields: &Object,
    field: &'static str,
    edits: &Edits,
) -> Result<Option<String>, DialectError> {
    let Some(document) = &edits.prompt else {
        return Ok(None);
    };
    let Some(own) = present(text, fields, field) else {
        return Ok(Some(json::quote(document)));
    };
    let own = json::string(own).ok_or(DialectError::WrongType {
        field,
        expected: "a string",
    })?;
    Ok(Some(json::quote(&format!("{own}\n\n{document}"))))
}

/// Hides each item that precedes a hidden item and satisfies `leads`, such as reasoning. A provider
/// refuses reasoning without the item that it led to.
pub(crate) fn hide_what_leads_to_hidden(hidden: &mut [bool], leads: impl Fn(usize) -> bool) {
    let mut next = false;
    for at in (0..hidden.len()).rev() {
        hidden[at] |= next && leads(at);
        next = hidden[at];
    }
}
