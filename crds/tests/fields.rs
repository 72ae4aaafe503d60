//! Every field of every kind is bounded and described: the API server refuses oversized values
//! before a component stores, watches or compiles them, and `kubectl explain` has a text.

use serde_json::Value;
use toolcrib_crds::definitions;

/// Collects the faults of a schema and of all schemas below it.
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
        }
        Some("integer" | "number" | "boolean") => {}
        other => {
            let open = schema["x-kubernetes-int-or-string"] == true
                || schema["x-kubernetes-preserve-unknown-fields"] == true;
            expect(open, &format!("type {other:?}"));
            if schema.get("items").is_some() {
                sweep(&schema["items"], &format!("{path}[]"), wrong);
            }
        }
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        sweep(field, &format!("{path}.{name}"), wrong);
    }
}

/// The schema of `Surface.spec.descriptor`.
fn descriptor() -> Value {
    let surface = definitions()
        .into_iter()
        .find(|definition| definition.spec.names.kind == "Surface")
        .expect("the kind");
    let surface = serde_json::to_value(&surface.spec.versions[0]).expect("JSON");
    surface["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["descriptor"].clone()
}

/// Parts that could refuse a value, or below which the API server would prune.
fn closed(schema: &Value, path: &str, found: &mut Vec<String>) {
    let members = schema.as_object().expect("a schema");
    if schema["x-kubernetes-preserve-unknown-fields"] != true {
        found.push(format!("{path}: unknown keys are pruned"));
    }
    if schema["nullable"] != true {
        found.push(format!("{path}: a null is removed"));
    }
    let harmless = [
        "description",
        "items",
        "nullable",
        "properties",
        "x-kubernetes-preserve-unknown-fields",
    ];
    for word in members.keys() {
        if !harmless.contains(&word.as_str()) {
            found.push(format!("{path}: {word} refuses values"));
        }
    }
    if let Some(items) = members.get("items") {
        closed(items, &format!("{path}[]"), found);
    }
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        closed(key, &format!("{path}.{name}"), found);
    }
}

#[test]
fn a_descriptor_of_any_content_is_stored_whole() {
    let mut found = Vec::new();
    closed(&descriptor(), "descriptor", &mut found);
    // The descriptor itself is an object, or absent.
    assert_eq!(
        found,
        [
            "descriptor: a null is removed",
            "descriptor: type refuses values",
        ]
    );
}

#[test]
fn a_closed_part_of_a_descriptor_is_found() {
    let open = serde_json::json!({
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
        "items": {"properties": {"name": {"type": "string"}}},
    });
    let mut found = Vec::new();
    closed(&open, "tools", &mut found);
    assert_eq!(
        found,
        [
            "tools[]: unknown keys are pruned",
            "tools[]: a null is removed",
            "tools[].name: unknown keys are pruned",
            "tools[].name: a null is removed",
            "tools[].name: type refuses values",
        ]
    );
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
    assert_eq!(kinds, 8);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn missing_bounds_and_descriptions_are_found() {
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

/// Otherwise kstatus takes a new object for ready before the controller has seen it.
#[test]
fn a_new_object_of_each_kind_with_ready_observes_no_generation() {
    let mut found = Vec::new();
    for definition in definitions() {
        let version = serde_json::to_value(&definition.spec.versions[0]).expect("JSON");
        let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
        assert!(
            status["properties"].is_object(),
            "{}",
            definition.spec.names.kind
        );
        if status["default"] == serde_json::json!({"observedGeneration": -1}) {
            found.push(definition.spec.names.kind);
        } else {
            assert_eq!(status["default"], Value::Null);
        }
    }
    assert_eq!(
        found,
        [
            "Agent",
            "ClusterToolPolicy",
            "ModelProvider",
            "Surface",
            "ToolDefaults",
            "ToolGrant",
        ]
    );
}
