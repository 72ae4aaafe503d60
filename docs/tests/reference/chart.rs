//! The chart's values: defaults and texts from `values.yaml`, types from its schema, and texts
//! for values without a default.

use serde_json::Value;
use toolcrib_docs::cell;

const VALUES: &str = include_str!("../../../charts/toolcrib/values.yaml");
const SCHEMA: &str = include_str!("../../../charts/toolcrib/values.schema.json");

const INTRODUCTION: &str = "\
# The chart's values

The values of `charts/toolcrib`; the [guide](../guide.md#installing) shows how to install it. Every value
is checked against a schema, so a misspelt one is refused.

| value | type | default | |
|---|---|---|---|
";

pub fn page() -> String {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let values: Value = serde_yaml::from_str(VALUES).unwrap();
    let comments = comments();
    let mut rows = String::new();
    walk(&schema, &schema, &values, "", &comments, &mut rows);
    INTRODUCTION.to_owned() + &rows
}

fn walk(
    root: &Value,
    schema: &Value,
    values: &Value,
    path: &str,
    comments: &[(String, String)],
    rows: &mut String,
) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let field = match field["$ref"].as_str() {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
            None => field,
        };
        let place = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if field["properties"].is_object() {
            walk(root, field, &values[name], &place, comments, rows);
            continue;
        }
        let about = comments
            .iter()
            .find(|(known, _)| *known == place)
            .map(|(_, text)| text.as_str())
            .or(field["description"].as_str())
            .unwrap_or_default();
        let default = match &values[name] {
            Value::Null => String::new(),
            Value::String(text) if text.is_empty() => String::new(),
            Value::String(text) => format!("`{text}`"),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                format!("`{other}`")
            }
        };
        let kind = match field["enum"].as_array() {
            Some(values) => {
                let values: Vec<String> = values
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|value| format!("`{value}`"))
                    .collect();
                values.join(" \\| ")
            }
            None => field["type"].as_str().unwrap_or("any").to_owned(),
        };
        *rows += &format!(
            "| `{place}` | {kind} | {} | {} |\n",
            cell(&default),
            cell(about)
        );
    }
}

/// The comment before each key, by the key's path.
fn comments() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment = String::new();
    for line in VALUES.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(more) = text.strip_prefix('#') {
            comment += more;
            continue;
        }
        if let Some((key, _)) = text.split_once(':') {
            path.retain(|(outer, _)| *outer < indent);
            path.push((indent, key.to_owned()));
            let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
            found.push((names.join("."), comment.trim().to_owned()));
        }
        comment.clear();
    }
    found
}
