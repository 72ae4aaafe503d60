//! Dependencies that crates must not have: the absences that ARCHITECTURE.md promises.

use std::process::Command;

const RUNTIMES: [&str; 6] = ["tokio", "async-std", "smol", "hyper", "reqwest", "mio"];
const KUBERNETES: [&str; 6] = [
    "kube",
    "kube-client",
    "kube-core",
    "k8s-openapi",
    "toolcrib-crds",
    "toolcrib-compile",
];

#[test]
fn the_pure_crates_have_no_async_runtime() {
    for package in [
        "toolcrib-compile",
        "toolcrib-bounds",
        "toolcrib-manifest",
        "toolcrib-mcp",
        "toolcrib-mediation",
        "toolcrib-dialect",
    ] {
        lacks(package, &RUNTIMES);
    }
}

#[test]
fn the_mediators_crates_do_not_depend_on_kubernetes() {
    for package in [
        "toolcrib-sidecar",
        "toolcrib-mcp-stdio",
        "toolcrib-serve",
        "toolcrib-bounds",
        "toolcrib-manifest",
        "toolcrib-mcp",
        "toolcrib-mediation",
        "toolcrib-dialect",
    ] {
        lacks(package, &KUBERNETES);
    }
}

#[test]
fn the_operators_crates_do_not_depend_on_the_mediators() {
    for package in ["toolcrib-operator", "toolcrib-compile", "toolcrib-crds"] {
        lacks(
            package,
            &["toolcrib-sidecar", "toolcrib-mediation", "toolcrib-dialect"],
        );
    }
}

fn lacks(package: &str, absent: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", package, "-e", "normal", "--prefix", "none"])
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).expect("cargo writes text");
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.contains(&package), "{tree}");
    for absent in absent {
        assert!(!names.contains(absent), "{package} depends on {absent}");
    }
}
