//! Plans as files: two sets of objects in, gained and lost tools out.
//!
//! `plans/NAME/before.yaml` and `after.yaml` are read with `plans/pond.yaml`, which all cases
//! share; `plans/NAME/expected.txt` is the output.

#![expect(clippy::disallowed_methods, reason = "the cases are files")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use toolcrib_compile::{Inputs, Plan, Settings, load, plan};
use toolcrib_golden::{Suite, cases, expect, here};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    Suite::default().cases(cases(&root, None), check).run()
}

/// Plans one case and compares the result with `expected.txt`.
fn check(case: &Path) {
    let before = inputs(case, "before.yaml");
    let after = inputs(case, "after.yaml");
    let actual = describe(&plan(&before, &after));
    let nothing = plan(&before, &before);
    assert_eq!(nothing, Plan::default(), "{}: to itself", case.display());
    expect(here!(), &case.join("expected.txt"), &actual);
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
