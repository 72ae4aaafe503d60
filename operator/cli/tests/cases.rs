//! The program's text output, case by case.
//!
//! Each folder of `cases/` holds `command` (arguments, one line each; the working directory
//! is the folder), and what must come: `stdout`, `stderr`, `code`. To write them anew after
//! a change, and read the difference in review:
//!
//! ```sh
//! UPDATE_CASES=1 cargo test -p kubectl-toolcrib --test cases
//! ```

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

#[test]
fn cases() {
    let mut names: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    assert!(!names.is_empty());
    let differences: Vec<String> = names.iter().flat_map(|case| check(case)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What differs from the case's files; with UPDATE_CASES they are written instead.
fn check(case: &Path) -> Vec<String> {
    let arguments = fs::read_to_string(case.join("command")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
        .args(arguments.lines())
        .current_dir(case)
        .env_remove("NO_COLOR")
        // Nobody's cluster is asked by accident.
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .output()
        .unwrap();
    let came = [
        ("stdout", String::from_utf8(output.stdout).unwrap()),
        ("stderr", String::from_utf8(output.stderr).unwrap()),
        ("code", format!("{}\n", output.status.code().unwrap())),
    ];
    let mut differences = Vec::new();
    for (name, text) in came {
        let file = case.join(name);
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&file, text).unwrap();
            continue;
        }
        let wanted = fs::read_to_string(&file).unwrap_or_default();
        if wanted != text {
            let shown = file.display();
            differences.push(format!("{shown}\n--- wanted\n{wanted}\n--- came\n{text}"));
        }
    }
    differences
}
