//! The memory budget of one object.
//!
//! Here: the check of one object, the same for files and for a cluster, and reading the operator's
//! verdict from a status. Not here: the budgets of a namespace and of all objects, which only the
//! operator tracks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use toolcrib_bounds::{OBJECT_WEIGHT, weight};
use toolcrib_crds::{ConditionStatus, ConditionType};

use crate::Code;

/// Returns the message for an object whose spec is over the budget. `None`: it is within the
/// budget.
pub fn too_heavy(spec: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string(spec).ok()?;
    too_heavy_text(&text)
}

/// Does the same as [`too_heavy`] for the spec's JSON.
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

/// Returns the status message if the operator leaves out this generation of an object for want of
/// memory. Only the operator can decide this, since it depends on all other objects.
pub fn left_out(conditions: &[Condition], generation: Option<i64>) -> Option<&str> {
    let accepted = conditions
        .iter()
        .find(|condition| condition.type_ == ConditionType::Accepted.as_str())?;
    let says_so = accepted.status == ConditionStatus::False.as_str()
        && accepted.reason == Code::TooExpensive.name()
        && accepted.observed_generation == generation;
    says_so.then_some(&*accepted.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(condition: serde_json::Value, generation: i64, expected: Option<&str>) {
        let conditions: Vec<Condition> = serde_json::from_value(json!([
            {"type": "Resolved", "status": "False", "reason": "TooExpensive", "message": "",
                "observedGeneration": 3, "lastTransitionTime": "2026-01-02T03:04:05Z"},
            condition,
        ]))
        .expect("conditions");
        assert_eq!(left_out(&conditions, Some(generation)), expected);
    }

    #[test]
    fn an_object_is_left_out_while_its_status_reports_its_current_generation() {
        let accepted = |status: &str, reason: &str| {
            json!({"type": "Accepted", "status": status, "reason": reason, "message": "no room",
                "observedGeneration": 3, "lastTransitionTime": "2026-01-02T03:04:05Z"})
        };
        check(accepted("False", "TooExpensive"), 3, Some("no room"));
        check(accepted("False", "TooExpensive"), 4, None);
        check(accepted("False", "Undecodable"), 3, None);
        check(accepted("True", "TooExpensive"), 3, None);
    }
}
