//! Compiling objects from files gives the same result as in the cluster.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toolcrib_e2e::cargo::cargo;
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::platform::{Platform, repository};

use crate::support::Desk;

#[test]
fn compiling_from_files_equals_the_cluster() -> Result<()> {
    let desk = Desk::open("offline")?;
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("all.yaml"),
        Platform::example(Some("offline"))?,
    )?;

    let plugin = plugin()?;
    let printed = run(Command::new(&plugin)
        .args(["compile", "--output=json", "--filename"])
        .arg(folder.path())
        // Compiling needs no cluster.
        .env_remove("KUBECONFIG"))?;
    let offline: Value = serde_json::from_str(&printed).context("compile's JSON")?;
    let objects = offline["items"]
        .as_array()
        .or(offline.as_array())
        .context("objects")?;

    for agent in ["analyst", "executor"] {
        let online = desk.wait_in_force(agent)?;
        let secret = find(objects, "Secret", &format!("toolcrib-{agent}-mediator"))?;
        assert_eq!(
            secret["metadata"]["annotations"]["toolcrib.dev/manifest-digest"],
            online["status"]["manifestDigest"],
            "{agent}'s manifest digest"
        );
        for name in ["manifest", "context"] {
            let name = format!("toolcrib-{agent}-{name}");
            let there = desk
                .platform
                .get(&["configmap", &name, "--namespace", "offline"])?;
            let here = find(objects, "ConfigMap", &name)?;
            assert_eq!(data(here), data(&there), "{name}");
        }
    }
    desk.passed()
}

/// Builds the kubectl plugin of this source tree; returns its path.
pub fn plugin() -> Result<std::path::PathBuf> {
    // Builds a test too, so that Cargo resolves the same features as for this test.
    run(cargo()
        .current_dir(repository())
        .args(["build", "--quiet", "--workspace", "--bins"])
        .args(["--test", "governed"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository().join("target"), std::path::PathBuf::from);
    Ok(target.join("debug/kubectl-toolcrib"))
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    ensure!(found.is_some(), "no {kind} {name} in {objects:?}");
    found.context("found")
}

fn data(object: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(object["data"].clone()).unwrap_or_default()
}
