//! The chart's Grafana dashboards: off by default, and in ConfigMaps that Grafana's sidecar finds.

use serde_json::{Value, json};

use crate::support::harness::rendered;

fn boards(settings: &[&str]) -> Vec<Value> {
    let mut objects = rendered(settings);
    objects.retain(|object| {
        let name = object["metadata"]["name"].as_str();
        object["kind"] == "ConfigMap" && name.is_some_and(|it| it.contains("-dashboard-"))
    });
    objects
}

#[test]
fn dashboards_are_off_by_default_and_reach_grafana_unchanged() {
    assert_eq!(boards(&[]), [] as [Value; 0]);
    let objects = boards(&[
        "--set=dashboards.enabled=true",
        "--set=dashboards.namespace=reef",
        "--set=dashboards.labels.team=heron",
        "--set=dashboards.annotations.grafana_folder=Toolcrib",
    ]);
    for (object, (name, file)) in objects.iter().zip([
        (
            "agent",
            include_str!("../../../../charts/toolcrib/dashboards/agent.json"),
        ),
        (
            "fleet",
            include_str!("../../../../charts/toolcrib/dashboards/fleet.json"),
        ),
    ]) {
        let metadata = &object["metadata"];
        assert_eq!(metadata["name"], format!("toolcrib-dashboard-{name}"));
        assert_eq!(metadata["namespace"], "reef");
        assert_eq!(metadata["labels"]["grafana_dashboard"], "1");
        assert_eq!(metadata["labels"]["team"], "heron");
        let annotations = json!({"grafana_folder": "Toolcrib"});
        assert_eq!(metadata["annotations"], annotations);
        // Grafana's own braces in it are no template of Helm.
        assert_eq!(object["data"][format!("toolcrib-{name}.json")], file);
    }
    assert_eq!(objects.len(), 2);
    assert_eq!(
        boards(&["--set=dashboards.enabled=true"])[0]["metadata"]["namespace"],
        "default"
    );
}
