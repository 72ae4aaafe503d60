//! Finds the parts of an object or an array, in one pass over its text.
//!
//! Every request and reply is scanned, and most of a body is the text of strings, so the scanner
//! skips string bytes in blocks. Apart from long keys, it allocates only the list of parts.
//!
//! Invariant: this scanner finds exactly what `serde_json` finds. It returns `None` for a text that
//! is not certainly valid, nests deeper than a `u64` has bits, or has too many parts. Then
//! `serde_json` reads the text and reports its own error.

use std::ops::Range;

use smol_str::SmolStr;
use wide::u8x16;

use super::{Array, Item, MAX_PARTS, Member, Object};

/// Number of plain bytes that are skipped at once.
const BLOCK: usize = 16;
/// Most members of a usual object.
const FEW: usize = 8;
/// Limits the open brackets of one value.
const DEPTH: u32 = u64::BITS;

pub(super) fn object(text: &str) -> Option<Object> {
    object_and_items(text, None).map(|(object, _)| object)
}

/// Scans an object. Also returns the elements of its member `array`, if that is an array. For a
/// repeated key, the last value counts.
pub(super) fn object_and_items(
    text: &str,
    array: Option<&str>,
) -> Option<(Object, Option<Vec<Item>>)> {
    let mut scan = Scan::new(text);
    let (mut members, mut items) = (Vec::new(), None);
    scan.expect(b'{')?;
    let open = scan.at - 1;
    if !scan.take(b'}') {
        let mut start = open + 1;
        loop {
            let key = scan.key_text()?;
            let value = match array {
                Some(name) if name == key => {
                    let (value, found) = scan.value_and_items()?;
                    items = found;
                    value
                }
                _ => scan.value()?,
            };
            let comma = scan.separator(b'}')?;
            let slot = start..scan.at - 1;
            if members.len() == MAX_PARTS {
                return None;
            }
            if members.is_empty() {
                members.reserve(FEW);
            }
            members.push(Member { key, slot, value });
            if !comma {
                break;
            }
            start = scan.at;
        }
    }
    let close = scan.at - 1;
    scan.end()?;
    let object = Object {
        members,
        close,
        open,
    };
    Some((object, items))
}

pub(super) fn array(text: &str) -> Option<Array> {
    let mut scan = Scan::new(text);
    scan.expect(b'[')?;
    let open = scan.at - 1;
    let items = scan.items()?;
    let close = scan.at - 1;
    scan.end()?;
    Some(Array { items, close, open })
}

/// Decodes a string. Returns `None` if it is invalid or contains `\u`, which `serde_json` decodes.
pub(super) fn unescaped(raw: &str) -> Option<String> {
    let bytes = raw.as_bytes();
    if bytes.first() != Some(&b'"') {
        return None;
    }
    let mut text = String::with_capacity(raw.len());
    let mut at = 1;
    loop {
        let end = special(bytes, at)?;
        text.push_str(&raw[at..end]);
        match bytes[end] {
            b'"' => return (end + 1 == bytes.len()).then_some(text),
            b'\\' => text.push(match bytes.get(end + 1)? {
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                same @ (b'"' | b'\\' | b'/') => char::from(*same),
                _ => return None,
            }),
            _ => return None,
        }
        at = end + 2;
    }
}

/// Returns true if the text needs no escapes in a JSON string.
pub(super) fn is_plain(text: &str) -> bool {
    special(text.as_bytes(), 0).is_none()
}

struct Scan<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Scan<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blank(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Returns the next non-blank byte.
    fn next(&mut self) -> Option<u8> {
        self.skip_blank();
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, wanted: u8) -> bool {
        self.skip_blank();
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.take(wanted).then_some(())
    }

    /// Returns `true` for a comma, `false` for the closing bracket.
    fn separator(&mut self, close: u8) -> Option<bool> {
        match self.next()? {
            b',' => Some(true),
            byte if byte == close => Some(false),
            _ => None,
        }
    }

    fn end(&mut self) -> Option<()> {
        self.skip_blank();
        (self.at == self.bytes.len()).then_some(())
    }

    fn key_text(&mut self) -> Option<SmolStr> {
        self.expect(b'"')?;
        let start = self.at;
        self.string()?;
        let key = &self.text[start..self.at - 1];
        let key = match key.contains('\\') {
            false => SmolStr::new(key),
            true => serde_json::from_str::<String>(&self.text[start - 1..self.at])
                .ok()?
                .into(),
        };
        self.expect(b':')?;
        Some(key)
    }

    fn key(&mut self) -> Option<()> {
        self.expect(b'"')?;
        self.string()?;
        self.expect(b':')
    }

    /// Reads the elements of an array. Begins after the opening bracket and consumes the closing
    /// one.
    fn items(&mut self) -> Option<Vec<Item>> {
        let (mut items, mut start) = (Vec::new(), self.at);
        if self.take(b']') {
            return Some(items);
        }
        loop {
            let value = self.value()?;
            let comma = self.separator(b']')?;
            let slot = start..self.at - 1;
            if items.len() == MAX_PARTS {
                return None;
            }
            items.push(Item { slot, value });
            if !comma {
                return Some(items);
            }
            start = self.at;
        }
    }

    /// Reads any value, and its elements if it is an array.
    fn value_and_items(&mut self) -> Option<(Range<usize>, Option<Vec<Item>>)> {
        self.skip_blank();
        let start = self.at;
        if !self.take(b'[') {
            return Some((self.value()?, None));
        }
        let items = self.items()?;
        Some((start..self.at, Some(items)))
    }

    /// Reads any value that nests at most [`DEPTH`] deep, without recursion.
    fn value(&mut self) -> Option<Range<usize>> {
        self.skip_blank();
        let start = self.at;
        // One bit for each open bracket, the innermost in the lowest bit; 1 is an object, 0 an
        // array.
        let (mut objects, mut depth) = (0_u64, 0_u32);
        loop {
            let opened = match self.next()? {
                b'"' => {
                    self.string()?;
                    false
                }
                b'{' => {
                    !self.take(b'}') && {
                        self.key()?;
                        objects = objects << 1 | 1;
                        true
                    }
                }
                b'[' => {
                    !self.take(b']') && {
                        objects <<= 1;
                        true
                    }
                }
                first => {
                    self.scalar(first)?;
                    false
                }
            };
            if opened {
                depth += 1;
                if depth > DEPTH {
                    return None;
                }
                continue;
            }
            // The end of a value may end the values around it.
            loop {
                if depth == 0 {
                    return Some(start..self.at);
                }
                match (self.next()?, objects & 1) {
                    (b',', 1) => {
                        self.key()?;
                        break;
                    }
                    (b',', _) => break,
                    (b'}', 1) | (b']', 0) => {
                        objects >>= 1;
                        depth -= 1;
                    }
                    _ => return None,
                }
            }
        }
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            b'-' => {
                let first = self.peek()?;
                self.at += 1;
                self.number(first)
            }
            _ => self.number(first),
        }
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        self.bytes.get(self.at..)?.strip_prefix(rest)?;
        self.at += rest.len();
        Some(())
    }

    /// Reads the rest of a number after its first digit.
    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            // No digit may follow a leading zero.
            b'0' if !self.peek().is_some_and(|it| it.is_ascii_digit()) => {}
            b'1'..=b'9' => self.skip_digits(),
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Reads at least one digit.
    fn digits(&mut self) -> Option<()> {
        self.peek().filter(u8::is_ascii_digit)?;
        self.skip_digits();
        Some(())
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Reads a string. Begins after the opening quote and consumes the closing one.
    fn string(&mut self) -> Option<()> {
        loop {
            let end = special(self.bytes, self.at)?;
            self.at = end + 1;
            match self.bytes[end] {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let kind = self.peek()?;
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }
}

/// Finds the first byte, from `from`, that ends a run of plain string bytes: a quote, a backslash,
/// or a control character, which is invalid there.
#[inline]
fn special(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let (blocks, tail) = rest.as_chunks::<BLOCK>();
    for (index, block) in blocks.iter().enumerate() {
        if let Some(at) = special_in(*block) {
            return Some(from + index * BLOCK + at);
        }
    }
    let mut block = [b' '; BLOCK];
    block[..tail.len()].copy_from_slice(tail);
    Some(from + blocks.len() * BLOCK + special_in(block)?)
}

#[inline]
fn special_in(block: [u8; BLOCK]) -> Option<usize> {
    let bytes = u8x16::new(block);
    let is = |byte: u8| bytes.simd_eq(u8x16::splat(byte));
    let is_control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    let found = (is(b'"') | is(b'\\') | is_control).to_bitmask();
    (found != 0).then_some(found.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::{array_by_serde, object_by_serde};
    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let text = "[ -~\\n\\t\\\\\"üé\u{2028}\u{1f9a6}]{0,70}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map(text, inner, 0..5)
                    .prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    /// The scanner may return `None` for text that `serde_json` accepts, but must never find
    /// anything else.
    fn check(text: &str) {
        if let Some(found) = object(text) {
            assert_eq!(Some(found), object_by_serde(text).ok(), "{text}");
        }
        if let Some((found, items)) = object_and_items(text, Some("a")) {
            let member = found.member("a").map(|member| member.value.clone());
            let array = member.and_then(|at| Some((at.start, array_by_serde(&text[at]).ok()?)));
            let values = |items: Vec<Item>| items.into_iter().map(|item| item.value);
            let shifted = |(start, array): (usize, Array)| -> Vec<_> {
                let moved = |it: Range<usize>| start + it.start..start + it.end;
                values(array.items).map(moved).collect()
            };
            let items = items.map(|items| values(items).collect::<Vec<_>>());
            assert_eq!(items, array.map(shifted), "{text}");
            assert_eq!(Some(found), object_by_serde(text).ok(), "{text}");
        }
        if let Some(found) = array(text) {
            assert_eq!(Some(found), array_by_serde(text).ok(), "{text}");
        }
        if let Some(found) = unescaped(text) {
            assert_eq!(Some(found), serde_json::from_str(text).ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn valid_json_is_scanned(value in value(), pretty: bool) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            let text = format!(" {text}\r\n");
            assert_eq!(object(&text), object_by_serde(&text).ok());
            assert_eq!(array(&text), array_by_serde(&text).ok());
            let around = format!("{{\"b\":0,\"a\":{text},\"c\":[{text}]}}");
            assert!(object_and_items(&around, Some("a")).is_some());
            check(&around);
        }

        #[test]
        fn a_changed_byte_is_read_like_serde_json(
            value in value(), at: prop::sample::Index, byte in "[\\x00-\\x7f]"
        ) {
            let mut text = value.to_string();
            let changed = at.index(text.len());
            prop_assume!(text.is_char_boundary(changed) && text.is_char_boundary(changed + 1));
            text.replace_range(changed..=changed, &byte);
            check(&text);
        }

        #[test]
        fn near_json_is_read_like_serde_json(
            text in "[\\[{\"]([\\[\\]{}:,\"\\\\0-9eE.+u \\-\n\u{1}]|true|null|\"a\"|\\\\u00e9){0,24}"
        ) {
            check(&text);
        }

        #[test]
        fn strings_are_unescaped_like_serde_json(text in any::<String>()) {
            let raw = serde_json::to_string(&text).unwrap();
            if !raw.contains("\\u") {
                assert_eq!(unescaped(&raw).as_ref(), Some(&text));
            }
            assert_eq!(is_plain(&text), raw.len() == text.len() + 2);
            check(&raw);
        }
    }

    #[test]
    fn nesting_beyond_a_word_is_left_to_serde_json() {
        let nested = |depth: usize| format!("[{}{}]", "[".repeat(depth), "]".repeat(depth));
        assert!(array(&nested(64)).is_some());
        for depth in [64, 65, 1000] {
            check(&nested(depth));
            assert!(Array::scan(&nested(depth)).is_ok());
        }
    }
}
