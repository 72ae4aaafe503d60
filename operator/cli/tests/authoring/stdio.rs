//! Converts commands to objects that run and serve them, case by case.
//!
//! Each folder of `stdio/` holds `arguments` (one per line, after `surface from-stdio`). The
//! expected files are `objects.yaml`, and `report.txt` with the exit code, standard error, and the
//! compiler's findings on the Surface. The command below writes them anew; read the difference in
//! review:
//!
//! ```sh
//! UPDATE_EXPECT=1 cargo test -p kubectl-toolcrib --test stdio
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

fn main() -> ExitCode {
    suite(here!(), "authoring/stdio", check)
        .test(
            "names_that_no_object_can_have_are_refused",
            names_that_no_object_can_have_are_refused,
        )
        .run()
}

fn check(case: &Path) -> BTreeMap<PathBuf, String> {
    let arguments = lines(case, "arguments");
    let mut all = vec!["surface", "from-stdio"];
    all.extend(arguments.iter().map(String::as_str));
    let made = run(case, &all);
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("objects.yaml"), &made.stdout).unwrap();
    let inspect = ["inspect", "fish", "-f", "."];
    let inspected = run(files.path(), &inspect);
    BTreeMap::from([
        ("objects.yaml".into(), text(&made.stdout)),
        (
            "report.txt".into(),
            report(&made, &made.stderr) + &report(&inspected, &inspected.stderr),
        ),
    ])
}

fn names_that_no_object_can_have_are_refused() {
    let refused = |arguments: &[&str], word: &str| {
        let mut all = vec!["surface", "from-stdio"];
        all.extend(arguments);
        all.extend(["--", "fish-mcp"]);
        let output = run(Path::new("."), &all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(word), "{errors}");
    };
    refused(&["Fish", "--image", "fish:1"], "a-z");
    refused(&["fish"], "--image");
    refused(
        &["fish", "--image", "fish:1", "--env", "A=b"],
        "VARIABLE=SECRET/KEY",
    );
    refused(&["fish", "--image", "fish:1", "--port", "80"], "1024");
}
