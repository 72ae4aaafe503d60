use k8s_openapi::api::core::v1::Service;

use super::field::{FIELD, MESSAGE};
use super::*;
use crate::{Agent, ModelProvider, Surface, ToolGrant};

#[track_caller]
fn check<T: DeserializeOwned + fmt::Debug>(kind: &str, spec: &str, expected: &str) {
    let text = format!(r#"{{"metadata":{{"name":"otter"}},"spec":{spec}}}"#);
    let error = decode::<T>(kind, &text).expect_err(spec);
    assert_eq!(error.to_string(), expected, "{spec}");
}

#[test]
fn known_fields_lists_the_siblings_of_a_field() {
    assert_eq!(
        known_fields("ToolGrant", "spec.tools[0].alow"),
        [
            "allow",
            "approval",
            "arguments",
            "descriptorDigest",
            "enforcement",
            "rate",
            "surface",
            "when"
        ]
    );
    assert_eq!(
        known_fields("ToolGrant", "spec.tools[0].surface.nam"),
        ["name", "namespace"]
    );
    for (kind, path) in [
        ("ToolGrant", "spec"),
        ("ToolGrant", "spec.tools[0][1].x"),
        ("ToolGrant", "spec.nothing.x"),
        ("Service", "spec.prots"),
    ] {
        assert_eq!(known_fields(kind, path), [""; 0], "{kind} {path}");
    }
}

#[test]
fn a_decode_error_names_the_field_and_the_fix() {
    check::<Surface>(
        "Surface",
        r#"{"service":{"name":"reed","port":"4000"}}"#,
        r#"spec.service.port: is the text "4000": write a whole number from 1 to 65535, without quotes"#,
    );
    check::<Surface>(
        "Surface",
        r#"{"service":{"name":"reed","port":70000}}"#,
        "spec.service.port: is the number 70000: write a whole number from 1 to 65535",
    );
    check::<Surface>(
        "Surface",
        r#"{"service":{"port":80}}"#,
        "spec.service.name: is missing: write the name of an object: lower-case letters, digits and '-', such as trading-api",
    );
    check::<Surface>(
        "Surface",
        r#"{"url":"https://reed","tiers":{"swim":"readonly"}}"#,
        r#"spec.tiers.swim: is the text "readonly": write one of ReadOnly, Workspace, System, Elevated"#,
    );
    check::<ToolGrant>(
        "ToolGrant",
        r#"{"agents":["otter"],"tools":[{"surface":{"name":"a"},"allow":["*"]},{"surface":"trading-api","allow":["*"]}]}"#,
        "spec.tools[1].surface: is a text: write {name: trading-api}",
    );
    check::<ToolGrant>(
        "ToolGrant",
        r#"{"agents":["otter"],"tools":[{"surface":{"name":"a"},"alow":["swim"]}]}"#,
        "spec.tools[0].allow: is missing, and alow beside it is not a field: did you mean allow?",
    );
    check::<ToolGrant>(
        "ToolGrant",
        r#"{"agents":["otter"],"tools":[{"surface":{"name":"a"},"names":["swim"]}]}"#,
        "spec.tools[0].allow: is missing: write a list, each entry of it after a dash",
    );
    check::<ToolGrant>(
        "ToolGrant",
        r#"{"agents":"otter"}"#,
        "spec.agents: is a text: write a list, each entry of it after a dash",
    );
    check::<Agent>(
        "Agent",
        r#"{"mode":"native"}"#,
        r#"spec.mode: is the text "native": write Mediated or Native"#,
    );
    check::<Agent>(
        "Agent",
        r#"{"native":"yes"}"#,
        "spec.native: is a text: write true or false, without quotes",
    );
    check::<Agent>(
        "Agent",
        r#"{"policy":{"toolTimeout":30}}"#,
        "spec.policy.toolTimeout: is the number 30: write a text, in quotes: whole numbers with ms, s, m or h, such as 30s or 1m30s, between 1ms and 24h",
    );
    check::<Agent>(
        "Agent",
        r#"{"mode":"Telepathic"}"#,
        "spec.mode: is a text that the field does not take: write Mediated or Native",
    );
    check::<Agent>(
        "Agent",
        r#"{"mode":7}"#,
        "spec.mode: is the number 7: write Mediated or Native",
    );
    check::<Agent>(
        "Agent",
        "[]",
        "spec: is a list: write fields, such as budgets, context, egress, extraEgress, identity, mode, models, native",
    );
    check::<ToolGrant>(
        "ToolGrant",
        r#"{"agents":["otter"],"tools":[{"surface":{"name":"desk"},"allow":["trade"],"arguments":{"pin":"A-17"}}]}"#,
        "spec.tools[0].arguments.pin: is a text: write fields, such as {name: value}",
    );
    let missing = decode::<Agent>("Agent", r#"{"metadata":{"name":"otter"}}"#);
    assert_eq!(missing.expect_err("no spec").field, "spec");
}

#[test]
fn an_error_in_a_part_has_a_path_relative_to_it() {
    #[derive(Debug, serde::Deserialize)]
    struct Part {
        #[serde(rename = "description")]
        _description: Option<String>,
    }
    let at = ["spec", "descriptor", "tools", "[]"];
    let check = |text: &str, expected: &str| {
        let error = decode_part::<Part>("Surface", &at, text).expect_err(text);
        assert_eq!(error.to_string(), expected);
    };
    check(
        r#"{"description": 7}"#,
        "description: is a number: `kubectl explain surface.spec.descriptor.tools.description --recursive` shows what it takes",
    );
    check(
        r#""fish""#,
        "is a text: `kubectl explain surface.spec.descriptor.tools --recursive` shows what it takes",
    );
}

#[test]
fn an_error_in_a_kind_without_schema_names_the_field() {
    check::<Service>(
        "Service",
        r#"{"ports":[{"port":"eighty"}]}"#,
        "spec.ports[0].port: is a text: `kubectl explain service --recursive` shows what it takes",
    );
}

/// A message must not repeat a credential that was written into the wrong field.
#[test]
fn a_possible_credential_is_not_quoted() {
    let token = "hunter2-hunter2";
    for spec in [
        format!(r#"{{"endpoints":[],"apiKeys":["{token}"]}}"#),
        format!(r#"{{"endpoints":[],"apiKeys":[{{"name":"a","secretKeyRef":"{token}"}}]}}"#),
        format!(r#"{{"endpoints":[],"auth":"{token}"}}"#),
        format!(r#"{{"endpoints":"{token}"}}"#),
    ] {
        let text = format!(r#"{{"metadata":{{"name":"otter"}},"spec":{spec}}}"#);
        let error = decode::<ModelProvider>("ModelProvider", &text).expect_err(&spec);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn long_or_hidden_keys_are_cut_in_messages() {
    let key = format!("swim\u{202e}{}", "x".repeat(100_000));
    let text = format!(r#"{{"metadata":{{"name":"otter"}},"spec":{{"tiers":{{"{key}":7}}}}}}"#);
    let error = decode::<Surface>("Surface", &text).expect_err("a tier is a text");
    assert!(error.field.len() <= FIELD && error.message.len() <= MESSAGE);
    assert!(!error.field.contains('\u{202e}') && error.field.starts_with("spec.tiers.swimx"));
}
