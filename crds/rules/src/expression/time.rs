//! Times, spans and zones in expressions.

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

/// Nanoseconds.
pub(super) type Nanos = i128;

const SECOND: Nanos = 1_000_000_000;

/// The span of all times that CEL knows, in both directions.
const MAX_SPAN: Nanos = 10_000 * 366 * 86_400 * SECOND;

pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Adds a span to a time.
pub(super) fn later(time: Timestamp, span: Nanos) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.as_nanosecond().checked_add(span)?).ok()
}

/// Returns a span, if CEL knows one as long.
pub(super) fn span(nanos: Option<Nanos>) -> Option<Nanos> {
    nanos.filter(|nanos| nanos.abs() <= MAX_SPAN)
}

/// Reads a span as Go writes it: `1h30m`, `-1.5s`.
pub(super) fn duration(text: &str) -> Option<Nanos> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // A longer text has digits that change nothing.
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    if rest == "0" {
        return Some(0);
    }
    let mut total: Nanos = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let end = unit.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = unit.split_at(end.unwrap_or(unit.len()));
        let unit = match unit {
            "h" => 3600 * SECOND,
            "m" => 60 * SECOND,
            "s" => SECOND,
            "ms" => 1_000_000,
            "us" | "µs" => 1000,
            "ns" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: Nanos = match whole {
            "" => 0,
            whole => whole.parse().ok()?,
        };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut part = unit;
        for digit in fraction.chars() {
            part /= 10;
            total = total.checked_add(part * Nanos::from(digit.to_digit(10)?))?;
        }
        rest = after;
    }
    span(Some(if is_negative { -total } else { total }))
}

/// Reads a zone: `UTC`, or an offset such as `+01:00`.
pub(super) fn zone(text: &str) -> Option<TimeZone> {
    if text == "UTC" {
        return Some(TimeZone::UTC);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        (_, _) => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, most: i32| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let value: i32 = digits.then(|| text.parse().ok()).flatten()?;
        (value <= most).then_some(value)
    };
    let seconds = number(hours, 14)? * 3600 + number(minutes, 59)? * 60;
    Some(TimeZone::fixed(Offset::from_seconds(sign * seconds).ok()?))
}

/// A part of a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    /// From 0.
    Month,
    /// From 1.
    Date,
    /// From 0, which is Sunday.
    DayOfWeek,
    Hours,
    Minutes,
}

impl Part {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "getFullYear" => Self::Year,
            "getMonth" => Self::Month,
            "getDate" => Self::Date,
            "getDayOfWeek" => Self::DayOfWeek,
            "getHours" => Self::Hours,
            "getMinutes" => Self::Minutes,
            _ => return None,
        })
    }

    pub(super) fn of(self, time: Timestamp, zone: &TimeZone) -> i64 {
        let local: Zoned = time.to_zoned(zone.clone());
        match self {
            Self::Year => local.year().into(),
            Self::Month => i64::from(local.month()) - 1,
            Self::Date => local.day().into(),
            Self::DayOfWeek => local.weekday().to_sunday_zero_offset().into(),
            Self::Hours => local.hour().into(),
            Self::Minutes => local.minute().into(),
        }
    }
}
