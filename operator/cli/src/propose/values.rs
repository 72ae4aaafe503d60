//! The values of one argument, over all calls.
//!
//! Invariants: memory is bounded, whatever the values are, and the result does not depend on the
//! order of the calls.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use crate::print::is_unprintable;

/// Most values that a grant lists. One more shows that there are too many.
pub const MOST_VALUES: usize = 8;
/// Most bytes of a value that a grant lists.
const LONGEST: usize = 64;

/// Whether an argument's own schema restricts its values to certain words, or allows free text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// It has no `enum`, `const` or `format`.
    Free,
    Fixed,
}

impl Wording {
    pub fn of(schema: &Value) -> Self {
        let fixing = ["const", "enum", "format"];
        match fixing.iter().any(|keyword| schema.get(keyword).is_some()) {
            true => Self::Fixed,
            false => Self::Free,
        }
    }
}

/// The values so far.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// Calls that have the argument.
    pub calls: u64,
    /// Calls by the JSON text of their value, at most [`MOST_VALUES`] + 1.
    seen: BTreeMap<String, u64>,
    numbers: u64,
    range: Option<(Number, Number)>,
    has_text: bool,
    has_time: bool,
    has_structure: bool,
}

/// The common form of the values of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Variety {
    /// A list, or an object.
    Structure,
    /// Free text, or a value that is too long for a list.
    Text,
    /// Dates or times, which differ in the next call.
    Time,
    /// More than [`MOST_VALUES`].
    Many,
    /// Each value with its number of calls.
    Few(Vec<(Value, u64)>),
}

impl Values {
    pub fn add(&mut self, value: &Value, wording: Wording) {
        self.calls += 1;
        match value {
            Value::Array(_) | Value::Object(_) => self.has_structure = true,
            Value::String(text) if is_time(text) => self.has_time = true,
            Value::String(text) if is_text(text, wording) => self.has_text = true,
            Value::Number(number) => {
                self.numbers += 1;
                self.reach(number);
                self.count(value);
            }
            Value::Null | Value::Bool(_) | Value::String(_) => self.count(value),
        }
    }

    fn count(&mut self, value: &Value) {
        let text = value.to_string();
        if let Some(calls) = self.seen.get_mut(&text) {
            *calls += 1;
        } else if self.seen.len() <= MOST_VALUES {
            self.seen.insert(text, 1);
        }
    }

    fn reach(&mut self, number: &Number) {
        let (low, high) = self
            .range
            .get_or_insert_with(|| (number.clone(), number.clone()));
        if is_less(number, low) {
            *low = number.clone();
        }
        if is_less(high, number) {
            *high = number.clone();
        }
    }

    pub fn variety(&self) -> Variety {
        if self.has_structure {
            return Variety::Structure;
        }
        if self.has_text {
            return Variety::Text;
        }
        if self.has_time {
            return Variety::Time;
        }
        if self.seen.len() > MOST_VALUES {
            return Variety::Many;
        }
        let values = self.seen.iter().map(|(text, calls)| {
            let value = serde_json::from_str(text).expect("the text of a JSON value");
            (value, *calls)
        });
        Variety::Few(values.collect())
    }

    /// The least and the greatest value, if all values are numbers.
    pub fn range(&self) -> Option<&(Number, Number)> {
        self.range.as_ref().filter(|_| self.numbers == self.calls)
    }
}

fn is_text(text: &str, wording: Wording) -> bool {
    text.len() > LONGEST
        || text.contains(is_unprintable)
        || wording == Wording::Free && text.contains(char::is_whitespace)
}

fn is_time(text: &str) -> bool {
    text.len() <= LONGEST
        && (text.parse::<jiff::civil::Date>().is_ok() || text.parse::<jiff::Timestamp>().is_ok())
}

fn is_less(one: &Number, other: &Number) -> bool {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one < other,
        _ => one.as_f64() < other.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(values: &[Value]) -> Values {
        let mut all = Values::default();
        values.iter().for_each(|it| all.add(it, Wording::Free));
        all
    }

    #[test]
    fn any_order_gives_the_same_variety() {
        let mut values: Vec<Value> = (0..9).map(|n| json!(format!("v{n}"))).collect();
        assert_eq!(of(&values).variety(), Variety::Many);
        values.reverse();
        assert_eq!(of(&values).variety(), Variety::Many);
        values.truncate(8);
        let Variety::Few(few) = of(&values).variety() else {
            panic!("{values:?}");
        };
        assert_eq!(few.len(), 8);
        assert_eq!(few[0], (json!("v1"), 1));
    }

    #[test]
    fn text_is_not_listed() {
        for text in [
            "two words",
            "line\nbreak",
            "\u{202e}turned",
            &"x".repeat(LONGEST + 1),
        ] {
            assert_eq!(of(&[json!("a"), json!(text)]).variety(), Variety::Text);
        }
        let mut fixed = Values::default();
        fixed.add(&json!("two words"), Wording::Fixed);
        assert_eq!(fixed.variety(), Variety::Few(vec![(json!("two words"), 1)]));
        assert_eq!(of(&[json!([1])]).variety(), Variety::Structure);
    }

    #[test]
    fn times_are_not_listed() {
        for time in [
            "2026-11-24",
            "2026-11-24T08:00:00Z",
            "2026-11-24T08:00:00+01:00",
        ] {
            assert_eq!(of(&[json!("a"), json!(time)]).variety(), Variety::Time);
        }
        for word in ["2026", "A-2026-11-24", "11:30"] {
            assert!(
                matches!(of(&[json!(word)]).variety(), Variety::Few(_)),
                "{word}"
            );
        }
    }

    #[test]
    fn a_range_is_of_numbers_alone() {
        let range = |values: &[Value]| of(values).range().cloned();
        let wide = range(&[json!(3), json!(-2.5), json!(u64::MAX)]).unwrap();
        assert_eq!(wide.0.as_f64(), Some(-2.5));
        assert_eq!(wide.1.as_u64(), Some(u64::MAX));
        assert_eq!(range(&[json!(3), json!("3")]), None);
        assert_eq!(range(&[]), None);
    }

    #[test]
    fn memory_does_not_grow_with_the_values() {
        let mut all = Values::default();
        for n in 0..10_000 {
            all.add(&json!(format!("{n}")), Wording::Free);
        }
        assert_eq!((all.calls, all.seen.len()), (10_000, MOST_VALUES + 1));
    }
}
