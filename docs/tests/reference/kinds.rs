//! Every kind and field, from the installed schemas.

use serde_json::Value;
use toolcrib_docs::cell;

const INTRODUCTION: &str = "\
# Kinds

All kinds are namespaced, in group `toolcrib.dev`, version `v1alpha1`; `kubectl explain` has the same
texts. A field is optional unless its type says *required*. `[]` after a name is a list, `{}` a map.

The [README](../../README.md#five-minutes-with-the-objects) introduces the kinds. See also their findings
([diagnostics](diagnostics.md)), their labels and annotations ([names](names.md)), and the content of a
Surface's `descriptor` ([descriptor](descriptor.md)).
";

pub fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    for definition in toolcrib_crds::definitions() {
        let value = serde_json::to_value(&definition).unwrap();
        let names = &value["spec"]["names"];
        let version = &value["spec"]["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"];
        let kind = names["kind"].as_str().unwrap();
        let about = schema["description"].as_str().unwrap_or_default();
        text += &format!("\n## {kind}\n\n{about}\n\n");
        let mut short: Vec<&str> = vec![names["plural"].as_str().unwrap()];
        short.extend(
            names["shortNames"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
        let short: Vec<String> = short.iter().map(|name| format!("`{name}`")).collect();
        text += &format!("`kubectl get` takes {}.\n", short.join(", "));
        rules(schema, "the object", &mut text);
        for part in ["spec", "status"] {
            let mut rows = String::new();
            let mut told = String::new();
            fields(&schema["properties"][part], part, &mut rows, &mut told);
            if !rows.is_empty() {
                text +=
                    &format!("\n### {kind}.{part}\n\n| field | type | |\n|---|---|---|\n{rows}");
                text += &told;
            }
        }
    }
    text
}

fn fields(schema: &Value, path: &str, rows: &mut String, told: &mut String) {
    rules(schema, &format!("`{path}`"), told);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // Kubernetes documents its own types, and a descriptor has a page of its own.
        let is_elsewhere = ["conditions", "descriptor"].contains(&name.as_str());
        let (suffix, inner) = match (&field["items"], &field["additionalProperties"]) {
            (items @ Value::Object(_), _) => ("[]", items),
            (_, values @ Value::Object(_)) => ("{}", values),
            _ => ("", field),
        };
        let place = format!("{path}.{name}{suffix}");
        let shown = place
            .trim_start_matches("spec.")
            .trim_start_matches("status.");
        let about = field["description"].as_str().unwrap_or_default();
        let must = if required.contains(&name.as_str()) {
            ", *required*"
        } else {
            ""
        };
        *rows += &format!(
            "| `{shown}` | {}{must} | {} |\n",
            kind_of(field, inner),
            cell(about)
        );
        if !is_elsewhere {
            fields(inner, &place, rows, told);
        }
        if suffix == "[]" {
            rules(field, &format!("`{place}`"), told);
        }
    }
}

fn kind_of(field: &Value, inner: &Value) -> String {
    let mut kind = match inner["enum"].as_array() {
        Some(values) => {
            let values: Vec<String> = values
                .iter()
                .filter_map(Value::as_str)
                .map(|value| format!("`{value}`"))
                .collect();
            values.join(" \\| ")
        }
        None => inner["type"].as_str().unwrap_or("any").to_owned(),
    };
    let bounds = [
        ("minimum", "≥"),
        ("maximum", "≤"),
        ("maxLength", "length ≤"),
        ("maxItems", "items ≤"),
        ("maxProperties", "entries ≤"),
    ];
    for (key, word) in bounds {
        let bound = if inner[key].is_null() {
            &field[key]
        } else {
            &inner[key]
        };
        if !bound.is_null() {
            // Bounds of integers are whole numbers, which the schema has as 1.0.
            let whole = bound.as_f64().filter(|bound| bound.fract() == 0.0);
            let bound = whole.map_or_else(|| bound.to_string(), |bound| bound.to_string());
            kind += &format!(", {word} {bound}");
        }
    }
    kind
}

/// The checks of the API server besides types.
fn rules(schema: &Value, place: &str, told: &mut String) {
    let messages = schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["message"].as_str());
    for message in messages {
        *told += &format!("\nOf {place}: {}.\n", message.trim_end_matches('.'));
    }
}
