//! Converts OpenAPI documents to Surfaces that compile, case by case.
//!
//! Each folder of `openapi/` holds a `document` of some version and `arguments` (one per line,
//! after `surface from-openapi document --name fish --namespace pond`). The expected files are
//! `surface.yaml`, `report.txt` (exit code and standard error), and `compiled.txt`: the tools of
//! an agent that is granted all of them, and the compiler's findings. The command below writes
//! them anew; read the difference in review:
//!
//! ```sh
//! UPDATE_EXPECT=1 cargo test -p kubectl-toolcrib --test openapi
//! ```

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{lines, report, run, suite, text};
use toolcrib_golden::here;

/// An agent that may call all tools of the surface, with the objects that it needs.
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

fn main() -> ExitCode {
    suite(here!(), "authoring/openapi", check).run()
}

fn check(case: &Path) -> BTreeMap<PathBuf, String> {
    let arguments = lines(case, "arguments");
    let base = [
        "surface",
        "from-openapi",
        "document",
        "--name",
        "fish",
        "--namespace",
        "pond",
    ];
    let arguments = arguments.iter().map(String::as_str);
    let all: Vec<&str> = base.into_iter().chain(arguments).collect();
    let made = run(case, &all);
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("agent.yaml"), AGENT).unwrap();
    fs::write(files.path().join("surface.yaml"), &made.stdout).unwrap();
    let compiled = run(files.path(), &["compile", "-f", ".", "-o", "table"]);
    if made.status.success() {
        // A Surface of any document compiles.
        let errors = report(&compiled, &compiled.stderr);
        assert_eq!(compiled.status.code(), Some(0), "{errors}");
    }
    BTreeMap::from([
        ("surface.yaml".into(), text(&made.stdout)),
        ("report.txt".into(), report(&made, &made.stderr)),
        ("compiled.txt".into(), report(&compiled, &compiled.stdout)),
    ])
}
