//! Label selectors over labels of objects, and over namespaces.
//!
//! Here: whether a selector matches labels, as the API machinery decides it. Not here: the meaning of
//! labels that are not known, which differs between consent and restriction.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::names;

const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// Returns whether the selector matches the namespace. `None`: its labels are not known, or the
/// selector has an operator of a later API.
pub(crate) fn selects(
    selector: &LabelSelector,
    namespace: &str,
    labels: Option<BTreeMap<String, String>>,
) -> Option<bool> {
    let mut labels = labels?;
    // The API server puts this label on every namespace.
    labels.insert(names::NAMESPACE_NAME_LABEL.to_owned(), namespace.to_owned());
    selector_matches(selector, &labels)
}

/// Returns whether the selector matches an object with these labels. `None`: the selector has an
/// operator of a later API.
pub fn selector_matches(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Option<bool> {
    let mut terms = selector.match_expressions.iter().flatten();
    terms
        .all(|term| OPERATORS.contains(&&*term.operator))
        .then(|| matches(selector, labels))
}

/// Matches as the API machinery does: all terms must hold; an empty selector matches all.
fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten().all(|term| {
        let value = labels.get(&term.key);
        let listed = |value: &String| term.values.iter().flatten().any(|other| other == value);
        match term.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // Another operator is refused before.
            _ => false,
        }
    });
    equal && expressions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: serde_json::Value, expected: impl Into<Option<bool>>) {
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        let labels = BTreeMap::from([("team".to_owned(), "otters".to_owned())]);
        let found = selects(&selector, "pond", Some(labels));
        assert_eq!(found, expected.into(), "{selector:?}");
        assert_eq!(selects(&selector, "pond", None), None);
    }

    #[test]
    fn selectors() {
        use serde_json::json;
        let term = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "team", "operator": operator, "values": values}]});
        check(json!({}), true);
        check(json!({"matchLabels": {"team": "otters"}}), true);
        check(json!({"matchLabels": {"team": "beavers"}}), false);
        check(term("In", &["otters"]), true);
        check(term("In", &["beavers"]), false);
        check(term("NotIn", &["otters"]), false);
        check(term("NotIn", &["beavers"]), true);
        check(term("Exists", &[]), true);
        check(term("DoesNotExist", &[]), false);
        check(term("Resembles", &["otters"]), None);
        check(
            json!({"matchLabels": {"kubernetes.io/metadata.name": "pond"}}),
            true,
        );
    }
}
