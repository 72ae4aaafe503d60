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

use common::{folder, lines, run, suite, text};
use toolcrib_golden::{cases, here, says_what_to_do};

fn main() -> ExitCode {
    suite(here!(), "cases", check)
        .test("each_message_says_what_to_do", each_message_says_what_to_do)
        .test(
            "advice_without_a_cluster_names_flags_of_the_verb",
            advice_without_a_cluster_names_flags_of_the_verb,
        )
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

/// Asks each verb that reads a cluster, without a kubeconfig.
fn advice_without_a_cluster_names_flags_of_the_verb() {
    let here = folder("cases/services-elsewhere");
    for line in [
        "compile",
        "explain otter",
        "inspect pond",
        "tree",
        "plan -f objects.yaml",
        "audit",
        "why r1-1-0",
        "propose otter",
        "propose otter --against objects.yaml",
        "doctor",
        "suspend otter",
        "resume otter",
        "surface discover pond --in-cluster",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let said = text(&run(&here, &words).stderr);
        let verb: Vec<&str> = words
            .iter()
            .copied()
            .take(if words[0] == "surface" { 2 } else { 1 })
            .chain(["--help"])
            .collect();
        let help = text(&run(&here, &verb).stdout);
        assert!(
            said.starts_with("error: no cluster to ask: "),
            "{line}: {said}"
        );
        assert!(
            said.contains(" a kubeconfig with --kubeconfig"),
            "{line}: {said}"
        );
        let flags = said.split([' ', ',', ':']).filter(|it| it.starts_with('-'));
        for flag in flags.filter(|flag| !words.contains(flag)) {
            let named = |word: &str| word.trim_end_matches(',') == flag;
            assert!(
                help.split_whitespace().any(named),
                "{line}: no {flag}: {said}"
            );
        }
        // A flag that the line has already helps nobody.
        let repeated = words
            .iter()
            .any(|word| said.contains(&format!("with {word}")));
        assert!(!repeated, "{line}: {said}");
    }
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
