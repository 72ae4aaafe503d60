//! The arguments of a call: read strictly, checked, and prepared for execution.

use jiff::Timestamp;
use serde_json::Value;
use toolcrib_bounds::cut;
use toolcrib_bounds::names::{reads_as, same_without_case};
use toolcrib_dialect::json::{self, Change, Object};
use toolcrib_manifest::Transport;
use toolcrib_manifest::names::CLAW_ID;
use toolcrib_rules::{Mismatch, Refusal as RulesRefusal, Rule, decide};

use crate::codes::ResultCode;
use crate::tools::offer::OfferedTool;
use crate::tools::rules::AllowedBy;
use crate::tools::schema::{ArgumentsRejection, MAX_KEY, MAX_VIOLATIONS, Names};

/// Limits the bytes of all arguments of one call.
const MAX_BYTES: usize = 256 * 1024;
/// Limits the bytes of one string in the arguments.
const MAX_STRING: usize = 64 * 1024;
const MAX_DEPTH: usize = 64;
/// Limits the characters of a number. Longer numbers measure nothing, and are expensive for
/// services.
const MAX_NUMBER: usize = 64;
/// Limits the bytes that a message has for each unmet condition, of which it names at most three: a
/// result about conditions has at most 1 KiB.
const MAX_CONDITION: usize = 240;

/// The reason for which the arguments of a call do not go to the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: ResultCode,
    pub message: String,
    /// Path in the arguments, and the schema rule, of the first violation.
    pub place: Option<(String, String)>,
}

impl Refusal {
    fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: ResultCode::InvalidArguments,
            message: message.into(),
            place: None,
        }
    }
}

/// The arguments as they are executed, and the rule that allows them.
#[derive(Debug)]
pub(crate) struct ExecutedArguments {
    pub text: String,
    /// `None` if the tool has no rules.
    pub allowed_by: Option<AllowedBy>,
}

/// Returns the arguments as they are executed: an object that the whole schema accepts, and that
/// meets a rule of the tool at `now`, if it has rules. `claw_id` is the authenticated identity, or absent.
/// Pinned arguments that are left out are filled in. Numbers keep their digits. No lax reader can
/// take two keys of an object for one. An HTTP service gets declared arguments only; an MCP server
/// checks them itself.
pub(crate) fn executed(
    text: &str,
    offered: &OfferedTool,
    claw_id: &str,
    now: Timestamp,
) -> Result<ExecutedArguments, Refusal> {
    let tool = offered.catalog_tool();
    let text = match text.trim_ascii() {
        "" => "{}",
        text => text,
    };
    if text.len() > MAX_BYTES {
        return Err(Refusal::invalid(format!(
            "arguments are larger than {MAX_BYTES} bytes"
        )));
    }
    if !text.starts_with('{') {
        return Err(Refusal::invalid("arguments are not a JSON object"));
    }
    strict(text, MAX_DEPTH)?;
    let identified = identified(text, claw_id)?;
    let declared = tool.schema.declares_claw_id();
    let mut executed = top_level(&identified, declared, claw_id)?;
    let value: Value = serde_json::from_str(&executed)
        .map_err(|_| Refusal::invalid("arguments hold a number that is out of range"))?;
    let names = match tool.tool.execution.transport {
        Transport::Http => Names::Declared,
        Transport::Mcp => Names::Unambiguous,
    };
    let fits = |value: &Value| tool.schema.check_arguments(value, &executed, names);
    let mut allowed_by = None;
    if tool.rules.is_empty() {
        fits(&value).map_err(Refusal::from)?;
    } else {
        let (rule, filled) = decided(offered, &value, &executed, now, fits)?;
        allowed_by = rule;
        if !filled.is_empty() {
            executed = with_pins(&executed, &filled)?;
        }
    }
    // A path template with `{claw_id}` takes the value even if a closed schema does not declare it.
    if !declared && tool.claw_id_in_path() {
        executed = top_level(&executed, true, claw_id)?;
    }
    Ok(ExecutedArguments {
        text: executed,
        allowed_by,
    })
}

/// Names and JSON texts of arguments.
type Pins<'r> = Vec<(&'r str, String)>;

/// Decides arguments by the rules of the offer: the first rule that they meet, and the pinned
/// arguments to fill in.
fn decided<'o>(
    offered: &'o OfferedTool,
    arguments: &Value,
    text: &str,
    now: Timestamp,
    fits: impl Fn(&Value) -> Result<(), ArgumentsRejection>,
) -> Result<(Option<AllowedBy>, Pins<'o>), Refusal> {
    let rules: Vec<&Rule> = offered.rules().map(|it| &it.rule).collect();
    let facts = offered.catalog_tool().facts(now);
    // By address, since equal rules of several grants have the same digest.
    let meets = |rule: &Rule, coverage, arguments: &Value| {
        let found = offered.rules().find(|it| std::ptr::eq(&it.rule, rule));
        found.map_or(Err(Mismatch::Unchecked), |it| {
            it.check(coverage, &facts, arguments, text)
        })
    };
    let refused = |refusal| match refusal {
        RulesRefusal::Arguments(rejected) => Refusal::from(rejected),
        RulesRefusal::NoRule => Refusal {
            code: ResultCode::PermissionDenied,
            message: format!("{} is not granted at this time", offered.name()),
            place: None,
        },
        RulesRefusal::Ambiguous { names } => ambiguous(&names),
        RulesRefusal::Unmet(mismatches) => unmet(&mismatches),
    };
    let decision = decide(&rules, arguments, meets, fits).map_err(refused)?;
    let would_deny = decision.would_deny.map(|refusal| {
        let Refusal { code, message, .. } = refused(refusal);
        (code, message)
    });
    let met = decision.met.first();
    let met = met.map(|rule| AllowedBy::of(rule, would_deny));
    let filled = decision.filled.into_iter();
    Ok((
        met,
        filled
            .map(|(name, value)| (name, value.to_owned()))
            .collect(),
    ))
}

/// Adds pinned arguments, with the bytes of the files.
fn with_pins(text: &str, pins: &Pins<'_>) -> Result<String, Refusal> {
    let object = Object::scan(text).map_err(|_| Refusal::invalid("arguments are not JSON"))?;
    // The model may have written a name that differs from a pinned one in case only.
    let written = object.members.iter().map(|member| member.key.as_str());
    unambiguous(written.chain(pins.iter().map(|(name, _)| *name)))?;
    Ok(object.edit(text, |_| Change::Keep, pins))
}

fn ambiguous(names: &[String]) -> Refusal {
    let named: Vec<String> = names.iter().take(3).map(|name| quoted(name)).collect();
    Refusal {
        code: ResultCode::AmbiguousArguments,
        message: format!(
            "{} may have one of several values, and none was written: write it",
            named.join(" and ")
        ),
        place: None,
    }
}

/// Returns the message on what to change, for the nearest rules. It holds no value of a pinned
/// argument, which the model must not learn.
fn unmet(mismatches: &[Mismatch]) -> Refusal {
    let advice: Vec<String> = mismatches.iter().map(advice).collect();
    Refusal {
        code: ResultCode::ConditionFailed,
        message: format!(
            "not granted with these arguments: {}",
            advice.join("; or, under another grant, ")
        ),
        place: None,
    }
}

/// At most `MAX_CONDITION` bytes.
fn advice(mismatch: &Mismatch) -> String {
    match mismatch {
        Mismatch::Arguments { violations, .. } => violations.words(MAX_CONDITION),
        Mismatch::Condition { message } => cut(message, MAX_CONDITION).into_owned(),
        Mismatch::Rounded { number } => {
            format!("the number {number} has too many digits to be checked: write at most 15")
        }
        Mismatch::Unchecked => "they cannot be checked: write less".to_owned(),
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", cut(name, MAX_KEY))
}

impl From<ArgumentsRejection> for Refusal {
    fn from(rejected: ArgumentsRejection) -> Self {
        match rejected {
            ArgumentsRejection::Unusable => Self {
                code: ResultCode::UnsupportedTool,
                message: "the tool's schema cannot be used".into(),
                place: None,
            },
            ArgumentsRejection::TooLarge => Self::invalid("arguments are too large to be checked"),
            ArgumentsRejection::Rounded { number } => Self::invalid(format!(
                "the number {number} has more digits than a 64-bit float keeps, and the tool's \
                 schema compares numbers: write it with at most 15 digits"
            )),
            ArgumentsRejection::Invalid(violations) => {
                let first = violations.first();
                Self {
                    code: ResultCode::SchemaValidation,
                    message: violations.words(MAX_VIOLATIONS),
                    place: Some((first.path.clone(), first.rule.clone())),
                }
            }
        }
    }
}

/// Refuses repeated keys (two readers could differ), long strings and numbers, and deep nesting.
fn strict(raw: &str, depth: usize) -> Result<(), Refusal> {
    if depth == 0 {
        return Err(Refusal::invalid("arguments are nested too deeply"));
    }
    match raw.as_bytes().first() {
        Some(b'{') => {
            let object = Object::scan(raw)
                .map_err(|error| Refusal::invalid(format!("arguments are not JSON: {error}")))?;
            unambiguous(object.members.iter().map(|member| member.key.as_str()))?;
            object
                .members
                .iter()
                .try_for_each(|member| strict(&raw[member.value.clone()], depth - 1))
        }
        Some(b'[') => json::Array::scan(raw)
            .map_err(|error| Refusal::invalid(format!("arguments are not JSON: {error}")))?
            .texts(raw)
            .try_for_each(|item| strict(item, depth - 1)),
        Some(b'"') if raw.len() > MAX_STRING => Err(Refusal::invalid(format!(
            "a string is larger than {MAX_STRING} bytes"
        ))),
        Some(b'-' | b'0'..=b'9') if raw.len() > MAX_NUMBER => {
            Err(Refusal::invalid("a number has too many digits"))
        }
        _ => Ok(()),
    }
}

/// Refuses keys that a lax reader could take for each other, or for `claw_id`.
fn unambiguous<'k>(mut keys: impl Iterator<Item = &'k str> + Clone) -> Result<(), Refusal> {
    match same_without_case(keys.clone()) {
        None => {}
        Some((key, other)) if key == other => {
            return Err(Refusal::invalid(format!(
                "key `{}` stands twice",
                cut(key, MAX_KEY)
            )));
        }
        Some((key, other)) => {
            return Err(Refusal::invalid(format!(
                "keys `{}` and `{}` differ in case only: services could read either; write one",
                cut(key, MAX_KEY),
                cut(other, MAX_KEY)
            )));
        }
    }
    match keys.find(|key| reads_as(key, CLAW_ID)) {
        None => Ok(()),
        Some(key) => Err(Refusal::invalid(format!(
            "key `{}` could be read as `{CLAW_ID}`, which is not yours to set: leave it out",
            cut(key, MAX_KEY)
        ))),
    }
}

/// Replaces every `claw_id`, at any depth and however its key is escaped, by the authenticated one.
fn identified(raw: &str, claw_id: &str) -> Result<String, Refusal> {
    if !raw.contains(CLAW_ID) && !raw.contains('\\') {
        return Ok(raw.to_string());
    }
    let not_json = |_| Refusal::invalid("arguments are not JSON");
    match raw.as_bytes().first() {
        Some(b'{') => {
            let object = Object::scan(raw).map_err(not_json)?;
            let values = object
                .members
                .iter()
                .map(|member| match member.key.as_str() {
                    CLAW_ID => Ok(json::quote(claw_id)),
                    _ => identified(&raw[member.value.clone()], claw_id),
                })
                .collect::<Result<Vec<_>, _>>()?;
            let mut values = values.into_iter();
            Ok(object.edit(
                raw,
                |_| values.next().map_or(Change::Keep, Change::Set),
                &[],
            ))
        }
        Some(b'[') => {
            let array = json::Array::scan(raw).map_err(not_json)?;
            let values = array
                .texts(raw)
                .map(|item| identified(item, claw_id))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(array.edit(raw, |at| Change::Set(values[at].clone()), &[]))
        }
        _ => Ok(raw.to_string()),
    }
}

/// Sets `claw_id` at the top level: as the last member if `wanted`, otherwise absent.
fn top_level(text: &str, wanted: bool, claw_id: &str) -> Result<String, Refusal> {
    let object = Object::scan(text).map_err(|_| Refusal::invalid("arguments are not JSON"))?;
    let own: &[(&str, String)] = if wanted {
        &[(CLAW_ID, json::quote(claw_id))]
    } else {
        &[]
    };
    Ok(object.edit(
        text,
        |member| match member.key.as_str() {
            CLAW_ID => Change::Drop,
            _ => Change::Keep,
        },
        own,
    ))
}
