//! The content of a descriptor: its keys from the installed schema, and the requests that the
//! mediator's own code makes of calls.

use std::collections::BTreeSet;

use serde_json::Value;
use toolcrib_compile::{Code, ObjectRef, check_surface};
use toolcrib_crds::RawJson;
use toolcrib_docs::cell;
use toolcrib_mediation::{http_call, http_method};

use crate::objects;

const BEFORE: &str = include_str!("descriptor/before.md");
const ARGUMENTS: &str = include_str!("descriptor/arguments.md");
const AFTER: &str = include_str!("descriptor/after.md");

/// The files that read descriptors, without their tests.
const READERS: [&str; 6] = [
    include_str!("../../../operator/compile/src/surface/descriptor/mod.rs"),
    include_str!("../../../operator/compile/src/surface/descriptor/members.rs"),
    include_str!("../../../operator/compile/src/surface/descriptor/versions.rs"),
    include_str!("../../../operator/compile/src/surface/descriptor/tools.rs"),
    include_str!("../../../operator/compile/src/surface/descriptor/http.rs"),
    include_str!("../../../operator/compile/src/surface/descriptor/feeds.rs"),
];

pub fn page() -> String {
    let schema = schema();
    let mut rows = String::new();
    keys(&schema, "", &mut rows);
    format!(
        "{BEFORE}\n## Keys\n\n| key | |\n|---|---|\n{rows}\n{ARGUMENTS}\n{}\n{AFTER}",
        requests()
    )
}

/// The schema of `Surface.spec.descriptor`.
fn schema() -> Value {
    let surface = toolcrib_crds::definitions()
        .into_iter()
        .find(|definition| definition.spec.names.kind == "Surface")
        .unwrap();
    let version = serde_json::to_value(&surface.spec.versions[0]).unwrap();
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["descriptor"].clone()
}

/// The keys below a schema in reading order: keys with keys of their own come last.
fn keys(schema: &Value, path: &str, rows: &mut String) {
    let mut below: Vec<(&String, &Value)> =
        schema["properties"].as_object().unwrap().iter().collect();
    below.sort_by_key(|(name, key)| (inner(key).is_some(), *name));
    for (name, key) in below {
        let list = if key["items"].is_object() { "[]" } else { "" };
        let place = format!("{path}{name}{list}");
        let about = key["description"].as_str().unwrap();
        *rows += &format!("| `{place}` | {} |\n", cell(about));
        if let Some(inner) = inner(key) {
            keys(inner, &format!("{place}."), rows);
        }
    }
}

/// The schema with the keys of a key's value, or of the items of its list.
fn inner(key: &Value) -> Option<&Value> {
    [key, &key["items"]]
        .into_iter()
        .find(|schema| schema["properties"].is_object())
}

/// Calls of the page's example, and the requests that they send.
fn requests() -> String {
    let loaded = objects::load_page("descriptor.md", BEFORE);
    let compiled =
        objects::compile_clean(&loaded, "descriptor.md", &ObjectRef::new("shop", "clerk"));
    let calls = [
        (
            "get_order",
            r#"{"order_id":"A 7","expand":["items","customer"]}"#,
        ),
        ("add_note", r#"{"order_id":"A7","text":"Call back"}"#),
        ("set_priority", r#"{"order_id":"A7","level":2}"#),
        ("drop_notes", r#"{"ids":[1,2]}"#),
    ];
    let mut text = "| call | request | body |\n|---|---|---|\n".to_owned();
    for (name, arguments) in calls {
        let tool = compiled
            .files
            .tools
            .tools
            .iter()
            .find(|tool| tool.name == format!("orders.{name}"))
            .unwrap();
        let arguments = RawJson::from_text(arguments.to_owned()).unwrap();
        let request = http_call(tool, &arguments, "clerk", None).unwrap();
        let body = request.body.map_or_else(
            || "none".to_owned(),
            |body| format!("`{}`", String::from_utf8(body).unwrap()),
        );
        text += &format!(
            "| `{name}` `{}` | `{} {}` | {body} |\n",
            arguments.get(),
            toolcrib_compile::method_name(http_method(tool).unwrap()),
            request.path_and_query
        );
    }
    text
}

/// Collects the names of all keys, at every depth.
fn names(schema: &Value, names: &mut BTreeSet<String>) {
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        names.insert(name.clone());
        names_of_inner(key, names);
    }
}

fn names_of_inner(key: &Value, found: &mut BTreeSet<String>) {
    if let Some(inner) = inner(key) {
        names(inner, found);
    }
}

/// Quoted texts that could be a key, and fields of decoded types.
fn keys_that_are_read(source: &str) -> BTreeSet<String> {
    let is_key = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut found = BTreeSet::new();
    let mut decoded = false;
    let mut renamed = false;
    let code = source.split("#[cfg(test)]").next().unwrap();
    for line in code.lines().map(str::trim) {
        if line.starts_with("//") {
            continue;
        }
        found.extend(
            line.split('"')
                .skip(1)
                .step_by(2)
                .filter(|text| is_key(text))
                .map(str::to_owned),
        );
        match line {
            line if line.starts_with("#[derive(") => decoded = line.contains("Deserialize"),
            line if line.starts_with("#[serde(rename") => renamed = true,
            "}" => decoded = false,
            line if decoded => {
                let field = line.trim_start_matches("pub ").split_once(": ");
                if let Some((field, _)) = field.filter(|(field, _)| is_key(field))
                    && !std::mem::take(&mut renamed)
                {
                    found.insert(field.to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// Words in the readers that are not keys: values, rules of header names, parts of messages.
const OTHER_WORDS: [&str; 25] = [
    "additionalProperties",
    "authorization",
    "connection",
    "cookie",
    "descriptor",
    "expect",
    "forwarded",
    "header",
    "host",
    "json",
    "mediator",
    "missing",
    "null",
    "origin",
    "patternProperties",
    "properties",
    "referer",
    "refused",
    "rename",
    "required",
    "spec",
    "text",
    "trailer",
    "upgrade",
    "via",
];

#[test]
fn every_key_that_the_compiler_reads_is_documented() {
    let mut documented = BTreeSet::new();
    names(&schema(), &mut documented);
    let read: BTreeSet<String> = READERS.into_iter().flat_map(keys_that_are_read).collect();
    // One key of each way of reading it: a literal, a field, a renamed field, an annotation.
    for known in [
        "skillText",
        "ttl",
        "inputSchema",
        "destructiveHint",
        "body_key",
    ] {
        assert!(read.contains(known), "{known} is not found in the readers");
    }
    let unknown: Vec<&String> = read
        .difference(&documented)
        .filter(|word| !OTHER_WORDS.contains(&word.as_str()))
        .collect();
    assert!(
        unknown.is_empty(),
        "{unknown:?}: document the key in crds/src/fields/descriptor.rs, or add the word to OTHER_WORDS"
    );
}

#[test]
fn every_documented_annotation_is_known_to_the_compiler() {
    let schema = schema();
    let annotations = &schema["properties"]["tools"]["items"]["properties"]["annotations"];
    for name in annotations["properties"].as_object().unwrap().keys() {
        let text = format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: Surface, metadata: {{name: kelp, namespace: pond}}, \
             spec: {{url: 'https://kelp.example', descriptor: {{version: 2, tools: [{{name: look, \
             inputSchema: {{type: object}}, http: {{method: GET, path: /}}, annotations: {{{name}: true}}}}]}}}}}}"
        );
        let loaded = objects::load_text(name, text);
        let report = check_surface(&loaded.inputs, &ObjectRef::new("pond", "kelp")).unwrap();
        let unknown: Vec<_> = report
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.code == Code::UnknownField)
            .collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
    }
}
