//! The metrics of controller and webhook. The mediator's own crate writes its page.

use std::collections::BTreeSet;

use toolcrib_compile::Code;
use toolcrib_operator::metrics::{
    Label, LabelValues, Metrics, PREFIX, PROJECT, PROMISES, ROWS, Row,
};
use toolcrib_operator::webhook::meter;

const INTRODUCTION: &str = "\
# The operator's metrics

Each program serves Prometheus' text format at `/metrics` of its health listener. Labels have values of
closed lists, such as [diagnostic codes](diagnostics.md); no name that a user chooses becomes a time
series. Each series exists from the first scrape and begins at 0. The mediator's metrics have [a page of
their own](../metrics.md). How Prometheus gets them: [monitoring](../monitoring.md).
";

pub fn page() -> String {
    INTRODUCTION.to_owned()
        + &table(
            "Promised times, measured by the controller",
            PROJECT,
            &PROMISES,
        )
        + &table("Controller", PREFIX, &ROWS)
        + &table("Webhook", meter::PREFIX, &meter::ROWS)
}

fn table(title: &str, prefix: &str, rows: &[Row]) -> String {
    let mut text =
        format!("\n## {title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n");
    for row in rows {
        let suffix = if row.kind == "counter" { "_total" } else { "" };
        let labels: Vec<String> = row
            .labels
            .iter()
            .map(|label| match label.values {
                LabelValues::These(values) => format!("`{}`: {}", label.name, values.join(", ")),
                LabelValues::Codes => format!("`{}`: a [diagnostic](diagnostics.md)", label.name),
            })
            .collect();
        let (kind, labels, help) = (row.kind, labels.join("; "), row.help);
        text += &format!(
            "| `{prefix}_{}{suffix}` | {kind} | {labels} | {help} |\n",
            row.name
        );
    }
    text
}

/// The families of a text in Prometheus' format, as `name type`.
fn families(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(ToOwned::to_owned)
        .collect()
}

fn rows(prefix: &str, rows: &[Row]) -> Vec<String> {
    let family = |row: &Row| format!("{prefix}_{} {}", row.name, row.kind);
    rows.iter().map(family).collect()
}

pub fn values(label: &Label) -> Vec<&'static str> {
    match label.values {
        LabelValues::These(values) => values.to_vec(),
        LabelValues::Codes => Code::ALL.iter().map(|code| code.name()).collect(),
    }
}

/// Checks that each word of each label has a series that is 0.
fn check_series(text: &str, prefix: &str, rows: &[Row]) {
    for row in rows {
        let start = format!("{prefix}_{}", row.name);
        for label in row.labels {
            let written: BTreeSet<&str> = text
                .lines()
                .filter(|line| line.starts_with(&start) && line.ends_with(" 0"))
                .filter_map(|line| {
                    let (_, rest) = line.split_once(&format!("{}=\"", label.name))?;
                    rest.split('"').next()
                })
                .collect();
            let expected: BTreeSet<&str> = values(label).into_iter().collect();
            assert_eq!(written, expected, "{start} {}", label.name);
        }
    }
}

#[test]
fn a_fresh_controller_exposes_exactly_the_documented_metrics() {
    let text = Metrics::default().text();
    let listed = [rows(PROJECT, &PROMISES), rows(PREFIX, &ROWS)].concat();
    assert_eq!(families(&text), listed.into_iter().collect());
    check_series(&text, PREFIX, &ROWS);
}

#[test]
fn a_fresh_webhook_exposes_exactly_the_documented_metrics() {
    let text = meter::Meter::default().text().unwrap();
    let listed = rows(meter::PREFIX, &meter::ROWS);
    assert_eq!(families(&text), listed.into_iter().collect());
    check_series(&text, meter::PREFIX, &meter::ROWS);
}
