//! Runs a short soak of the mediator, and checks that it finds nothing.

use std::process::Command;

use serde_json::Value;
use toolcrib_e2e::cargo::cargo;

#[test]
fn a_short_soak_finds_nothing() {
    let built = cargo()
        // A test target is built too, so that Cargo resolves the same features as for this test.
        .args(["build", "--quiet", "--workspace", "--bins"])
        .args(["--test", "soak"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the mediator does not build");
    let output = Command::new(env!("CARGO_BIN_EXE_toolcrib-soak"))
        .args(["--short", "--json"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // A run that does little proves little.
    for mediator in report["mediators"].as_array().unwrap() {
        let counts = &mediator["counts"];
        assert_eq!(counts["turns"], mediator["recorded"], "{report:#}");
        assert!(mediator["recorded"].as_u64().unwrap() > 100, "{report:#}");
    }
    assert!(report["kills"].as_u64().unwrap() > 0, "{report:#}");
    assert!(
        !report["until_denied_ms"].as_array().unwrap().is_empty(),
        "{report:#}"
    );
}
