//! The facts about a Secret that its metadata holds.
//!
//! The managed fields hold the names of its keys, so no value ever leaves the API server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;
use toolcrib_compile::SecretFacts;

pub fn of_secret(metadata: &ObjectMeta) -> SecretFacts {
    let none = BTreeMap::new();
    SecretFacts::from_metadata(
        metadata.labels.as_ref().unwrap_or(&none),
        metadata.annotations.as_ref().unwrap_or(&none),
        metadata.uid.as_deref().unwrap_or_default(),
        metadata.resource_version.as_deref().unwrap_or_default(),
        metadata.managed_fields.as_deref().and_then(keys),
    )
}

/// Returns the keys that any manager wrote; `None` if the managed fields were cleared.
fn keys(managed: &[ManagedFieldsEntry]) -> Option<BTreeSet<String>> {
    let written: Vec<&Value> = managed
        .iter()
        .filter_map(|entry| entry.fields_v1.as_ref())
        .map(|fields| &fields.0)
        .collect();
    if written.is_empty() {
        return None;
    }
    let members = written
        .iter()
        .flat_map(|fields| [&fields["f:data"], &fields["f:stringData"]])
        .filter_map(Value::as_object)
        .flat_map(|members| members.keys());
    Some(
        members
            .filter_map(|name| name.strip_prefix("f:"))
            .map(str::to_owned)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(managed: Value, expected: Option<&[&str]>) {
        let managed: Vec<ManagedFieldsEntry> = serde_json::from_value(managed).unwrap();
        let expected = expected.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
        assert_eq!(keys(&managed), expected, "{managed:?}");
    }

    #[test]
    fn keys_of_all_managers_are_known() {
        let entry = |fields: Value| json!({"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let data = entry(json!({"f:data": {".": {}, "f:token": {}}, "f:type": {}}));
        let more = entry(json!({"f:data": {"f:other": {}}}));
        let labels = entry(json!({"f:metadata": {"f:labels": {"f:token": {}}}}));
        check(json!([data.clone()]), Some(&["token"]));
        check(json!([data, more]), Some(&["other", "token"]));
        check(json!([labels]), Some(&[]));
        check(json!([]), None);
        check(json!([{}]), None);
    }
}
