//! The reply as JSON for the runner.

use super::reply;
use crate::json::{self, Object};
use crate::read::{present, scan_array, text_of, with_members};
use crate::{DialectError, Usage};

/// Restores the fields of the request that the provider repeats in its reply, so that the runner
/// gets its own values without the additions of the mediator.
pub(crate) fn whole(
    request: &str,
    text: &str,
    usage: Option<Usage>,
) -> Result<String, DialectError> {
    let body = Object::scan(text)?;
    let asked = Object::scan(request)?;
    let mut set = Vec::new();
    for (field, unset) in [
        ("instructions", "null"),
        ("tools", "[]"),
        ("tool_choice", "\"auto\""),
        ("previous_response_id", "null"),
    ] {
        if body.member(field).is_some() {
            let own = present(request, &asked, field).unwrap_or(unset);
            set.push((field, own.to_string()));
        }
    }
    if let Some(usage) = usage {
        set.push((
            "usage",
            reply::USAGE.write(present(text, &body, "usage"), usage)?,
        ));
    }
    with_members(text, &set)
}

pub(crate) fn stored(text: &str) -> Result<Vec<String>, DialectError> {
    let output = reply::output(text)?;
    Ok(scan_array(output, "output")?
        .texts(output)
        .map(String::from)
        .collect())
}

/// Returns one message without text, so that a runner that stores the reply has an item by which
/// the hidden rounds can be found.
pub(crate) fn emptied(text: &str) -> Result<String, DialectError> {
    let id = text_of(text, "id").unwrap_or_default();
    let id = format!("msg_{}", id.strip_prefix("resp_").unwrap_or(&id));
    let part = json::object(&[
        ("type", json::quote("output_text")),
        ("annotations", "[]".into()),
        ("text", json::quote("")),
    ]);
    let message = json::object(&[
        ("id", json::quote(&id)),
        ("type", json::quote("message")),
        ("status", json::quote("completed")),
        ("role", json::quote("assistant")),
        ("content", json::array(&[part])),
    ]);
    with_members(
        text,
        &[
            ("output", json::array(&[message])),
            ("status", json::quote("completed")),
            ("incomplete_details", "null".into()),
        ],
    )
}
