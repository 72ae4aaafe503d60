//! One form for every JSON text, however it arrived.
//!
//! Text from the API server and text from a file must give the same bytes. [`normalize`] is
//! applied once to users' text: it sorts keys and prints numbers as the API server does. `sorted`
//! is applied to our own text if the fields of its types are not in key order: it sorts keys and
//! keeps numbers. Both read the text once, with a bound on depth: a value tree would round
//! numbers and overflow on deep nesting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::value::RawValue;
use thiserror::Error;

/// Nesting limit: deeper than any schema that people write, far from overflowing a stack.
pub const MAX_DEPTH: usize = 96;

#[derive(Debug, Error)]
pub enum NormalizeError {
    #[error("is not JSON: {0}: correct the text there")]
    Syntax(serde_json::Error),
    #[error("is nested deeper than {MAX_DEPTH} levels: write it flatter")]
    TooDeep,
    #[error("holds the number {0}, which is out of range: write it as a string")]
    NumberOutOfRange(String),
}

/// A normalized text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizedText {
    pub text: String,
    /// Numbers, as written, whose value changes in the API server's form.
    pub rewritten: Vec<String>,
}

/// Keys sorted, no needless space, numbers as the API server prints them: integers that
/// fit 64 bits keep their digits, all others pass through a 64-bit float.
pub fn normalize(text: &str) -> Result<NormalizedText, NormalizeError> {
    Writer::rewrite(valid(text)?, Numbers::AsApiServer)
}

/// Sorts the keys of valid JSON and removes needless space; numbers stay as written.
pub(crate) fn sorted(text: &str) -> Result<String, NormalizeError> {
    Ok(Writer::rewrite(text, Numbers::AsWritten)?.text)
}

/// Checks the whole syntax in one pass without recursion; later steps rely on it.
fn valid(text: &str) -> Result<&str, NormalizeError> {
    let raw: &RawValue = serde_json::from_str(text).map_err(NormalizeError::Syntax)?;
    Ok(raw.get())
}

enum Numbers {
    AsApiServer,
    AsWritten,
}

/// Reads valid JSON once. An object with sorted keys is copied; the members of any other object
/// are sorted after the last member is written.
struct Writer<'a> {
    text: &'a str,
    at: usize,
    numbers: Numbers,
    out: String,
    rewritten: Vec<String>,
}

impl<'a> Writer<'a> {
    fn rewrite(text: &'a str, numbers: Numbers) -> Result<NormalizedText, NormalizeError> {
        let mut writer = Self {
            text,
            at: 0,
            numbers,
            out: String::with_capacity(text.len()),
            rewritten: Vec::new(),
        };
        writer.value(0)?;
        Ok(NormalizedText {
            text: writer.out,
            rewritten: writer.rewritten,
        })
    }

    /// Skips spaces and returns the next byte; 0 at the end.
    fn peek(&mut self) -> u8 {
        let rest = &self.text.as_bytes()[self.at..];
        let space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        self.at += rest.iter().take_while(|byte| space(byte)).count();
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// Text up to the first byte that is not `of`.
    fn take(&mut self, of: impl Fn(u8) -> bool) -> &'a str {
        let begin = self.at;
        let rest = &self.text.as_bytes()[begin..];
        self.at += rest.iter().take_while(|byte| of(**byte)).count();
        &self.text[begin..self.at]
    }

    fn value(&mut self, depth: usize) -> Result<(), NormalizeError> {
        if depth > MAX_DEPTH {
            return Err(NormalizeError::TooDeep);
        }
        match self.peek() {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => {
                let written = self
                    .take(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'));
                self.number(written)
            }
            // true, false, null
            _ => {
                let word = self.take(|byte| byte.is_ascii_lowercase());
                self.out.push_str(word);
                Ok(())
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), NormalizeError> {
        self.at += 1;
        self.out.push('{');
        let begin = self.out.len();
        let mut members: Vec<(Cow<'a, str>, Range<usize>)> = Vec::new();
        let mut in_order = true;
        while self.peek() == b'"' {
            if !members.is_empty() {
                self.out.push(',');
            }
            let member = self.out.len();
            let key = self.string()?;
            if self.peek() == b':' {
                self.at += 1;
            }
            self.out.push(':');
            self.value(depth + 1)?;
            in_order &= members.last().is_none_or(|(before, _)| *before < key);
            members.push((key, member..self.out.len()));
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        if !in_order {
            self.put_in_order(begin, members);
        }
        self.at += 1;
        self.out.push('}');
        Ok(())
    }

    /// Sorts the members; of several with one key the last one is kept.
    fn put_in_order(&mut self, begin: usize, members: Vec<(Cow<'a, str>, Range<usize>)>) {
        let members: BTreeMap<Cow<'a, str>, Range<usize>> = members.into_iter().collect();
        let written = self.out.split_off(begin);
        for (index, range) in members.into_values().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.out
                .push_str(&written[range.start - begin..range.end - begin]);
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), NormalizeError> {
        self.at += 1;
        self.out.push('[');
        if self.peek() != b']' {
            self.value(depth + 1)?;
            while self.peek() == b',' {
                self.at += 1;
                self.out.push(',');
                self.value(depth + 1)?;
            }
        }
        self.at += 1;
        self.out.push(']');
        Ok(())
    }

    /// Writes a string and returns its text. A string without escapes is copied.
    fn string(&mut self) -> Result<Cow<'a, str>, NormalizeError> {
        let begin = self.at;
        self.at += 1;
        let plain = self.take(|byte| byte != b'"' && byte != b'\\');
        if self.peek_raw() == b'"' {
            self.at += 1;
            self.out.push_str(&self.text[begin..self.at]);
            return Ok(Cow::Borrowed(plain));
        }
        while self.peek_raw() == b'\\' {
            self.at += 2;
            self.take(|byte| byte != b'"' && byte != b'\\');
        }
        self.at += 1;
        // Only this step finds a lone surrogate.
        let text: String =
            serde_json::from_str(&self.text[begin..self.at]).map_err(NormalizeError::Syntax)?;
        let quoted = serde_json::to_string(&text).expect("a string is always JSON");
        self.out.push_str(&quoted);
        Ok(Cow::Owned(text))
    }

    fn peek_raw(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn number(&mut self, written: &str) -> Result<(), NormalizeError> {
        match self.numbers {
            Numbers::AsWritten => self.out.push_str(written),
            Numbers::AsApiServer => {
                let printed = as_api_server(written)?;
                if printed != written && exact(&printed) != exact(written) {
                    self.rewritten.push(written.to_owned());
                }
                self.out.push_str(&printed);
            }
        }
        Ok(())
    }
}

/// Prints a number as Go does after decoding and encoding it.
fn as_api_server(written: &str) -> Result<String, NormalizeError> {
    if let Ok(integer) = written.parse::<i64>() {
        return Ok(integer.to_string());
    }
    let float: f64 = written
        .parse()
        .ok()
        .filter(|float: &f64| float.is_finite())
        .ok_or_else(|| NormalizeError::NumberOutOfRange(written.to_owned()))?;
    let magnitude = float.abs();
    if magnitude == 0.0 {
        // Go prints `-0` once and decodes that as the integer 0, so a stored object holds 0.
        return Ok("0".to_owned());
    }
    // Shortest digits that read back, with an exponent below 1e-6 and from 1e21 on.
    if !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        return Ok(match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        });
    }
    Ok(format!("{float}"))
}

/// Sign, digits without leading and trailing zeros, and power of ten: equal for two
/// spellings of the same value, however many digits it has.
fn exact(number: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = number
        .split_once(['e', 'E'])
        .map_or((number, 0), |(mantissa, exponent)| {
            (mantissa, exponent.parse().unwrap_or(i64::MAX))
        });
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    if trimmed.is_empty() {
        return (false, String::new(), 0);
    }
    let dropped = i64::try_from(digits.len() - trimmed.len()).unwrap_or(i64::MAX);
    let fraction = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let power = exponent.saturating_sub(fraction).saturating_add(dropped);
    (negative, trimmed.to_owned(), power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, rewritten: &[&str]) {
        let normalized = normalize(text).expect("is JSON");
        assert_eq!(normalized.text, expected);
        assert_eq!(normalized.rewritten, rewritten);
        let again = normalize(&normalized.text).expect("is JSON");
        assert_eq!(again.text, expected, "a second time changes nothing");
    }

    #[test]
    fn keys_are_sorted_at_every_level_and_spaces_are_removed() {
        check(
            r#" { "b" : [ { "d": null, "c": true } ], "a": "x y" } "#,
            r#"{"a":"x y","b":[{"c":true,"d":null}]}"#,
            &[],
        );
    }

    #[test]
    fn strings_have_one_spelling_and_keys_are_ordered_by_decoded_text() {
        check(
            r#"{"\u0062": "\u00e9\/\u000a\"", "a": "é/\n", "": {}, "\"": [ ]}"#,
            "{\"\":{},\"\\\"\":[],\"a\":\"é/\\n\",\"b\":\"é/\\n\\\"\"}",
            &[],
        );
        // The last duplicate of a key wins, whatever its escapes.
        check(
            r#"{"b": 1, "a": {"c": 2}, "\u0062": [3 , 4]}"#,
            r#"{"a":{"c":2},"b":[3,4]}"#,
            &[],
        );
        assert!(matches!(
            normalize(r#"{"a": "\ud800"}"#),
            Err(NormalizeError::Syntax(_))
        ));
    }

    #[test]
    fn numbers_are_as_the_api_server_prints_them() {
        check("[1.0, 1e3, 0.5, -0, 1E2]", "[1,1000,0.5,0,100]", &[]);
        check("9007199254740993", "9007199254740993", &[]);
        check("[1e21, 0.0000001, 1.5e-7]", "[1e+21,1e-7,1.5e-7]", &[]);
        check(
            "[12345678901234567890123, 0.1000000000000000055511151231257827]",
            "[1.2345678901234568e+22,0.1]",
            &[
                "12345678901234567890123",
                "0.1000000000000000055511151231257827",
            ],
        );
    }

    #[test]
    fn a_negative_zero_is_zero() {
        check("[-0, -0.0, -0e5, 0.0]", "[0,0,0,0]", &[]);
        check("-1e-400", "0", &["-1e-400"]);
    }

    #[test]
    fn sorted_keeps_numbers_as_written() {
        let text = r#"{"b":12345678901234567890123,"a":1.0}"#;
        assert_eq!(
            sorted(text).expect("is JSON"),
            r#"{"a":1.0,"b":12345678901234567890123}"#
        );
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
        assert!(matches!(normalize(&deep), Err(NormalizeError::TooDeep)));
    }

    #[test]
    fn invalid_json_is_an_error() {
        for text in ["", "{", "{]", "nul", "01", "1 2", "'a'"] {
            assert!(
                matches!(normalize(text), Err(NormalizeError::Syntax(_))),
                "{text:?}"
            );
        }
        assert!(matches!(
            normalize("1e999"),
            Err(NormalizeError::NumberOutOfRange(_))
        ));
    }

    /// Does the same as [`sorted`] with a value tree.
    fn by_tree(text: &str) -> String {
        let tree: serde_json::Value = serde_json::from_str(text).expect("JSON");
        serde_json::to_string(&tree).expect("a tree is JSON")
    }

    fn json() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
        use proptest::prelude::*;
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn sorted_agrees_with_a_value_tree(value in json(), pretty: bool) {
            let text = if pretty {
                serde_json::to_string_pretty(&value)
            } else {
                serde_json::to_string(&value)
            };
            let text = text.expect("a tree is JSON");
            proptest::prop_assert_eq!(sorted(&text).expect("JSON"), by_tree(&text));
        }

        #[test]
        fn floats_read_back(float in proptest::num::f64::NORMAL) {
            let printed = as_api_server(&format!("{float:e}")).expect("finite");
            proptest::prop_assert_eq!(printed.parse::<f64>().expect("a number"), float);
        }
    }
}
