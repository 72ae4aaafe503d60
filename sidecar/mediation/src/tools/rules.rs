//! The rules of a tool's entry, read with the catalog and checked with its bounded validators.
//!
//! Invariant: a rule that cannot be read, or whose conditions cannot be checked, is never met.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_bounds::json::number;
use toolcrib_bounds::names::reads_as;
use toolcrib_bounds::schema::Rejection;
use toolcrib_manifest as manifest;
use toolcrib_manifest::GrantRef;
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_rules::expression::Facts;
use toolcrib_rules::{Condition, Coverage, Mismatch, Rule};

use crate::codes::ResultCode;
use crate::tools::schema::{ArgumentsRejection, Names, Schema, Validators};

/// A rule with the schema of its conditions on arguments.
#[derive(Debug)]
pub(crate) struct GrantRule {
    pub(crate) rule: Rule,
    /// `None`: any arguments meet the rule.
    schema: Option<Schema>,
    /// The pinned arguments alone, of a rule that is tried out. `None`: it has none.
    pins: Option<Schema>,
    /// The patterns of each condition, by their numbers.
    patterns: Vec<Vec<Schema>>,
}

/// The rule that allowed a call, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedBy {
    pub grant: GrantRef,
    /// Digest of the rule.
    pub rule: String,
    /// The code and the message that the model would have read if no rule were tried out.
    would_deny: Option<(ResultCode, String)>,
}

impl AllowedBy {
    pub(crate) fn of(rule: &Rule, would_deny: Option<(ResultCode, String)>) -> Self {
        Self {
            grant: rule.grant().clone(),
            rule: rule.digest().to_owned(),
            would_deny,
        }
    }

    /// The code and the message of the refusal that the call would have had if no rule were tried
    /// out.
    pub(crate) fn would_deny(&self) -> Option<(ResultCode, &str)> {
        let (code, message) = self.would_deny.as_ref()?;
        Some((*code, message))
    }
}

/// The refusal of a call that runs, since a policy of the cluster or a rule is tried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WouldDeny {
    pub code: ResultCode,
    pub message: String,
}

impl WouldDeny {
    /// `policy`: the policy that would deny the tool. It comes first, since no rule lifts it.
    pub(crate) fn of(
        tool: &str,
        policy: Option<&str>,
        allowed_by: Option<&AllowedBy>,
    ) -> Option<Self> {
        if let Some(policy) = policy {
            return Some(Self {
                code: ResultCode::PermissionDenied,
                message: format!("ClusterToolPolicy {policy} denies {tool}"),
            });
        }
        let (code, message) = allowed_by?.would_deny()?;
        let message = message.to_owned();
        Some(Self { code, message })
    }
}

/// The text for the record.
impl fmt::Display for WouldDeny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl GrantRule {
    /// Returns `None` if the rule must never be met.
    pub(crate) fn read(entry: &manifest::Rule, validators: &Arc<Validators>) -> Option<Self> {
        // The identity is the mediator's to set.
        let is_identity = |name: &String| name == CLAW_ID || reads_as(name, CLAW_ID);
        // A check would compare another value than the one that the service gets.
        let is_rounded = |value: &manifest::RawJson| number::first_rounded(value.get()).is_some();
        if entry.pin.keys().any(is_identity) || entry.pin.values().any(is_rounded) {
            return None;
        }
        let rule = Rule::read(entry).ok()?;
        let read = |text: Option<&str>| match text {
            None => Some(None),
            Some(text) => Schema::read(text, validators).map(Some),
        };
        let schema = read(rule.schema())?;
        let pins = read(rule.pins_schema())?;
        let patterns = rule.when().iter().map(|condition| {
            let patterns = condition.expression.patterns().iter();
            let schemas = patterns.map(|it| json!({ "pattern": it }).to_string());
            schemas.map(|it| Schema::read(&it, validators)).collect()
        });
        Some(Self {
            patterns: patterns.collect::<Option<_>>()?,
            rule,
            schema,
            pins,
        })
    }

    /// Checks a call against the rule; `text` is the source of the arguments.
    pub(crate) fn check(
        &self,
        coverage: Coverage,
        facts: &Facts<'_>,
        arguments: &Value,
        text: &str,
    ) -> Result<(), Mismatch> {
        if coverage == Coverage::Pins {
            return check_schema(self.pins.as_ref(), arguments, text);
        }
        if !self.rule.surely_accepts(arguments) {
            check_schema(self.schema.as_ref(), arguments, text)?;
        }
        if self.rule.when().is_empty() {
            return Ok(());
        }
        // An expression could compare it, and the service gets other digits.
        if let Some(number) = number::first_rounded(text) {
            return Err(Mismatch::Rounded {
                number: number.to_owned(),
            });
        }
        match self.unmet(facts, arguments) {
            None => Ok(()),
            Some(condition) => Err(Mismatch::Condition {
                message: condition.message.clone(),
            }),
        }
    }

    /// Returns whether arguments that have met the rule meet it at another time. They are read only if a
    /// condition reads the time: nothing else of the rule and of the call can have changed.
    pub(crate) fn is_still_met<'v>(
        &self,
        facts: &Facts<'_>,
        arguments: impl FnOnce() -> &'v Value,
    ) -> bool {
        let mut when = self.rule.when().iter();
        !when.any(|it| it.expression.reads_now()) || self.unmet(facts, arguments()).is_none()
    }

    /// The first condition that does not hold.
    fn unmet(&self, facts: &Facts<'_>, arguments: &Value) -> Option<&Condition> {
        self.rule
            .unmet(facts, arguments, |condition, pattern, text| {
                let schema = self.patterns.get(condition)?.get(pattern)?;
                match schema.check_result(&Value::from(text)) {
                    Ok(()) => Some(true),
                    Err(ArgumentsRejection::Invalid(_)) => Some(false),
                    Err(
                        ArgumentsRejection::Unusable
                        | ArgumentsRejection::TooLarge
                        | ArgumentsRejection::Rounded { .. },
                    ) => None,
                }
            })
    }
}

fn check_schema(schema: Option<&Schema>, arguments: &Value, text: &str) -> Result<(), Mismatch> {
    let Some(schema) = schema else {
        return Ok(());
    };
    let checked = schema.check_arguments(arguments, text, Names::Unambiguous);
    checked.map_err(|rejected| match rejected {
        ArgumentsRejection::Unusable | ArgumentsRejection::TooLarge => Mismatch::Unchecked,
        ArgumentsRejection::Rounded { number } => Mismatch::Rounded { number },
        ArgumentsRejection::Invalid(violations) => Mismatch::from(Rejection::Invalid(violations)),
    })
}
