//! Checks that the benchmark runs and prints every row, not its figures.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toolcrib_e2e::cargo::cargo;

#[test]
fn a_short_run_prints_every_row() {
    let built = cargo()
        // A test target is built too, so that Cargo resolves the same features as for this test.
        .args(["build", "--quiet", "--workspace", "--bins"])
        .args(["--test", "smoke"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the mediator does not build");
    let bench = Path::new(env!("CARGO_BIN_EXE_toolcrib-bench"));
    let output = Command::new(bench)
        .args(["--short", "--json", "--bare-mcp"])
        .arg(bare_mcp(bench))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows: Vec<String> = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert!(row["measured"].is_number(), "{row}");
            format!(
                "{}: {}",
                row["case"].as_str().unwrap(),
                row["measure"].as_str().unwrap()
            )
        })
        .collect();
    let expected: Vec<&str> = include_str!("rows.txt").lines().collect();
    assert_eq!(rows, expected);
}

/// Builds bare-mcp, which is a separate workspace, in a folder of the same target directory.
fn bare_mcp(bench: &Path) -> PathBuf {
    let target = bench.ancestors().nth(2).unwrap().join("bare-mcp");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bare-mcp");
    let built = cargo()
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(sources.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .unwrap();
    assert!(built.success(), "bare-mcp does not build");
    target.join("debug/bare-mcp")
}
