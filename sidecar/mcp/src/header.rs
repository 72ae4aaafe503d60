//! MCP headers. The stateless revision mirrors values of the body in headers, so that a gateway
//! need not read bodies: the method, the tool's name, and the arguments that its schema marks with
//! `x-mcp-header`.
//!
//! Headers and body must agree; servers refuse a call where they differ.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::code::HEADER_MISMATCH;
use crate::message::Fault;

pub const VERSION_HEADER: &str = "mcp-protocol-version";
pub const METHOD_HEADER: &str = "mcp-method";
pub const NAME_HEADER: &str = "mcp-name";
pub const SESSION_HEADER: &str = "mcp-session-id";
/// Prefix of the headers that mirror marked arguments.
const PARAM_PREFIX: &str = "mcp-param-";

/// Limit the number of marks in one schema, and the depth of marked properties.
const MAX_MIRRORED: usize = 32;
const MAX_DEPTH: usize = 8;

/// Encodes a header value: unchanged if a header can carry the text, else in base64 with a marker.
pub fn value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim_matches(' ') == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    let encoded = match plain {
        true => HeaderValue::from_str(text),
        false => HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text))),
    };
    encoded.expect("printable ASCII is a header's value")
}

/// Decodes a header value. Returns `None` if it is missing or cannot be decoded.
pub fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    let encoded = text
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match encoded {
        None => Some(text.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

/// Returns true if all marks are valid and name different headers. Otherwise the tool must not be
/// called.
pub fn is_marked_well(schema: &str) -> bool {
    marks(schema).is_some()
}

/// Returns the headers of the marked arguments; none if a mark is invalid.
pub fn mirrored(schema: &str, arguments: &str) -> Vec<(HeaderName, HeaderValue)> {
    let marks = marks(schema).into_iter().flatten();
    marks
        .filter_map(|(path, name)| Some((name, value(&value_at(arguments, &path)?))))
        .collect()
}

/// Checks that the headers mirror exactly the marked arguments of the body.
pub fn check_mirrored(headers: &HeaderMap, schema: &str, arguments: &str) -> Result<(), Fault> {
    for (path, name) in marks(schema).into_iter().flatten() {
        let is_twice = headers.get_all(&name).iter().count() > 1;
        if is_twice || text(headers, name.as_str()) != value_at(arguments, &path) {
            let path = path.join(".");
            return Err(Fault::new(
                HEADER_MISMATCH,
                format!("the header {name} is not the argument {path}"),
            ));
        }
    }
    Ok(())
}

type Mark = (Vec<String>, HeaderName);

/// Returns `None` if a mark is invalid.
fn marks(schema: &str) -> Option<Vec<Mark>> {
    let mut marks = Vec::new();
    if !schema.contains("x-mcp-header") {
        return Some(marks);
    }
    find_marks(schema, &mut Vec::new(), &mut marks)?;
    let mut seen = HashSet::new();
    let is_each_once = marks.iter().all(|(_, name)| seen.insert(name.clone()));
    (marks.len() <= MAX_MIRRORED && is_each_once).then_some(marks)
}

type Properties<'a> = BTreeMap<String, &'a RawValue>;

/// Collects the marks of nested `properties`, and ignores marks elsewhere in the schema. Returns
/// `None` if a mark is invalid or a property is nested too deep.
fn find_marks(schema: &str, path: &mut Vec<String>, marks: &mut Vec<Mark>) -> Option<()> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(schema).unwrap_or_default();
    if let Some(mark) = members.get("x-mcp-header") {
        let kind = members.get("type").and_then(|it| string(it))?;
        let is_scalar = matches!(kind.as_str(), "string" | "integer" | "boolean");
        if path.is_empty() || !is_scalar {
            return None;
        }
        let name = format!("{PARAM_PREFIX}{}", string(mark)?);
        let name = HeaderName::try_from(name).ok()?;
        (name.as_str().len() > PARAM_PREFIX.len()).then_some(())?;
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

fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Returns the value at `path`: a string's text, or a number or boolean as it was written. Other
/// values give `None`.
fn value_at(arguments: &str, path: &[String]) -> Option<String> {
    let mut at = arguments;
    for key in path {
        let members: Properties<'_> = serde_json::from_str(at).ok()?;
        at = members.get(key)?.get();
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
        let check = |text: &str, expected: &str| assert_eq!(value(text), expected);
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
    fn only_marked_arguments_are_mirrored_in_headers() {
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
    fn headers_that_differ_from_the_body_are_refused() {
        let schema = r#"{"type":"object","properties":{
            "pond":{"type":"string","x-mcp-header":"Pond"}}}"#;
        let check = |said: &[&str], arguments: &str, is_right: bool| {
            let mut headers = HeaderMap::new();
            for said in said {
                headers.append("mcp-param-pond", value(said));
            }
            let checked = check_mirrored(&headers, schema, arguments);
            assert_eq!(checked.is_ok(), is_right, "{said:?} {arguments}");
        };
        check(&["rëef"], r#"{"pond":"r\u00ebef"}"#, true);
        check(&[], r#"{"pond":null}"#, true);
        check(&["reef"], r#"{"pond":"bay"}"#, false);
        check(&[], r#"{"pond":"bay"}"#, false);
        check(&["bay"], "{}", false);
        check(&["bay", "bay"], r#"{"pond":"bay"}"#, false);
    }

    #[test]
    fn invalid_marks_mirror_nothing_and_are_reported() {
        assert!(is_marked_well(
            r#"{"properties":{"pond":{"type":"string"}}}"#
        ));
        for property in [
            r#"{"type":"number","x-mcp-header":"Pond"}"#,
            r#"{"type":"string","x-mcp-header":""}"#,
            r#"{"type":"string","x-mcp-header":"a b"}"#,
            r#"{"type":"string","x-mcp-header":7}"#,
            r#"{"x-mcp-header":"Pond"}"#,
        ] {
            let schema = format!(r#"{{"properties":{{"pond":{property}}}}}"#);
            check(&schema, r#"{"pond":"reef"}"#, &[]);
            assert!(!is_marked_well(&schema), "{schema}");
        }
        let twice = r#"{"properties":{"a":{"type":"string","x-mcp-header":"P"},
            "b":{"type":"string","x-mcp-header":"p"}}}"#;
        check(twice, r#"{"a":"1","b":"2"}"#, &[]);
        assert!(!is_marked_well(twice));
    }
}
