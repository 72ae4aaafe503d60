//! Is this a JSON Schema that the mediator can validate arguments against, in bounded time?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Code;
use crate::finding::Finding;

/// More is not a tool's arguments but a document; every request carries it to the model.
const MAX_BYTES: usize = 64 * 1024;
const MAX_NODES: usize = 8192;
const MAX_DEPTH: usize = 48;
/// Nodes after every reference is followed: a schema that doubles at each of 24 levels is
/// small on paper and takes a third of a second per validation.
const MAX_EXPANDED: u64 = 100_000;

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords whose schemas apply to the same value: a cycle through these never ends.
const IN_PLACE: [&str; 9] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "$defs",
];

/// Checks a normalized schema. The finding's field is relative to the schema.
pub(crate) fn check(text: &str) -> Result<Value, Finding> {
    let too_large = |what: String| {
        Finding::new(
            "",
            Code::SchemaTooLarge,
            format!("{what}: simplify the schema"),
        )
    };
    if text.len() > MAX_BYTES {
        return Err(too_large(format!(
            "has {} bytes, {MAX_BYTES} are allowed",
            text.len()
        )));
    }
    let schema: Value = serde_json::from_str(text).map_err(|error| {
        Finding::new(
            "",
            Code::InvalidSchema,
            format!("does not read as a schema: {error}"),
        )
    })?;
    let Value::Object(root) = &schema else {
        return Err(Finding::new(
            "",
            Code::InvalidSchema,
            "must be a JSON Schema object, such as {\"type\": \"object\", \"properties\": {}}",
        ));
    };
    match root.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => {
            return Err(Finding::new(
                "type",
                Code::InvalidSchema,
                format!("is {other}: arguments are always an object, so it must be \"object\""),
            ));
        }
    }
    let mut nodes = 0;
    // Draft 4's word is a usual name of other things since.
    let ids: &[&str] = if text.contains("draft-04") {
        &["$id", "id"]
    } else {
        &["$id"]
    };
    bounds(&schema, "", 0, ids, &mut nodes)?;
    let mut costs = Costs {
        root: &schema,
        known: BTreeMap::new(),
        open: BTreeSet::new(),
    };
    if costs.value(&schema)? > MAX_EXPANDED {
        return Err(too_large(format!(
            "expands to more than {MAX_EXPANDED} nodes once references are followed"
        )));
    }
    in_place_cycles(&schema)?;
    jsonschema::options().build(&schema).map_err(|error| {
        Finding::new(
            pointer(&error.instance_path().to_string()),
            Code::InvalidSchema,
            format!("is not valid JSON Schema: {error}"),
        )
    })?;
    Ok(schema)
}

/// A JSON pointer in the notation of fields.
pub(crate) fn pointer(path: &str) -> String {
    path.split('/')
        .filter(|part| !part.is_empty())
        .fold(String::new(), |field, part| {
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("{field}[{part}]")
            } else if field.is_empty() {
                part.to_owned()
            } else {
                format!("{field}.{part}")
            }
        })
}

/// Nodes, depth, and references that leave the document, or are not counted from its root.
fn bounds(
    value: &Value,
    path: &str,
    depth: usize,
    ids: &[&str],
    nodes: &mut usize,
) -> Result<(), Finding> {
    *nodes += 1;
    if *nodes > MAX_NODES || depth > MAX_DEPTH {
        return Err(Finding::new(
            "",
            Code::SchemaTooLarge,
            format!(
                "has more than {MAX_NODES} values or is nested deeper than {MAX_DEPTH} levels: \
                 simplify the schema"
            ),
        ));
    }
    match value {
        Value::Object(members) => {
            for (key, child) in members {
                let at = format!("{path}/{key}");
                if let (true, Value::String(target)) = (REFERENCES.contains(&key.as_str()), child) {
                    check_target(target).map_err(|finding| finding.within(&pointer(&at)))?;
                }
                if depth > 0 && ids.contains(&key.as_str()) && child.is_string() {
                    return Err(Finding::new(
                        pointer(&at),
                        Code::InvalidSchema,
                        "makes this part a document of its own, from which its references count: \
                         remove it, and refer to the part as \"#/$defs/…\"",
                    ));
                }
                bounds(child, &at, depth + 1, ids, nodes)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, child)| {
            bounds(child, &format!("{path}/{index}"), depth + 1, ids, nodes)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// What follows, and the mediator, count by the path from the root.
fn check_target(target: &str) -> Result<(), Finding> {
    if !target.starts_with('#') {
        return Err(Finding::new(
            "",
            Code::RemoteReference,
            format!(
                "refers to {target:?}: copy that schema under $defs and refer to it as \"#/$defs/…\""
            ),
        ));
    }
    if target != "#" && !target.starts_with("#/") {
        return Err(Finding::new(
            "",
            Code::InvalidSchema,
            format!("refers to {target:?} by an anchor: write its path, such as \"#/$defs/…\""),
        ));
    }
    Ok(())
}

/// The size of the schema as a validator may walk it: references followed, each cycle once.
struct Costs<'a> {
    root: &'a Value,
    known: BTreeMap<&'a str, u64>,
    open: BTreeSet<&'a str>,
}

impl<'a> Costs<'a> {
    fn value(&mut self, value: &'a Value) -> Result<u64, Finding> {
        match value {
            Value::Object(members) => {
                let mut cost: u64 = 1;
                for (key, child) in members {
                    let more = match (key.as_str(), child) {
                        (key, Value::String(target)) if REFERENCES.contains(&key) => {
                            self.reference(target)?
                        }
                        _ => self.value(child)?,
                    };
                    cost = cost.saturating_add(more);
                }
                Ok(cost)
            }
            Value::Array(items) => items.iter().try_fold(1_u64, |cost, item| {
                Ok(cost.saturating_add(self.value(item)?))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(1),
        }
    }

    fn reference(&mut self, target: &'a str) -> Result<u64, Finding> {
        if let Some(cost) = self.known.get(target) {
            return Ok(*cost);
        }
        // A cycle: it takes part of the value at each turn, and values are bounded.
        if !self.open.insert(target) {
            return Ok(1);
        }
        let cost = match resolve(self.root, target) {
            Some(found) => self.value(found)?,
            // The validator reports what is not there.
            None => 1,
        };
        self.open.remove(target);
        self.known.insert(target, cost);
        Ok(cost)
    }
}

fn resolve<'a>(root: &'a Value, target: &str) -> Option<&'a Value> {
    let fragment = target.strip_prefix('#')?;
    let decoded = percent_decoded(fragment)?;
    root.pointer(&decoded)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next()?, rest.next()?];
            let pair = std::str::from_utf8(&pair).ok()?;
            bytes.push(u8::from_str_radix(pair, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Refuses a schema that refers to itself without looking into the value.
fn in_place_cycles(root: &Value) -> Result<(), Finding> {
    let mut targets = BTreeSet::new();
    collect_targets(root, &mut targets);
    for start in &targets {
        let mut seen = BTreeSet::new();
        let mut next = vec![*start];
        while let Some(target) = next.pop() {
            if !seen.insert(target) {
                continue;
            }
            let Some(value) = resolve(root, target) else {
                continue;
            };
            let mut reached = BTreeSet::new();
            in_place_targets(value, &mut reached);
            if reached.contains(start) {
                return Err(Finding::new(
                    "",
                    Code::InvalidSchema,
                    format!("{start:?} refers to itself without an end: break the cycle"),
                ));
            }
            next.extend(reached);
        }
    }
    Ok(())
}

fn collect_targets<'a>(value: &'a Value, targets: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            for (key, child) in members {
                if let (true, Value::String(target)) = (REFERENCES.contains(&key.as_str()), child) {
                    targets.insert(target);
                }
                collect_targets(child, targets);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_targets(item, targets)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// References that apply to the same value as `schema` does.
fn in_place_targets<'a>(schema: &'a Value, targets: &mut BTreeSet<&'a str>) {
    let Value::Object(members) = schema else {
        return;
    };
    for keyword in REFERENCES {
        if let Some(Value::String(target)) = members.get(keyword) {
            targets.insert(target);
        }
    }
    for keyword in IN_PLACE {
        match (keyword, members.get(keyword)) {
            // Definitions apply only where something refers to them.
            ("$defs", _) | (_, None) => {}
            ("dependentSchemas", Some(Value::Object(schemas))) => {
                schemas
                    .values()
                    .for_each(|schema| in_place_targets(schema, targets));
            }
            (_, Some(Value::Array(schemas))) => {
                schemas
                    .iter()
                    .for_each(|schema| in_place_targets(schema, targets));
            }
            (_, Some(schema)) => in_place_targets(schema, targets),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: &Value, code: Code, field: &str) {
        let finding = check(&schema.to_string()).expect_err("is refused");
        assert_eq!(
            (finding.code, &*finding.field),
            (code, field),
            "{finding:?}"
        );
    }

    #[test]
    fn what_people_write_is_taken() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {"fish": {"type": "string", "enum": ["trout"]}}}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                   "properties": {"tree": {"$ref": "#/$defs/node"}},
                   "$defs": {"node": {"type": "object", "properties": {
                       "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}}),
        ] {
            check(&schema.to_string()).expect("is taken");
        }
    }

    #[test]
    fn what_is_no_schema_of_arguments_is_refused() {
        refused(&json!([]), Code::InvalidSchema, "");
        refused(&json!(true), Code::InvalidSchema, "");
        refused(&json!({"type": "string"}), Code::InvalidSchema, "type");
        refused(
            &json!({"type": "object", "properties": {"fish": {"type": "strnig"}}}),
            Code::InvalidSchema,
            "properties.fish.type",
        );
        refused(
            &json!({"type": "object", "required": "fish"}),
            Code::InvalidSchema,
            "required",
        );
    }

    #[test]
    fn references_stay_inside() {
        for target in [
            "https://pond.test/fish.json",
            "file:///etc/passwd",
            "fish.json",
        ] {
            refused(
                &json!({"properties": {"fish": {"$ref": target}}}),
                Code::RemoteReference,
                "properties.fish.$ref",
            );
        }
        refused(
            &json!({"properties": {"fish": {"$ref": "#/$defs/missing"}}}),
            Code::InvalidSchema,
            "",
        );
    }

    #[test]
    fn references_count_from_the_root() {
        // To the validator each of these refers to itself.
        refused(
            &json!({"properties": {"fish": {"$id": "urn:fish", "allOf": [{"$ref": "#"}]}}}),
            Code::InvalidSchema,
            "properties.fish.$id",
        );
        refused(
            &json!({"$schema": "http://json-schema.org/draft-04/schema#",
                "properties": {"fish": {"id": "urn:fish", "allOf": [{"$ref": "#"}]}}}),
            Code::InvalidSchema,
            "properties.fish.id",
        );
        refused(
            &json!({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}),
            Code::InvalidSchema,
            "$ref",
        );
        // An argument may have such a name, and a document its own.
        let plain =
            json!({"$id": "urn:fish", "type": "object", "properties": {"id": {"type": "string"}}});
        check(&plain.to_string()).expect("is taken");
    }

    #[test]
    fn bombs_are_refused() {
        let mut defs = serde_json::Map::new();
        for level in 0..24 {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            defs.insert(format!("l{level}"), json!({"allOf": [next.clone(), next]}));
        }
        defs.insert("l24".to_owned(), json!({"type": "object"}));
        refused(
            &json!({"$ref": "#/$defs/l0", "$defs": defs}),
            Code::SchemaTooLarge,
            "",
        );

        let deep = (0..60).fold(json!({}), |inner, _| json!({"not": inner}));
        refused(&deep, Code::SchemaTooLarge, "");

        let wide: Vec<_> = (0..9000).map(|n| json!(n)).collect();
        refused(&json!({"enum": wide}), Code::SchemaTooLarge, "");

        let long = "x".repeat(70_000);
        refused(&json!({"description": long}), Code::SchemaTooLarge, "");

        for keyword in REFERENCES {
            refused(
                &json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{keyword: "#/$defs/a"}]}}}),
                Code::InvalidSchema,
                "",
            );
        }
    }
}
