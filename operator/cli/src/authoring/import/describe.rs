//! Converts a service's descriptor, as its author wrote it, for a Surface.

use serde_json::Value;

use super::finding::{Cause, Findings, Weight};
use super::names::dns_label;

/// Parses a descriptor; JSON is YAML too.
pub fn parse(text: &str) -> Result<Value, String> {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(json) => {
            toolcrib_compile::yaml::check_nesting(text)?;
            serde_yaml::from_str(text)
                .map_err(|_| format!("is neither JSON nor YAML: {json}: correct it there"))?
        }
    };
    match value.is_object() {
        true => Ok(value),
        false => Err(
            "is not an object: write the descriptor's fields, such as version and tools".to_owned(),
        ),
    }
}

/// Returns the path of the skill's file, as written in the descriptor.
pub fn skill(descriptor: &Value) -> Option<&str> {
    descriptor.get("skill").and_then(Value::as_str)
}

/// Replaces the skill's path by its text, and converts `ttl` of feeds to seconds (from `"5m"`,
/// too).
pub fn adapt(descriptor: &mut Value, skill: Option<String>, service: &str, found: &mut Findings) {
    if let (Some(text), Value::Object(members)) = (skill, &mut *descriptor) {
        members.remove("skill");
        members.insert("skillText".to_owned(), text.into());
    }
    let feeds = descriptor.get_mut("feeds").and_then(Value::as_array_mut);
    for (at, feed) in feeds.into_iter().flatten().enumerate() {
        let Some(written) = feed.get("ttl").and_then(Value::as_str) else {
            continue;
        };
        match super::pod::duration_seconds(written) {
            Some(seconds) => feed["ttl"] = seconds.into(),
            None => found.add_cause(
                0,
                Weight::Error,
                format!("descriptor of {service}: the ttl {written:?} of feed {at} is not a duration: write seconds, or a text such as 5m"),
                Cause::SurfaceField(
                    dns_label(service),
                    format!("spec.descriptor.feeds[{at}].ttl"),
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeply_nested_brackets_are_refused() {
        let error = parse(&format!("a: {}", "[".repeat(100_000))).expect_err("too deep");
        assert!(error.contains("more than 128 brackets"), "{error}");
    }
}
