//! Refuses objects in files that the API server would refuse.
//!
//! Not here: the check ([`toolcrib_crds::refusals`]), and objects of other kinds.
//!
//! Invariant: a refused object is treated as absent, as it would be in a cluster.

use serde::Serialize;
use toolcrib_compile::{Code, Diagnostics, Kind, LoadResult, ObjectRef, Subject};
use toolcrib_crds::refusals;

/// Removes the objects that no cluster would accept from `loaded`, and reports the reasons.
pub fn admitted(mut loaded: LoadResult) -> LoadResult {
    let inputs = &loaded.inputs;
    let mut refused: Vec<(Subject, Vec<toolcrib_crds::Refusal>)> = Vec::new();
    let mut look = |kind: Kind, key: &ObjectRef, object: serde_json::Result<String>| {
        let refusals = match object.and_then(|text| serde_json::from_str(&text)) {
            Ok(value) => refusals(kind.name(), &value),
            // The object is nested too deep for a tree. Compile reports the part that is too deep.
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
    for (key, object) in inputs.policies() {
        look(Kind::ClusterToolPolicy, key, text(object));
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

/// Converts through text, since a descriptor is kept as text.
fn text(object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(object)
}
