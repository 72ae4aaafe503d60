//! Converts pod files to objects that compile, case by case.
//!
//! Each folder of `import/` holds `claw-pod.yml` with the files that it names, and `arguments`
//! (one per line, after `import claw-pod.yml --output-dir` with a new folder). The expected files
//! are `expected/*.yaml`, `report.txt` (exit code and standard error), and `compiled.txt` (what
//! `compile` gives each agent). The command below writes them anew; read the difference in review:
//!
//! ```sh
//! UPDATE_EXPECT=1 cargo test -p kubectl-toolcrib --test import
//! ```

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{folder, report, run, suite, text};
use toolcrib_golden::{expect_no_others, here};

fn main() -> ExitCode {
    suite(here!(), "authoring/import", check)
        .test(
            "values_of_variables_are_written_on_request_only",
            values_of_variables_are_written_on_request_only,
        )
        .test(
            "files_outside_of_the_folder_are_not_read",
            files_outside_of_the_folder_are_not_read,
        )
        .test(
            "files_are_replaced_only_with_force",
            files_are_replaced_only_with_force,
        )
        .test("each_fault_is_one_message", each_fault_is_one_message)
        .run()
}

fn check(case: &Path) -> BTreeMap<PathBuf, String> {
    let arguments = fs::read_to_string(case.join("arguments")).unwrap();
    let result = tempfile::tempdir().unwrap();
    let written = result.path().join("result");
    let target = written.to_str().unwrap();
    let mut import = vec!["import", "claw-pod.yml", "--output-dir", target];
    import.extend(arguments.lines());
    let imported = run(case, &import);

    let mut compile = vec!["compile", "--output=table", "--filename", target];
    let mut lines = arguments.lines();
    while let Some(argument) = lines.next() {
        if argument == "--filename" {
            compile.extend([argument, lines.next().unwrap()]);
        }
    }
    let compiled = run(case, &compile);

    let mut came: BTreeMap<PathBuf, String> = BTreeMap::new();
    for entry in fs::read_dir(&written).unwrap() {
        let path = entry.unwrap().path();
        let name = Path::new("expected").join(path.file_name().unwrap());
        came.insert(name, fs::read_to_string(path).unwrap());
    }
    let report = report(&imported, &imported.stderr);
    came.insert("report.txt".into(), report.replace(target, "OUT"));
    came.insert("compiled.txt".into(), text(&compiled.stdout));

    let names: Vec<&str> = came
        .keys()
        .filter_map(|path| path.strip_prefix("expected").ok()?.to_str())
        .collect();
    expect_no_others(here!(), &case.join("expected"), &names);
    came
}

/// Values of variables are written only on request, and never to the report.
fn values_of_variables_are_written_on_request_only() {
    let pod = tempfile::tempdir().unwrap();
    let case = folder("authoring/import").join("everything");
    for name in ["claw-pod.yml", "desk.json", "AGENTS.md"] {
        fs::copy(case.join(name), pod.path().join(name)).unwrap();
    }
    fs::write(
        pod.path().join(".env"),
        "DESK_TOKEN=kelp-91c\nANTHROPIC_KEY=kelp-91c-a\nDATABASE_PASSWORD=kelp-91c-b\nCHAT_TOKEN=kelp-91c-c\n",
    )
    .unwrap();
    let shut = run(pod.path(), &["import", "claw-pod.yml"]);
    assert!(
        !text(&shut.stdout).contains("kelp"),
        "{}",
        text(&shut.stdout)
    );
    assert!(!text(&shut.stderr).contains("kelp"));
    let open = run(pod.path(), &["import", "claw-pod.yml", "--with-secrets"]);
    let objects = text(&open.stdout);
    assert!(objects.contains("kelp-91c-a"));
    for document in objects.split("---\n").filter(|text| text.contains("kelp")) {
        assert!(document.contains("kind: Secret"), "{document}");
    }
    assert!(!text(&open.stderr).contains("kelp"));
}

/// A pod file is not trusted: it may name files of its own folder only.
fn files_outside_of_the_folder_are_not_read() {
    let above = tempfile::tempdir().unwrap();
    fs::write(above.path().join("secret.md"), "kelp-77").unwrap();
    let pod = above.path().join("pod");
    fs::create_dir(&pod).unwrap();
    std::os::unix::fs::symlink("../secret.md", pod.join("link.md")).unwrap();
    for path in ["../secret.md", "link.md", "/etc/hostname"] {
        let file = format!(
            "x-claw: {{pod: pond}}\nservices:\n  otter:\n    image: otter:1\n    x-claw: {{agent: {path}}}\n"
        );
        fs::write(pod.join("claw-pod.yml"), file).unwrap();
        let output = run(&pod, &["import", "claw-pod.yml"]);
        assert!(!text(&output.stdout).contains("kelp-77"), "{path}");
        let said = text(&output.stderr);
        assert!(
            said.contains("outside of the pod file's folder"),
            "{path}: {said}"
        );
    }
}

fn files_are_replaced_only_with_force() {
    let case = folder("authoring/import").join("guide-basic");
    let result = tempfile::tempdir().unwrap();
    let target = result.path().to_str().unwrap();
    let arguments = ["import", "claw-pod.yml", "--output-dir", target];
    let ran = |more: &[&str]| {
        run(&case, &[&arguments, more].concat())
            .status
            .code()
            .unwrap()
    };
    let first = ran(&[]);
    assert_ne!(first, 2);
    assert_eq!(ran(&[]), 2);
    assert_eq!(ran(&["--force"]), first);
}

/// The translation and the compiler find the same faults: the compiler finds what they do to the
/// objects.
fn each_fault_is_one_message() {
    const POD: &str = "\
x-claw: {pod: pond}
services:
  lake: {image: lake:1, expose: [80]}
  otter:
    image: otter:1
    x-claw:
      cllama: passthrough
      tools: [lake]
      models: {primary: anthropic/claude-sonnet-4, fallback: anthropic/claude-haiku-4}
";
    const DESCRIPTOR: &str = r#"{"version": 2, "tools": [
        {"name": "swim", "inputSchema": {"type": "object", "properties": {}}, "http": {"method": "GET", "path": "/swim"}}
    ], "feeds": [{"name": "tides", "path": "/tides", "ttl": 60}]}"#;
    let long = format!("primary: anthropic/{}", "x".repeat(300));
    // A text of the pod file or of the descriptor, the text in its place, and the fault.
    let cases = [
        (
            "[lake]",
            "[nowhere]",
            "pod.yml:6: error: nowhere is none of the file's services",
        ),
        ("[80]", "[0]", "pod.yml:3: error: a port is \"0\""),
        ("[80]", "[70000]", "pod.yml:3: error: a port is \"70000\""),
        (
            ", expose: [80]",
            "",
            "pod.yml:3: error: no port of lake is known",
        ),
        (
            "  otter:",
            "  lake_: {image: i, expose: [81]}\n  otter:",
            "pod.yml:4: error: lake_ and lake would both",
        ),
        (
            "[lake]",
            "[{service: lake, allow: [dive]}]",
            "error[ToolNotFound] ToolGrant pond/otter",
        ),
        (
            "[lake]",
            "[lake]\n      feeds: [{source: lake, path: /f, ttl: 0}]",
            "error[InvalidFeed] Surface pond/lake",
        ),
        (
            "[lake]",
            "[lake]\n      tool-policy: {max-rounds: 5000}",
            "error[InvalidValue] Agent pond/otter",
        ),
        (
            "[lake]",
            "[lake]\n      tool-policy: {max-tool-result-bytes: 999999999999}",
            "error[Undecodable] Agent pond/otter",
        ),
        (
            "anthropic/claude-sonnet-4, fallback: anthropic",
            "cave/a, fallback: cave",
            "pod.yml:6: error: the provider cave of model cave/a",
        ),
        (
            "anthropic/claude-sonnet-4, fallback: anthropic/claude-haiku-4",
            "sonnet",
            "pod.yml:6: error: the model sonnet names no provider",
        ),
        (
            "anthropic/claude-sonnet-4, fallback: anthropic/claude-haiku-4",
            "''",
            "pod.yml:9: error: models: primary names no model",
        ),
        (
            "primary: anthropic/claude-sonnet-4",
            &long,
            "error[InvalidValue] Agent pond/otter",
        ),
        (
            "      models: {primary: anthropic/claude-sonnet-4, fallback: anthropic/claude-haiku-4}\n",
            "",
            "pod.yml: error: no model provider is named",
        ),
        (
            DESCRIPTOR,
            "{",
            "pod.yml: error: descriptor of lake: is neither JSON nor YAML",
        ),
        (
            DESCRIPTOR,
            "[]",
            "pod.yml: error: descriptor of lake: is not an object",
        ),
        (
            "\"version\": 2",
            "\"version\": 9",
            "error[UnsupportedDescriptorVersion] Surface pond/lake",
        ),
        (
            "\"ttl\": 60",
            "\"ttl\": \"soon\"",
            "pod.yml: error: descriptor of lake: the ttl \"soon\" of feed 0",
        ),
        (
            "\"version\": 2",
            "\"version\": 2, \"auth\": {\"type\": \"header\", \"env\": \"KEY\"}",
            "error[InvalidValue] Surface pond/lake",
        ),
        (
            "\"version\": 2",
            "\"version\": 2, \"auth\": {\"type\": \"bearer\", \"env\": \"a key/\"}",
            "error[InvalidValue] Surface pond/lake",
        ),
    ];
    let errors = |pod: &str, descriptor: Option<&str>| -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pod.yml"), pod).unwrap();
        let mut arguments = vec!["import", "pod.yml"];
        if let Some(descriptor) = descriptor {
            fs::write(folder.path().join("lake.json"), descriptor).unwrap();
            arguments.extend(["--describe", "lake=lake.json"]);
        }
        let output = run(folder.path(), &arguments);
        let said = text(&output.stderr);
        let is_error = |line: &&str| line.contains(" error: ") || line.starts_with("error[");
        let errors: Vec<String> = said.lines().filter(is_error).map(String::from).collect();
        let code = output.status.code();
        assert_eq!(code, Some(i32::from(!errors.is_empty())), "{said}");
        errors
    };
    assert_eq!(errors(POD, Some(DESCRIPTOR)), [""; 0]);
    for (old, new, fault) in cases {
        let pod = POD.replacen(old, new, 1);
        let descriptor = DESCRIPTOR.replacen(old, new, 1);
        assert!(pod != POD || descriptor != DESCRIPTOR, "{old}");
        let found = errors(&pod, Some(&descriptor));
        let [error] = &found[..] else {
            panic!("{new}: {found:#?}");
        };
        assert!(error.starts_with(fault), "{new}: {error}");
    }
    let no_descriptor = errors(POD, None);
    assert_eq!(no_descriptor.len(), 1, "{no_descriptor:#?}");
    assert!(no_descriptor[0].starts_with("pod.yml:3: error: lake has no descriptor here"));
    // The same in an agent's feeds.
    let pod = POD.replace(
        "[lake]",
        "[lake]\n      feeds: [{source: lake, name: tides}]",
    );
    let no_descriptor = errors(&pod, None);
    assert_eq!(no_descriptor.len(), 1, "{no_descriptor:#?}");
}
