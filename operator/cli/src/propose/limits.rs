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
