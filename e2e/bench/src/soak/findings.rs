//! The failures of a run, each kind with its number and its first example.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::Serialize;

#[derive(Debug, Default)]
pub struct Findings(Mutex<BTreeMap<String, Finding>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub times: u64,
    pub example: String,
}

impl Findings {
    pub fn add(&self, kind: &str, example: String) {
        let mut findings = self.0.lock().expect("no holder of the lock panics");
        match findings.get_mut(kind) {
            Some(finding) => finding.times += 1,
            None => {
                let finding = Finding { times: 1, example };
                findings.insert(kind.to_owned(), finding);
            }
        }
    }

    pub fn check(&self, holds: bool, kind: &str, example: impl FnOnce() -> String) {
        if !holds {
            self.add(kind, example());
        }
    }

    pub fn all(&self) -> BTreeMap<String, Finding> {
        let findings = self.0.lock().expect("no holder of the lock panics");
        findings.clone()
    }
}
