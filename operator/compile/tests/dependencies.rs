//! What this crate must not pull in.

use std::process::Command;

#[test]
fn no_async_runtime() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "-p",
            "toolcrib-compile",
            "-e",
            "normal",
            "--prefix",
            "none",
        ])
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
    for absent in ["tokio", "async-std", "smol", "hyper", "reqwest", "mio"] {
        let found = tree
            .lines()
            .find(|line| line.split_whitespace().next() == Some(absent));
        assert_eq!(found, None, "a pure crate depends on {absent}");
    }
}
