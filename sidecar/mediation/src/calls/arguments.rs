//! The arguments of a call: read strictly, checked, and prepared for execution.

use toolcrib_bounds::cut;
use toolcrib_bounds::names::{reads_as, same_without_case};
use toolcrib_dialect::json::{self, Change, Object};
use toolcrib_manifest::Transport;
use toolcrib_manifest::names::CLAW_ID;

use crate::codes::ResultCode;
use crate::tools::catalog::CatalogTool;
use crate::tools::schema::{ArgumentsRejection, MAX_KEY, Names};

/// Limits the bytes of all arguments of one call.
const MAX_BYTES: usize = 256 * 1024;
/// Limits the bytes of one string in the arguments.
const MAX_STRING: usize = 64 * 1024;
const MAX_DEPTH: usize = 64;
/// Limits the characters of a number. Longer numbers measure nothing, and are expensive for
/// services.
const MAX_NUMBER: usize = 64;

/// The reason for which the arguments of a call do not go to the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: ResultCode,
    pub message: String,
    /// Path in the arguments, and the schema rule that failed.
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

/// Returns the arguments as they are executed: an object that the whole schema accepts. `claw_id`
/// is the authenticated identity, or absent. Numbers keep their digits. No lax reader can take two
/// keys of an object for one. An HTTP service gets declared arguments only; an MCP server checks
/// them itself.
pub(crate) fn executed(text: &str, tool: &CatalogTool, claw_id: &str) -> Result<String, Refusal> {
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
    let executed = top_level(&identified, declared, claw_id)?;
    let value = serde_json::from_str(&executed)
        .map_err(|_| Refusal::invalid("arguments hold a number that is out of range"))?;
    let names = match tool.tool.execution.transport {
        Transport::Http => Names::Declared,
        Transport::Mcp => Names::Unambiguous,
    };
    tool.schema
        .check_arguments(&value, &executed, names)
        .map_err(|rejected| match rejected {
            ArgumentsRejection::Unusable => Refusal {
                code: ResultCode::UnsupportedTool,
                message: "the tool's schema cannot be used".into(),
                place: None,
            },
            ArgumentsRejection::TooLarge => {
                Refusal::invalid("arguments are too large to be checked")
            }
            ArgumentsRejection::Rounded { number } => Refusal::invalid(format!(
                "the number {number} has more digits than a 64-bit float keeps, and the tool's \
                 schema compares numbers: write it with at most 15 digits"
            )),
            ArgumentsRejection::Invalid {
                message,
                path,
                rule,
            } => Refusal {
                code: ResultCode::SchemaValidation,
                message,
                place: Some((path, rule)),
            },
        })?;
    // A path template with `{claw_id}` takes the value even if a closed schema does not declare it.
    if !declared && tool.claw_id_in_path() {
        return top_level(&executed, true, claw_id);
    }
    Ok(executed)
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
            unambiguous(&object)?;
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
fn unambiguous(object: &Object) -> Result<(), Refusal> {
    let keys = || object.members.iter().map(|member| member.key.as_str());
    match same_without_case(keys()) {
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
    match keys().find(|key| reads_as(key, CLAW_ID)) {
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
