//! Compares the cases with the API server's schema: every field of a pod that names a Secret has a
//! case.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::policies::Guard;

/// The fields of a pod that name a Secret. Each has a case in `refused/secrets.yaml`, and a line in
/// the policy `secrets`. The three kinds of containers have the same fields; `debug.yaml` has the
/// ephemeral ones.
const FORMS: [&str; 14] = [
    "containers[].env[].valueFrom.secretKeyRef",
    "containers[].envFrom[].secretRef",
    "imagePullSecrets",
    "volumes[].azureFile.secretName",
    "volumes[].cephfs.secretRef",
    "volumes[].cinder.secretRef",
    "volumes[].csi.nodePublishSecretRef",
    "volumes[].flexVolume.secretRef",
    "volumes[].iscsi.secretRef",
    "volumes[].projected.sources[].secret",
    "volumes[].rbd.secretRef",
    "volumes[].scaleIO.secretRef",
    "volumes[].secret",
    "volumes[].storageos.secretRef",
];

/// A field whose name contains `secret`, but whose value is a file of the node.
const NO_SECRET: &str = "volumes[].cephfs.secretFile";

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_a_pod_that_names_a_secret_has_a_case() -> Result<()> {
    let client = Guard::client().await?;
    let request = http::Request::get("/openapi/v3/api/v1").body(Vec::new())?;
    let document: Value = client.request(request).await?;
    let schemas = &document["components"]["schemas"];
    let mut found = BTreeSet::new();
    walk(schemas, "io.k8s.api.core.v1.PodSpec", "", &mut found)?;
    assert!(found.remove(NO_SECRET), "the server's list has changed");
    let known: BTreeSet<String> = FORMS.iter().map(ToString::to_string).collect();
    assert_eq!(found, known);
    Ok(())
}

/// Walks the schemas down to fields named after Secrets. The walk ends, since no schema contains
/// itself.
fn walk(schemas: &Value, name: &str, path: &str, found: &mut BTreeSet<String>) -> Result<()> {
    let properties = schemas[name]["properties"].as_object();
    for (field, schema) in properties.into_iter().flatten() {
        let list = schema["type"] == "array";
        let element = if list { &schema["items"] } else { schema };
        let dot = if path.is_empty() { "" } else { "." };
        let here = format!("{path}{dot}{field}");
        if field.to_lowercase().contains("secret") {
            found.insert(here);
            continue;
        }
        // One kind of container is enough.
        if field == "initContainers" || field == "ephemeralContainers" {
            continue;
        }
        let all = element["allOf"][0]["$ref"].as_str();
        let Some(reference) = element["$ref"].as_str().or(all) else {
            continue;
        };
        let next = reference.rsplit('/').next().context("a reference")?;
        let suffix = if list { "[]" } else { "" };
        walk(schemas, next, &format!("{here}{suffix}"), found)?;
    }
    Ok(())
}
