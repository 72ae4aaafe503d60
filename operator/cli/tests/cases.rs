//! The program's text output, case by case.
//!
//! Each folder of `cases/` holds `command` (one argument per line; the folder is the working
//! directory) and the expected files `stdout`, `stderr`, `code`. The command below writes them
//! anew; read the difference in review:
//!
//! ```sh
//! UPDATE_EXPECT=1 cargo test -p kubectl-toolcrib --test cases
//! ```

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{lines, run, suite, text};
use toolcrib_golden::{cases, here, says_what_to_do};

fn main() -> ExitCode {
    suite(here!(), "cases", check)
        .test("each_message_says_what_to_do", each_message_says_what_to_do)
        .run()
}

/// Reads the errors and warnings in the files of all cases. Not those of the argument parser, which
/// are followed by the usage.
fn each_message_says_what_to_do() {
    let mut without = Vec::new();
    for case in cases(&common::folder("cases"), None) {
        let stderr = std::fs::read_to_string(case.join("stderr")).unwrap();
        if stderr.contains("\nUsage: ") || stderr.contains("try '--help'") {
            continue;
        }
        let said = |line: &&str| line.starts_with("error") || line.starts_with("warning");
        let silent = stderr
            .lines()
            .filter(said)
            .filter(|line| !says_what_to_do(line));
        without.extend(silent.map(|line| format!("{}: {line}", case.display())));
    }
    let lines = without.join("\n");
    assert!(lines.is_empty(), "say what to do:\n{lines}");
}

fn check(case: &Path) -> BTreeMap<PathBuf, String> {
    let command = lines(case, "command");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let output = run(case, &command);
    let code = output.status.code().unwrap();
    BTreeMap::from([
        ("stdout".into(), text(&output.stdout)),
        ("stderr".into(), text(&output.stderr)),
        ("code".into(), format!("{code}\n")),
    ])
}
