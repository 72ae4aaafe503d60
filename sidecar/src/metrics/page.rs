//! `docs/metrics.md`, rendered from the tables of metrics.

use super::otel;
use super::table::{Label, ROWS, Row};

/// Renders `docs/metrics.md`.
pub fn document() -> String {
    String::from(INTRODUCTION) + &lines(ROWS) + OTEL_INTRODUCTION + &lines(&otel::ROWS)
}

fn lines(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let labels: Vec<String> = row.labels.iter().map(Label::described).collect();
        let (name, kind) = (row.queried(), row.kind.name());
        format!(
            "| `{name}` | {kind} | {} | {} |\n",
            labels.join("; "),
            row.help
        )
    };
    rows.iter().map(line).collect()
}

const INTRODUCTION: &str = "\
# The mediator's metrics

The mediator serves Prometheus' text format on its admin listener,
`http://127.0.0.1:4142/metrics` inside the pod. With the chart's `mediator.metricsPort` it also serves
`/metrics`, and nothing else, on the port `tc-metrics`, for every client that reaches the pod. How
Prometheus gets them, and dashboards for Grafana: [monitoring](monitoring.md).

Labels take only compiled names (tools, feeds and services of the manifest, providers) and words of
closed lists. Nothing that a model or a runner writes becomes a time series. The table shows the words
of a closed list after their label, and \"…\" if services and providers add others.

Every family is present from the first scrape, and its series begin at 0, so that `rate()` sees the first
event. A series exists from the start of the process if all its labels have a list; if a label takes
compiled names, it exists once a manifest is in force. This file is generated from the table with which
the program registers its metrics.

| name | type | labels | meaning |
|---|---|---|---|
";

const OTEL_INTRODUCTION: &str = "
## OpenTelemetry's names

For dashboards that are made for OpenTelemetry's semantic conventions of GenAI and MCP. The conventions are in
development, so these names, labels and buckets are not promised: they change when the conventions change. Use
the metrics above for alerts.

A series exists once it has a value. `error_type` is empty for a success. `gen_ai_request_model` is `_OTHER`
for a model that `Agent.spec.models` does not name, since the agent's program chooses such a name.
`toolcrib_provider` is the ModelProvider.

| name | type | labels | meaning |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        toolcrib_golden::expect(toolcrib_golden::here!(), path.as_ref(), &document());
    }
}
