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
use toolcrib_golden::here;

fn main() -> ExitCode {
    suite(here!(), "cases", check).run()
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
