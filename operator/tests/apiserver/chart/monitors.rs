//! The chart's PodMonitors: off by default, and each selects pods and a port that exist.

use serde_json::{Value, json};

use crate::support::harness::rendered;

const ON: &str = "--set=metrics.podMonitor.enabled=true";
const PORT: &str = "--set=mediator.metricsPort=9464";

fn monitors(settings: &[&str]) -> Vec<Value> {
    let mut objects = rendered(settings);
    objects.retain(|object| object["kind"] == "PodMonitor");
    objects
}

fn names(monitors: &[Value]) -> Vec<&str> {
    monitors
        .iter()
        .filter_map(|monitor| monitor["metadata"]["name"].as_str())
        .collect()
}

#[test]
fn monitors_are_off_by_default_and_need_the_port_of_mediators() {
    let namespace = "--set=secretNamespaces={pond}";
    assert_eq!(monitors(&[namespace, PORT]), [] as [Value; 0]);
    assert_eq!(names(&monitors(&[namespace, ON])), ["toolcrib-operator"]);
    let [_, mediators] = &monitors(&[namespace, ON, PORT])[..] else {
        panic!("two monitors")
    };
    let spec = &mediators["spec"];
    assert_eq!(
        spec["namespaceSelector"],
        json!({"matchNames": ["pond"]}),
        "where agents live"
    );
    let agents = json!([{"key": "toolcrib.dev/agent", "operator": "Exists"}]);
    assert_eq!(spec["selector"], json!({"matchExpressions": agents}));
    let [endpoint] = &spec["podMetricsEndpoints"].as_array().expect("endpoints")[..] else {
        panic!("one endpoint")
    };
    // The port that injection names (operator/compile/src/inject).
    assert_eq!(endpoint["port"], "tc-metrics");
    assert_eq!(endpoint["interval"], Value::Null);
    assert_eq!(endpoint["relabelings"][0]["targetLabel"], "agent");

    let everywhere = monitors(&["--set=clusterWideSecrets=true", ON, PORT]);
    assert_eq!(
        everywhere[1]["spec"]["namespaceSelector"],
        json!({"any": true})
    );
    // An empty list of namespaces would be the release's own.
    assert_eq!(names(&monitors(&[ON, PORT])), ["toolcrib-operator"]);
}

#[test]
fn the_operators_monitor_selects_the_status_port_of_both_programs() {
    let objects = rendered(&[
        ON,
        "--set=metrics.podMonitor.labels.team=heron",
        "--set=metrics.podMonitor.interval=15s",
    ]);
    let monitor = objects
        .iter()
        .find(|object| object["kind"] == "PodMonitor")
        .expect("a monitor");
    assert_eq!(monitor["metadata"]["labels"]["team"], "heron");
    let spec = &monitor["spec"];
    let namespaces = json!({"matchNames": [monitor["metadata"]["namespace"]]});
    assert_eq!(spec["namespaceSelector"], namespaces);
    let endpoint = &spec["podMetricsEndpoints"][0];
    assert_eq!(endpoint["interval"], "15s");
    for name in ["toolcrib-controller", "toolcrib-webhook"] {
        let deployment = objects
            .iter()
            .find(|it| it["kind"] == "Deployment" && it["metadata"]["name"] == name)
            .expect("a Deployment");
        let template = &deployment["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        let wanted = spec["selector"]["matchLabels"].as_object();
        for (key, value) in wanted.expect("labels") {
            assert_eq!(&labels[key], value, "{name}");
        }
        let component = &spec["selector"]["matchExpressions"][0];
        let components = component["values"].as_array().expect("values");
        let key = component["key"].as_str().expect("a key");
        assert!(components.contains(&labels[key]), "{name}");
        let ports = template["spec"]["containers"][0]["ports"].as_array();
        let ports: Vec<&Value> = ports.expect("ports").iter().map(|it| &it["name"]).collect();
        assert!(ports.contains(&&endpoint["port"]), "{name}: {ports:?}");
    }
}
