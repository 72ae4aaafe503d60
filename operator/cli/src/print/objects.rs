//! Prints compiled objects as YAML or JSON, with references in place of secrets.

use anyhow::Context as _;
use serde_json::{Value, json};
use toolcrib_compile::{Object, ObjectKind, Role, SecretKeyRef, names, yaml};

use super::Format;

/// Returns the text for standard output.
pub fn objects(objects: &[Object], format: Format) -> anyhow::Result<String> {
    let values = objects.iter().map(value);
    match format {
        Format::Json => {
            let list =
                json!({"apiVersion": "v1", "kind": "List", "items": values.collect::<Vec<_>>()});
            Ok(serde_json::to_string_pretty(&list)? + "\n")
        }
        Format::Yaml | Format::Table => {
            let documents: Result<Vec<String>, _> =
                values.map(|value| yaml::to_string(&value)).collect();
            Ok(documents
                .context("an object does not print as YAML")?
                .join("---\n"))
        }
    }
}

fn value(object: &Object) -> Value {
    let kind = object.role.kind();
    let data = match object.role {
        // The controller creates its content once; it is unknown here.
        Role::Identity => {
            let token = SecretKeyRef::new(object.key.clone(), names::TOKEN_KEY);
            json!({names::TOKEN_KEY: token.placeholder().expose()})
        }
        Role::Mediator | Role::Manifest | Role::Context => json!(object.data),
        Role::Network => json!(object.spec),
    };
    // Texts are printed as texts, which a reviewer can read; none of them holds a secret.
    let field = match kind {
        ObjectKind::Secret => "stringData",
        ObjectKind::ConfigMap => "data",
        ObjectKind::NetworkPolicy => "spec",
    };
    let mut metadata = json!({
        "name": object.key.name,
        "namespace": object.key.namespace,
        "labels": object.labels,
    });
    if !object.annotations.is_empty() {
        metadata["annotations"] = json!(object.annotations);
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata, field: data})
}
