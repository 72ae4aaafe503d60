//! Every field of every kind is bounded and described: the API server refuses what is too
//! large before anybody stores, watches or compiles it, and `kubectl explain` has words.

use serde_json::Value;
use toolcrib_crds::definitions;

/// What is wrong with a schema and all below it.
fn sweep(schema: &Value, path: &str, wrong: &mut Vec<String>) {
    let has = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
    let mut expect = |fine: bool, what: &str| {
        if !fine {
            wrong.push(format!("{path}: {what}"));
        }
    };
    if !path.ends_with("[]") && !path.ends_with("{}") {
        expect(
            schema["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "no description",
        );
    }
    match schema["type"].as_str() {
        Some("string") => expect(
            has(&["maxLength", "enum", "format"]),
            "a string without maxLength",
        ),
        Some("array") => {
            expect(has(&["maxItems"]), "an array without maxItems");
            sweep(&schema["items"], &format!("{path}[]"), wrong);
        }
        Some("object") => {
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            expect(
                open || has(&["properties", "additionalProperties"]),
                "an object without fields",
            );
            if let Some(values) = schema.get("additionalProperties") {
                expect(has(&["maxProperties"]), "a map without maxProperties");
                sweep(values, &format!("{path}{{}}"), wrong);
            }
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                sweep(field, &format!("{path}.{name}"), wrong);
            }
        }
        Some("integer" | "number" | "boolean") => {}
        other => {
            let open = schema["x-kubernetes-int-or-string"] == true
                || schema["x-kubernetes-preserve-unknown-fields"] == true;
            expect(open, &format!("type {other:?}"));
        }
    }
}

#[test]
fn every_field_is_bounded_and_described() {
    let mut wrong = Vec::new();
    let mut kinds = 0;
    for definition in definitions() {
        let kind = &definition.spec.names.kind;
        for version in &definition.spec.versions {
            let schema = version.schema.as_ref().expect("a schema");
            let schema = serde_json::to_value(&schema.open_api_v3_schema).expect("JSON");
            for part in ["spec", "status"] {
                let found = &schema["properties"][part];
                assert!(found.is_object(), "{kind} has no {part}");
                sweep(found, &format!("{kind}.{part}"), &mut wrong);
            }
            kinds += 1;
        }
    }
    assert_eq!(kinds, 5);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_missing_is_found() {
    let schema = serde_json::json!({
        "type": "object",
        "description": "…",
        "properties": {
            "name": {"type": "string", "description": "…"},
            "list": {"type": "array", "description": "…", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "fine": {"type": "string", "description": "…", "maxLength": 3},
        },
    });
    let mut wrong = Vec::new();
    sweep(&schema, "spec", &mut wrong);
    assert_eq!(
        wrong,
        [
            "spec.list: an array without maxItems",
            "spec.list[]: a string without maxLength",
            "spec.map: no description",
            "spec.map: a map without maxProperties",
            "spec.name: a string without maxLength",
        ]
    );
}
