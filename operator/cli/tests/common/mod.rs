//! Cases as folders: the program runs in each, and its output is compared with the files there.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use toolcrib_golden::{Suite, Target, cases, expect};

/// The folder `tests/NAME`.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// Returns a test for each folder of `tests/NAME`. `run` returns the program's output by the files
/// of the case, and each text is compared with its file.
pub fn suite(target: Target, name: &str, run: fn(&Path) -> BTreeMap<PathBuf, String>) -> Suite {
    Suite::default().cases(cases(&folder(name), None), move |case| {
        for (file, text) in run(case) {
            expect(target, &case.join(file), &text);
        }
    })
}

/// Runs the program in a folder, without a kubeconfig, so no cluster is read by accident, and without
/// the history of this checkout.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .env("GIT_DIR", "/no/such/repository")
        .output()
        .unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn lines(case: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(case.join(file)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Formats the exit code and the output.
pub fn report(output: &Output, printed: &[u8]) -> String {
    let code = output.status.code().unwrap();
    format!("exit code {code}\n{}", text(printed))
}
