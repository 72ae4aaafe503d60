//! May agents of this namespace call that surface at all?

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use toolcrib_crds::{NamespacesFrom, Surface};

use crate::{Inputs, ObjectRef};

/// Consent of the surface's owner. What cannot be known is no consent.
pub(crate) fn consents(
    inputs: &Inputs,
    key: &ObjectRef,
    surface: &Surface,
    consumer_namespace: &str,
) -> bool {
    if key.namespace == consumer_namespace {
        return true;
    }
    let Some(consent) = surface
        .spec
        .consumers
        .as_ref()
        .and_then(|consumers| consumers.namespaces.as_ref())
    else {
        return false;
    };
    match consent.from {
        NamespacesFrom::Same => false,
        NamespacesFrom::All => true,
        NamespacesFrom::Selector => consent.selector.as_ref().is_some_and(|selector| {
            inputs
                .namespace_labels(consumer_namespace)
                .is_some_and(|labels| matches(selector, &labels))
        }),
    }
}

/// As the API machinery selects: all terms must hold; an empty selector matches all.
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
            // An operator of a later API: no consent.
            _ => false,
        }
    });
    equal && expressions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: serde_json::Value, expected: bool) {
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        let labels = BTreeMap::from([("team".to_owned(), "otters".to_owned())]);
        assert_eq!(matches(&selector, &labels), expected, "{selector:?}");
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
        check(term("Resembles", &["otters"]), false);
    }
}
