//! The chart's objects, rendered by Helm with its built-in values and with everything switched on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize as _;
use serde_json::Value;
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::cluster::{Home, Progress, compatibility_programs, kube_binary};
use toolcrib_e2e::platform::repository;

/// Every value that adds an object or a field, with rights in listed namespaces.
pub const EVERYTHING: &str = include_str!("everything.yaml");

/// The built-in values, [`EVERYTHING`], and the same with rights in all namespaces.
pub fn sets_of_values() -> [String; 3] {
    let (before, after) = EVERYTHING
        .split_once("secretNamespaces:")
        .expect("listed namespaces");
    let (_, after) = after.split_once('\n').expect("a line");
    let everywhere = format!("{before}clusterWideSecrets: true\n{after}");
    [String::new(), EVERYTHING.to_owned(), everywhere]
}

pub const NAMESPACE: &str = "toolcrib-system";

pub fn folder() -> PathBuf {
    repository().join("charts/toolcrib")
}

/// The pinned Helm 4.
pub fn helm4() -> Result<Command> {
    let mut helm = Command::new(kube_binary(&Home::find()?, &Progress::stderr())?);
    helm.arg("helm");
    Ok(helm)
}

/// The pinned Helm 3.
pub fn helm3() -> Result<Command> {
    let programs = compatibility_programs(&Home::find()?, &Progress::stderr())?;
    Ok(Command::new(programs.helm3))
}

/// Returns the objects of `helm template` in the order of its output. `kinds`: the chart sees a cluster that has
/// Toolcrib's definitions, so that claw-api's Surface is an ordinary object and no hook.
pub fn rendered(mut helm: Command, values: &str, kinds: bool) -> Result<Vec<Value>> {
    let file = values_file(values)?;
    helm.args(["template", "toolcrib"])
        .arg(folder())
        .args(["--namespace", NAMESPACE, "--values"])
        .arg(file.path());
    if kinds {
        helm.arg("--api-versions=toolcrib.dev/v1alpha1/Surface");
    }
    objects(&run(&mut helm)?)
}

/// Writes values to a file, as Helm takes them.
pub fn values_file(values: &str) -> Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), values)?;
    Ok(file)
}

/// Returns the objects of YAML documents; empty ones are left out.
pub fn objects(yaml: &str) -> Result<Vec<Value>> {
    serde_yaml::Deserializer::from_str(yaml)
        .map(|document| Value::deserialize(document).context("rendered YAML"))
        .filter(|object| !matches!(object, Ok(Value::Null)))
        .collect()
}

/// Kind and name of an object, for messages.
pub fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    format!(
        "{} {}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    )
}

/// The templates of the chart.
pub fn templates() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(&folder().join("templates"), &mut found)?;
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(path);
        }
    }
    Ok(())
}
