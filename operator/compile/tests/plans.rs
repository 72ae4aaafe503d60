//! Plans as files: two sets of objects in, who gains or loses what out.
//!
//! `plans/NAME/before.yaml` and `after.yaml` stand beside `plans/pond.yaml`, which holds
//! what all cases have; `plans/NAME/expected.txt` is the output.

#![allow(clippy::disallowed_methods, reason = "the cases are files")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use toolcrib_compile::{Inputs, Plan, Settings, load, plan};

#[test]
fn plans() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&root)
        .expect("the cases are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    let failed: Vec<String> = cases.iter().filter_map(|case| check(case)).collect();
    assert!(
        failed.is_empty(),
        "{}\n\nIf the new output is right: UPDATE_EXPECT=1 cargo test -p toolcrib-compile --test plans",
        failed.join("\n\n")
    );
}

/// What is wrong with one case, if anything.
fn check(case: &Path) -> Option<String> {
    let before = inputs(case, "before.yaml");
    let after = inputs(case, "after.yaml");
    let actual = describe(&plan(&before, &after));
    let nothing = plan(&before, &before);
    assert_eq!(nothing, Plan::default(), "{}: to itself", case.display());
    let path = case.join("expected.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &actual).expect("writable");
        return None;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    (expected != actual).then(|| {
        format!(
            "{}\n--- expected\n{expected}\n--- actual\n{actual}",
            path.display()
        )
    })
}

fn inputs(case: &Path, name: &str) -> Inputs {
    let texts = [case.with_file_name("pond.yaml"), case.join(name)].map(|path| {
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.display().to_string(), text)
    });
    let loaded = load(texts, Settings::default());
    assert_eq!(loaded.errors, [], "{}", case.display());
    loaded.inputs
}

fn describe(plan: &Plan) -> String {
    let mut out = String::new();
    for agent in &plan.agents {
        writeln!(out, "agent {} {:?}", agent.agent, agent.fate).expect("text grows");
        for change in &agent.changes {
            writeln!(out, "  {change}").expect("text grows");
        }
        if let Some(refused) = &agent.refused {
            writeln!(out, "  not accepted: {refused}").expect("text grows");
        }
    }
    if plan.is_empty() {
        out.push_str("nothing changes\n");
    }
    out
}
