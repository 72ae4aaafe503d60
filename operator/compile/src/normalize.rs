//! One form for every JSON text, however it arrived.
//!
//! Text from the API server and text from a file must give the same bytes. Two functions:
//! [`normalize`] is applied once to what users wrote (keys sorted, numbers as the API
//! server prints them), [`sorted`] to what we write ourselves (keys sorted, numbers as
//! they are). Both work on text, level by level, with a bound on depth: a value tree would
//! round numbers and overflow on deep nesting.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

/// Deeper than any schema that people write, far from any stack's end.
pub const MAX_DEPTH: usize = 96;

#[derive(Debug, Error)]
pub enum NormalizeError {
    #[error("is not JSON: {0}")]
    Syntax(serde_json::Error),
    #[error("is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("holds the number {0}, which is out of range")]
    NumberOutOfRange(String),
}

/// A normalized text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normalized {
    pub text: String,
    /// Numbers whose value the API server's own form changes, as they were written.
    pub rewritten: Vec<String>,
}

/// Keys sorted, no needless space, numbers as the API server prints them: integers that
/// fit 64 bits keep their digits, all others pass through a 64-bit float.
pub fn normalize(text: &str) -> Result<Normalized, NormalizeError> {
    let mut writer = Writer {
        numbers: Numbers::AsApiServer,
        out: String::with_capacity(text.len()),
        rewritten: Vec::new(),
    };
    writer.value(text, 0)?;
    Ok(Normalized {
        text: writer.out,
        rewritten: writer.rewritten,
    })
}

/// Keys sorted, no needless space, numbers as they are.
pub fn sorted(text: &str) -> Result<String, NormalizeError> {
    let mut writer = Writer {
        numbers: Numbers::AsWritten,
        out: String::with_capacity(text.len()),
        rewritten: Vec::new(),
    };
    writer.value(text, 0)?;
    Ok(writer.out)
}

enum Numbers {
    AsApiServer,
    AsWritten,
}

struct Writer {
    numbers: Numbers,
    out: String,
    rewritten: Vec<String>,
}

impl Writer {
    fn value(&mut self, text: &str, depth: usize) -> Result<(), NormalizeError> {
        if depth > MAX_DEPTH {
            return Err(NormalizeError::TooDeep);
        }
        match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => {
                let members: BTreeMap<String, &RawValue> = parse(text)?;
                self.out.push('{');
                for (index, (key, value)) in members.into_iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.string(&key);
                    self.out.push(':');
                    self.value(value.get(), depth + 1)?;
                }
                self.out.push('}');
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = parse(text)?;
                self.out.push('[');
                for (index, value) in items.into_iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    self.value(value.get(), depth + 1)?;
                }
                self.out.push(']');
            }
            Some(b'"') => {
                let string: String = parse(text)?;
                self.string(&string);
            }
            Some(b'-' | b'0'..=b'9') => {
                let raw: &RawValue = parse(text)?;
                self.number(raw.get())?;
            }
            _ => {
                // true, false, null, or not JSON
                let raw: &RawValue = parse(text)?;
                self.out.push_str(raw.get());
            }
        }
        Ok(())
    }

    fn string(&mut self, string: &str) {
        let quoted = serde_json::to_string(string).expect("a string is always JSON");
        self.out.push_str(&quoted);
    }

    fn number(&mut self, written: &str) -> Result<(), NormalizeError> {
        let printed = match self.numbers {
            Numbers::AsWritten => written.to_owned(),
            Numbers::AsApiServer => as_api_server(written)?,
        };
        if exact(&printed) != exact(written) {
            self.rewritten.push(written.to_owned());
        }
        self.out.push_str(&printed);
        Ok(())
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, NormalizeError> {
    serde_json::from_str(text).map_err(NormalizeError::Syntax)
}

/// A number as Go's encoder prints what Go's decoder made of it.
fn as_api_server(written: &str) -> Result<String, NormalizeError> {
    if let Ok(integer) = written.parse::<i64>() {
        return Ok(integer.to_string());
    }
    let float: f64 = written
        .parse()
        .ok()
        .filter(|float: &f64| float.is_finite())
        .ok_or_else(|| NormalizeError::NumberOutOfRange(written.to_owned()))?;
    // Shortest digits that read back, with an exponent below 1e-6 and from 1e21 on.
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
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
    fn keys_are_sorted_at_every_level_and_space_goes() {
        check(
            r#" { "b" : [ { "d": null, "c": true } ], "a": "x y" } "#,
            r#"{"a":"x y","b":[{"c":true,"d":null}]}"#,
            &[],
        );
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
    fn what_we_write_ourselves_keeps_its_numbers() {
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
    fn what_is_not_json_is_an_error() {
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

    proptest::proptest! {
        #[test]
        fn floats_read_back(float in proptest::num::f64::NORMAL) {
            let printed = as_api_server(&format!("{float:e}")).expect("finite");
            proptest::prop_assert_eq!(printed.parse::<f64>().expect("a number"), float);
        }
    }
}
