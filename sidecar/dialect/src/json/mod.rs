//! Edits JSON text in place: finds the positions of members and elements, and changes only the
//! edited ones.
//!
//! An object or array is a list of *slots* (the text between its commas, white space included); an
//! edit replaces, drops or adds slots, and leaves every other byte unchanged. Values are scanned
//! (the grammar is checked) but never built into a tree.

mod scan;

use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smol_str::SmolStr;

/// Limits the members of one object and the elements of one array. Each takes far more memory than
/// its shortest text, the two bytes `0,`.
pub(crate) const MAX_PARTS: usize = 100_000;
/// Extra capacity, in bytes, for keys, brackets and commas, which are not counted one by one.
const ROOM: usize = 256;

/// A member of an object, with its byte ranges in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: SmolStr,
    /// The range between the surrounding commas or brackets, white space included.
    pub slot: Range<usize>,
    pub value: Range<usize>,
}

/// An object's members, in order; a repeated key appears twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub members: Vec<Member>,
    /// Position of the closing brace.
    close: usize,
    open: usize,
}

/// Byte ranges of an element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub slot: Range<usize>,
    pub value: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    pub items: Vec<Item>,
    close: usize,
    open: usize,
}

/// The edit of one member or element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T = String> {
    Keep,
    Drop,
    Set(T),
}

impl Object {
    /// Scans an object. Errors: those of `serde_json`, also if `text` is not an object.
    pub fn scan(text: &str) -> Result<Self, serde_json::Error> {
        scan::object(text).map_or_else(|| object_by_serde(text), Ok)
    }

    /// Like [`Object::scan`]; also returns the elements of the member `array`, if the same pass
    /// found them. Errors: those of [`Object::scan`].
    pub fn scan_into(
        text: &str,
        array: &str,
    ) -> Result<(Self, Option<Vec<Item>>), serde_json::Error> {
        match scan::object_and_items(text, Some(array)) {
            Some(found) => Ok(found),
            None => Ok((object_by_serde(text)?, None)),
        }
    }

    /// Returns the text of a member's value. For a repeated key, the last value counts.
    pub fn get<'t>(&self, text: &'t str, key: &str) -> Option<&'t str> {
        self.member(key).map(|member| &text[member.value.clone()])
    }

    pub fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.key == key)
    }

    /// Returns the first repeated key.
    pub fn repeated(&self) -> Option<&str> {
        let mut seen = std::collections::HashSet::new();
        self.members
            .iter()
            .find(|member| !seen.insert(member.key.as_str()))
            .map(|member| member.key.as_str())
    }

    /// Returns the object's text without the `dropped` members, and with the members of `set`
    /// replaced or, if they are new, added at the end. A value of `None` leaves its member
    /// unchanged.
    pub fn with(&self, text: &str, set: &[(&str, Option<String>)], dropped: &[&str]) -> String {
        let (mut added, mut longer) = (Vec::new(), 0);
        for (key, value) in set {
            let Some(value) = value.as_deref() else {
                continue;
            };
            match self.member(key) {
                Some(member) => longer += value.len().saturating_sub(member.value.len()),
                None => added.push((*key, value)),
            }
        }
        self.edited(
            text,
            text.len() + longer,
            |member| {
                let key = member.key.as_str();
                if dropped.contains(&key) {
                    return Change::Drop;
                }
                set.iter()
                    .find(|(name, _)| *name == key)
                    .and_then(|(_, value)| value.as_deref())
                    .map_or(Change::Keep, Change::Set)
            },
            &added,
        )
    }

    /// Returns the object's text with some values changed and `added` members at the end.
    pub fn edit(
        &self,
        text: &str,
        change: impl FnMut(&Member) -> Change,
        added: &[(&str, String)],
    ) -> String {
        self.edited(text, text.len(), change, added)
    }

    /// Borrows the new values, because one of them may be a whole history. `length`: expected bytes
    /// of the result without the added members.
    fn edited<T: AsRef<str>>(
        &self,
        text: &str,
        length: usize,
        mut change: impl FnMut(&Member) -> Change<T>,
        added: &[(&str, T)],
    ) -> String {
        if self.members.is_empty() && added.is_empty() {
            return text.to_string();
        }
        let added_length: usize = added.iter().map(|(_, value)| value.as_ref().len()).sum();
        let length = length + added_length + ROOM;
        let mut out = JsonBuilder::open(&text[..=self.open], length);
        for member in &self.members {
            let (slot, value) = (&member.slot, &member.value);
            match change(member) {
                Change::Keep => out.slot(&[&text[slot.clone()]]),
                Change::Drop => {}
                Change::Set(new) => {
                    out.slot(&[
                        &text[slot.start..value.start],
                        new.as_ref(),
                        &text[value.end..slot.end],
                    ]);
                }
            }
        }
        for (key, value) in added {
            out.slot(&[&quote(key), ":", value.as_ref()]);
        }
        out.close(&text[self.close..])
    }
}

impl Array {
    /// Scans an array. Errors: those of `serde_json`, also if `text` is not an array.
    pub fn scan(text: &str) -> Result<Self, serde_json::Error> {
        scan::array(text).map_or_else(|| array_by_serde(text), Ok)
    }

    pub fn texts<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.items.iter().map(|item| &text[item.value.clone()])
    }

    /// Returns the array's text with some elements changed and others inserted. An insertion at `i`
    /// goes before element `i`, at `len` to the end.
    pub fn edit(
        &self,
        text: &str,
        mut change: impl FnMut(usize) -> Change,
        inserted: &[(usize, &[String])],
    ) -> String {
        if self.items.is_empty() && inserted.is_empty() {
            return text.to_string();
        }
        let items = inserted.iter().flat_map(|(_, items)| *items);
        let inserted_length: usize = items.map(|item| item.len() + 1).sum();
        let length = text.len() + inserted_length + ROOM;
        let mut out = JsonBuilder::open(&text[..=self.open], length);
        for (index, item) in self.items.iter().enumerate() {
            out.inserted(inserted, |at| at == index);
            let (slot, value) = (&item.slot, &item.value);
            match change(index) {
                Change::Keep => out.slot(&[&text[slot.clone()]]),
                Change::Drop => {}
                Change::Set(new) => {
                    out.slot(&[
                        &text[slot.start..value.start],
                        &new,
                        &text[value.end..slot.end],
                    ]);
                }
            }
        }
        out.inserted(inserted, |at| at >= self.items.len());
        out.close(&text[self.close..])
    }
}

/// Decodes a JSON string; `None` if `raw` is not a string.
pub fn string(raw: &str) -> Option<String> {
    // The first byte tells a string from any other value.
    if !raw.trim_ascii_start().starts_with('"') {
        return None;
    }
    scan::unescaped(raw).or_else(|| serde_json::from_str(raw).ok())
}

/// Encodes `text` as a JSON string.
pub fn quote(text: &str) -> String {
    if scan::is_plain(text) {
        return ["\"", text, "\""].concat();
    }
    serde_json::to_string(text).expect("a text always serializes")
}

/// Builds `{"key": value, …}` from JSON texts.
pub fn object(members: &[(&str, String)]) -> String {
    let values: usize = members.iter().map(|(_, value)| value.len()).sum();
    let mut out = JsonBuilder::open("{", values + ROOM);
    for (key, value) in members {
        out.slot(&[&quote(key), ":", value]);
    }
    out.close("}")
}

/// Builds `[value, …]` from JSON texts.
pub fn array(items: &[String]) -> String {
    let values: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut out = JsonBuilder::open("[", values + ROOM);
    for item in items {
        out.slot(&[item]);
    }
    out.close("]")
}

/// Returns a value's text with `items` at its end, without a scan; `None` if it is no array.
pub fn appended(value: &str, items: &[String]) -> Option<String> {
    let before = value.trim_end().strip_suffix(']')?;
    let elements = before.trim_start().strip_prefix('[')?;
    let more: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut out = String::with_capacity(value.len() + more);
    let is_empty = elements.trim_start().is_empty();
    out.push_str(match is_empty {
        true => &before[..before.len() - elements.len()],
        false => before,
    });
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !is_empty {
            out.push(',');
        }
        out.push_str(item);
    }
    out.push_str(&value[before.len()..]);
    Some(out)
}

pub fn is_null(raw: &str) -> bool {
    raw == "null"
}

/// Returns the text without surrounding white space if it is one JSON value. Checks without
/// recursion, so any nesting is accepted.
pub fn checked(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text)
        .ok()
        .map(RawValue::get)
}

/// Returns the canonical text of a value: keys sorted, no white space, one way to escape, numbers
/// by their exact decimal value. `None` if the text is not JSON, repeats a key, or nests deeper
/// than `serde_json` reads.
pub fn canonical(text: &str) -> Option<String> {
    rewritten(text, canonical_number)
}

/// Returns the text of a value with sorted keys, without white space and with one way to escape.
/// Numbers stay as written, so that a person reads what is sent. `None` as for [`canonical`].
pub fn sorted(text: &str) -> Option<String> {
    rewritten(text, |number| Some(number.to_owned()))
}

fn rewritten(text: &str, number: fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    write_canonical(text.trim_ascii(), 127, number, &mut out)?;
    Some(out)
}

fn write_canonical(
    raw: &str,
    depth: usize,
    number: fn(&str) -> Option<String>,
    out: &mut String,
) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match raw.as_bytes().first()? {
        b'{' => {
            let object = Object::scan(raw).ok()?;
            let mut members: Vec<&Member> = object.members.iter().collect();
            members.sort_by(|a, b| a.key.cmp(&b.key));
            if members.windows(2).any(|pair| pair[0].key == pair[1].key) {
                return None;
            }
            for (index, member) in members.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                out.push_str(&quote(&member.key));
                out.push(':');
                write_canonical(&raw[member.value.clone()], depth, number, out)?;
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
        b'[' => {
            let array = Array::scan(raw).ok()?;
            for (index, item) in array.texts(raw).enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                write_canonical(item, depth, number, out)?;
            }
            out.push_str(if array.items.is_empty() { "[]" } else { "]" });
        }
        b'"' => out.push_str(&quote(&string(raw)?)),
        b't' | b'f' | b'n' => out.push_str(checked(raw)?),
        _ => out.push_str(&number(checked(raw)?)?),
    }
    Some(())
}

/// Writes `-12.50e3` as `-125e2`: digits without zeros at either end, and the exponent.
fn canonical_number(raw: &str) -> Option<String> {
    let (sign, rest) = match raw.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", raw),
    };
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some("0".into());
    }
    let exponent = exponent.checked_sub(fraction)?.checked_add(dropped)?;
    Some(match exponent {
        0 => format!("{sign}{significant}"),
        exponent => format!("{sign}{significant}e{exponent}"),
    })
}

fn object_by_serde(text: &str) -> Result<Object, serde_json::Error> {
    let found = whole(text, |d| d.deserialize_map(Members { text }))?;
    let (open, close) = brackets(text);
    let values: Vec<_> = found.iter().map(|(_, value)| value.clone()).collect();
    let members = found
        .into_iter()
        .zip(slots(text, &values, open, close))
        .map(|((key, value), slot)| Member { key, slot, value })
        .collect();
    Ok(Object {
        members,
        close,
        open,
    })
}

fn array_by_serde(text: &str) -> Result<Array, serde_json::Error> {
    let values = whole(text, |d| d.deserialize_seq(Elements { text }))?;
    let (open, close) = brackets(text);
    let items = slots(text, &values, open, close)
        .into_iter()
        .zip(values)
        .map(|(slot, value)| Item { slot, value })
        .collect();
    Ok(Array { items, close, open })
}

struct JsonBuilder {
    out: String,
    first: bool,
}

impl JsonBuilder {
    /// `length`: expected bytes of the result, used as the capacity.
    fn open(head: &str, length: usize) -> Self {
        let mut out = String::with_capacity(length);
        out.push_str(head);
        Self { out, first: true }
    }

    fn slot(&mut self, parts: &[&str]) {
        if !self.first {
            self.out.push(',');
        }
        self.first = false;
        for part in parts {
            self.out.push_str(part);
        }
    }

    fn inserted(&mut self, inserted: &[(usize, &[String])], here: impl Fn(usize) -> bool) {
        for (_, items) in inserted.iter().filter(|(at, _)| here(*at)) {
            for item in *items {
                self.slot(&[item]);
            }
        }
    }

    fn close(mut self, tail: &str) -> String {
        self.out.push_str(tail);
        self.out
    }
}

fn whole<'t, T>(
    text: &'t str,
    read: impl FnOnce(
        &mut serde_json::Deserializer<serde_json::de::StrRead<'t>>,
    ) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = read(&mut deserializer)?;
    deserializer.end()?;
    Ok(found)
}

/// Returns the positions of the outer brackets: the first and last byte that is not white space.
/// The text must have been parsed.
fn brackets(text: &str) -> (usize, usize) {
    let open = text.len() - text.trim_ascii_start().len();
    let close = text.trim_ascii_end().len() - 1;
    (open, close)
}

fn slots(text: &str, values: &[Range<usize>], open: usize, close: usize) -> Vec<Range<usize>> {
    let mut start = open + 1;
    values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let end = if index + 1 == values.len() {
                close
            } else {
                let rest = &text[value.end..];
                value.end + (rest.len() - rest.trim_ascii_start().len())
            };
            let slot = start..end;
            start = end + 1;
            slot
        })
        .collect()
}

fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

fn within_bound<E: serde::de::Error>(found: usize) -> Result<(), E> {
    match found < MAX_PARTS {
        true => Ok(()),
        false => Err(E::custom(format_args!("more than {MAX_PARTS} parts"))),
    }
}

struct Members<'t> {
    text: &'t str,
}

impl<'t> Visitor<'t> for Members<'t> {
    type Value = Vec<(SmolStr, Range<usize>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value: &'t RawValue = map.next_value()?;
            within_bound(found.len())?;
            found.push((key.into(), range_in(self.text, value.get())));
        }
        Ok(found)
    }
}

struct Elements<'t> {
    text: &'t str,
}

impl<'t> Visitor<'t> for Elements<'t> {
    type Value = Vec<Range<usize>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(value) = seq.next_element::<&'t RawValue>()? {
            within_bound(found.len())?;
            found.push(range_in(self.text, value.get()));
        }
        Ok(found)
    }
}
