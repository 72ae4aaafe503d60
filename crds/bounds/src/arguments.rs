//! The arguments that a tool's JSON Schema declares.
//!
//! By JSON Schema, a schema also accepts arguments that it does not mention. Here, only the
//! arguments that it names are declared. A service may read an argument that nobody reviewed
//! (`_method`, a parameter of its framework), so the mediator sends only declared arguments to an
//! HTTP service.
//!
//! Not here: the check of the values, which is the validator's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::json::pointer::resolve;
use crate::names;

/// Keywords whose value is a schema, or a list of schemas, for the same value.
const SAME: [&str; 6] = ["allOf", "anyOf", "oneOf", "if", "then", "else"];
/// Keywords whose value maps names of arguments to schemas for the same value.
const SAME_BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords with which a schema says which other arguments it accepts.
const OPENING: [&str; 3] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
];

/// The top-level arguments that a schema declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Names in `properties`, in `required` or in a dependency.
    pub names: BTreeSet<String>,
    /// Keys of `patternProperties`.
    pub patterns: BTreeSet<String>,
    /// The schema says which other arguments it accepts (`additionalProperties`,
    /// `unevaluatedProperties`, `propertyNames`; `false` accepts none).
    pub open: bool,
}

/// Two names in one `properties` that some readers take for the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguity {
    /// JSON pointer of the `properties`.
    pub at: String,
    pub name: String,
    pub other: String,
}

impl Arguments {
    /// Reads the schema and the schemas that it combines: `allOf`, `anyOf`, `oneOf`, `if`, `then`,
    /// `else`, `dependentSchemas`, `dependencies` and local references. A `not` declares nothing.
    pub fn declared(schema: &Value) -> Self {
        let mut declared = Self::default();
        for part in all_parts(schema, vec![schema]) {
            declared.read(part);
        }
        declared
    }

    /// Returns true if the mediator accepts an argument of this name. Does not check `patterns`.
    pub fn takes(&self, name: &str) -> bool {
        self.open || self.names.contains(name)
    }

    fn read(&mut self, members: &Map<String, Value>) {
        let listed = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(String::from).collect()
        };
        for (key, value) in members {
            match (key.as_str(), value) {
                ("properties", Value::Object(named)) => self.names.extend(named.keys().cloned()),
                ("patternProperties", Value::Object(named)) => {
                    self.patterns.extend(named.keys().cloned());
                }
                ("required", _) => self.names.extend(listed(value)),
                ("dependentRequired" | "dependencies" | "dependentSchemas", Value::Object(by)) => {
                    self.names.extend(by.keys().cloned());
                    self.names.extend(by.values().flat_map(listed));
                }
                (key, value) if OPENING.contains(&key) => {
                    self.open |= *value != Value::Bool(false);
                }
                _ => {}
            }
        }
    }
}

/// Returns these schemas, and all schemas that they apply to the same value, each once.
fn all_parts<'s>(root: &'s Value, mut next: Vec<&'s Value>) -> Vec<&'s Map<String, Value>> {
    let mut seen = BTreeSet::new();
    let mut parts = Vec::new();
    while let Some(part) = next.pop() {
        if let Value::Object(members) = part
            && seen.insert(std::ptr::from_ref(members))
        {
            parts.push(members);
            combined(root, members, &mut next);
        }
    }
    parts
}

/// Adds the schemas that a schema with these members applies to the same value.
fn combined<'s>(root: &'s Value, members: &'s Map<String, Value>, next: &mut Vec<&'s Value>) {
    for (key, value) in members {
        let key = key.as_str();
        if SAME.contains(&key) {
            match value.as_array() {
                Some(all) => next.extend(all),
                None => next.push(value),
            }
        } else if SAME_BY_NAME.contains(&key) {
            next.extend(value.as_object().into_iter().flat_map(Map::values));
        } else if REFERENCES.contains(&key) {
            next.extend(value.as_str().and_then(|target| resolve(root, target)));
        }
    }
}

/// An argument, or a member of one, whose name a case-insensitive reader takes for a declared name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCase<'a> {
    /// The name as it was sent.
    pub name: &'a str,
    /// The name as the schema declares it.
    pub declared: &'a str,
}

/// Returns the first name in `arguments` that the schema does not declare at that place, but that
/// differs only in case from a name declared there. If the schema accepts undeclared names, the
/// value of such a name is not checked, and a service may read it in place of the checked value.
///
/// Costs no more than one check by a validator: each schema that applies to a value is visited once
/// for that value.
pub fn in_other_case<'a>(schema: &'a Value, arguments: &'a Value) -> Option<OtherCase<'a>> {
    find_other_case(schema, vec![schema], arguments)
}

fn find_other_case<'a>(
    root: &'a Value,
    parts: Vec<&'a Value>,
    value: &'a Value,
) -> Option<OtherCase<'a>> {
    let parts = all_parts(root, parts);
    match value {
        Value::Object(members) => {
            let declared = || {
                let named = parts.iter().filter_map(|part| part.get("properties"));
                named.filter_map(Value::as_object).flat_map(Map::keys)
            };
            let is_declared = |name: &String| {
                let named = parts.iter().filter_map(|part| part.get("properties"));
                named
                    .filter_map(Value::as_object)
                    .any(|named| named.contains_key(name))
            };
            let undeclared: Vec<&String> =
                members.keys().filter(|name| !is_declared(name)).collect();
            if !undeclared.is_empty() {
                let folded: BTreeMap<_, &str> = declared()
                    .map(|name| (names::folded(name), name.as_str()))
                    .collect();
                let other = undeclared.into_iter().find_map(|name| {
                    let declared = folded.get(&names::folded(name))?;
                    Some(OtherCase { name, declared })
                });
                if other.is_some() {
                    return other;
                }
            }
            let mut nested = members.iter().filter(|(_, value)| has_names(value));
            nested.find_map(|(name, value)| {
                let below = parts.iter().flat_map(|part| member_schemas(part, name));
                find_other_case(root, below.collect(), value)
            })
        }
        Value::Array(items) => {
            let mut nested = items.iter().filter(|item| has_names(item)).peekable();
            nested.peek()?;
            let below: Vec<&Value> = parts.iter().flat_map(|part| item_schemas(part)).collect();
            nested.find_map(|item| find_other_case(root, below.clone(), item))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns whether there can be names in the value. Most arguments are texts and numbers.
fn has_names(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

/// Returns the schemas of a member. Includes the schemas of all patterns, also of those that do not
/// match the name: they can only add declared names.
fn member_schemas<'s>(part: &&'s Map<String, Value>, name: &str) -> Vec<&'s Value> {
    let named = part.get("properties").and_then(|named| named.get(name));
    let by_pattern = part.get("patternProperties").and_then(Value::as_object);
    let others = ["additionalProperties", "unevaluatedProperties"];
    named
        .into_iter()
        .chain(by_pattern.into_iter().flat_map(Map::values))
        .chain(others.into_iter().filter_map(|keyword| part.get(keyword)))
        .collect()
}

fn item_schemas<'s>(part: &&'s Map<String, Value>) -> Vec<&'s Value> {
    let keywords = [
        "items",
        "prefixItems",
        "additionalItems",
        "unevaluatedItems",
        "contains",
    ];
    let found = keywords.into_iter().filter_map(|keyword| part.get(keyword));
    found
        .flat_map(|schemas| match schemas.as_array() {
            Some(each) => each.iter().collect(),
            None => vec![schemas],
        })
        .collect()
}

/// Returns the first `properties`, anywhere in a schema, with two names that some readers take for
/// the same name, or with another name that some readers take for `identity`.
pub fn ambiguity(schema: &Value, identity: &str) -> Option<Ambiguity> {
    let mut next = vec![(String::new(), schema)];
    while let Some((at, part)) = next.pop() {
        match part {
            Value::Object(members) => {
                for (key, value) in members {
                    let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                    if let ("properties", Value::Object(named)) = (key.as_str(), value)
                        && let Some((name, other)) = ambiguous(named, identity)
                    {
                        return Some(Ambiguity { at, name, other });
                    }
                    next.push((at, value));
                }
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                next.extend(items.map(|(index, item)| (format!("{at}/{index}"), item)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    None
}

fn ambiguous(named: &Map<String, Value>, identity: &str) -> Option<(String, String)> {
    let lookalike = named.keys().find(|name| names::reads_as(name, identity));
    if let Some(name) = lookalike {
        return Some((name.clone(), identity.to_owned()));
    }
    let (name, other) = names::same_without_case(named.keys().map(String::as_str))?;
    Some((name.to_owned(), other.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, names: &[&str], patterns: &[&str], open: bool) {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        let expected = Arguments {
            names: set(names),
            patterns: set(patterns),
            open,
        };
        assert_eq!(Arguments::declared(schema), expected, "{schema}");
    }

    #[test]
    fn a_schema_without_openness_declares_its_named_arguments() {
        check(&json!({}), &[], &[], false);
        check(&json!({"type": "object"}), &[], &[], false);
        check(
            &json!({"properties": {"fish": {}}, "required": ["pond"]}),
            &["fish", "pond"],
            &[],
            false,
        );
        check(
            &json!({"properties": {"fish": {}}, "patternProperties": {"^x-": {}}}),
            &["fish"],
            &["^x-"],
            false,
        );
    }

    #[test]
    fn a_schema_can_open_itself_to_other_arguments() {
        for keyword in OPENING {
            check(&json!({keyword: {"type": "string"}}), &[], &[], true);
            check(&json!({keyword: true}), &[], &[], true);
            check(&json!({keyword: false}), &[], &[], false);
        }
        check(
            &json!({"allOf": [{"$ref": "#/$defs/any"}], "$defs": {"any": {"additionalProperties": {}}}}),
            &[],
            &[],
            true,
        );
        // `env` accepts any members, but the schema accepts no other arguments.
        check(
            &json!({"properties": {"env": {"additionalProperties": true}}}),
            &["env"],
            &[],
            false,
        );
    }

    #[test]
    fn combined_schemas_declare_their_arguments() {
        let named = |name: &str| json!({"properties": {name: {}}});
        check(
            &json!({
                "allOf": [named("a"), {"$ref": "#/$defs/part"}],
                "anyOf": [named("b"), {"required": ["c"]}],
                "oneOf": [{"oneOf": [named("d")]}],
                "if": named("e"), "then": named("f"), "else": named("g"),
                "dependentRequired": {"h": ["i"]},
                "dependentSchemas": {"j": named("k")},
                "dependencies": {"l": ["m"], "n": named("o")},
                "not": named("never"),
                "$defs": {"part": named("p~/%q"), "unused": named("never")},
                "properties": {"r": named("never")},
            }),
            &[
                "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p~/%q",
                "r",
            ],
            &[],
            false,
        );
        check(
            &json!({"$ref": "#/definitions/p~1~0%25q",
                "definitions": {"p/~%q": {"properties": {"a": {}}, "$ref": "#"}}}),
            &["a"],
            &[],
            false,
        );
    }

    #[test]
    fn a_declared_name_in_other_case_is_found_where_it_is_declared() {
        let schema = json!({
            "properties": {
                "amount": {"type": "integer"},
                "labels": {"additionalProperties": {"type": "string"}},
                "order": {"$ref": "#/$defs/order"},
                "orders": {"type": "array", "items": {"$ref": "#/$defs/order"}},
            },
            "additionalProperties": {"properties": {"deep": {}}},
            "patternProperties": {"^x-": {"properties": {"wide": {}}}},
            "$defs": {"order": {"allOf": [{"properties": {"side": {}}}], "properties": {"next": {"$ref": "#/$defs/order"}}}},
        });
        let found = |arguments: Value| {
            in_other_case(&schema, &arguments)
                .map(|it| (it.name.to_string(), it.declared.to_string()))
        };
        let is = |name: &str, declared: &str| Some((name.to_string(), declared.to_string()));
        assert_eq!(found(json!({"AMOUNT": 1})), is("AMOUNT", "amount"));
        assert_eq!(
            found(json!({"orders": [{}, {"next": {"ſide": 1}}]})),
            is("ſide", "side")
        );
        assert_eq!(found(json!({"x-a": {"Wide": 1}})), is("Wide", "wide"));
        assert_eq!(found(json!({"any": {"DEEP": 1}})), is("DEEP", "deep"));
        // An undeclared name, at a place where the schema declares no similar one.
        for fine in [
            json!({"labels": {"Amount": "1", "Side": "2"}}),
            json!({"amount": 1, "order": {"side": 1, "next": {"AMOUNT": 1}}, "orders": [1, "SIDE"]}),
            json!({"any": {"Amount": 1}}),
        ] {
            assert_eq!(found(fine.clone()), None, "{fine}");
        }
    }

    #[test]
    fn ambiguous_names_in_a_schema_are_found() {
        let found = |schema: Value| {
            ambiguity(&schema, "claw_id").map(|found| (found.at, found.name, found.other))
        };
        let is = |at: &str, name: &str, other: &str| {
            Some((at.to_string(), name.to_string(), other.to_string()))
        };
        assert_eq!(
            found(json!({"properties": {"AMOUNT": {}, "amount": {}}})),
            is("/properties", "AMOUNT", "amount")
        );
        assert_eq!(
            found(json!({"properties": {"order": {"items": [{"properties": {"clawId": {}}}]}}})),
            is("/properties/order/items/0/properties", "clawId", "claw_id")
        );
        assert_eq!(
            found(json!({"properties": {"claw_id": {}, "amount": {"properties": {"Amount": {}}}}})),
            None
        );
    }
}
