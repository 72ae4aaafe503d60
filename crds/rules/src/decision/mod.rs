//! The decision on one call: the rules that it meets, and the arguments that are filled in.

use std::collections::BTreeMap;

use serde_json::Value;
use toolcrib_bounds::cut;
use toolcrib_bounds::json::pointer::field_path;
use toolcrib_bounds::schema::{Rejection, Violations};

use crate::rule::{PINS, Pin, Rule};

/// Rules that a refusal names, the nearest first.
const NAMED: usize = 3;
/// Limits the bytes of a pinned argument's name in a message.
const MAX_NAME: usize = 64;

/// A call that may run.
#[derive(Clone, Debug)]
pub struct Decision<'r, E> {
    /// The rules that the call meets, in the order of the files. Never empty.
    pub met: Vec<&'r Rule>,
    /// Names and JSON texts of the arguments to add.
    pub filled: Vec<(&'r str, &'r str)>,
    /// The refusal that the call would have had without rules that are tried out.
    pub would_deny: Option<Refusal<E>>,
}

/// The conditions of a rule that one check covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Pinned arguments, schema and `when`.
    All,
    /// Pinned arguments alone: the conditions that are enforced for a rule that is tried out.
    Pins,
}

/// The reason for which no rule allows a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// No rule stands at this time.
    NoRule,
    /// The tool's own schema refuses the arguments, as the caller's check says.
    Arguments(E),
    /// The arguments leave out a pinned argument that has several possible values.
    Ambiguous { names: Vec<String> },
    /// No rule is met: the mismatches of the nearest rules.
    Unmet(Vec<Mismatch>),
}

/// The reason for which a call does not meet one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The rule refuses the arguments.
    Arguments {
        /// By its schema, and by the values that it fixes.
        violations: Violations,
        /// Whether an argument has another value than the one that the rule fixes.
        is_pinned: bool,
    },
    /// A condition does not hold; these are its words.
    Condition { message: String },
    /// A number has more digits than the check can compare.
    Rounded { number: String },
    /// The arguments are too large to be checked, or the rule cannot be.
    Unchecked,
}

impl From<Rejection> for Mismatch {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::TooLarge => Self::Unchecked,
            Rejection::Invalid(mut violations) => {
                let mut is_pinned = false;
                for violation in violations.iter_mut() {
                    if !violation.path.is_empty() && violation.rule.starts_with(PINS) {
                        is_pinned = true;
                        // The value of a pin is not for the caller to read.
                        let name = field_path(&violation.path);
                        let name = cut(&name, MAX_NAME);
                        violation.message = format!("`{name}` is fixed: leave it out");
                    }
                }
                Self::Arguments {
                    violations,
                    is_pinned,
                }
            }
        }
    }
}

impl Mismatch {
    /// Arguments that match a schema but for one value are nearer than those with a foreign value in
    /// a pinned argument: the model cannot choose another rule's value by accident.
    fn distance(&self) -> u8 {
        match self {
            Self::Arguments {
                is_pinned: false, ..
            }
            | Self::Condition { .. }
            | Self::Rounded { .. } => 0,
            Self::Arguments {
                is_pinned: true, ..
            } => 1,
            Self::Unchecked => 2,
        }
    }
}

/// Decides a call with these arguments, an object.
///
/// `rules` are the ones that stand and whose window is open, in the order of the files. `meets` checks
/// arguments against [`Rule::schema`] and [`Rule::when`], or against [`Rule::pins_schema`]; `fits`
/// against the tool's own schema. If the arguments meet a rule as they are, nothing is filled in.
/// Otherwise the smallest set of pinned arguments that meets a rule is filled in; the call is
/// ambiguous if two rules need different values.
///
/// All rules are first taken as enforced. If they refuse the call, a rule that is tried out allows it by
/// its pinned arguments alone. So such a rule only adds to the calls that may run.
///
/// Checks each rule at most three times, and one that is tried out six times.
pub fn decide<'r, E>(
    rules: &[&'r Rule],
    arguments: &Value,
    mut meets: impl FnMut(&Rule, Coverage, &Value) -> Result<(), Mismatch>,
    mut fits: impl FnMut(&Value) -> Result<(), E>,
) -> Result<Decision<'r, E>, Refusal<E>> {
    let all = |rule: &Rule, value: &Value| meets(rule, Coverage::All, value);
    let refusal = match enforced(rules, arguments, all, &mut fits) {
        Ok(decision) => return Ok(decision),
        Err(refusal) => refusal,
    };
    let audits = rules.iter().copied().filter(|rule| rule.is_audit());
    let audits: Vec<&Rule> = audits.collect();
    if audits.is_empty() {
        return Err(refusal);
    }
    let pins = |rule: &Rule, value: &Value| meets(rule, Coverage::Pins, value);
    // An error names what the call lacks beyond the limits that are tried out.
    enforced(&audits, arguments, pins, &mut fits).map(|decision| Decision {
        would_deny: Some(refusal),
        ..decision
    })
}

fn enforced<'r, E>(
    rules: &[&'r Rule],
    arguments: &Value,
    mut meets: impl FnMut(&Rule, &Value) -> Result<(), Mismatch>,
    mut fits: impl FnMut(&Value) -> Result<(), E>,
) -> Result<Decision<'r, E>, Refusal<E>> {
    if rules.is_empty() {
        return Err(Refusal::NoRule);
    }
    // A rule requires its pinned arguments, so these arguments meet no rule that has others. Most calls
    // leave pinned arguments out.
    let has_pins = |rule: &&Rule| missing(rule, arguments).is_empty();
    let mut met: Vec<&Rule> = rules.iter().copied().filter(has_pins).collect();
    match met.is_empty() || fits(arguments).is_err() {
        true => met.clear(),
        false => met.retain(|rule| meets(rule, arguments).is_ok()),
    }
    if !met.is_empty() {
        return Ok(Decision {
            met,
            filled: Vec::new(),
            would_deny: None,
        });
    }
    let mut attempts = Attempts::default();
    for rule in rules {
        let pins = missing(rule, arguments);
        let candidate = with(arguments, &pins);
        if let Err(mismatch) = meets(rule, &candidate) {
            attempts.unmet.push(mismatch);
        } else if let Err(error) = fits(&candidate) {
            attempts.unfit.get_or_insert(error);
        } else {
            let values = pins
                .into_iter()
                .map(|pin| (pin.name.as_str(), pin))
                .collect();
            attempts.possible.push(CandidateRule {
                rule,
                pins: values,
                filled: candidate,
            });
        }
    }
    let possible = attempts.possible;
    let fewest = possible
        .iter()
        .find(|it| possible.iter().all(|other| is_part(&it.pins, &other.pins)));
    if let Some(fewest) = fewest {
        // Rules with the same pins were checked with these arguments.
        let is_checked = |rule: &Rule| {
            let mut possible = possible.iter();
            possible.any(|it| std::ptr::eq(it.rule, rule) && is_part(&it.pins, &fewest.pins))
        };
        let met = rules.iter().copied();
        return Ok(Decision {
            met: met
                .filter(|rule| is_checked(rule) || meets(rule, &fewest.filled).is_ok())
                .collect(),
            filled: fewest
                .pins
                .iter()
                .map(|(name, pin)| (*name, pin.text.as_str()))
                .collect(),
            would_deny: None,
        });
    }
    if !possible.is_empty() {
        return Err(Refusal::Ambiguous {
            names: differing(&possible),
        });
    }
    // If a rule is met, the tool's own schema refuses the call; otherwise the rules do. The error for the
    // arguments without their pins is not used: the pins may be required.
    Err(match attempts.unfit {
        Some(error) => Refusal::Arguments(error),
        None => Refusal::Unmet(nearest(attempts.unmet)),
    })
}

/// Returns whether all these values are among the others.
fn is_part(pins: &BTreeMap<&str, &Pin>, others: &BTreeMap<&str, &Pin>) -> bool {
    pins.iter().all(|(name, pin)| {
        let other = others.get(name);
        other.is_some_and(|other| other.value == pin.value)
    })
}

/// A rule that would be met, with its pinned arguments filled in.
struct CandidateRule<'r> {
    rule: &'r Rule,
    pins: BTreeMap<&'r str, &'r Pin>,
    filled: Value,
}

/// The results of all rules, each with its own pins filled in.
struct Attempts<'r, E> {
    possible: Vec<CandidateRule<'r>>,
    unmet: Vec<Mismatch>,
    unfit: Option<E>,
}

impl<E> Default for Attempts<'_, E> {
    fn default() -> Self {
        Self {
            possible: Vec::new(),
            unmet: Vec::new(),
            unfit: None,
        }
    }
}

fn missing<'r>(rule: &'r Rule, arguments: &Value) -> Vec<&'r Pin> {
    match arguments.as_object() {
        Some(members) => rule.missing(members),
        None => Vec::new(),
    }
}

fn with(arguments: &Value, pins: &[&Pin]) -> Value {
    let mut candidate = arguments.clone();
    if let Some(members) = candidate.as_object_mut() {
        members.extend(pins.iter().map(|pin| (pin.name.clone(), pin.value.clone())));
    }
    candidate
}

fn nearest(mut unmet: Vec<Mismatch>) -> Vec<Mismatch> {
    unmet.sort_by_key(Mismatch::distance);
    unmet.dedup();
    unmet.truncate(NAMED);
    unmet
}

/// The names of the pinned arguments whose values differ between the possibilities.
fn differing(possible: &[CandidateRule<'_>]) -> Vec<String> {
    let Some((first, others)) = possible.split_first() else {
        return Vec::new();
    };
    let mut names: Vec<&str> = possible
        .iter()
        .flat_map(|it| it.pins.keys().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    let differs = |name: &&str| {
        let value = |it: &CandidateRule<'_>| it.pins.get(name).map(|pin| pin.value.clone());
        others.iter().any(|other| value(other) != value(first))
    };
    let decisive = names.into_iter().filter(differs);
    decisive.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
