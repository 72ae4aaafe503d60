//! What one object may weigh in memory.
//!
//! Here: the verdict on one object, the same for files and for a cluster. Not here: what is left
//! of a namespace's budget, which only the operator keeps.

use serde::Serialize;
use toolcrib_bounds::{OBJECT_WEIGHT, weight};

/// Why an object with this spec gives nothing, if it weighs too much.
pub fn too_heavy(spec: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string(spec).ok()?;
    too_heavy_text(&text)
}

/// The same, of the spec's JSON.
pub fn too_heavy_text(spec: &str) -> Option<String> {
    let weight = weight(spec);
    (weight > OBJECT_WEIGHT).then(|| {
        format!(
            "it takes {} MiB of memory ({} bytes of text, and its values), and one object may take {}: make it smaller, or split it",
            weight >> 20,
            spec.len(),
            OBJECT_WEIGHT >> 20,
        )
    })
}
