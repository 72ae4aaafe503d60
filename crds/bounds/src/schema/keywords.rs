//! The keywords of JSON Schema, for messages about misspelt and misplaced ones.
//!
//! A validator ignores a keyword that it does not know, and one that is for another type than the
//! value's. Neither limits anything. Not here: the check of the keywords' values, which is the
//! library's.

use serde_json::{Map, Value};

const OF_NUMBERS: [&str; 5] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maximum",
    "minimum",
    "multipleOf",
];
const OF_TEXTS: [&str; 6] = [
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "maxLength",
    "minLength",
    "pattern",
];
const OF_LISTS: [&str; 10] = [
    "additionalItems",
    "contains",
    "items",
    "maxContains",
    "maxItems",
    "minContains",
    "minItems",
    "prefixItems",
    "unevaluatedItems",
    "uniqueItems",
];
const OF_OBJECTS: [&str; 11] = [
    "additionalProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "maxProperties",
    "minProperties",
    "patternProperties",
    "properties",
    "propertyNames",
    "required",
    "unevaluatedProperties",
];
const OF_ALL: [&str; 32] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$schema",
    "$vocabulary",
    "allOf",
    "anyOf",
    "const",
    "default",
    "definitions",
    "deprecated",
    "description",
    "else",
    "enum",
    "example",
    "examples",
    "format",
    "id",
    "if",
    "not",
    "oneOf",
    "readOnly",
    "then",
    "title",
    "type",
    "writeOnly",
];

/// Keywords whose value is a schema.
const SCHEMAS: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const SCHEMA_LISTS: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords whose value maps names to schemas.
const SCHEMAS_BY_NAME: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Returns all keywords.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    let by_type = OF_NUMBERS.iter().chain(&OF_TEXTS).chain(&OF_LISTS);
    by_type.chain(&OF_OBJECTS).chain(&OF_ALL).copied()
}

/// Returns the name of the type whose values a keyword limits. `None` if the keyword is for all
/// types.
pub fn limited_type(keyword: &str) -> Option<&'static str> {
    let of = |keywords: &[&str]| keywords.contains(&keyword);
    match () {
        () if of(&OF_NUMBERS) => Some("number"),
        () if of(&OF_TEXTS) => Some("string"),
        () if of(&OF_LISTS) => Some("array"),
        () if of(&OF_OBJECTS) => Some("object"),
        () => None,
    }
}

/// A member of a schema that is no keyword.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKeyword {
    /// JSON pointer of the member.
    pub pointer: String,
    pub name: String,
}

/// Returns at most `limit` members that are no keywords. Members of vendors (`x-`) are left out.
/// The schema must be within the bounds of [`crate::schema`].
pub fn unknown_keywords(schema: &Value, limit: usize) -> Vec<UnknownKeyword> {
    let mut found = Vec::new();
    let mut waiting = vec![(String::new(), schema)];
    while let Some((pointer, schema)) = waiting.pop() {
        for (name, value) in schema.as_object().into_iter().flatten() {
            let at = child(&pointer, name);
            if !name.starts_with("x-") && !keywords().any(|known| known == name) {
                if found.len() == limit {
                    return found;
                }
                let name = name.clone();
                found.push(UnknownKeyword { pointer: at, name });
                continue;
            }
            let name = name.as_str();
            match value {
                Value::Object(named) if SCHEMAS_BY_NAME.contains(&name) => {
                    waiting.extend(named.iter().map(|(key, value)| (child(&at, key), value)));
                }
                Value::Array(items) if SCHEMA_LISTS.contains(&name) => {
                    let items = items.iter().enumerate();
                    waiting.extend(items.map(|(index, it)| (child(&at, &index.to_string()), it)));
                }
                Value::Object(_) if SCHEMAS.contains(&name) => waiting.push((at, value)),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_) => {}
            }
        }
    }
    found
}

fn child(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Returns the first keyword of `limits` that is for none of the types of `schema`, and the type
/// that the keyword is for.
pub fn other_type<'l>(
    limits: &'l Map<String, Value>,
    schema: &Map<String, Value>,
) -> Option<(&'l str, &'static str)> {
    let types: Vec<&str> = match schema.get("type")? {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    limits.keys().find_map(|keyword| {
        let limited = limited_type(keyword)?;
        let is_limited =
            |kind: &&str| *kind == limited || (*kind == "integer" && limited == "number");
        let is_other = !types.is_empty() && !types.iter().any(is_limited);
        is_other.then_some((keyword.as_str(), limited))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_are_no_keywords_are_found_wherever_a_schema_is() {
        let schema = json!({
            "type": "object",
            "maxLen": 1,
            "x-vendor": {"maxLen": 1},
            "enum": [{"maxLen": 1}],
            "properties": {
                "maxLen": {"type": "string", "maxLength": 3},
                "note": {"anyOf": [{"maxlength": 3}, {"items": {"minimun": 1}}]},
            },
            "additionalProperties": {"patern": "a"},
        });
        let mut found: Vec<String> = unknown_keywords(&schema, 9)
            .into_iter()
            .map(|it| it.pointer)
            .collect();
        found.sort();
        let expected = [
            "/additionalProperties/patern",
            "/maxLen",
            "/properties/note/anyOf/0/maxlength",
            "/properties/note/anyOf/1/items/minimun",
        ];
        assert_eq!(found, expected);
        assert_eq!(unknown_keywords(&schema, 2).len(), 2);
    }

    #[test]
    fn a_keyword_for_another_type_is_found() {
        let check = |limits: Value, schema: Value, expected: Option<(&str, &str)>| {
            let of = |value: &Value| value.as_object().cloned().expect("an object");
            let limits = of(&limits);
            assert_eq!(other_type(&limits, &of(&schema)), expected);
        };
        let text = json!({"type": "string"});
        check(
            json!({"maximum": 5}),
            text.clone(),
            Some(("maximum", "number")),
        );
        check(json!({"maxLength": 5, "enum": ["a"]}), text, None);
        check(json!({"maximum": 5}), json!({"type": "integer"}), None);
        check(
            json!({"maximum": 5}),
            json!({"type": ["null", "number"]}),
            None,
        );
        check(json!({"maximum": 5}), json!({}), None);
    }
}
