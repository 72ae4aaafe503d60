//! The contract's fixtures, loaded by the mediator.
//!
//! `crds/manifest/fixtures` is the compiler's present output; the compiler's own tests compare it
//! byte for byte. `crds/manifest/fixtures-VERSION` is the output of an earlier release, and never
//! changes.

use std::path::Path;

use toolcrib_manifest::ToolsFile;
use toolcrib_sidecar::config::Observation;
use toolcrib_sidecar::config::directory::observe;

/// Checks every version below this folder, also after one has failed.
#[track_caller]
fn check_all(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/manifest");
    toolcrib_golden::each(&toolcrib_golden::cases(&root.join(folder), None), check);
}

fn check(directory: &Path) {
    let version = match observe(directory) {
        Observation::Loaded(version) => version,
        other @ (Observation::Broken { .. } | Observation::Absent) => panic!("{other:?}"),
    };
    assert_eq!(version.withheld(), []);
    let written = std::fs::read(directory.join("tools.json")).unwrap();
    let written: ToolsFile = serde_json::from_slice(&written).unwrap();
    let names = |tools: Vec<String>| {
        let mut tools = tools;
        tools.sort();
        tools
    };
    let loaded = version.catalog.tools();
    assert_eq!(
        names(loaded.iter().map(|tool| tool.tool.name.clone()).collect()),
        names(written.tools.iter().map(|tool| tool.name.clone()).collect())
    );
}

#[test]
fn the_compilers_files_are_loaded_completely() {
    check_all("fixtures");
}

#[test]
fn the_files_of_release_0_1_0_are_loaded_completely() {
    check_all("fixtures-0.1.0");
}
