//! Minimal JSON merge patches (RFC 7396).

use serde_json::{Map, Value};

/// The merge patch from `before` to `after`; `None` if they are equal.
pub fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in after {
        if let Some(change) = merge_patch(before.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), change);
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Value, after: Value, expected: Option<Value>) {
        let patch = merge_patch(&before, &after);
        assert_eq!(patch, expected);
        let mut merged = before;
        json_patch::merge(&mut merged, &patch.unwrap_or_else(|| json!({})));
        assert_eq!(merged, after);
    }

    #[test]
    fn a_patch_holds_differences_and_removes_absent_keys() {
        check(json!({"a": 1}), json!({"a": 1}), None);
        check(
            json!({"tools": [1, 2], "usage": {"calls": 1, "denied": 0}, "gone": 5}),
            json!({"tools": [2], "usage": {"calls": 2, "denied": 0}}),
            Some(json!({"tools": [2], "usage": {"calls": 2}, "gone": null})),
        );
        check(
            Value::Null,
            json!({"a": {"b": 1}}),
            Some(json!({"a": {"b": 1}})),
        );
    }
}
