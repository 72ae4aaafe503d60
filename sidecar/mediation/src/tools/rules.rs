//! The rules of a tool's entry, read with the catalog and checked with its bounded validators.
//!
//! Invariant: a rule that cannot be read, or whose conditions cannot be checked, is never met.

use std::sync::Arc;

use serde_json::Value;
use toolcrib_bounds::names::reads_as;
use toolcrib_bounds::number;
use toolcrib_bounds::schema::Rejection;
use toolcrib_manifest as manifest;
use toolcrib_manifest::GrantRef;
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_rules::{Mismatch, Rule};

use crate::tools::schema::{ArgumentsRejection, Names, Schema, Validators};

/// A rule with the schema of its conditions on arguments.
#[derive(Debug)]
pub(crate) struct GrantRule {
    pub(crate) rule: Rule,
    /// `None`: any arguments meet the rule.
    schema: Option<Schema>,
}

/// The rule that allowed a call, for the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedBy {
    pub grant: GrantRef,
    /// Digest of the rule.
    pub rule: String,
}

impl AllowedBy {
    pub(crate) fn of(rule: &Rule) -> Self {
        Self {
            grant: rule.grant().clone(),
            rule: rule.digest().to_owned(),
        }
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
        let schema = match rule.schema() {
            None => None,
            Some(text) => Some(Schema::read(text, validators)?),
        };
        Some(Self { rule, schema })
    }

    /// Checks arguments against the rule; `text` is their source.
    pub(crate) fn check(&self, arguments: &Value, text: &str) -> Result<(), Mismatch> {
        let Some(schema) = &self.schema else {
            return Ok(());
        };
        let checked = schema.check_arguments(arguments, text, Names::Unambiguous);
        checked.map_err(|rejected| match rejected {
            ArgumentsRejection::Unusable | ArgumentsRejection::TooLarge => Mismatch::Unchecked,
            ArgumentsRejection::Rounded { number } => Mismatch::Rounded { number },
            ArgumentsRejection::Invalid {
                message,
                path,
                rule,
            } => Mismatch::from(Rejection::Invalid {
                message,
                path,
                rule,
            }),
        })
    }
}
