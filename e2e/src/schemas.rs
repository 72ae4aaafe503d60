//! JSON schemas of the custom resources, for editors and for validators without a cluster.
//!
//! They are derived from the CustomResourceDefinitions that are installed (`crds/yaml`). File names
//! are those that kubeconform looks up: `GROUP/KIND_VERSION.json`. Invariant: a schema accepts the
//! same objects as the API server's schema, except for unknown fields: the API server drops them,
//! and a schema refuses them.
//!
//! Not here: validation rules in CEL, which no JSON schema can express.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/yaml");

/// Writes the schemas below `folder`.
pub fn write(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(DEFINITIONS)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = fs::read_to_string(&path)?;
            let of_file = || -> Result<()> {
                for (name, schema) in schemas(&text)? {
                    let file = folder.join(name);
                    fs::create_dir_all(file.parent().context("a schema has a folder")?)?;
                    fs::write(&file, serde_json::to_string_pretty(&schema)? + "\n")?;
                }
                Ok(())
            };
            of_file().with_context(|| format!("the schemas of {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns a schema for each version of a CustomResourceDefinition, with its file name.
fn schemas(definition: &str) -> Result<Vec<(PathBuf, Value)>> {
    let definition: Value = serde_yaml::from_str(definition)?;
    let spec = &definition["spec"];
    let group = spec["group"].as_str().context("a group")?;
    let kind = spec["names"]["kind"].as_str().context("a kind")?;
    let versions = spec["versions"].as_array().context("versions")?;
    versions
        .iter()
        .map(|version| {
            let name = version["name"].as_str().context("a version's name")?;
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            close(&mut schema);
            schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
            schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
            let properties = &mut schema["properties"];
            properties["apiVersion"] = json!({"const": format!("{group}/{name}")});
            properties["kind"] = json!({"const": kind});
            properties["metadata"] = json!({"type": "object"});
            let file = format!("{group}/{}_{name}.json", kind.to_ascii_lowercase());
            Ok((file.into(), schema))
        })
        .collect()
}

/// Refuses fields that the schema does not name, so that an editor marks a misspelt one; and
/// allows `null` where the API server does.
pub fn close(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let keeps_unknown = fields
        .get("x-kubernetes-preserve-unknown-fields")
        .is_some_and(|keeps| keeps == true);
    if fields.contains_key("properties")
        && !fields.contains_key("additionalProperties")
        && !keeps_unknown
    {
        fields.insert("additionalProperties".into(), json!(false));
    }
    if fields
        .get("nullable")
        .is_some_and(|nullable| nullable == true)
        && let Some(kind @ Value::String(_)) = fields.get("type").cloned()
    {
        fields.insert("type".into(), json!([kind, "null"]));
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(close);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            close(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_valid_and_a_misspelt_field_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path()).expect("written");
        let schema = |kind: &str| -> Value {
            let name = format!("toolcrib.dev/{}_v1alpha1.json", kind.to_lowercase());
            let text = fs::read(folder.path().join(name)).expect("a schema");
            serde_json::from_slice(&text).expect("JSON")
        };
        let examples = Path::new(DEFINITIONS).join("../examples/trading-desk");
        let mut seen = 0;
        for entry in fs::read_dir(examples).expect("listed") {
            let path = entry.expect("listed").path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("read");
            for document in serde_yaml::Deserializer::from_str(&text) {
                let mut object: Value = serde::Deserialize::deserialize(document).expect("YAML");
                if object["apiVersion"] != "toolcrib.dev/v1alpha1" {
                    continue;
                }
                let kind = object["kind"].as_str().expect("a kind").to_owned();
                let schema = schema(&kind);
                let valid = |object: &Value| jsonschema::is_valid(&schema, object);
                assert!(valid(&object), "{kind} of {}", path.display());
                object["spec"]["mispelt"] = json!(1);
                assert!(!valid(&object), "{kind} of {}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 4, "{seen} objects");
    }
}
