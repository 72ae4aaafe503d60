//! Every object that the chart renders, against the OpenAPI of each supported version of Kubernetes, and against
//! the schemas of Toolcrib's own definitions. Unknown fields are refused.
//!
//! The OpenAPI is that of the module `k8s.io/kubernetes`, from the Go module proxy. Not here: rules in CEL, and
//! what an API server checks beyond the schema.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::schemas;

use crate::chart::{
    EVERYTHING, folder, helm4, rendered, sets_of_values, templates, title, values_file,
};

/// A patch release of each supported minor version, and the digest of its `api/openapi-spec/swagger.json`.
const VERSIONS: [(&str, &str); 3] = [
    (
        "v1.33.13",
        "2af5abf98554af1599e516f31f7f1698085e6faa12b816401f569c097b9f7ef6",
    ),
    (
        "v1.34.4",
        "d3b0cdc2fda15c753206d25ab459dc7c12df64e2fd652b6809687471ea751c37",
    ),
    (
        "v1.35.4",
        "483500149ee52ce5753d75f5639101d985bb4f5e902cc05b1ba7627465d62446",
    ),
];

/// Kinds of the Prometheus operator, which Kubernetes does not have.
const OTHERS: [&str; 2] = ["PodMonitor", "PrometheusRule"];

/// Every object's metadata, in the OpenAPI.
const METADATA: &str = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A kind by its `apiVersion` and `kind`.
type TypeMeta = (String, String);

/// The schemas of one version of Kubernetes, and of Toolcrib's kinds.
struct Schemas {
    validators: BTreeMap<TypeMeta, jsonschema::Validator>,
}

impl Schemas {
    /// Compiles the schemas of these kinds; a kind that `openapi` and Toolcrib lack has none.
    fn new(openapi: &Value, kinds: &BTreeSet<TypeMeta>) -> Result<Self> {
        let mut validators = BTreeMap::new();
        for (name, definition) in openapi["definitions"].as_object().context("definitions")? {
            for kind in type_metas(definition) {
                if kinds.contains(&kind) {
                    let schema = json!({
                        "$schema": "https://json-schema.org/draft/2020-12/schema",
                        "$ref": format!("#/definitions/{name}"),
                        "required": ["apiVersion", "kind", "metadata"],
                        "definitions": openapi["definitions"],
                    });
                    let validator = jsonschema::validator_for(&schema)
                        .with_context(|| format!("the schema {name}"))?;
                    validators.insert(kind, validator);
                }
            }
        }
        let folder = tempfile::tempdir()?;
        schemas::write(folder.path())?;
        for kind in kinds
            .iter()
            .filter(|(group, _)| group.starts_with("toolcrib.dev/"))
        {
            let (group, version) = kind.0.split_once('/').context("a group")?;
            let file = format!("{group}/{}_{version}.json", kind.1.to_lowercase());
            let text = fs::read(folder.path().join(&file)).context(file)?;
            let mut schema: Value = serde_json::from_slice(&text)?;
            schema["properties"]["metadata"] = json!({"$ref": METADATA});
            schema["definitions"] = openapi["definitions"].clone();
            validators.insert(kind.clone(), jsonschema::validator_for(&schema)?);
        }
        Ok(Self { validators })
    }

    /// Returns the mistakes of an object, each with its place.
    fn mistakes(&self, object: &Value) -> Vec<String> {
        let Some(validator) = self.validators.get(&type_meta(object)) else {
            return vec![format!("{}: no schema of this kind", title(object))];
        };
        let mistakes = validator.iter_errors(object);
        mistakes
            .map(|error| format!("{} {}: {error}", title(object), error.instance_path()))
            .collect()
    }
}

fn type_meta(object: &Value) -> TypeMeta {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

/// The kinds that a definition of the OpenAPI describes.
fn type_metas(definition: &Value) -> Vec<TypeMeta> {
    let kinds = definition["x-kubernetes-group-version-kind"].as_array();
    let kinds = kinds.into_iter().flatten().map(|kind| {
        let text = |field: &str| kind[field].as_str().unwrap_or_default().to_owned();
        let api_version = match &*text("group") {
            "" => text("version"),
            group => format!("{group}/{}", text("version")),
        };
        (api_version, text("kind"))
    });
    kinds.collect()
}

/// The OpenAPI of a version, with closed objects: a field that it does not name is a mistake.
fn openapi(version: &str, digest: &str) -> Result<Value> {
    let module = format!("k8s.io/kubernetes@{version}");
    let found = run(Command::new("go").args(["mod", "download", "-json", &module]))?;
    let found: Value = serde_json::from_str(&found).context("go's JSON")?;
    let folder = found["Dir"].as_str().context("the module's folder")?;
    let text = fs::read(Path::new(folder).join("api/openapi-spec/swagger.json"))?;
    let is = hex::encode(Sha256::digest(&text));
    ensure!(is == digest, "{module}: its OpenAPI has the digest {is}");
    let mut openapi: Value = serde_json::from_slice(&text)?;
    let definitions = openapi["definitions"].as_object_mut();
    for definition in definitions.context("definitions")?.values_mut() {
        schemas::close(definition);
        allow_numbers(definition);
    }
    Ok(openapi)
}

/// The OpenAPI calls IntOrString a string, with a format that JSON schema does not have.
fn allow_numbers(definition: &mut Value) {
    if definition["format"] == "int-or-string" {
        definition["type"] = json!(["string", "integer"]);
    }
}

#[test]
fn every_rendered_object_is_valid_in_each_supported_version() -> Result<()> {
    let mut checked = Vec::new();
    for values in sets_of_values() {
        checked.extend(rendered(helm4()?, &values, true)?);
    }
    checked.retain(|object| !OTHERS.iter().any(|kind| object["kind"] == *kind));
    let kinds: BTreeSet<TypeMeta> = checked.iter().map(type_meta).collect();
    let mut mistakes = Vec::new();
    for (version, digest) in VERSIONS {
        let schemas = Schemas::new(&openapi(version, digest)?, &kinds)?;
        for object in &checked {
            let found = schemas.mistakes(object);
            mistakes.extend(found.into_iter().map(|it| format!("{version}: {it}")));
        }
        let mut wrong = 0;
        for object in &checked {
            wrong += misspelt_fields_are_found(&schemas, object)?;
        }
        eprintln!(
            "{version}: {} objects of {} kinds; {wrong} misspelt fields are refused",
            checked.len(),
            kinds.len()
        );
    }
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(())
}

/// Misspells fields of the object, one at a time, and checks that each is refused by name. Returns their number.
fn misspelt_fields_are_found(schemas: &Schemas, object: &Value) -> Result<usize> {
    let mut number = 0;
    for place in [
        "",
        "/metadata",
        "/spec",
        "/spec/template/spec",
        "/spec/template/spec/containers/0",
    ] {
        let mut wrong = object.clone();
        let Some(Value::Object(fields)) = wrong.pointer_mut(place) else {
            continue;
        };
        fields.insert("mispelt".to_owned(), json!(1));
        let found = schemas.mistakes(&wrong);
        if !found.iter().any(|it| it.contains("mispelt")) {
            bail!("{} accepts {place}/mispelt: {found:?}", title(object));
        }
        number += 1;
    }
    Ok(number)
}

/// Without this, a template that needs one more value would go unnoticed.
#[test]
fn everything_switched_on_renders_every_template() -> Result<()> {
    let mut helm = helm4()?;
    let values = values_file(EVERYTHING)?;
    helm.args(["template", "toolcrib"])
        .arg(folder())
        .arg("--values")
        .arg(values.path());
    let text = run(&mut helm)?;
    for template in templates()? {
        let name = template.strip_prefix(folder())?;
        let source = format!("# Source: toolcrib/{}", name.display());
        ensure!(text.contains(&source), "{} renders nothing", name.display());
    }
    Ok(())
}
