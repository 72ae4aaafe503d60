//! A tool's JSON Schema: what the model is shown of it, and the check of arguments
//! against the whole of it.
//!
//! The schema is a stranger's and the arguments are a model's, so one check is bounded by
//! what is counted before it: 256 KiB of schema, 20,000 nodes with what they list, five
//! million evaluations (a tenth of a second or so), 100,000 steps of one backtracking
//! pattern. A schema beyond it makes its tool unsupported; arguments beyond it are refused.

use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Value, json};
use toolcrib_bounds::arguments::{Arguments, in_other_case};
use toolcrib_bounds::cut;
use toolcrib_dialect::json::{Array, Change, Object, canonical};
use toolcrib_manifest::names::CLAW_ID;

use crate::arguments::MAX_KEY;
use crate::schema::cost::Cost;

mod cost;

/// Evaluations (a schema node on an argument node) that one check may take; some tens
/// of nanoseconds each.
const MAX_EVALUATIONS: u64 = 5_000_000;
/// Bytes of a schema; compile's own limit is lower.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// Steps of a backtracking pattern; linear patterns never get there.
const BACKTRACK_LIMIT: usize = 100_000;

/// Compiled when the first call needs it.
#[derive(Debug)]
pub(crate) struct Schema {
    text: String,
    declares_claw_id: bool,
    compiled: OnceLock<Option<Compiled>>,
}

#[derive(Debug)]
struct Compiled {
    schema: Value,
    validator: Validator,
    cost: Cost,
    declared: Arguments,
    /// Takes a name that `patternProperties` declare.
    patterns: Option<Validator>,
}

/// Which names a check accepts beside what the schema says of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// At the top level those that the schema declares, or opens itself to; at any depth none
    /// that differ only in case from a declared one.
    Declared,
    /// None that differ only in case from a declared one.
    Unambiguous,
    /// All that the schema does not forbid.
    Any,
}

/// Names of declared arguments that an error repeats.
const MAX_NAMED: usize = 32;

/// Why arguments were not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The schema itself cannot be used.
    Unusable,
    /// The check would take too long.
    TooLarge,
    /// What is wrong, where in the arguments, and which rule of the schema says so.
    Invalid {
        message: String,
        path: String,
        rule: String,
    },
}

impl Schema {
    /// `None`: not an object, or too large.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_SCHEMA_BYTES {
            return None;
        }
        let root = Object::scan(text).ok()?;
        let declares_claw_id = root
            .get(text, "properties")
            .and_then(|properties| Object::scan(properties).ok())
            .is_some_and(|properties| properties.member(CLAW_ID).is_some());
        Some(Self {
            text: text.to_string(),
            declares_claw_id,
            compiled: OnceLock::new(),
        })
    }

    pub(crate) fn declares_claw_id(&self) -> bool {
        self.declares_claw_id
    }

    /// Checks arguments as they would be executed.
    pub(crate) fn check(&self, arguments: &Value, names: Names) -> Result<(), Rejected> {
        let compiled = self
            .compiled
            .get_or_init(|| compile(&self.text))
            .as_ref()
            .ok_or(Rejected::Unusable)?;
        if compiled.cost.evaluations(arguments) > MAX_EVALUATIONS {
            return Err(Rejected::TooLarge);
        }
        match names {
            Names::Declared => {
                compiled.unambiguous(arguments)?;
                compiled.declared(arguments)?;
            }
            Names::Unambiguous => compiled.unambiguous(arguments)?,
            Names::Any => {}
        }
        compiled
            .validator
            .validate(arguments)
            .map_err(|error| Rejected::Invalid {
                // Masked: the message must not repeat a long value back.
                message: error.masked().to_string(),
                path: error.instance_path().to_string(),
                rule: error.schema_path().to_string(),
            })
    }
}

impl Compiled {
    /// No name reads as a declared one that was not checked.
    fn unambiguous(&self, arguments: &Value) -> Result<(), Rejected> {
        let Some(other) = in_other_case(&self.schema, arguments) else {
            return Ok(());
        };
        let (name, declared) = (cut(other.name, MAX_KEY), cut(other.declared, MAX_KEY));
        Err(Rejected::Invalid {
            message: format!("`{name}` could be read as `{declared}`: write `{declared}`"),
            path: String::new(),
            rule: "/properties".into(),
        })
    }

    /// The top-level arguments are declared ones. Runs after the count of evaluations, of which
    /// each pattern is one per argument.
    fn declared(&self, arguments: &Value) -> Result<(), Rejected> {
        let by_pattern = |name: &str| {
            let patterns = self.patterns.as_ref();
            patterns.is_some_and(|patterns| patterns.is_valid(&Value::from(name)))
        };
        let names = arguments.as_object().into_iter().flatten();
        let undeclared = names
            .map(|(name, _)| name.as_str())
            .find(|name| !self.declared.takes(name) && !by_pattern(name));
        let Some(name) = undeclared else {
            return Ok(());
        };
        let name = cut(name, MAX_KEY);
        Err(Rejected::Invalid {
            message: format!("`{name}` is no argument of this tool; {}", self.listed()),
            path: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            rule: "/additionalProperties".into(),
        })
    }

    /// The declared arguments, for whoever wrote another one.
    fn listed(&self) -> String {
        let own = |name: &&String| name.as_str() != CLAW_ID;
        let names = self.declared.names.iter().filter(own);
        let named: Vec<String> = names
            .clone()
            .take(MAX_NAMED)
            .map(|name| format!("`{}`", cut(name, MAX_KEY)))
            .collect();
        let more = match names.count().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        match (named.is_empty(), self.patterns.is_some()) {
            (true, false) => "it has none".into(),
            (true, true) => "its arguments follow a pattern".into(),
            (false, false) => format!("its arguments are {}{more}", named.join(", ")),
            (false, true) => {
                let named = named.join(", ");
                format!("its arguments are {named}{more}, and those that follow a pattern")
            }
        }
    }
}

/// The schema without `claw_id`, which the mediator supplies: taken out of `properties`
/// and `required`; every other byte stays. `None`: not an object.
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
    // Draft 4 wants at least one name in `required`, so an empty one goes as a whole.
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

fn compile(text: &str) -> Option<Compiled> {
    let schema: Value = serde_json::from_str(text).ok()?;
    let cost = Cost::of(&schema)?;
    let declared = Arguments::declared(&schema);
    let patterns: Vec<Value> = declared
        .patterns
        .iter()
        .map(|pattern| json!({ "pattern": pattern }))
        .collect();
    let patterns = match patterns.is_empty() {
        true => None,
        false => Some(validator(&json!({ "anyOf": patterns }))?),
    };
    Some(Compiled {
        validator: validator(&schema)?,
        schema,
        cost,
        declared,
        patterns,
    })
}

fn validator(schema: &Value) -> Option<Validator> {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
        .build(schema)
        .ok()
}
