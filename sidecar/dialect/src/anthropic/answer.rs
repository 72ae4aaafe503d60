//! The reply as JSON for the runner.

use super::reply;
use crate::json::{self, Object};
use crate::read::{scan_object, with_members};
use crate::usage::{counted, with_details};
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

/// Replaces the content by one empty text, because clients read `content[0]`. When a runner sends
/// the empty answer back, the mediator leaves it out of the provider's request: providers refuse an
/// empty text.
pub(crate) fn emptied(text: &str) -> Result<String, DialectError> {
    let nothing = json::object(&[("type", json::quote("text")), ("text", json::quote(""))]);
    let mut set = vec![
        ("content", json::array(&[nothing])),
        ("stop_reason", json::quote("end_turn")),
        ("stop_sequence", "null".into()),
    ];
    if scan_object(text, "body")?.member("stop_details").is_some() {
        set.push(("stop_details", "null".into()));
    }
    with_members(text, &set)
}

/// Writes the turn's sums into the usage object. Sets `cache_creation` to null: its counts per
/// lifetime are not summed, and those of the last reply would contradict the sum.
pub(super) fn summed_usage(raw: Option<&str>, usage: Usage) -> Result<String, DialectError> {
    let raw = raw.filter(|raw| !json::is_null(raw)).unwrap_or("{}");
    let cached = usage
        .cache_read_tokens
        .saturating_add(usage.cache_write_tokens);
    let mut set = vec![
        (
            "input_tokens",
            usage.prompt_tokens.saturating_sub(cached).to_string(),
        ),
        ("output_tokens", usage.completion_tokens.to_string()),
    ];
    let caches = [
        (reply::CACHE_WRITE, usage.cache_write_tokens),
        (reply::CACHE_READ, usage.cache_read_tokens),
    ];
    set.extend(counted(raw, &caches)?);
    if scan_object(raw, "usage")?
        .member("cache_creation")
        .is_some()
    {
        set.push(("cache_creation", "null".into()));
    }
    let thinking = [(reply::THINKING, usage.reasoning_tokens)];
    with_details(&with_members(raw, &set)?, reply::DETAILS, &thinking)
}
