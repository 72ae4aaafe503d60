use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectList;
use kube::core::WatchEvent;
use serde_json::json;
use toolcrib_compile::MAX_SUSPEND_REASON;

use super::*;

fn service(name: &str, spec: &str, managed: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"pond","uid":"u-{name}","managedFields":[{{"fieldsV1":{managed}}}]}},"spec":{spec}}}"#
    )
}

fn deep(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

/// A spec with `value` in a field that must be text. An unknown field would only be skipped.
fn selecting(value: &str) -> String {
    format!(r#"{{"selector":{{"a":{value}}}}}"#)
}

fn list(items: &[String]) -> ObjectList<DecodedObject<Service>> {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ServiceList","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
        items.join(",")
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn an_undecodable_object_does_not_affect_the_rest_of_a_list() {
    let items = [
        service("heron", r#"{"type":"ClusterIP"}"#, "{}"),
        service("deep", &selecting(&deep(100_000)), &deep(100_000)),
        service("wrong", r#"{"ports":"hunter2"}"#, "{}"),
        service("newt", "{}", "{}"),
    ];
    let list = list(&items);
    let outcome: Vec<_> = list
        .items
        .iter()
        .map(|o| (o.meta().name.clone().unwrap(), o.object.is_ok()))
        .collect();
    assert_eq!(
        outcome,
        [
            ("heron", true),
            ("deep", false),
            ("wrong", false),
            ("newt", true)
        ]
        .map(|(name, ok)| (name.to_owned(), ok))
    );
    assert_eq!(list.items[1].meta().uid.as_deref(), Some("u-deep"));
    let reason = &list.items[2].object.as_ref().unwrap_err().reason;
    assert_eq!(
        reason,
        "spec.ports: is a text: `kubectl explain service --recursive` shows what it takes"
    );
}

#[test]
fn deep_managed_fields_do_not_make_an_object_undecodable() {
    let list = list(&[service("heron", r#"{"type":"ClusterIP"}"#, &deep(5_000))]);
    let heron = list.items[0].object.as_ref().unwrap();
    assert_eq!(
        heron.spec.as_ref().unwrap().type_.as_deref(),
        Some("ClusterIP")
    );
    assert_eq!(heron.metadata.managed_fields, None);
}

#[test]
fn only_the_metadata_that_is_read_is_kept() {
    let text = r#"{
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {
            "name": "otter", "namespace": "pond", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"team": "reeds"}, "finalizers": ["pond/drain"],
            "annotations": {"toolcrib.dev/rotate": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
        },
        "spec": {"surfaces": [{"name": "reed"}]},
        "status": {"toolCount": 5}
    }"#;
    let otter = decode::<Agent>(text).unwrap();
    let agent = otter.object.as_ref().unwrap();
    let read = ObjectMeta {
        name: Some("otter".into()),
        namespace: Some("pond".into()),
        uid: Some("u".into()),
        resource_version: Some("7".into()),
        generation: Some(3),
        annotations: Some([("toolcrib.dev/rotate".into(), "1".into())].into()),
        ..ObjectMeta::default()
    };
    assert_eq!(agent.metadata, read);
    assert_eq!(agent.spec.surfaces.len(), 1);
    assert!(agent.status.is_none());
    let status = AgentStatus {
        tool_count: Some(5),
        ..AgentStatus::default()
    };
    assert_eq!(otter.status_text(), super::text(&status));
    assert_eq!(
        otter.status().map(|status| super::text(&status)),
        Some(super::text(&status))
    );
}

#[test]
fn a_suspension_reason_is_cut_at_its_bound() {
    let text = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": "otter", "namespace": "pond", "annotations": {
            "toolcrib.dev/suspend-reason": "loop ".repeat(10_000), "team": "reeds"}},
        "spec": {"suspend": true},
    });
    let otter = decode::<Agent>(&text.to_string()).unwrap();
    assert!(otter.is_suspended());
    let kept = otter.meta().annotations.as_ref().unwrap();
    let lengths: Vec<_> = kept.iter().map(|(name, it)| (&**name, it.len())).collect();
    assert_eq!(
        lengths,
        [("toolcrib.dev/suspend-reason", 2 * MAX_SUSPEND_REASON)]
    );
}

#[test]
fn a_watch_event_with_a_deeply_nested_object_is_decoded() {
    let line = format!(
        r#"{{"type":"MODIFIED","object":{}}}"#,
        service("deep", &selecting(&deep(100_000)), "{}")
    );
    let event = serde_json::from_str::<WatchEvent<DecodedObject<Service>>>(&line).unwrap();
    let WatchEvent::Modified(object) = event else {
        panic!("{event:?}");
    };
    assert_eq!(object.meta().name.as_deref(), Some("deep"));
    assert!(object.object.is_err());
}

#[test]
fn metadata_is_read_without_the_body() {
    let text = format!(
        r#"{{"kind":"PartialObjectMetadata","metadata":{{"name":"keys","namespace":"pond","labels":{{"a":"b"}},"managedFields":[{{"fieldsV1":{}}}]}}}}"#,
        deep(5_000)
    );
    let secret: MetaOf<Secret> = serde_json::from_str(&text).unwrap();
    assert_eq!(secret.meta().name.as_deref(), Some("keys"));
    assert_eq!(secret.meta().managed_fields, None);
}
