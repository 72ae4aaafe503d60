//! Cases as folders: the program is run in one, and what comes is compared with its files.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `tests/NAME`.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// Every folder of `tests/NAME` passes `check`, whose answer is what came: texts by their files
/// within the case. Fails with all differences at once; with UPDATE_CASES set the files are
/// written instead.
pub fn cases(name: &str, check: fn(&Path) -> BTreeMap<PathBuf, String>) {
    let mut cases: Vec<PathBuf> = fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    let differences: Vec<String> = cases
        .iter()
        .flat_map(|case| differences(case, &check(case)))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn differences(case: &Path, came: &BTreeMap<PathBuf, String>) -> Vec<String> {
    if std::env::var_os("UPDATE_CASES").is_some() {
        for (name, text) in came {
            let file = case.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        return Vec::new();
    }
    let different = came.iter().filter_map(|(name, text)| {
        let file = case.join(name);
        let wanted = fs::read_to_string(&file).unwrap_or_default();
        let shown = file.display();
        (wanted != *text).then(|| format!("{shown}\n--- wanted\n{wanted}\n--- came\n{text}"))
    });
    different.collect()
}

/// The program, in a folder. Nobody's cluster is asked by accident.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env("KUBECONFIG", "/no/such/kubeconfig")
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

/// Exit code and what was printed.
pub fn report(output: &Output, printed: &[u8]) -> String {
    let code = output.status.code().unwrap();
    format!("exit code {code}\n{}", text(printed))
}
