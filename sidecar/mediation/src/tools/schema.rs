//! The JSON Schema of a tool: the part that the model sees, and the check of arguments against the
//! whole of it.
//!
//! `toolcrib_bounds::schema` bounds one schema and one check, for compile as well. This module
//! bounds all tools of an agent together: validators are built on first use, and the least recently
//! used ones are dropped.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use toolcrib_bounds::arguments::{Arguments, in_other_case};
use toolcrib_bounds::json::number;
use toolcrib_bounds::schema::{
    CountedCheck, Rejection, Schema as Counted, Validator, Violation, Violations,
};
use toolcrib_bounds::{cut, listed};
use toolcrib_dialect::json::{Array, Change, Object, canonical};
use toolcrib_manifest::names::CLAW_ID;

/// Limits the bytes of a key that an error message quotes.
pub(crate) const MAX_KEY: usize = 64;

/// Limits the bytes of the validators that one catalog keeps, by the counts of their schemas. The
/// validator in use is kept whatever its size; `toolcrib_bounds` bounds it alone.
const MAX_KEPT_BYTES: usize = 48 * 1024 * 1024;

/// A schema whose cost was counted.
#[derive(Debug)]
pub(crate) struct Schema {
    text: String,
    declares_claw_id: bool,
    validators: Arc<Validators>,
    /// Key among `validators`.
    id: usize,
}

/// The recently used validators of one catalog.
#[derive(Debug, Default)]
pub(crate) struct Validators(Mutex<ValidatorCache>);

#[derive(Debug, Default)]
struct ValidatorCache {
    ids: usize,
    /// The most recently used one is last.
    built: Vec<(usize, Arc<SchemaValidators>)>,
    weight: usize,
}

/// The validators that check one schema.
#[derive(Debug)]
struct SchemaValidators {
    schema: Value,
    validator: Validator,
    declared: Arguments,
    /// Accepts a name that `patternProperties` declare.
    patterns: Option<Validator>,
}

/// The names that a check accepts, in addition to the schema's rules on values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Top-level names that the schema declares or leaves open; at any depth, no name that differs
    /// only in case from a declared one.
    Declared,
    /// No name that differs only in case from a declared one.
    Unambiguous,
}

/// Limits the bytes of the violations in a result. Lists of names at their bounds fit.
pub(crate) const MAX_VIOLATIONS: usize = 4096;
/// Limits the names of declared arguments that an error lists.
const MAX_NAMED: usize = 32;
/// Limits the names of undeclared arguments that an error lists.
const MAX_UNDECLARED: usize = 5;
/// The rule by which a schema refuses names that it does not declare.
const CLOSED: &str = "/additionalProperties";

/// The reason for which arguments were rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentsRejection {
    /// The schema itself cannot be used.
    Unusable,
    /// The check would take too long.
    TooLarge,
    /// A number whose parsed value differs from the digits that the service gets.
    Rounded { number: String },
    /// The violations of the schema, and of the rules on names.
    Invalid(Violations),
}

impl Validators {
    fn id(&self) -> usize {
        let mut recent = self.0.lock();
        recent.ids += 1;
        recent.ids
    }

    /// Returns the validator of a schema, built if it is not kept. `None` if the schema cannot be
    /// used.
    fn get(&self, id: usize, text: &str) -> Option<Arc<SchemaValidators>> {
        let mut recent = self.0.lock();
        if let Some(at) = recent.built.iter().position(|(known, _)| *known == id) {
            let found = recent.built.remove(at);
            let compiled = Arc::clone(&found.1);
            recent.built.push(found);
            return Some(compiled);
        }
        let compiled = Arc::new(SchemaValidators::read(text)?);
        recent.make_room(compiled.weight());
        recent.built.push((id, Arc::clone(&compiled)));
        Some(compiled)
    }
}

impl ValidatorCache {
    fn make_room(&mut self, weight: usize) {
        self.weight += weight;
        while self.weight > MAX_KEPT_BYTES && !self.built.is_empty() {
            let (_, oldest) = self.built.remove(0);
            self.weight -= oldest.weight();
        }
    }
}

impl Schema {
    /// Returns `None` if the text is not a schema for a tool's arguments, or exceeds a bound.
    pub(crate) fn read(text: &str, validators: &Arc<Validators>) -> Option<Self> {
        Counted::read(text).ok()?;
        let root = Object::scan(text).ok()?;
        let declares_claw_id = root
            .get(text, "properties")
            .and_then(|properties| Object::scan(properties).ok())
            .is_some_and(|properties| properties.member(CLAW_ID).is_some());
        Some(Self {
            text: text.to_string(),
            declares_claw_id,
            validators: Arc::clone(validators),
            id: validators.id(),
        })
    }

    pub(crate) fn declares_claw_id(&self) -> bool {
        self.declares_claw_id
    }

    /// Checks arguments as they would be executed; `text` is the source of `arguments`. The service
    /// gets the digits of the text, so a number whose value was rounded is rejected.
    pub(crate) fn check_arguments(
        &self,
        arguments: &Value,
        text: &str,
        names: Names,
    ) -> Result<(), ArgumentsRejection> {
        let compiled = self.compiled()?;
        let check = compiled.validator.counted(arguments)?;
        compiled.unambiguous(arguments)?;
        let undeclared = match names {
            Names::Declared => compiled.undeclared(arguments),
            Names::Unambiguous => None,
        };
        if let (true, Some(number)) = (
            compiled.validator.compares_numbers(),
            number::first_rounded(text),
        ) {
            return Err(match undeclared {
                Some(undeclared) => ArgumentsRejection::Invalid(undeclared.into()),
                None => ArgumentsRejection::Rounded {
                    number: number.to_owned(),
                },
            });
        }
        checked_beside(undeclared, check)
    }

    /// Checks a service's result. The model gets the digits of the text and nothing acts on them,
    /// so rounded numbers are accepted.
    pub(crate) fn check_result(&self, result: &Value) -> Result<(), ArgumentsRejection> {
        Ok(self.compiled()?.validator.check(result)?)
    }

    fn compiled(&self) -> Result<Arc<SchemaValidators>, ArgumentsRejection> {
        self.validators
            .get(self.id, &self.text)
            .ok_or(ArgumentsRejection::Unusable)
    }
}

impl SchemaValidators {
    fn read(text: &str) -> Option<Self> {
        let schema: Value = serde_json::from_str(text).ok()?;
        let declared = Arguments::declared(&schema);
        let patterns: Vec<Value> = declared
            .patterns
            .iter()
            .map(|pattern| json!({ "pattern": pattern }))
            .collect();
        let patterns = match patterns.is_empty() {
            true => None,
            false => Some(Validator::read(&json!({ "anyOf": patterns }).to_string()).ok()?),
        };
        Some(Self {
            validator: Validator::read(text).ok()?,
            schema,
            declared,
            patterns,
        })
    }

    /// Upper bound of the bytes that it keeps; the validator's count includes the schema's value.
    fn weight(&self) -> usize {
        let patterns = self.patterns.as_ref().map_or(0, Validator::weight);
        self.validator.weight() + patterns
    }

    /// Rejects a name that a lax reader takes for a declared one, since its value was not checked.
    fn unambiguous(&self, arguments: &Value) -> Result<(), ArgumentsRejection> {
        let Some(other) = in_other_case(&self.schema, arguments) else {
            return Ok(());
        };
        let (name, declared) = (cut(other.name, MAX_KEY), cut(other.declared, MAX_KEY));
        let violation = Violation {
            message: format!("`{name}` could be read as `{declared}`: write `{declared}`"),
            path: String::new(),
            rule: "/properties".into(),
        };
        Err(ArgumentsRejection::Invalid(violation.into()))
    }

    /// Returns the violation by undeclared top-level arguments. Runs after the evaluation count, in
    /// which each pattern is one evaluation per argument.
    fn undeclared(&self, arguments: &Value) -> Option<Violation> {
        let by_pattern = |name: &str| {
            let patterns = self.patterns.as_ref();
            patterns.is_some_and(|patterns| patterns.accepts(&Value::from(name)))
        };
        let names = arguments.as_object().into_iter().flatten();
        let names: Vec<&str> = names
            .map(|(name, _)| name.as_str())
            .filter(|name| !self.declared.takes(name) && !by_pattern(name))
            .collect();
        let first = cut(names.first()?, MAX_KEY);
        let named = names.iter().map(|name| quoted(name));
        let named = listed(named, MAX_UNDECLARED);
        let are = match names.len() {
            1 => "is not an argument",
            _ => "are not arguments",
        };
        Some(Violation {
            message: format!("{named} {are} of this tool; {}", self.declared_arguments()),
            path: format!("/{}", first.replace('~', "~0").replace('/', "~1")),
            rule: CLOSED.into(),
        })
    }

    /// Lists the declared arguments, for the message about an undeclared one.
    fn declared_arguments(&self) -> String {
        let own = |name: &&String| name.as_str() != CLAW_ID;
        let names: Vec<&String> = self.declared.names.iter().filter(own).collect();
        let named = listed(names.iter().map(|name| quoted(name)), MAX_NAMED);
        match (names.is_empty(), self.patterns.is_some()) {
            (true, false) => "it has none".into(),
            (true, true) => "its arguments follow a pattern".into(),
            (false, false) => format!("its arguments are {named}"),
            (false, true) => {
                format!("its arguments are {named}, and those that follow a pattern")
            }
        }
    }
}

/// Checks values, and names the undeclared arguments before the other violations.
fn checked_beside(
    undeclared: Option<Violation>,
    check: CountedCheck<'_>,
) -> Result<(), ArgumentsRejection> {
    let checked = check.run();
    let Some(undeclared) = undeclared else {
        return Ok(checked?);
    };
    let violations = match checked {
        // A closed schema refuses the same names, by the same rule.
        Err(Rejection::Invalid(others)) => others.preceded_by(undeclared),
        Ok(()) | Err(Rejection::TooLarge) => undeclared.into(),
    };
    Err(ArgumentsRejection::Invalid(violations))
}

impl From<Rejection> for ArgumentsRejection {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::TooLarge => Self::TooLarge,
            Rejection::Invalid(violations) => Self::Invalid(violations),
        }
    }
}

/// Removes `claw_id`, which the mediator supplies, from `properties` and `required`; every other
/// byte stays. `None` if the schema is not an object.
pub(crate) fn shown_schema(text: &str) -> Option<String> {
    let root = Object::scan(text).ok()?;
    if !text.contains(CLAW_ID) && !text.contains('\\') {
        return Some(text.to_string());
    }
    let shown = root.edit(
        text,
        |member| {
            let raw = &text[member.value.clone()];
            match member.key.as_str() {
                "properties" => without_member(raw),
                "required" => without_element(raw),
                _ => Change::Keep,
            }
        },
        &[],
    );
    Some(shown)
}

fn without_member(raw: &str) -> Change {
    let Ok(properties) = Object::scan(raw) else {
        return Change::Keep;
    };
    if properties.member(CLAW_ID).is_none() {
        return Change::Keep;
    }
    Change::Set(properties.edit(
        raw,
        |member| match member.key.as_str() {
            CLAW_ID => Change::Drop,
            _ => Change::Keep,
        },
        &[],
    ))
}

fn without_element(raw: &str) -> Change {
    let Ok(required) = Array::scan(raw) else {
        return Change::Keep;
    };
    let names: Vec<bool> = required
        .texts(raw)
        .map(|name| canonical(name).as_deref() == Some("\"claw_id\""))
        .collect();
    if !names.contains(&true) {
        return Change::Keep;
    }
    // Draft 4 requires at least one name in `required`, so an empty list is removed.
    if names.iter().all(|claw_id| *claw_id) {
        return Change::Drop;
    }
    Change::Set(required.edit(
        raw,
        |at| {
            if names[at] {
                Change::Drop
            } else {
                Change::Keep
            }
        },
        &[],
    ))
}

/// Quotes the beginning of an argument's name.
fn quoted(name: &str) -> String {
    format!("`{}`", cut(name, MAX_KEY))
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use serde_json::json;

    use super::*;

    /// Tools of about one megabyte each by their count.
    fn tools(count: usize, validators: &Arc<Validators>) -> Vec<Schema> {
        let properties: serde_json::Map<String, Value> = (0..900)
            .map(|at| (format!("p{at}"), json!({"type": "string", "minLength": 1})))
            .collect();
        (0..count)
            .map(|at| {
                let schema = json!({"properties": properties, "title": at.to_string()});
                Schema::read(&schema.to_string(), validators).expect("is taken")
            })
            .collect()
    }

    #[test]
    fn validators_of_all_tools_are_bounded() {
        let validators = Arc::new(Validators::default());
        let tools = tools(60, &validators);
        let used = measure(|| {
            for tool in &tools {
                tool.check_arguments(&json!({"p1": "x"}), "{}", Names::Declared)
                    .expect("fits");
            }
        });
        let kept = |validators: &Validators| {
            let recent = validators.0.lock();
            let weights: usize = recent.built.iter().map(|(_, built)| built.weight()).sum();
            assert_eq!(weights, recent.weight);
            (recent.built.len(), weights)
        };
        let (count, weight) = kept(&validators);
        assert!(count > 1 && count < 60, "{count}");
        assert!(weight <= MAX_KEPT_BYTES, "{weight}");
        assert!(used.bytes_current < MAX_KEPT_BYTES as i64, "{used:?}");
        // The first validator was dropped and is built again; the last ones stay.
        tools[0]
            .check_arguments(&json!({}), "{}", Names::Declared)
            .expect("fits");
        let last = tools.last().expect("there are some");
        let used = measure(|| {
            last.check_arguments(&json!({}), "{}", Names::Declared)
                .expect("fits")
        });
        assert!(used.bytes_max < 4096, "{used:?}");
        assert!(kept(&validators).1 <= MAX_KEPT_BYTES);
    }

    #[test]
    fn patterns_that_expand_are_refused_before_they_take_memory() {
        let properties: serde_json::Map<String, Value> = (0..400)
            .map(|at| {
                (
                    format!("p{at}"),
                    json!({"pattern": format!(r"\p{{L}}{{60}}k{at}")}),
                )
            })
            .collect();
        let bomb = json!({"properties": properties}).to_string();
        let used = measure(|| assert!(Schema::read(&bomb, &Arc::default()).is_none()));
        assert!(used.bytes_max < 2 * 1024 * 1024, "{used:?}");
    }
}
