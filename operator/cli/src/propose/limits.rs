//! The limits on a tool's arguments that its calls justify.
//!
//! Here: which values are pinned, listed or bounded, and why others stay open. Not here: the form of
//! a grant.

use serde_json::{Number, Value};

use super::evidence::ToolEvidence;
use super::offers::OfferedTool;
use super::values::{Values, Variety, Wording};

/// Fewest calls of a tool from which limits on its arguments follow.
pub const FEWEST_CALLS: u64 = 20;
/// Most pins of an entry, as the definition of ToolGrant bounds them.
const MOST_PINS: usize = 16;
/// Most arguments in the schema of an entry, as the definition of ToolGrant bounds them.
const MOST_LISTED: usize = 64;
/// Most bytes of an entry's limits. Compile accepts 8 KiB, pins and schema together.
const MOST_BYTES: usize = 7 * 1024;

/// One argument, with the limit on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgumentLimit {
    pub name: String,
    /// Calls that have the argument.
    pub calls: u64,
    /// Whether every call has it.
    pub is_always_sent: bool,
    pub limit: Limit,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    Pin(Value),
    /// Each value with its number of calls.
    OneOf(Vec<(Value, u64)>),
    Range(Number, Number),
    Open(OpenReason),
}

/// Why an argument has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenReason {
    /// Fewer than [`FEWEST_CALLS`].
    FewCalls,
    /// The record lacks the arguments of some calls.
    NotRecorded,
    /// No call has it.
    NotSent,
    Text,
    Time,
    Structure,
    ManyValues,
    Number,
    /// A call has a number with too many digits to be compared: an entry with limits would refuse it.
    LongNumber,
    /// The calls have every value that the tool's schema accepts.
    EveryValue,
    /// The entry is as large as a grant's may be.
    NoRoom,
}

impl OpenReason {
    pub fn words(self) -> &'static str {
        match self {
            Self::FewCalls => "fewer than 20 calls",
            Self::NotRecorded => "not in the record of every call",
            Self::NotSent => "in no call",
            Self::Text => "text",
            Self::Time => "date or time",
            Self::Structure => "list or object",
            Self::ManyValues => "more than 8 values",
            Self::Number => "number",
            Self::LongNumber => "a call has a number with too many digits",
            Self::EveryValue => "every value that the tool accepts",
            Self::NoRoom => "no room for more limits",
        }
    }
}

/// Returns the limit on each declared argument, in the order of names. `bounds`: whether numbers are
/// bounded.
pub fn limits(tool: &ToolEvidence, offer: &OfferedTool, bounds: bool) -> Vec<ArgumentLimit> {
    let mut room = Room::default();
    let arguments = offer.arguments.iter();
    arguments
        .map(|(name, schema)| {
            let none = Values::default();
            let values = tool.arguments.get(name).unwrap_or(&none);
            let is_always_sent = values.calls == tool.calls.succeeded;
            let limit = justified(tool, values, schema, bounds);
            let limit = room.take(name, limit, values.calls);
            ArgumentLimit {
                name: name.clone(),
                calls: values.calls,
                is_always_sent,
                limit,
            }
        })
        .collect()
}

fn justified(tool: &ToolEvidence, values: &Values, schema: &Value, bounds: bool) -> Limit {
    if tool.without_arguments > 0 {
        return Limit::Open(OpenReason::NotRecorded);
    }
    if tool.calls.succeeded < FEWEST_CALLS {
        return Limit::Open(OpenReason::FewCalls);
    }
    if tool.has_long_number {
        return Limit::Open(OpenReason::LongNumber);
    }
    if values.calls == 0 {
        return Limit::Open(OpenReason::NotSent);
    }
    match (values.variety(), values.range()) {
        (Variety::Few(few), _) if is_every_value(&few, schema) => {
            Limit::Open(OpenReason::EveryValue)
        }
        (Variety::Few(few), _) if is_pin(&few, values, tool) => {
            let (value, _) = few.into_iter().next().expect("a pin is one value");
            Limit::Pin(value)
        }
        (Variety::Few(few), None) => Limit::OneOf(few),
        (Variety::Few(few), Some(_)) if Wording::of(schema) == Wording::Fixed => Limit::OneOf(few),
        (Variety::Few(_) | Variety::Many, Some((low, high))) => match bounds {
            true => Limit::Range(low.clone(), high.clone()),
            false => Limit::Open(OpenReason::Number),
        },
        (Variety::Many, None) => Limit::Open(OpenReason::ManyValues),
        (Variety::Text, _) => Limit::Open(OpenReason::Text),
        (Variety::Time, _) => Limit::Open(OpenReason::Time),
        (Variety::Structure, _) => Limit::Open(OpenReason::Structure),
    }
}

/// The mediator fills in a pinned argument, so a pin would change calls that lack it.
fn is_pin(few: &[(Value, u64)], values: &Values, tool: &ToolEvidence) -> bool {
    matches!(few, [(value, _)] if !value.is_null()) && values.calls == tool.calls.succeeded
}

/// Returns whether a list of these values would not narrow the argument's own schema.
fn is_every_value(few: &[(Value, u64)], schema: &Value) -> bool {
    let has = |value: &Value| few.iter().any(|(seen, _)| seen == value);
    let constant = schema.get("const").into_iter();
    match schema.get("enum").and_then(Value::as_array) {
        Some(accepted) => accepted.iter().all(has),
        None if schema.get("const").is_some() => constant.into_iter().all(has),
        None => few.len() > 1 && [true, false].map(Value::Bool).iter().all(has),
    }
}

/// The room that the limits of one entry have left.
#[derive(Debug, Default)]
struct Room {
    pins: usize,
    listed: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, name: &str, limit: Limit, calls: u64) -> Limit {
        let limit = match limit {
            Limit::Open(_) => return limit,
            Limit::Pin(value) if self.pins == MOST_PINS => Limit::OneOf(vec![(value, calls)]),
            Limit::Pin(_) | Limit::OneOf(_) | Limit::Range(..) => limit,
        };
        // A name is in `properties` and in `required`, each with quotes and commas.
        let bytes = 2 * name.len()
            + 64
            + match &limit {
                Limit::Pin(value) => value.to_string().len(),
                Limit::OneOf(values) => values.iter().map(|(it, _)| it.to_string().len() + 1).sum(),
                Limit::Range(..) | Limit::Open(_) => 0,
            };
        let is_pin = matches!(limit, Limit::Pin(_));
        if self.bytes + bytes > MOST_BYTES || !is_pin && self.listed == MOST_LISTED {
            return Limit::Open(OpenReason::NoRoom);
        }
        self.bytes += bytes;
        match is_pin {
            true => self.pins += 1,
            false => self.listed += 1,
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use toolcrib_compile::ObjectRef;

    use super::super::values::MOST_VALUES;
    use super::*;

    /// The limits of a tool whose 100 arguments have these values in turn.
    fn of_many(values: &[String]) -> Vec<ArgumentLimit> {
        let names = (0..100).map(|n| format!("argument-{n:02}"));
        let offer = OfferedTool {
            surface: ObjectRef::new("pond", "fish"),
            name: "take".to_owned(),
            arguments: names.map(|name| (name, json!({}))).collect(),
            schema: serde_json::Map::new(),
        };
        let mut all = Values::default();
        for n in 0..24 {
            all.add(&json!(values[n % values.len()]), Wording::Free);
        }
        let mut tool = ToolEvidence::default();
        tool.calls.succeeded = 24;
        tool.arguments = offer
            .arguments
            .keys()
            .map(|it| (it.clone(), all.clone()))
            .collect();
        limits(&tool, &offer, false)
    }

    fn numbers(limits: &[ArgumentLimit]) -> BTreeMap<&'static str, usize> {
        let mut numbers = BTreeMap::new();
        for argument in limits {
            let name = match &argument.limit {
                Limit::Pin(_) => "pin",
                Limit::OneOf(_) => "list",
                Limit::Range(..) => "range",
                Limit::Open(reason) => reason.words(),
            };
            *numbers.entry(name).or_default() += 1;
        }
        numbers
    }

    #[test]
    fn reasons_name_the_numbers_in_force() {
        let few = format!("fewer than {FEWEST_CALLS} calls");
        assert_eq!(OpenReason::FewCalls.words(), few);
        let many = format!("more than {MOST_VALUES} values");
        assert_eq!(OpenReason::ManyValues.words(), many);
    }

    #[test]
    fn limits_are_within_the_bounds_of_a_grant() {
        let few = of_many(&["a".to_owned()]);
        let room = OpenReason::NoRoom.words();
        assert_eq!(
            numbers(&few),
            BTreeMap::from([("list", 63), ("pin", 16), (room, 21)])
        );

        let long: Vec<String> = (0..8).map(|n| format!("{n}{}", "x".repeat(60))).collect();
        let many = of_many(&long);
        let written: usize = many
            .iter()
            .filter_map(|argument| match &argument.limit {
                Limit::OneOf(values) => {
                    let list: Vec<&Value> = values.iter().map(|(value, _)| value).collect();
                    let name = argument.name.as_str();
                    let text = json!({"properties": {name: {"enum": list}}, "required": [name]});
                    Some(text.to_string().len())
                }
                Limit::Pin(_) | Limit::Range(..) | Limit::Open(_) => None,
            })
            .sum();
        assert!((4 * 1024..8 * 1024).contains(&written), "{written}");
        assert!(numbers(&many).contains_key(room));
    }
}
