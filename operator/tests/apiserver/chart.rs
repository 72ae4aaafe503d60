//! What the chart makes of values that are unusual and sane.

use serde_json::{Value, json};

use crate::harness::rendered;

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is).unwrap_or(&Value::Null)
}

#[test]
fn pods_of_the_operator_run_where_they_can_and_take_no_service_for_a_flag() {
    let critical = [
        "--set=controller.priorityClassName=system-cluster-critical",
        "--set=webhook.priorityClassName=system-cluster-critical",
        "--set=controller.nodeSelector.pool=system",
    ];
    let [plain, objects] = [rendered(&[]), rendered(&critical)];
    for name in ["toolcrib-controller", "toolcrib-webhook"] {
        let pod = |objects| &named(objects, "Deployment", name)["spec"]["template"]["spec"];
        assert_eq!(pod(&plain)["nodeSelector"]["kubernetes.io/os"], "linux");
        assert_eq!(pod(&plain)["enableServiceLinks"], false);
        assert_eq!(pod(&plain)["priorityClassName"], Value::Null);
        assert_eq!(
            pod(&objects)["priorityClassName"],
            "system-cluster-critical"
        );
    }
    let controller = named(&objects, "Deployment", "toolcrib-controller");
    assert_eq!(
        controller["spec"]["template"]["spec"]["nodeSelector"],
        json!({"kubernetes.io/os": "linux", "pool": "system"})
    );
}

#[test]
fn a_larger_chart_may_switch_it_on() {
    let whole = [
        "--set=enabled=true",
        "--set=global.imageRegistry=registry.test",
    ];
    assert_eq!(rendered(&whole), rendered(&[]));
}

#[test]
fn a_node_that_is_emptied_takes_one_replica_at_a_time() {
    let budgets = |objects: &[Value]| -> Vec<Value> {
        ["toolcrib-controller", "toolcrib-webhook"]
            .map(|name| {
                named(objects, "PodDisruptionBudget", name)["spec"]["maxUnavailable"].clone()
            })
            .to_vec()
    };
    assert_eq!(budgets(&rendered(&[])), [json!(1), json!(1)]);
    let single = ["--set=controller.replicas=1", "--set=webhook.replicas=1"];
    assert_eq!(budgets(&rendered(&single)), [Value::Null, Value::Null]);
}

#[test]
fn a_namespace_that_yaml_reads_as_something_else_is_its_name() {
    let objects = rendered(&["--set-string=secretNamespaces={on,123}"]);
    let rights = |object: &&Value| {
        object["kind"] == "RoleBinding" && object["metadata"]["name"] == "toolcrib-materials"
    };
    let bound: Vec<&Value> = objects.iter().filter(rights).collect();
    let namespaces: Vec<&Value> = bound
        .iter()
        .map(|object| &object["metadata"]["namespace"])
        .collect();
    assert_eq!(namespaces, [&json!("on"), &json!("123")]);
}

/// What Argo CD and Flux compare: the same each time, and nothing that the controller fills in.
#[test]
fn rendering_is_the_same_each_time_and_holds_nothing_that_is_filled_in_later() {
    let objects = rendered(&[]);
    assert_eq!(objects, rendered(&[]));
    let kinds: Vec<&Value> = objects.iter().map(|object| &object["kind"]).collect();
    assert!(!kinds.contains(&&json!("Lease")));
    let secret = named(&objects, "Secret", "toolcrib-certificates");
    assert_eq!(secret["data"], Value::Null);
    let bundles = objects
        .iter()
        .flat_map(|object| object["webhooks"].as_array());
    for webhook in bundles.flatten() {
        assert_eq!(webhook["clientConfig"]["caBundle"], Value::Null);
    }
}
