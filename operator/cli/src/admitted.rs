//! What the API server would refuse is refused of files too.
//!
//! Not here: the check ([`toolcrib_crds::refusals`]), and objects of other kinds.
//!
//! Invariant: an object that is refused gives nothing, as it would give nothing in a cluster.

use serde::Serialize;
use toolcrib_compile::{Code, Diagnostics, Kind, LoadResult, ObjectRef, Subject};
use toolcrib_crds::refusals;

/// Takes out of `loaded` what no cluster would hold, and says why.
pub fn admitted(mut loaded: LoadResult) -> LoadResult {
    let inputs = &loaded.inputs;
    let mut refused: Vec<(Subject, Vec<toolcrib_crds::Refusal>)> = Vec::new();
    let mut look = |kind: Kind, key: &ObjectRef, object: serde_json::Result<String>| {
        let refusals = match object.and_then(|text| serde_json::from_str(&text)) {
            Ok(value) => refusals(kind.name(), &value),
            // Deeper than a tree can be: compile says so of the part that is.
            Err(_) => Vec::new(),
        };
        if !refusals.is_empty() {
            refused.push((Subject::new(kind, key), refusals));
        }
    };
    for (key, object) in inputs.surfaces() {
        look(Kind::Surface, key, text(object));
    }
    for (key, object) in inputs.agents() {
        look(Kind::Agent, key, text(object));
    }
    for (key, object) in inputs.grants() {
        look(Kind::ToolGrant, key, text(object));
    }
    for (key, object) in inputs.defaults() {
        look(Kind::ToolDefaults, key, text(object));
    }
    for (key, object) in inputs.providers() {
        look(Kind::ModelProvider, key, text(object));
    }
    let mut found = Diagnostics::default();
    found.extend(loaded.diagnostics.drain(..));
    for (subject, refusals) in refused {
        let mut reason = String::new();
        for refusal in refusals {
            let message = format!("the API server refuses it: {}", refusal.message);
            if reason.is_empty() {
                reason.clone_from(&message);
            }
            found.add(&subject, refusal.field, Code::InvalidValue, message);
        }
        loaded
            .inputs
            .refuse(subject.kind, subject.key.clone(), reason);
    }
    loaded.diagnostics = found.into_sorted();
    loaded
}

/// Through text: a descriptor stays the text it is.
fn text(object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(object)
}
