//! Decides a call by the rules of its tool, with the code that the mediator decides with.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use toolcrib_bounds::number::first_rounded;
use toolcrib_bounds::schema::{Rejection, Validator};
use toolcrib_compile::RuleSummary;
use toolcrib_manifest::Tool;
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_rules::{Mismatch, Refusal, Rule, decide};

/// The decision on a call.
pub enum RulesDecision {
    /// No rule has conditions, or the arguments are no object, which the turn reports.
    NotAsked,
    /// The call may run with these arguments. `by` is the first rule that it meets.
    Met { arguments: String, by: RuleKey },
    Refused {
        code: &'static str,
        why: Vec<String>,
    },
}

/// Names a rule among those of a tool.
pub struct RuleKey {
    namespace: String,
    name: String,
    digest: String,
}

impl RuleKey {
    pub fn is(&self, rule: &RuleSummary) -> bool {
        let key = &rule.grant.key;
        (&*key.namespace, &*key.name, &*rule.digest)
            == (&*self.namespace, &*self.name, &*self.digest)
    }
}

/// Decides a call with these arguments, as text, at this time.
pub fn decision(tool: &Tool, arguments: &str, claw_id: &str, now: Timestamp) -> RulesDecision {
    if tool.extension.rules.is_empty() {
        return RulesDecision::NotAsked;
    }
    let Ok(Value::Object(mut members)) = serde_json::from_str(arguments) else {
        return RulesDecision::NotAsked;
    };
    // The mediator writes the identity, whatever the model says.
    members.remove(CLAW_ID);
    let written = Value::Object(members);
    // A rule that cannot be read is never met.
    let rules = tool.extension.rules.iter();
    let rules: Vec<Rule> = rules.filter_map(|rule| Rule::read(rule).ok()).collect();
    let open: Vec<&Rule> = rules.iter().filter(|rule| rule.is_open(now)).collect();
    let mut validators: BTreeMap<String, Option<Validator>> = BTreeMap::new();
    let meets = |rule: &Rule, candidate: &Value| {
        let Some(schema) = rule.schema() else {
            return Ok(());
        };
        let built = validators.entry(rule.digest().to_owned());
        let built = built.or_insert_with(|| Validator::read(schema).ok());
        let validator = built.as_ref().ok_or(Mismatch::Unchecked)?;
        match first_rounded(arguments).filter(|_| validator.compares_numbers()) {
            Some(number) => Err(Mismatch::Rounded {
                number: number.to_owned(),
            }),
            None => validator.check(candidate).map_err(Mismatch::from),
        }
    };
    let own = Validator::read(tool.input_schema.get()).ok();
    let declares_identity = serde_json::from_str::<Value>(tool.input_schema.get())
        .is_ok_and(|schema| schema["properties"].get(CLAW_ID).is_some());
    let fits = |candidate: &Value| -> Result<(), String> {
        let Some(own) = &own else {
            return Err("the tool's schema cannot be used".to_owned());
        };
        let mut executed = candidate.clone();
        if declares_identity {
            executed[CLAW_ID] = claw_id.into();
        }
        own.check(&executed).map_err(|rejection| match rejection {
            Rejection::TooLarge => "arguments are too large to be checked".to_owned(),
            Rejection::Invalid { message, path, .. } => at(&path, &message),
        })
    };
    match decide(&open, &written, meets, fits) {
        Ok(decision) => {
            let first = decision.met.first();
            let by = first.map_or_else(
                || (String::new(), String::new(), String::new()),
                |rule| {
                    let grant = rule.grant().clone();
                    (grant.namespace, grant.name, rule.digest().to_owned())
                },
            );
            RulesDecision::Met {
                arguments: with(arguments, &decision.filled),
                by: RuleKey {
                    namespace: by.0,
                    name: by.1,
                    digest: by.2,
                },
            }
        }
        Err(refusal) => refused(refusal, now),
    }
}

fn refused(refusal: Refusal<String>, now: Timestamp) -> RulesDecision {
    let (code, why) = match refusal {
        Refusal::NoRule => (
            "permission_denied",
            vec![format!("no grant of the tool is in its time at {now}")],
        ),
        Refusal::Arguments(message) => ("schema_validation", vec![message]),
        Refusal::Ambiguous { names } => (
            "ambiguous_arguments",
            vec![format!(
                "several grants fix {} to different values: the call must name one",
                names.join(", ")
            )],
        ),
        Refusal::Unmet(mismatches) => (
            "condition_failed",
            mismatches.iter().map(mismatch).collect(),
        ),
    };
    RulesDecision::Refused { code, why }
}

fn mismatch(mismatch: &Mismatch) -> String {
    match mismatch {
        Mismatch::Pinned { name } => format!("{name} has another value than the grant fixes"),
        Mismatch::Schema { message, path, .. } => at(path, message),
        Mismatch::Rounded { number } => {
            format!("the number {number} has too many digits to be checked")
        }
        Mismatch::Unchecked => "the arguments are too large to be checked".to_owned(),
    }
}

fn at(path: &str, message: &str) -> String {
    match path {
        "" => message.to_owned(),
        path => format!("{path}: {message}"),
    }
}

/// Adds members to the text of an object, whose other bytes stay.
fn with(object: &str, members: &[(&str, &str)]) -> String {
    let text = object.trim_end();
    let Some(inner) = text.strip_suffix('}').filter(|_| !members.is_empty()) else {
        return object.to_owned();
    };
    let mut text = inner.trim_end().to_owned();
    for (name, value) in members {
        let comma = if text.ends_with('{') { "" } else { "," };
        text.push_str(&format!("{comma}{}:{value}", Value::from(*name)));
    }
    text.push('}');
    text
}
