//! Conditions of a grant's entry: its window, the limits on arguments, rates, and `when`.
//!
//! Here: reading them, and checking that a tool can have them. Not here: whether a call meets them
//! (`toolcrib-rules`). Compile has no clock: a window is compiled as written, even if it is over.
//!
//! Checking a schema builds its validator, which takes longer than the rest of a compilation. One
//! grant is compiled into many agents, so verdicts are cached by the checked text.
//!
//! Invariant: conditions that cannot be read, or that a tool cannot have, give nothing.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_bounds::arguments::Arguments;
use toolcrib_bounds::schema::keywords::{UnknownKeyword, keywords, other_type, unknown_keywords};
use toolcrib_bounds::schema::{self, Rejection, Validator};
use toolcrib_crds::{
    ApprovalRule, Approvers, ArgumentRules, ConditionRule, Enforcement, RateRule, ToolGrantSpec,
    ToolRule,
};
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_manifest::{Condition, GrantRef, Rate, RawJson, Rule};
use toolcrib_rules::expression::ExpressionFaultKind;
use toolcrib_rules::{Defect, Rate as ReadRate, Rule as ReadRule, shown_schema};

use crate::canonical::digest::{canonical, sha256};
use crate::canonical::normalize::normalize;
use crate::diagnostics::finding::{Finding, join};
use crate::surface::schema::field as field_of;
use crate::{Code, near};

/// Limits the bytes of one entry's pins and schema together: every tool of the entry carries them.
const MAX_BYTES: usize = 8 * 1024;
/// Limits the bytes of a name in a field; its object may hold a longer one.
const MAX_NAME: usize = 128;
/// Limits the cached verdicts; one takes at most a few KiB.
const MAX_CACHED: usize = 4096;

/// The time in which a grant is in force.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window<'a> {
    not_before: Option<&'a str>,
    not_after: Option<&'a str>,
}

impl<'a> Window<'a> {
    pub fn of(grant: &'a ToolGrantSpec) -> Self {
        Self {
            not_before: grant.not_before.as_deref(),
            not_after: grant.not_after.as_deref(),
        }
    }
}

/// The conditions of one entry, in the form of the files and as they are decided.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub rule: Rule,
    /// Who may approve a call, in canonical form. The rule's digest covers it.
    pub approval: Option<ApprovalRule>,
    read: ReadRule,
}

impl Conditions {
    /// Reads an entry of `tools`. A finding has its whole path; `field` is that of the entry.
    pub fn of_tools(
        grant: GrantRef,
        field: &str,
        entry: &ToolRule,
        window: Window<'_>,
    ) -> Result<Self, Finding> {
        let ToolRule {
            surface: _,
            allow: _,
            descriptor_digest: _,
            arguments,
            when,
            rate,
            approval,
            enforcement,
        } = entry;
        let within = join(field, "arguments");
        let limits = arguments.as_ref().map(Limits::read).transpose();
        let limits = limits.map_err(|finding| finding.within(&within))?;
        let limits = limits.unwrap_or_default();
        let when = conditions_of(when);
        let rate = rates_of(rate).map_err(|finding| finding.within(field))?;
        let is_audit = match enforcement {
            // Pinned arguments are always enforced, so there must be another limit to try out.
            Some(Enforcement::Audit) => {
                limits.arguments.is_some() || !rate.is_empty() || !when.is_empty()
            }
            Some(Enforcement::Enforce) | None => false,
        };
        let rule = Rule {
            approval: approval.is_some(),
            arguments: limits.arguments,
            audit: is_audit,
            digest: String::new(),
            grant,
            not_after: window.not_after.map(str::to_owned),
            not_before: window.not_before.map(str::to_owned),
            pin: limits.pin,
            rate,
            when,
        };
        let conditions = Self::new(rule, approval.as_ref().map(in_order), field)?;
        let checked = conditions.schema_is_valid();
        checked.map_err(|finding| finding.within(&within))?;
        Ok(conditions)
    }

    /// Reads the conditions of an entry of `feeds`. The files have no rules for feeds, so a feed
    /// with a window would be given without it; such an entry is refused.
    pub fn of_feeds(grant: GrantRef, window: Window<'_>) -> Result<Self, Finding> {
        let written = [
            (window.not_before, "spec.notBefore"),
            (window.not_after, "spec.notAfter"),
        ];
        if let Some((_, field)) = written.iter().find(|(time, _)| time.is_some()) {
            return Err(Finding::new(
                *field,
                Code::NotServedYet,
                "does not hold for feeds yet, so the grant's feeds are withheld: move them to a grant without times",
            ));
        }
        let rule = Rule {
            approval: false,
            arguments: None,
            audit: false,
            digest: String::new(),
            grant,
            not_after: None,
            not_before: None,
            pin: BTreeMap::new(),
            rate: Vec::new(),
            when: Vec::new(),
        };
        Self::new(rule, None, "")
    }

    fn new(mut rule: Rule, approval: Option<ApprovalRule>, field: &str) -> Result<Self, Finding> {
        rule.digest = digest(&rule, approval.as_ref());
        let read = ReadRule::read(&rule).map_err(|defect| {
            let message = defect.to_string();
            let is_begin = |text: &String| rule.not_before.as_ref() == Some(text);
            let (field, code) = match &defect {
                Defect::Time(text) if is_begin(text) => {
                    ("spec.notBefore".to_owned(), Code::InvalidValue)
                }
                Defect::Time(_) => ("spec.notAfter".to_owned(), Code::InvalidValue),
                Defect::Pin(_) | Defect::Arguments | Defect::Rate(_) => {
                    ("spec.tools".to_owned(), Code::InvalidCondition)
                }
                Defect::Condition { index, fault } => {
                    let code = match fault.kind {
                        ExpressionFaultKind::Invalid => Code::InvalidCondition,
                        ExpressionFaultKind::TooExpensive => Code::ExpressionTooExpensive,
                    };
                    (format!("{field}.when[{index}].expression"), code)
                }
            };
            Finding::new(field, code, message)
        })?;
        Ok(Self {
            rule,
            approval,
            read,
        })
    }

    /// Checks the conditions by themselves. The finding's field is relative to `arguments`.
    fn schema_is_valid(&self) -> Result<(), Finding> {
        let Some(text) = self.read.schema() else {
            return Ok(());
        };
        cached(&[text], || {
            schema::check(text).map_err(|defect| {
                // The parts of `toolcrib_rules::Rule::schema`. A fault of the whole has no pointer.
                let of_schema = defect.pointer.strip_prefix("/allOf/1");
                let of_pins = defect.pointer.starts_with("/allOf/0");
                let field = match of_schema {
                    Some(pointer) => join("schema", &field_of(pointer)),
                    None if of_pins || self.rule.arguments.is_none() => "pin".to_owned(),
                    None => "schema".to_owned(),
                };
                Finding::new(short(&field), Code::InvalidCondition, defect.message)
            })?;
            // The schema is within its bounds now, so a walk through it is too.
            self.has_known_keywords()
        })
    }

    /// Refuses a member that is not a keyword: a validator ignores it, so it would limit nothing.
    fn has_known_keywords(&self) -> Result<(), Finding> {
        let Some(limits) = &self.rule.arguments else {
            return Ok(());
        };
        match unknown_keywords(&value_of(limits), 1).pop() {
            None => Ok(()),
            Some(UnknownKeyword { pointer, name }) => {
                let cure = match near::nearest(&name, keywords()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "correct the name, or remove it".to_owned(),
                };
                let message =
                    format!("is not a keyword of JSON Schema, so it limits nothing: {cure}");
                let field = join("schema", &field_of(&pointer));
                Err(Finding::new(short(&field), Code::InvalidCondition, message))
            }
        }
    }

    /// Checks that a tool with this schema can have the conditions. The finding's field is relative
    /// to the entry.
    pub fn suit(&self, tool: &RawJson) -> Result<(), Finding> {
        if let Some(own) = self.read.schema() {
            let checked = cached(&[own, tool.get()], || self.check(tool));
            checked.map_err(|finding| finding.within("arguments"))?;
        }
        self.read_declared_arguments(tool)
    }

    /// Checks that the tool declares the arguments that `when` reads.
    fn read_declared_arguments(&self, tool: &RawJson) -> Result<(), Finding> {
        if self.read.when().is_empty() {
            return Ok(());
        }
        let declared = Arguments::declared(&Value::Object(object(Some(tool)))).names;
        for (index, condition) in self.read.when().iter().enumerate() {
            let mut names = condition.expression.arguments().iter();
            if let Some(name) = names.find(|name| !declared.contains(*name)) {
                return Err(not_in_schema(
                    format!("when[{index}].expression"),
                    name,
                    &declared,
                ));
            }
        }
        Ok(())
    }

    fn check(&self, tool: &RawJson) -> Result<(), Finding> {
        // The descriptor's schema is valid JSON, and so are the conditions.
        let schema = object(Some(tool));
        let declared = Arguments::declared(&Value::Object(schema.clone())).names;
        let narrower = object(self.rule.arguments.as_ref());
        for (field, name) in named(&self.rule, &narrower) {
            if !declared.contains(name) {
                let field = format!("{field}.{}", short(name));
                return Err(not_in_schema(field, name, &declared));
            }
        }
        if let Some(finding) = limits_another_type(&narrower, &schema) {
            return Err(finding);
        }
        let pins = self.rule.pin.iter();
        let pins: Map<String, Value> = pins
            .map(|(name, value)| (name.clone(), value_of(value)))
            .collect();
        if let Some((name, why)) = refused(schema, &pins) {
            return Err(Finding::new(
                join("pin", &short(&name)),
                Code::InvalidCondition,
                format!("the tool's schema refuses this value ({why}): write one that it accepts"),
            ));
        }
        if let Some((name, why)) = refused(narrower, &pins) {
            return Err(Finding::new(
                join("pin", &short(&name)),
                Code::NothingLeft,
                format!(
                    "the schema beside it refuses this value ({why}), so no call is left: correct one of them"
                ),
            ));
        }
        shown_schema(tool.get(), &self.read)
            .map(drop)
            .map_err(|contradiction| {
                Finding::new(
                    join("schema.properties", &short(&contradiction.argument)),
                    Code::NothingLeft,
                    format!("{contradiction}, so no call is left: correct it"),
                )
            })
    }
}

/// The limits on arguments in the form of the files: normalized, so that objects of files and of
/// the API server give the same bytes.
#[derive(Default)]
struct Limits {
    arguments: Option<RawJson>,
    pin: BTreeMap<String, RawJson>,
}

impl Limits {
    fn read(rules: &ArgumentRules) -> Result<Self, Finding> {
        let ArgumentRules { pin, schema } = rules;
        let pins: usize = pin
            .iter()
            .map(|(name, it)| name.len() + it.get().len())
            .sum();
        let bytes = pins + schema.as_ref().map_or(0, |schema| schema.get().len());
        if bytes > MAX_BYTES {
            let message = format!(
                "has {bytes} bytes, and pins and schema have at most {MAX_BYTES}: shorten them"
            );
            return Err(Finding::new("", Code::InvalidCondition, message));
        }
        let limits = Self {
            arguments: schema
                .as_ref()
                .map(|schema| normalized(schema, "schema"))
                .transpose()?,
            pin: pin
                .iter()
                .map(|(name, value)| {
                    let value = normalized(value, &join("pin", &short(name)))?;
                    Ok((name.clone(), value))
                })
                .collect::<Result<_, Finding>>()?,
        };
        limits.has_form()?;
        Ok(limits)
    }

    fn has_form(&self) -> Result<(), Finding> {
        let invalid =
            |field: &str, message: &str| Err(Finding::new(field, Code::InvalidCondition, message));
        let of_identity =
            "claw_id is always the agent's identity, which the mediator writes: remove it";
        if self.pin.contains_key(CLAW_ID) {
            return invalid("pin.claw_id", of_identity);
        }
        let Some(schema) = &self.arguments else {
            return Ok(());
        };
        let Value::Object(members) = value_of(schema) else {
            return invalid("schema", "is not an object: write properties and required");
        };
        for (key, value) in &members {
            let has_form = match key.as_str() {
                "properties" => value.is_object(),
                "required" => value
                    .as_array()
                    .is_some_and(|names| names.iter().all(Value::is_string)),
                _ => {
                    let field = join("schema", &short(key));
                    return invalid(
                        &field,
                        "is not known here: write properties and required only, and other keywords below a property",
                    );
                }
            };
            if !has_form {
                let field = join("schema", key);
                return invalid(
                    &field,
                    "has another type: write properties as an object, and required as a list of names",
                );
            }
        }
        if names_of(&members, "properties").any(|name| name == CLAW_ID)
            || names_of(&members, "required").any(|name| name == CLAW_ID)
        {
            return invalid("schema", of_identity);
        }
        Ok(())
    }
}

fn conditions_of(when: &[ConditionRule]) -> Vec<Condition> {
    let conditions = when.iter().map(|rule| {
        let ConditionRule {
            expression,
            message,
        } = rule;
        Condition {
            expression: expression.clone(),
            message: message.clone(),
        }
    });
    conditions.collect()
}

/// The rates in the form of the files: sorted, so that their order decides nothing. A finding's field is
/// relative to the entry.
fn rates_of(rates: &[RateRule]) -> Result<Vec<Rate>, Finding> {
    let read = rates.iter().enumerate().map(|(index, rate)| {
        let RateRule { calls, per } = rate;
        let field = format!("rate[{index}]");
        let invalid = |field: String, message| Finding::new(field, Code::InvalidValue, message);
        let per = per.parse();
        let per = per.map_err(|error| invalid(join(&field, "per"), error.to_string()))?;
        let rate = Rate {
            calls: *calls,
            per_ms: u64::try_from(per.as_millis()).unwrap_or(u64::MAX),
        };
        let read = ReadRate::read(rate);
        read.map_err(|defect| invalid(field, defect.to_string()))?;
        Ok(rate)
    });
    let mut rates = read.collect::<Result<Vec<Rate>, Finding>>()?;
    rates.sort_unstable();
    rates.dedup();
    Ok(rates)
}

fn not_in_schema(field: String, name: &str, declared: &BTreeSet<String>) -> Finding {
    let others = declared.iter().map(String::as_str);
    let message = format!(
        "names an argument that the tool's schema does not declare ({}): correct the name, or give tools without it by an entry of their own",
        near::meant_or_known(name, others)
    );
    Finding::new(field, Code::NotInSchema, message)
}

fn normalized(value: &RawJson, field: &str) -> Result<RawJson, Finding> {
    let text = normalize(value.get()).map_err(|error| {
        let message = format!("{error}: correct it");
        Finding::new(field, Code::InvalidCondition, message)
    })?;
    Ok(RawJson::from_text(text.text).expect("normalized text is JSON"))
}

/// Returns the approvers in canonical form, so that equal ones have equal digests.
fn in_order(approval: &ApprovalRule) -> ApprovalRule {
    let ApprovalRule { approvers, minimum } = approval;
    let sorted = |names: &[String]| {
        let names: BTreeSet<&String> = names.iter().collect();
        names.into_iter().cloned().collect()
    };
    let named = approvers.as_ref().filter(|it| !it.is_anybody());
    ApprovalRule {
        approvers: named.map(|Approvers { users, groups }| Approvers {
            users: sorted(users),
            groups: sorted(groups),
        }),
        minimum: minimum.filter(|most| *most > 1),
    }
}

/// Returns the digest of the conditions: of everything that decides about a call, and of nothing
/// else. Who may approve is a part of it, so a question to persons of before is not answered by others.
fn digest(rule: &Rule, approvers: Option<&ApprovalRule>) -> String {
    #[derive(Serialize)]
    struct DigestInput<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        approval: Option<&'a ApprovalRule>,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: &'a Option<RawJson>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        audit: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        not_after: &'a Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        not_before: &'a Option<String>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pin: &'a BTreeMap<String, RawJson>,
        #[serde(skip_serializing_if = "<[Rate]>::is_empty")]
        rate: &'a [Rate],
        /// Expressions alone: their messages decide nothing.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        when: Vec<&'a str>,
    }
    let Rule {
        // Whether there are `approvers`.
        approval: _,
        arguments,
        audit,
        digest: _,
        grant: _,
        not_after,
        not_before,
        pin,
        rate,
        when,
    } = rule;
    let text = canonical(&DigestInput {
        approval: approvers,
        arguments,
        audit: *audit,
        not_after,
        not_before,
        pin,
        rate,
        when: when.iter().map(|it| it.expression.as_str()).collect(),
    });
    format!("r1:{}", sha256(text.as_bytes()))
}

/// Returns the verdict on these texts, from the cache if it is there.
fn cached(texts: &[&str], check: impl FnOnce() -> Result<(), Finding>) -> Result<(), Finding> {
    static VERDICTS: Mutex<BTreeMap<String, Result<(), Finding>>> = Mutex::new(BTreeMap::new());
    let hashes: Vec<String> = texts.iter().map(|text| sha256(text.as_bytes())).collect();
    let key = hashes.concat();
    if let Some(verdict) = VERDICTS.lock().get(&key) {
        return verdict.clone();
    }
    let verdict = check();
    let mut verdicts = VERDICTS.lock();
    if verdicts.len() >= MAX_CACHED {
        verdicts.clear();
    }
    verdicts.insert(key, verdict.clone());
    verdict
}

/// Returns the finding for a keyword that limits values of another type than the argument's.
fn limits_another_type(
    narrower: &Map<String, Value>,
    tool: &Map<String, Value>,
) -> Option<Finding> {
    let properties = |schema: &Map<String, Value>| match schema.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        Some(_) | None => Map::new(),
    };
    let declared = properties(tool);
    properties(narrower).into_iter().find_map(|(name, limits)| {
        let (keyword, limited) = other_type(limits.as_object()?, declared.get(&name)?.as_object()?)?;
        let field = join("schema.properties", &short(&format!("{name}.{keyword}")));
        let message = format!(
            "limits values of type {limited} alone, and the argument is of another type, so it limits nothing: write a keyword for its type"
        );
        Some(Finding::new(field, Code::InvalidCondition, message))
    })
}

/// The arguments that a rule names, each with its field.
fn named<'r>(
    rule: &'r Rule,
    narrower: &'r Map<String, Value>,
) -> impl Iterator<Item = (&'static str, &'r str)> {
    let pinned = rule.pin.keys().map(|name| ("pin", name.as_str()));
    let narrowed = names_of(narrower, "properties").map(|name| ("schema.properties", name));
    let required = names_of(narrower, "required").map(|name| ("schema.required", name));
    pinned.chain(narrowed).chain(required)
}

/// The keys, or the items, of one member of a schema.
fn names_of<'v>(schema: &'v Map<String, Value>, member: &str) -> impl Iterator<Item = &'v str> {
    let member = schema.get(member);
    let keys = member.and_then(Value::as_object).into_iter();
    let items = member.and_then(Value::as_array).into_iter();
    let keys: BTreeSet<&str> = keys.flat_map(Map::keys).map(String::as_str).collect();
    let items = items.flatten().filter_map(Value::as_str);
    keys.into_iter().chain(items)
}

/// Limits the bytes of the reason for which a pinned value is refused.
const MAX_WHY: usize = 240;

/// Checks the values of single arguments against the properties of a schema. Keywords about several
/// arguments are ignored. Returns the first refused argument, and why.
fn refused(schema: Map<String, Value>, values: &Map<String, Value>) -> Option<(String, String)> {
    // Parts that the properties may refer to.
    const KEPT: [&str; 4] = ["$defs", "$schema", "definitions", "properties"];
    if values.is_empty() {
        return None;
    }
    let parts = schema.into_iter();
    let parts: Map<String, Value> = parts
        .filter(|(keyword, _)| KEPT.contains(&keyword.as_str()))
        .collect();
    // A property may refer to a part that is left out. Its value is then checked only at calls.
    let validator = Validator::read(&Value::Object(parts).to_string()).ok()?;
    let values = values.iter();
    let mut rejected = values.filter_map(|(name, value)| {
        let argument = Map::from_iter([(name.clone(), value.clone())]);
        let why = match validator.check(&Value::Object(argument)).err()? {
            Rejection::TooLarge => "it is too large".to_owned(),
            Rejection::Invalid(violations) => violations.words(MAX_WHY),
        };
        Some((name.clone(), why))
    });
    rejected.next()
}

fn object(text: Option<&RawJson>) -> Map<String, Value> {
    match text.map(value_of) {
        Some(Value::Object(members)) => members,
        Some(_) | None => Map::new(),
    }
}

fn value_of(text: &RawJson) -> Value {
    serde_json::from_str(text.get()).unwrap_or(Value::Null)
}

fn short(name: &str) -> String {
    toolcrib_bounds::cut(name, MAX_NAME).into_owned()
}
