//! Durations as people write them: `30s`, `2m`, `1m30s`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as text: whole numbers with `ms`, `s`, `m` or `h`, at least 1 ms, at most 24 h.
///
/// Parsed when it is used and not when it is read: an object that slipped past admission
/// must not make the list that holds it undecodable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(pub String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// The text is not a list of numbers with units.
    Malformed(String),
    /// The duration is zero, or over 24 hours.
    OutOfRange(String),
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(
                f,
                "{text:?} is not a duration: write whole numbers with ms, s, m or h, such as 30s or 1m30s"
            ),
            Self::OutOfRange(text) => write!(f, "{text:?} is not between 1ms and 24h"),
        }
    }
}

impl std::error::Error for DurationError {}

impl DurationText {
    pub fn parse(&self) -> Result<Duration, DurationError> {
        let malformed = || DurationError::Malformed(self.0.clone());
        let out_of_range = || DurationError::OutOfRange(self.0.clone());
        let mut rest = self.0.as_str();
        let mut millis: u64 = 0;
        if rest.is_empty() {
            return Err(malformed());
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let (unit, tail) = unit(tail).ok_or_else(malformed)?;
            if number.is_empty() {
                return Err(malformed());
            }
            let number = u64::from_str(number).map_err(|_| out_of_range())?;
            millis = number
                .checked_mul(unit)
                .and_then(|part| millis.checked_add(part))
                .ok_or_else(out_of_range)?;
            rest = tail;
        }
        match millis {
            1..=MAX_MILLIS => Ok(Duration::from_millis(millis)),
            _ => Err(out_of_range()),
        }
    }
}

const MAX_MILLIS: u64 = 24 * 60 * 60 * 1000;

fn unit(text: &str) -> Option<(u64, &str)> {
    // `ms` precedes `m`, which is a prefix of it.
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]
        .into_iter()
        .find_map(|(name, millis)| text.strip_prefix(name).map(|tail| (millis, tail)))
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "DurationText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 32,
            "pattern": "^([0-9]{1,9}(ms|s|m|h)){1,4}$",
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([0-9]{1,9}(ms|s|m|h)){1,4}$') && duration(self) >= duration('1ms') && duration(self) <= duration('24h')",
                "message": "write whole numbers with ms, s, m or h, such as 30s or 1m30s, between 1ms and 24h",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        let parsed = DurationText(text.to_string()).parse().ok();
        assert_eq!(parsed, expected.map(Duration::from_millis), "{text:?}");
    }

    #[test]
    fn durations() {
        check("30s", Some(30_000));
        check("2m", Some(120_000));
        check("1m30s", Some(90_000));
        check("250ms", Some(250));
        check("24h", Some(86_400_000));
        for refused in [
            "",
            "0s",
            "24h1ms",
            "30",
            "s",
            "1.5s",
            "-1s",
            "30S",
            "9999999999999999999999s",
            "1d",
            " 30s",
        ] {
            check(refused, None);
        }
    }
}
