//! OpenAPI documents become surfaces that compile, case by case.
//!
//! Each folder of `openapi/` holds a `document` of some version and `arguments` (one line
//! each; `surface from-openapi document --name fish --namespace pond` goes before them). What
//! must come: `surface.yaml`, `report.txt` (exit code and what was said), and `compiled.txt`:
//! what an agent gets that was granted all of it, and what the compiler says. To write them
//! anew after a change, and read the difference in review:
//!
//! ```sh
//! UPDATE_CASES=1 cargo test -p kubectl-toolcrib --test openapi
//! ```

#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An agent that may call all of the surface, and what it needs beside.
const AGENT: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: fish}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: otter-all, namespace: pond}
spec: {agents: [otter], tools: [{surface: {name: fish}, allow: ["*"]}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {name: den, namespace: pond}
spec: {endpoints: [{dialect: Anthropic, url: "https://models.example/v1"}], auth: None}
---
apiVersion: v1
kind: Service
metadata: {name: fish-api, namespace: pond}
spec: {ports: [{port: 8080}]}
"#;

#[test]
fn documents_become_surfaces_that_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    let differences: Vec<String> = cases.iter().flat_map(|case| check(case)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn check(case: &Path) -> Vec<String> {
    let arguments = fs::read_to_string(case.join("arguments")).unwrap();
    let base = [
        "surface",
        "from-openapi",
        "document",
        "--name",
        "fish",
        "--namespace",
        "pond",
    ];
    let all: Vec<&str> = base.into_iter().chain(arguments.lines()).collect();
    let made = run(case, &all);
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("agent.yaml"), AGENT).unwrap();
    fs::write(files.path().join("surface.yaml"), &made.stdout).unwrap();
    let compiled = run(files.path(), &["compile", "-f", ".", "-o", "table"]);
    let report = |output: &Output, text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        format!("exit code {}\n{text}", output.status.code().unwrap())
    };
    if made.status.success() {
        // Whatever the document says: what was made of it compiles.
        assert_eq!(
            compiled.status.code(),
            Some(0),
            "{}",
            report(&compiled, &compiled.stderr)
        );
    }
    let came = [
        (
            "surface.yaml",
            String::from_utf8(made.stdout.clone()).unwrap(),
        ),
        ("report.txt", report(&made, &made.stderr)),
        ("compiled.txt", report(&compiled, &compiled.stdout)),
    ];
    let mut differences = Vec::new();
    for (name, text) in came {
        let file = case.join(name);
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&file, text).unwrap();
            continue;
        }
        let wanted = fs::read_to_string(&file).unwrap();
        if wanted != text {
            let shown = file.display();
            differences.push(format!("{shown}\n--- wanted\n{wanted}\n--- came\n{text}"));
        }
    }
    differences
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .output()
        .unwrap()
}
