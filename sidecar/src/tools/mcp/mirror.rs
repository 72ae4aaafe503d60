//! What the stateless revision repeats in headers, so that a gateway need not read bodies:
//! the tool's name, and the arguments that its schema marks with `x-mcp-header`. Pure.
//!
//! The headers say what the body says, and servers refuse a call where they differ.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use toolcrib_dialect::json;

/// Of one schema's annotations, and how deep they may stand.
const MAX_MIRRORED: usize = 32;
const MAX_DEPTH: usize = 8;

/// A value that a header can carry: as it is, or in base64 and marked so.
pub fn header_value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim_matches(' ') == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    let encoded = match plain {
        true => HeaderValue::from_str(text),
        false => HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text))),
    };
    encoded.expect("printable ASCII is a header's value")
}

/// The marked arguments that are there. None at all where a mark is not one that the
/// protocol knows: servers then look for none.
pub fn mirrored(schema: &str, arguments: &str) -> Vec<(HeaderName, HeaderValue)> {
    if !schema.contains("x-mcp-header") {
        return Vec::new();
    }
    let mut marks = Vec::new();
    if find_marks(schema, &mut Vec::new(), &mut marks).is_none() {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    if marks.len() > MAX_MIRRORED || !marks.iter().all(|(_, name)| seen.insert(name.clone())) {
        return Vec::new();
    }
    marks
        .into_iter()
        .filter_map(|(path, name)| Some((name, header_value(&value_at(arguments, &path)?))))
        .collect()
}

type Properties<'a> = BTreeMap<String, &'a RawValue>;

/// Marks along `properties` alone. `None`: one of them is not valid.
fn find_marks(
    schema: &str,
    path: &mut Vec<String>,
    marks: &mut Vec<(Vec<String>, HeaderName)>,
) -> Option<()> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(schema).unwrap_or_default();
    if let Some(mark) = members.get("x-mcp-header") {
        let kind = members.get("type").and_then(|it| json::string(it.get()))?;
        let is_scalar = matches!(kind.as_str(), "string" | "integer" | "boolean");
        if path.is_empty() || !is_scalar {
            return None;
        }
        let name = format!("mcp-param-{}", json::string(mark.get())?);
        let name = HeaderName::try_from(name).ok()?;
        (name.as_str().len() > "mcp-param-".len()).then_some(())?;
        marks.push((path.clone(), name));
    }
    let properties = members.get("properties").map_or("{}", |it| it.get());
    let properties: Properties<'_> = serde_json::from_str(properties).unwrap_or_default();
    for (name, schema) in properties {
        if path.len() == MAX_DEPTH {
            return None;
        }
        path.push(name);
        find_marks(schema.get(), path, marks)?;
        path.pop();
    }
    Some(())
}

/// A string's text, or a number or flag as it was written.
fn value_at(arguments: &str, path: &[String]) -> Option<String> {
    let mut at = arguments;
    let mut found;
    for key in path {
        found = json::Object::scan(at).ok()?;
        at = found.get(at, key)?;
    }
    match serde_json::from_str(at).ok()? {
        Value::String(text) => Some(text),
        Value::Number(_) | Value::Bool(_) => Some(at.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_no_header_carries_is_encoded() {
        let check = |text: &str, expected: &str| assert_eq!(header_value(text), expected);
        check("get_weather", "get_weather");
        check("", "");
        check("a b", "a b");
        check(" a", "=?base64?IGE=?=");
        check("ü", "=?base64?w7w=?=");
        check("a\r\nHost: b", "=?base64?YQ0KSG9zdDogYg==?=");
        check("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
    }

    fn check(schema: &str, arguments: &str, expected: &[(&str, &str)]) {
        let seen = mirrored(schema, arguments);
        let seen: Vec<_> = seen
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(seen, expected, "{schema} {arguments}");
    }

    #[test]
    fn marked_arguments_stand_in_headers_and_others_do_not() {
        let schema = r#"{"type":"object","properties":{
            "pond":{"type":"string","x-mcp-header":"Pond"},
            "at":{"type":"object","properties":{"depth":{"type":"integer","x-mcp-header":"Depth"}}},
            "deep":{"type":"boolean","x-mcp-header":"Deep"},
            "fish":{"type":"string"}}}"#;
        check(
            schema,
            r#"{"pond":"r\u00e9ef","fish":"carp","deep":true,"at":{"depth":12345678901234567890}}"#,
            &[
                ("mcp-param-depth", "12345678901234567890"),
                ("mcp-param-deep", "true"),
                ("mcp-param-pond", "=?base64?csOpZWY=?="),
            ],
        );
        check(schema, r#"{"pond":null,"at":3}"#, &[]);
    }

    #[test]
    fn where_a_mark_is_no_mark_there_are_none() {
        for property in [
            r#"{"type":"number","x-mcp-header":"Pond"}"#,
            r#"{"type":"string","x-mcp-header":""}"#,
            r#"{"type":"string","x-mcp-header":"a b"}"#,
            r#"{"type":"string","x-mcp-header":7}"#,
            r#"{"x-mcp-header":"Pond"}"#,
        ] {
            let schema = format!(r#"{{"properties":{{"pond":{property}}}}}"#);
            check(&schema, r#"{"pond":"reef"}"#, &[]);
        }
        let twice = r#"{"properties":{"a":{"type":"string","x-mcp-header":"P"},
            "b":{"type":"string","x-mcp-header":"p"}}}"#;
        check(twice, r#"{"a":"1","b":"2"}"#, &[]);
    }
}
