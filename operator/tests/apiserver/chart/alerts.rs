//! The chart's alerts: off by default, and only on metrics that exist.

use std::collections::BTreeSet;

use serde_json::Value;
use toolcrib_operator::metrics::{PREFIX, PROJECT, PROMISES, ROWS, Row};

use crate::support::harness::rendered;

fn rules(settings: &[&str]) -> Vec<Value> {
    let mut objects = rendered(settings);
    objects.retain(|object| object["kind"] == "PrometheusRule");
    objects
}

/// The controller's metrics in the text format.
fn metrics() -> BTreeSet<String> {
    let names = |prefix: &'static str, rows: &'static [Row]| {
        rows.iter().flat_map(move |row| {
            let suffixes: &[&str] = match row.kind {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_count", "_sum"],
                _ => &[""],
            };
            suffixes
                .iter()
                .map(move |suffix| format!("{prefix}_{}{suffix}", row.name))
        })
    };
    let mediator = include_str!("../../../../docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned);
    names(PREFIX, &ROWS)
        .chain(names(PROJECT, &PROMISES))
        .chain(mediator)
        .collect()
}

#[test]
fn alerts_are_off_by_default_and_use_existing_metrics() {
    assert_eq!(rules(&[]), [] as [Value; 0]);
    let asked = [
        "--set=alerts.enabled=true",
        "--set=alerts.labels.team=heron",
    ];
    let [rule] = &rules(&asked)[..] else {
        panic!("one rule")
    };
    assert_eq!(rule["metadata"]["labels"]["team"], "heron");
    let rules = rule["spec"]["groups"][0]["rules"]
        .as_array()
        .expect("rules");
    let names: Vec<&str> = rules
        .iter()
        .filter_map(|rule| rule["alert"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "ToolcribRevocationSlow",
            "ToolcribRevocationOpen",
            "ToolcribLinkLost",
            "ToolcribApprovalsOff",
            "ToolcribApprovalsWait",
            "ToolcribNoLeader"
        ]
    );
    let known = metrics();
    for rule in rules {
        let expression = rule["expr"].as_str().expect("an expression");
        let named: Vec<&str> = expression
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("toolcrib_"))
            .collect();
        assert!(!named.is_empty(), "{expression}");
        for metric in named {
            assert!(known.contains(metric), "no such metric: {metric}");
        }
        assert!(rule["annotations"]["summary"].is_string());
    }
    // The promised bound is a bucket of the histogram.
    assert!(
        rules[0]["expr"]
            .as_str()
            .is_some_and(|it| it.contains(r#"le="2.0""#))
    );
}
