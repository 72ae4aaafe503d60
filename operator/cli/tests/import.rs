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

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{folder, report, run, suite, text};
use toolcrib_golden::{expect_no_others, here};

fn main() -> ExitCode {
    suite(here!(), "import", check)
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
    let case = folder("import").join("everything");
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
    let case = folder("import").join("guide-basic");
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
