//! The reply as JSON for the runner.

use super::reply;
use crate::json::{self, Object};
use crate::read::with_members;
use crate::{DialectError, Usage};

pub(crate) fn whole(text: &str, usage: Option<Usage>) -> Result<String, DialectError> {
    let Some(usage) = usage else {
        return Ok(text.to_string());
    };
    let body = Object::scan(text)?;
    let summed = summed_usage(body.get(text, "usage"), usage)?;
    with_members(text, &[("usage", summed)])
}

pub(crate) fn stored(text: &str) -> Result<Vec<String>, DialectError> {
    let content = reply::content(text)?.to_string();
    Ok(vec![reply::message("assistant", content)])
}

pub(crate) fn emptied(text: &str) -> Result<String, DialectError> {
    with_members(
        text,
        &[
            ("content", "[]".into()),
            ("stop_reason", json::quote("end_turn")),
            ("stop_sequence", "null".into()),
        ],
    )
}

/// The usage object with the turn's sums; cache counts stay the last reply's.
pub(super) fn summed_usage(raw: Option<&str>, usage: Usage) -> Result<String, DialectError> {
    let raw = raw.filter(|raw| !json::is_null(raw)).unwrap_or("{}");
    with_members(
        raw,
        &[
            ("input_tokens", usage.prompt_tokens.to_string()),
            ("output_tokens", usage.completion_tokens.to_string()),
        ],
    )
}
