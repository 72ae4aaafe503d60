//! The violations of a schema by one value. The messages quote names of arguments and rules of the
//! schema, never a value.

use jsonschema::ValidationError;
use serde_json::Value;

use super::MAX_SHOWN;
use crate::cut;
use crate::json::pointer::field_path;

/// Limits the violations that a message names.
const MAX_NAMED: usize = 5;
/// Limits the bytes of an argument's path in a message.
const MAX_PATH: usize = 64;
/// Bytes reserved for the number of violations that a message does not name.
const ROOM_FOR_MORE: usize = 24;

/// Upper bound of the memory of one error of the library, in bytes, without its path in the value.
const ERROR_BYTES: u64 = 512;
/// Limits the bytes of all errors of one check: the library collects them before it returns one.
const MAX_ERROR_BYTES: u64 = 16 * 1024 * 1024;

/// One rule of a schema that a value breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The place in the value, unless it is the whole value, and the fault.
    pub message: String,
    /// JSON pointer into the value.
    pub path: String,
    /// JSON pointer into the schema.
    pub rule: String,
}

impl Violation {
    /// Creates a violation by the whole value, without the name of a rule.
    pub(super) fn unlocated(message: &str) -> Self {
        Self {
            message: message.to_owned(),
            path: String::new(),
            rule: String::new(),
        }
    }

    fn read(error: &ValidationError<'_>) -> Self {
        let path = error.instance_path().to_string();
        let fault = error.masked().to_string();
        let fault = cut(&fault, MAX_SHOWN);
        let message = match field_path(&path) {
            argument if argument.is_empty() => fault.into_owned(),
            argument => format!("`{}`: {fault}", cut(&argument, MAX_PATH)),
        };
        Self {
            message,
            path,
            rule: error.schema_path().to_string(),
        }
    }
}

/// The violations by one value: the first ones, and the number of the others. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations {
    first: Violation,
    next: Vec<Violation>,
    /// Number of violations after these.
    more: usize,
}

impl From<Violation> for Violations {
    fn from(first: Violation) -> Self {
        Self {
            first,
            next: Vec::new(),
            more: 0,
        }
    }
}

impl Violations {
    /// Reads the library's errors, sorted by the place in the value, then by the rule. `None` if
    /// there are no errors.
    pub(super) fn read(mut errors: Vec<ValidationError<'_>>) -> Option<Self> {
        // The sort is stable: missing names of one `required` stay in the order of its list.
        errors.sort_by(|one, other| {
            let place = one.instance_path().cmp(other.instance_path());
            place.then_with(|| one.schema_path().cmp(other.schema_path()))
        });
        let (first, others) = errors.split_first()?;
        let named = others.iter().take(MAX_NAMED - 1);
        Some(Self {
            first: Violation::read(first),
            next: named.map(Violation::read).collect(),
            more: others.len().saturating_sub(MAX_NAMED - 1),
        })
    }

    /// Adds a violation at the front, and removes the named violations of the same rule.
    pub fn preceded_by(self, first: Violation) -> Self {
        let others = std::iter::once(self.first).chain(self.next);
        let others: Vec<Violation> = others.filter(|it| it.rule != first.rule).collect();
        let mut all = Self::from(first);
        all.more = self.more + others.len().saturating_sub(MAX_NAMED - 1);
        all.next.extend(others.into_iter().take(MAX_NAMED - 1));
        all
    }

    pub fn first(&self) -> &Violation {
        &self.first
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Violation> {
        std::iter::once(&mut self.first).chain(&mut self.next)
    }

    /// Returns the messages that fit into `bytes` bytes, and the number of the other violations.
    pub fn words(&self, bytes: usize) -> String {
        let count = 1 + self.next.len() + self.more;
        let mut text = cut(&self.first.message, bytes).into_owned();
        let mut named = 1;
        for (at, violation) in self.next.iter().enumerate() {
            let is_last = at + 2 == count;
            let room = if is_last { 0 } else { ROOM_FOR_MORE };
            if text.len() + 2 + violation.message.len() + room > bytes {
                break;
            }
            text.push_str("; ");
            text.push_str(&violation.message);
            named += 1;
        }
        match count - named {
            0 => text,
            more => {
                let room = bytes.saturating_sub(ROOM_FOR_MORE);
                format!("{}; and {more} more", cut(&text, room))
            }
        }
    }
}

/// Returns true if the library may collect the errors of a check with this number of evaluations.
/// Each error has a copy of its path in the value.
pub(super) fn can_be_collected(evaluations: u64, value: &Value) -> bool {
    let each = ERROR_BYTES + longest_path(value);
    evaluations.saturating_mul(each) <= MAX_ERROR_BYTES
}

/// Returns an upper bound of the bytes of a JSON pointer into the value. Recurses as deep as the
/// value nests, which its parser bounds.
fn longest_path(value: &Value) -> u64 {
    // A slash and 20 digits.
    const INDEX: u64 = 21;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => items
            .iter()
            .map(|item| INDEX + longest_path(item))
            .max()
            .unwrap_or_default(),
        Value::Object(members) => members
            .iter()
            // `~` and `/` take two characters in a pointer.
            .map(|(name, member)| 1 + 2 * name.len() as u64 + longest_path(member))
            .max()
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds violations. Each breaks a rule that has the name of its message.
    fn violations(messages: &[&str]) -> Violations {
        let violation = |message: &str| Violation {
            rule: format!("/{message}"),
            ..Violation::unlocated(message)
        };
        let mut last_first = messages.iter().rev().map(|message| violation(message));
        let last = last_first.next().expect("there is one");
        last_first.fold(last.into(), Violations::preceded_by)
    }

    #[test]
    fn words_name_five_violations_and_count_the_others() {
        let check = |messages: &[&str], bytes: usize, expected: &str| {
            let words = violations(messages).words(bytes);
            assert_eq!(words, expected);
            assert!(words.len() <= bytes, "{words}");
        };
        check(&["a"], 100, "a");
        check(&["a", "b"], 100, "a; b");
        check(&["a", "b", "c", "d", "e"], 100, "a; b; c; d; e");
        let seven = ["a", "b", "c", "d", "e", "f", "g"];
        check(&seven, 100, "a; b; c; d; e; and 2 more");
        let long = "x".repeat(40);
        let other = "y".repeat(40);
        check(&["a", &long, "c"], 50, "a; and 2 more");
        check(&[&long, &other], 82, &format!("{long}; {other}"));
        check(&[&long, "b"], 30, "xx …; and 1 more");
    }

    #[test]
    fn a_violation_before_others_takes_the_place_of_its_own_rule() {
        let six = violations(&["a", "b", "c", "d", "e", "f"]);
        let again = Violation {
            rule: "/c".into(),
            ..Violation::unlocated("first")
        };
        assert_eq!(
            six.preceded_by(again).words(100),
            "first; a; b; d; e; and 1 more"
        );
    }
}
