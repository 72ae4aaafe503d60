//! The schema that a model is shown of a tool with one rule.
//!
//! The rule's schema is merged into the tool's, property by property, so that the result has no
//! `allOf`, which providers refuse. Keywords that cannot be merged become a sentence in the property's
//! description. Calls are checked against both whole schemas, so the result may restrict less than
//! they do, never more.

use serde_json::{Map, Value};
use toolcrib_bounds::cut;

use crate::rule::Rule;

/// Limits the bytes of the sentence for keywords that cannot be merged.
const MAX_SENTENCE: usize = 256;

/// The tool's schema and the rule leave no value for an argument, so no call can meet the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no value of {argument} is left: {why}")]
pub struct Contradiction {
    pub argument: String,
    pub why: String,
}

/// Merges a rule into the tool's schema: pinned arguments are left out, since the model need not
/// write them, and the rule's schema narrows the others, unless the rule is tried out. The result has
/// the same bytes for the same inputs. A `schema` that is no object is returned as it is.
pub fn shown_schema(schema: &str, rule: &Rule) -> Result<String, Contradiction> {
    if rule.schema().is_none() {
        return Ok(schema.to_owned());
    }
    let Ok(Value::Object(mut root)) = serde_json::from_str::<Value>(schema) else {
        return Ok(schema.to_owned());
    };
    let empty = Map::new();
    let narrower = rule
        .arguments()
        .filter(|_| !rule.is_audit())
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut properties = object_of(root.remove("properties"));
    let mut required = texts(root.remove("required").as_ref());
    for (name, narrow) in object_of(narrower.get("properties").cloned()) {
        if narrow == Value::Bool(false) {
            if required.contains(&name) || texts(narrower.get("required")).contains(&name) {
                return Err(contradiction(&name, "it is required and forbidden"));
            }
            properties.remove(&name);
            continue;
        }
        let Some(property) = properties.get_mut(&name) else {
            continue;
        };
        merge(&name, property, &narrow)?;
    }
    for name in texts(narrower.get("required")) {
        if !required.contains(&name) {
            required.push(name);
        }
    }
    for pinned in rule.pinned() {
        properties.remove(pinned);
        required.retain(|name| name != pinned);
    }
    root.insert("properties".to_owned(), Value::Object(properties));
    // Draft 4 requires at least one name in `required`.
    if !required.is_empty() {
        required.sort();
        root.insert("required".to_owned(), required.into());
    }
    Ok(Value::Object(root).to_string())
}

fn merge(name: &str, property: &mut Value, narrow: &Value) -> Result<(), Contradiction> {
    let Some(narrow) = narrow.as_object() else {
        return Ok(());
    };
    // `true` accepts everything, as an empty schema does.
    if *property == Value::Bool(true) {
        *property = Value::Object(Map::new());
    }
    let Some(members) = property.as_object_mut() else {
        return Ok(());
    };
    let mut said = Vec::new();
    for (keyword, value) in narrow {
        if !merge_keyword(name, members, keyword, value)? {
            said.push(format!("{keyword} {value}"));
        }
    }
    bounds_meet(name, members)?;
    if !said.is_empty() {
        let sentence = format!("Restricted further: {}.", said.join(", "));
        let sentence = cut(&sentence, MAX_SENTENCE);
        let description = match members.get("description").and_then(Value::as_str) {
            Some(text) if !text.is_empty() => format!("{text} {sentence}"),
            Some(_) | None => sentence.into_owned(),
        };
        members.insert("description".to_owned(), description.into());
    }
    Ok(())
}

/// Keywords that only describe a value.
const ANNOTATIONS: [&str; 6] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
];
/// Keywords whose larger number is the narrower one.
const LOWER_BOUNDS: [&str; 5] = [
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "minItems",
    "minProperties",
];
const UPPER_BOUNDS: [&str; 5] = [
    "maximum",
    "exclusiveMaximum",
    "maxLength",
    "maxItems",
    "maxProperties",
];
/// Keywords that can be added where the tool's schema has none.
const ADDED: [&str; 6] = [
    "pattern",
    "format",
    "multipleOf",
    "uniqueItems",
    "type",
    "items",
];

/// Merges one keyword; false: it has to be said in words.
fn merge_keyword(
    name: &str,
    members: &mut Map<String, Value>,
    keyword: &str,
    value: &Value,
) -> Result<bool, Contradiction> {
    if ANNOTATIONS.contains(&keyword) || members.get(keyword) == Some(value) {
        return Ok(true);
    }
    match (keyword, members.get(keyword)) {
        ("enum" | "const", _) => return choose(name, members, keyword, value).map(|()| true),
        (keyword, None)
            if LOWER_BOUNDS.contains(&keyword)
                || UPPER_BOUNDS.contains(&keyword)
                || ADDED.contains(&keyword) =>
        {
            members.insert(keyword.to_owned(), value.clone());
        }
        (keyword, Some(own)) if LOWER_BOUNDS.contains(&keyword) => {
            if own.as_f64() < value.as_f64() {
                members.insert(keyword.to_owned(), value.clone());
            }
        }
        (keyword, Some(own)) if UPPER_BOUNDS.contains(&keyword) => {
            if own.as_f64() > value.as_f64() {
                members.insert(keyword.to_owned(), value.clone());
            }
        }
        // Every integer is a number.
        ("type", Some(Value::String(own))) if own == "integer" && *value == "number" => {}
        ("type", Some(Value::String(own))) if own == "number" && *value == "integer" => {
            members.insert(keyword.to_owned(), value.clone());
        }
        (_, _) => return Ok(false),
    }
    Ok(true)
}

/// Intersects the listed values, as `enum`, or as `const` where one is left.
fn choose(
    name: &str,
    members: &mut Map<String, Value>,
    keyword: &str,
    value: &Value,
) -> Result<(), Contradiction> {
    let listed = |keyword: &str, value: &Value| match (keyword, value) {
        ("enum", Value::Array(values)) => values.clone(),
        (_, value) => vec![value.clone()],
    };
    let mut left = listed(keyword, value);
    for own in ["enum", "const"] {
        if let Some(allowed) = members.get(own).map(|value| listed(own, value)) {
            left.retain(|value| allowed.contains(value));
        }
    }
    members.remove("enum");
    members.remove("const");
    if let Some(types) = members.get("type")
        && !left.is_empty()
    {
        left.retain(|value| is_of(value, types));
        if left.is_empty() {
            let why = format!("no listed value has the type {types}");
            return Err(contradiction(name, &why));
        }
    }
    match left.len() {
        0 => {
            return Err(contradiction(
                name,
                "the tool and the rule list different values",
            ));
        }
        1 => members.insert("const".to_owned(), left.remove(0)),
        _ => members.insert("enum".to_owned(), left.into()),
    };
    Ok(())
}

/// Whether the value has one of the types of the keyword `type`. An unknown type is not checked.
fn is_of(value: &Value, types: &Value) -> bool {
    let is_one = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        // 7.0 is an integer too.
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some(_) | None => true,
    };
    match types.as_array() {
        Some(names) => names.iter().any(is_one),
        None => is_one(types),
    }
}

fn bounds_meet(name: &str, members: &Map<String, Value>) -> Result<(), Contradiction> {
    let number = |keyword: &str| members.get(keyword).and_then(Value::as_f64);
    for (lower, upper) in [
        ("minimum", "maximum"),
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
        ("minProperties", "maxProperties"),
    ] {
        if let (Some(low), Some(high)) = (number(lower), number(upper))
            && low > high
        {
            let why = format!("its {lower} {low} is above its {upper} {high}");
            return Err(contradiction(name, &why));
        }
    }
    Ok(())
}

fn contradiction(argument: &str, why: &str) -> Contradiction {
    Contradiction {
        argument: argument.to_owned(),
        why: why.to_owned(),
    }
}

fn object_of(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(members)) => members,
        Some(_) | None => Map::new(),
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_manifest as manifest;

    use super::*;

    fn rule(pin: &Value, arguments: &Value) -> Rule {
        let text = json!({
            "digest": "r1:a", "grant": {"namespace": "pond", "name": "a"}, "pin": pin, "arguments": arguments,
        });
        let read: manifest::Rule = serde_json::from_str(&text.to_string()).expect("a rule");
        Rule::read(&read).expect("a readable rule")
    }

    fn shown(schema: &Value, pin: &Value, arguments: &Value) -> Result<Value, String> {
        let shown = shown_schema(&schema.to_string(), &rule(pin, arguments));
        let text = shown.map_err(|contradiction| contradiction.to_string())?;
        Ok(serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn pinned_and_forbidden_arguments_are_left_out() {
        let schema = json!({"type": "object", "required": ["account", "amount"],
            "properties": {"account": {}, "amount": {}, "note": {}}});
        assert_eq!(
            shown(
                &schema,
                &json!({"account": "A1"}),
                &json!({"properties": {"note": false}})
            ),
            Ok(json!({"type": "object", "required": ["amount"], "properties": {"amount": {}}}))
        );
    }

    #[test]
    fn bounds_and_listed_values_are_merged() {
        let schema = json!({"properties": {
            "amount": {"type": "number", "minimum": 1, "maximum": 1000},
            "side": {"enum": ["buy", "sell", "hold"]},
            "symbol": {"type": "string", "description": "What to trade."},
        }});
        let narrower = json!({"required": ["amount"], "properties": {
            "amount": {"type": "integer", "minimum": 0, "maximum": 100},
            "side": {"enum": ["sell", "buy", "short"]},
            "symbol": {"pattern": "^[A-Z]+$", "not": {"const": "OTTR"}},
        }});
        assert_eq!(
            shown(&schema, &json!({}), &narrower),
            Ok(json!({"required": ["amount"], "properties": {
                "amount": {"type": "integer", "minimum": 1, "maximum": 100},
                "side": {"enum": ["sell", "buy"]},
                "symbol": {"type": "string", "pattern": "^[A-Z]+$",
                    "description": "What to trade. Restricted further: not {\"const\":\"OTTR\"}."},
            }}))
        );
    }

    #[test]
    fn an_empty_intersection_is_a_contradiction() {
        let check = |schema: Value, narrower: Value, expected: &str| {
            let schema = json!({"properties": {"a": schema}});
            let narrower = json!({"properties": {"a": narrower}});
            assert_eq!(
                shown(&schema, &json!({}), &narrower),
                Err(expected.to_owned())
            );
        };
        check(
            json!({"enum": [1, 2]}),
            json!({"const": 3}),
            "no value of a is left: the tool and the rule list different values",
        );
        check(
            json!({"minimum": 5}),
            json!({"maximum": 4}),
            "no value of a is left: its minimum 5 is above its maximum 4",
        );
    }

    #[test]
    fn a_rule_about_time_alone_leaves_the_bytes_of_the_schema() {
        let read: manifest::Rule = serde_json::from_str(
            r#"{"digest": "r1:a", "grant": {"namespace": "pond", "name": "a"}, "not_after": "2026-12-31T00:00:00Z"}"#,
        )
        .expect("a rule");
        let rule = Rule::read(&read).expect("a readable rule");
        let schema = "{ \"properties\" : {\"a\":{}} }";
        assert_eq!(shown_schema(schema, &rule), Ok(schema.to_owned()));
    }
}
