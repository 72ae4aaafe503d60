//! The list of diagnostics: each has its texts, and a case produces it.

#![expect(clippy::disallowed_methods, reason = "the cases are files")]

use std::collections::BTreeSet;
use std::path::Path;

use toolcrib_compile::Code;

/// Names in `error: NAME: …`, `warning: NAME: …` and `withheld WHAT: NAME: …` of all cases.
fn produced() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut names = BTreeSet::new();
    for case in std::fs::read_dir(root).expect("the folder of cases exists") {
        let path = case.expect("readable").path().join("expected.txt");
        let text = std::fs::read_to_string(path).expect("every case has its expectation");
        for line in text.lines() {
            let mut parts = line.split(": ");
            let begins = |word: &str| line.starts_with(word);
            if begins("error") || begins("warning") || begins("withheld") {
                names.extend(parts.nth(1).map(str::to_owned));
            }
        }
    }
    names
}

#[test]
fn every_code_is_produced_by_a_case() {
    let produced = produced();
    let without: Vec<&str> = Code::ALL
        .iter()
        .map(|code| code.name())
        .filter(|name| !produced.contains(*name))
        .collect();
    assert!(
        without.is_empty(),
        "no case in operator/compile/tests/cases shows {without:?}"
    );
}

#[test]
fn every_code_has_meaning_cause_and_cure() {
    let mut seen = BTreeSet::new();
    for code in Code::ALL {
        assert!(seen.insert(code.name()), "{code} is there twice");
        for text in [code.meaning(), code.cause(), code.cure()] {
            assert!(
                text.len() > 20 && text.ends_with('.') && text.trim() == text,
                "{code}: {text:?} is no sentence"
            );
        }
    }
}
