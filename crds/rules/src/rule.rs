//! One rule, read from the files.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use toolcrib_bounds::names::is_same_without_case;
use toolcrib_manifest as manifest;
use toolcrib_manifest::{GrantRef, RawJson};

use crate::expression::{Expression, ExpressionFault, Facts};
use crate::rate::{InvalidRate, Rate};
use crate::window::{Window, WindowState};

/// Limits the comparisons of names with pinned ones. A validator decides on more.
const MOST_COMPARED: usize = 64;

/// A rule whose times and values are parsed.
#[derive(Clone, Debug)]
pub struct Rule {
    digest: String,
    grant: GrantRef,
    window: Window,
    is_audit: bool,
    needs_approval: bool,
    /// Sorted by name.
    pub(crate) pins: Vec<Pin>,
    arguments: Option<Value>,
    /// The conditions on arguments as one schema, for a validator.
    schema: Option<String>,
    /// The pinned arguments alone, of a rule that is tried out.
    pins_schema: Option<String>,
    rates: Vec<Rate>,
    when: Vec<Condition>,
}

/// An expression that must hold of a call.
#[derive(Clone, Debug)]
pub struct Condition {
    pub expression: Expression,
    /// What the model reads if it does not hold.
    pub message: String,
}

/// A top-level argument with its only value.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub name: String,
    /// The digits and bytes of the files.
    pub text: String,
    pub value: Value,
}

/// The part of a rule that cannot be read. Such a rule must not give anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    #[error("{0:?} is not a valid time: write it as 2026-12-31T23:59:59Z")]
    Time(String),
    #[error("the value of {0} cannot be read: write JSON")]
    Pin(String),
    #[error("the schema of the arguments cannot be read: write an object with properties")]
    Arguments,
    #[error(transparent)]
    Rate(#[from] InvalidRate),
    #[error("{fault}")]
    Condition {
        /// Index among the rule's conditions.
        index: usize,
        fault: ExpressionFault,
    },
}

impl Rule {
    /// Reads a rule of the files. The text of [`Rule::schema`] is not checked here: a validator that
    /// cannot be built means that no call meets the rule.
    pub fn read(rule: &manifest::Rule) -> Result<Self, Defect> {
        let manifest::Rule {
            approval,
            arguments,
            audit,
            digest,
            grant,
            not_after,
            not_before,
            pin,
            rate,
            when,
        } = rule;
        let pins = pin
            .iter()
            .map(|(name, value)| Pin::read(name, value))
            .collect::<Result<Vec<_>, _>>()?;
        let arguments = arguments
            .as_ref()
            .map(|text| match serde_json::from_str(text.get()) {
                Ok(value @ Value::Object(_)) => Ok(value),
                Ok(_) | Err(_) => Err(Defect::Arguments),
            })
            .transpose()?;
        Ok(Self {
            digest: digest.clone(),
            grant: grant.clone(),
            window: Window {
                not_before: not_before.as_deref().map(time).transpose()?,
                not_after: not_after.as_deref().map(time).transpose()?,
            },
            rates: rate
                .iter()
                .map(|rate| Rate::read(*rate))
                .collect::<Result<_, _>>()?,
            when: when
                .iter()
                .enumerate()
                .map(|(index, entry)| Condition::read(index, entry))
                .collect::<Result<_, _>>()?,
            schema: schema(&pins, arguments.as_ref()),
            pins_schema: schema(&pins, None).filter(|_| *audit),
            is_audit: *audit,
            needs_approval: *approval,
            pins,
            arguments,
        })
    }

    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The object that has the rule.
    pub fn grant(&self) -> &GrantRef {
        &self.grant
    }

    /// Returns whether the rule is tried out: a call that its schema, rates or `when` would refuse runs
    /// anyway and is recorded. Its window and its pinned arguments are enforced.
    pub fn is_audit(&self) -> bool {
        self.is_audit
    }

    /// Returns whether a person must approve each call that meets the rule.
    pub fn needs_approval(&self) -> bool {
        self.needs_approval
    }

    /// Returns whether the rule has no condition at all.
    pub fn is_unconditional(&self) -> bool {
        !self.needs_approval
            && self.window == Window::default()
            && self.schema.is_none()
            && self.rates.is_empty()
            && self.when.is_empty()
    }

    /// Returns whether the time is in the rule's window.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.window.state(now) == WindowState::Open
    }

    /// Returns the first time after `now` at which the window opens or closes.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.window.next_change(now)
    }

    /// The conditions on arguments as one JSON Schema: values of pinned arguments, and the rule's own
    /// schema. `None`: any arguments meet the rule.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The values of pinned arguments alone as a JSON Schema, for a rule that is tried out.
    pub fn pins_schema(&self) -> Option<&str> {
        self.pins_schema.as_deref()
    }

    /// Returns true if [`Self::schema`] accepts these arguments for sure, without a validator: it has
    /// pinned texts alone, the arguments have them, and no other name could be read as one of theirs.
    /// False says nothing.
    pub fn surely_accepts(&self, arguments: &Value) -> bool {
        let Some(members) = arguments.as_object() else {
            return false;
        };
        if self.arguments.is_some() || members.len() * self.pins.len() > MOST_COMPARED {
            return false;
        }
        let is_other =
            |name: &String, pin: &Pin| *name != pin.name && is_same_without_case(name, &pin.name);
        self.pins.iter().all(|pin| {
            pin.value.is_string()
                && members.get(&pin.name) == Some(&pin.value)
                && !members.keys().any(|name| is_other(name, pin))
        })
    }

    /// The names of the pinned arguments.
    pub fn pinned(&self) -> impl Iterator<Item = &str> {
        self.pins.iter().map(|pin| pin.name.as_str())
    }

    /// How often calls that meet the rule may run, for each tool. All hold together.
    pub fn rates(&self) -> &[Rate] {
        &self.rates
    }

    /// The conditions that must all hold of a call.
    pub fn when(&self) -> &[Condition] {
        &self.when
    }

    /// Returns the first condition that does not hold of a call. `matches` says whether a text matches
    /// a pattern, by the numbers of the condition and of its pattern; `None` if that would take too long.
    pub fn unmet(
        &self,
        facts: &Facts<'_>,
        arguments: &Value,
        mut matches: impl FnMut(usize, usize, &str) -> Option<bool>,
    ) -> Option<&Condition> {
        let mut conditions = self.when.iter().enumerate();
        let unmet = conditions.find(|(at, condition)| {
            let matches = |pattern: usize, text: &str| matches(*at, pattern, text);
            !condition.expression.holds(facts, arguments, matches)
        });
        unmet.map(|(_, condition)| condition)
    }

    /// The rule's schema of the arguments, without pins.
    pub(crate) fn arguments(&self) -> Option<&Value> {
        self.arguments.as_ref()
    }

    /// The pinned arguments that these arguments leave out.
    pub(crate) fn missing<'r>(&'r self, arguments: &Map<String, Value>) -> Vec<&'r Pin> {
        let is_missing = |pin: &&Pin| !arguments.contains_key(&pin.name);
        self.pins.iter().filter(is_missing).collect()
    }
}

impl Pin {
    fn read(name: &str, text: &RawJson) -> Result<Self, Defect> {
        let value = serde_json::from_str(text.get()).map_err(|_| Defect::Pin(name.to_owned()))?;
        Ok(Self {
            name: name.to_owned(),
            text: text.get().to_owned(),
            value,
        })
    }
}

impl Condition {
    fn read(index: usize, entry: &manifest::Condition) -> Result<Self, Defect> {
        let manifest::Condition {
            expression,
            message,
        } = entry;
        let expression = Expression::read(expression);
        Ok(Self {
            expression: expression.map_err(|fault| Defect::Condition { index, fault })?,
            message: message.clone(),
        })
    }
}

fn time(text: &str) -> Result<Timestamp, Defect> {
    text.parse().map_err(|_| Defect::Time(text.to_owned()))
}

/// The place of the pins in [`Rule::schema`], as validators report it.
pub(crate) const PINS: &str = "/allOf/0";

fn schema(pins: &[Pin], arguments: Option<&Value>) -> Option<String> {
    if pins.is_empty() && arguments.is_none() {
        return None;
    }
    let names: Vec<&str> = pins.iter().map(|pin| pin.name.as_str()).collect();
    let values: Map<String, Value> = pins
        .iter()
        .map(|pin| (pin.name.clone(), json!({ "const": pin.value })))
        .collect();
    let mut parts = vec![json!({ "properties": values, "required": names })];
    parts.extend(arguments.cloned());
    Some(json!({ "type": "object", "allOf": parts }).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use toolcrib_bounds::arguments::in_other_case;
    use toolcrib_bounds::schema::Validator;

    use super::*;

    fn read(text: &str) -> Result<Rule, Defect> {
        let read: manifest::Rule = serde_json::from_str(text).expect("a rule");
        Rule::read(&read)
    }

    #[test]
    fn a_window_is_open_from_its_beginning_until_its_end() {
        let rule = read(
            r#"{"digest": "d", "grant": {"namespace": "pond", "name": "a"},
                "not_before": "2026-01-01T00:00:00Z", "not_after": "2026-02-01T01:00:00+01:00"}"#,
        )
        .expect("a rule");
        let check = |at: &str, open: bool, change: Option<&str>| {
            let at = time(at).expect("a time");
            assert_eq!(rule.is_open(at), open, "{at}");
            assert_eq!(
                rule.next_change(at),
                change.map(|at| time(at).expect("a time")),
                "{at}"
            );
        };
        check("2025-12-31T23:59:59Z", false, Some("2026-01-01T00:00:00Z"));
        check("2026-01-01T00:00:00Z", true, Some("2026-02-01T00:00:00Z"));
        check("2026-01-31T23:59:59Z", true, Some("2026-02-01T00:00:00Z"));
        check("2026-02-01T00:00:00Z", false, None);
    }

    #[test]
    fn pinned_texts_are_compared_without_a_validator() {
        let check = |members: &str, arguments: Value, expected: bool| {
            let rule = read(&format!(
                r#"{{"digest": "d", "grant": {{"namespace": "pond", "name": "a"}}, {members}}}"#
            ));
            let rule = rule.expect("a rule");
            assert_eq!(rule.surely_accepts(&arguments), expected, "{arguments}");
        };
        let pins = r#""pin": {"unit": "m", "map": "x"}"#;
        check(pins, json!({"unit": "m", "map": "x", "spot": 1}), true);
        check(pins, json!({"unit": "ft", "map": "x"}), false);
        check(pins, json!({"unit": "m"}), false);
        // A lax reader could take either for the pinned one.
        check(pins, json!({"unit": "m", "map": "x", "Unit": "ft"}), false);
        check(
            pins,
            json!({"unit": "m", "map": "x", "un\u{131}t": "ft"}),
            false,
        );
        check(pins, json!(["m"]), false);
        // Numbers and other conditions are for the validator.
        check(r#""pin": {"n": 1}"#, json!({"n": 1}), false);
        let schema = r#""pin": {"unit": "m"}, "arguments": {"required": ["spot"]}"#;
        check(schema, json!({"unit": "m"}), false);
        let many: Map<String, Value> = (0..200).map(|at| (format!("n{at}"), json!(1))).collect();
        check(r#""pin": {"n0": "1"}"#, Value::Object(many), false);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_a_defect() {
        let with = |member: &str| {
            read(&format!(
                r#"{{"digest": "d", "grant": {{"namespace": "pond", "name": "a"}}, {member}}}"#
            ))
            .err()
        };
        assert_eq!(
            with(r#""not_after": "soon""#),
            Some(Defect::Time("soon".to_owned()))
        );
        assert_eq!(
            with(r#""pin": {"a": 1e999}"#),
            Some(Defect::Pin("a".to_owned()))
        );
        assert_eq!(with(r#""arguments": true"#), Some(Defect::Arguments));
    }

    proptest! {
        #[test]
        fn a_validator_accepts_what_is_surely_accepted(
            pins in btree_map("[aAb]", "[xy]", 0..3),
            arguments in btree_map("[aAbB]", "[xy]", 0..4),
        ) {
            let pin = json!(pins);
            let rule = read(&format!(
                r#"{{"digest": "d", "grant": {{"namespace": "pond", "name": "a"}}, "pin": {pin}}}"#
            ));
            let (rule, arguments) = (rule.expect("a rule"), json!(arguments));
            if let (true, Some(schema)) = (rule.surely_accepts(&arguments), rule.schema()) {
                prop_assert!(Validator::read(schema).expect("a schema").accepts(&arguments));
                let schema: Value = serde_json::from_str(schema).expect("JSON");
                prop_assert!(in_other_case(&schema, &arguments).is_none());
            }
        }
    }
}
