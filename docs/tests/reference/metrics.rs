//! What controller and webhook count. The mediator's page is written by its own crate.

use toolcrib_operator::metrics::{PREFIX, PROJECT, PROMISES, ROWS, Row};
use toolcrib_operator::webhook::meter;

const INTRODUCTION: &str = "\
# The operator's metrics

Prometheus' text format, at `/metrics` of each program's health listener. Labels are words of closed
lists, such as [diagnostic codes](diagnostics.md); no name that a user chooses becomes a time
series. The mediator's are on [a page of their own](../metrics.md).
";

pub fn page() -> String {
    INTRODUCTION.to_owned()
        + &table("Promises, measured by the controller", PROJECT, &PROMISES)
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
            .map(|label| format!("`{label}`"))
            .collect();
        let (kind, labels, help) = (row.kind, labels.join(", "), row.help);
        text += &format!(
            "| `{prefix}_{}{suffix}` | {kind} | {labels} | {help} |\n",
            row.name
        );
    }
    text
}
