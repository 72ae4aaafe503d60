//! One item of an input or output list.

use crate::json::{self, Object};
use crate::read::{scan_object, text_of};
use crate::{CallKind, DialectError, RawCall};

/// A call, and the way to answer it.
pub(super) struct Call {
    pub raw: RawCall,
    pub output: OutputForm,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputForm {
    /// A text, in the `output` of an item of this type.
    Text(&'static str),
    /// Only the runner can produce the answer (a screenshot, an exit code).
    RunnersOwn,
}

pub(super) fn kind(item: &str) -> String {
    text_of(item, "type").unwrap_or_default()
}

/// Decodes an item as a call that the runner or the mediator has to answer. A missing id is empty.
pub(super) fn call(item: &str) -> Result<Option<Call>, DialectError> {
    let fields = scan_object(item, "output")?;
    let id = text_of(item, "call_id").unwrap_or_default();
    let kind = kind(item);
    let (output, call_kind, arguments) = match kind.as_str() {
        "function_call" => (
            OutputForm::Text("function_call_output"),
            CallKind::Function,
            "arguments",
        ),
        "custom_tool_call" => (
            OutputForm::Text("custom_tool_call_output"),
            CallKind::Custom,
            "input",
        ),
        _ => {
            return Ok(
                runs_at_the_runner(item, &kind).map(|(name, arguments)| Call {
                    raw: RawCall {
                        id,
                        name: name.to_string(),
                        arguments: fields.get(item, arguments).unwrap_or("{}").to_string(),
                        kind: CallKind::Function,
                    },
                    output: OutputForm::RunnersOwn,
                }),
            );
        }
    };
    let name = text_of(item, "name").ok_or(DialectError::Missing("output[].name"))?;
    let arguments = match fields
        .get(item, arguments)
        .filter(|raw| !json::is_null(raw))
    {
        // Some servers write the object itself instead of a string.
        Some(raw) => json::string(raw).unwrap_or_else(|| raw.to_string()),
        None => String::new(),
    };
    Ok(Some(Call {
        raw: RawCall {
            id,
            name,
            arguments,
            kind: call_kind,
        },
        output,
    }))
}

/// For the call of a built-in tool that the runner executes, returns the name by which the tool is
/// declared, and the member with the arguments.
fn runs_at_the_runner(item: &str, kind: &str) -> Option<(&'static str, &'static str)> {
    match kind {
        "computer_call" => Some((COMPUTER, "action")),
        "local_shell_call" => Some(("local_shell", "action")),
        "apply_patch_call" => Some(("apply_patch", "operation")),
        "mcp_approval_request" => Some(("mcp", "arguments")),
        "tool_search_call" if text_of(item, "execution").as_deref() == Some("client") => {
            Some(("tool_search", "arguments"))
        }
        "shell_call" if !in_container(item) => Some(("shell", "action")),
        _ => None,
    }
}

const COMPUTER: &str = "computer";

/// Returns true if the provider's own container runs the call.
fn in_container(item: &str) -> bool {
    let Ok(fields) = Object::scan(item) else {
        return false;
    };
    fields
        .get(item, "environment")
        .and_then(|environment| text_of(environment, "type"))
        .is_some_and(|kind| kind != "local")
}

/// Returns the names by which calls of a declared tool are recognized.
pub(super) fn declared(tool: &str) -> Result<Vec<String>, DialectError> {
    let wrong = DialectError::WrongType {
        field: "tools",
        expected: "an array of tools",
    };
    let fields = Object::scan(tool).map_err(|_| wrong.clone())?;
    let kind = kind(tool);
    Ok(match kind.as_str() {
        "function" | "custom" => vec![text_of(tool, "name").ok_or(wrong)?],
        // A call names only the tool; its namespace is in another member.
        "namespace" => {
            let inner = fields.get(tool, "tools").unwrap_or("[]");
            let inner: Vec<String> = json::Array::scan(inner)
                .map_err(|_| wrong)?
                .texts(inner)
                .filter_map(|tool| text_of(tool, "name"))
                .collect();
            inner
        }
        "computer_use_preview" => vec![kind, COMPUTER.to_string()],
        "" => return Err(wrong),
        // A built-in tool of the provider is named by its type.
        _ => vec![kind],
    })
}
