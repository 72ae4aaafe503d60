//! The CustomResourceDefinitions: installed, and with the fields of this command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::ResourceExt as _;
use toolcrib_bounds::count;

use super::named;
use crate::cluster::installation::Facts;
use crate::doctor::finding::{Check, Finding, Findings};

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Definitions);
    for (name, fields) in OURS.iter() {
        match facts.definitions.get(name) {
            Some(Ok(Some(installed))) => compare(name, fields, installed, facts, &mut findings),
            Some(Ok(None)) | None => findings.error(
                format!("CustomResourceDefinition {name} does not exist"),
                format!("install it with the chart: {}", install(facts)),
            ),
            Some(Err(gap)) => findings.gap(gap),
        }
    }
    findings.finish(format!(
        "{} installed, with the fields of this release",
        count(OURS.len(), "definition")
    ))
}

/// The fields of each definition of this release. Making the definitions takes a while.
static OURS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let all = toolcrib_crds::definitions().into_iter();
    all.map(|definition| (definition.name_any(), fields(&definition)))
        .collect()
});

fn install(facts: &Facts) -> String {
    format!("{} --set crds.install=true", facts.release.upgrade())
}

fn compare(
    name: &str,
    ours: &BTreeSet<String>,
    installed: &CustomResourceDefinition,
    facts: &Facts,
    findings: &mut Findings,
) {
    let conditions = installed
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = { conditions }.filter(|it| it.type_ == "Established");
    if conditions.any(|condition| condition.status == "False") {
        findings.error(
            format!("CustomResourceDefinition {name} is not served"),
            format!(
                "read its conditions and correct what they name: `kubectl describe crd {name}`"
            ),
        );
    }
    let installed = fields(installed);
    let missing: Vec<&String> = ours.difference(&installed).collect();
    let unknown: Vec<&String> = installed.difference(ours).collect();
    if !missing.is_empty() {
        findings.error(
            format!(
                "CustomResourceDefinition {name} is older than this command: it has no {}, and the API server drops what it does not know",
                named(&missing)
            ),
            format!(
                "upgrade the definitions with the chart of this release: {}",
                install(facts)
            ),
        );
    } else if !unknown.is_empty() {
        findings.warning(
            format!(
                "CustomResourceDefinition {name} is newer than this command: it has {}",
                named(&unknown)
            ),
            "use the kubectl-toolcrib of the chart's release",
        );
    }
}

/// The paths of all fields of the version that this command uses.
fn fields(definition: &CustomResourceDefinition) -> BTreeSet<String> {
    let versions = definition.spec.versions.iter();
    let mut versions = { versions }.filter(|it| it.name == toolcrib_crds::VERSION);
    let schema = versions.next().and_then(|version| version.schema.as_ref());
    let mut paths = BTreeSet::new();
    if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_ref()) {
        collect(schema, "", &mut paths);
    }
    paths
}

fn collect(schema: &JSONSchemaProps, path: &str, paths: &mut BTreeSet<String>) {
    for (name, below) in schema.properties.iter().flatten() {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        collect(below, &path, paths);
        paths.insert(path);
    }
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(each)) => collect(each, path, paths),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => {}
    }
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(each)) => collect(each, path, paths),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => {}
    }
}
