//! The chart's Grafana dashboards: each query names metrics, labels and values that the programs have.
//!
//! Not here: the meaning of the queries, which Prometheus evaluates (`e2e/tests/governed/boards`).

use std::collections::BTreeSet;

use serde_json::Value;
use toolcrib_mediation::ResultCode;
use toolcrib_operator::metrics::{PREFIX, PROJECT, PROMISES, ROWS, Row};
use toolcrib_operator::webhook::meter;
use toolcrib_sidecar::metrics::otel;
use toolcrib_sidecar::metrics::table::{self, Values};

use crate::metrics;

const BOARDS: [&str; 2] = [
    include_str!("../../../charts/toolcrib/dashboards/fleet.json"),
    include_str!("../../../charts/toolcrib/dashboards/agent.json"),
];

/// Labels that Prometheus adds: of the target (docs/monitoring.md), and of a histogram's buckets.
const TARGET: [&str; 3] = ["namespace", "pod", "agent"];
const BUCKET: &str = "le";

/// A metric that a query may name, and its labels, each with the values that are known.
struct KnownMetric {
    /// Without the suffixes of a histogram.
    name: String,
    kind: &'static str,
    labels: Vec<(&'static str, Vec<String>)>,
}

impl KnownMetric {
    /// Whether a query may name this metric so.
    fn is_named(&self, name: &str) -> bool {
        match self.kind {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| name.strip_suffix(suffix) == Some(&self.name)),
            _ => name == self.name,
        }
    }
}

fn known() -> Vec<KnownMetric> {
    let operators = |prefix: &str, rows: &[Row]| -> Vec<KnownMetric> {
        rows.iter()
            .map(|row| KnownMetric {
                name: format!(
                    "{prefix}_{}{}",
                    row.name,
                    if row.kind == "counter" { "_total" } else { "" }
                ),
                kind: row.kind,
                labels: row
                    .labels
                    .iter()
                    .map(|label| (label.name, owned(&metrics::values(label))))
                    .collect(),
            })
            .collect()
    };
    let mediators = table::ROWS
        .iter()
        .chain(&otel::ROWS)
        .map(|row| KnownMetric {
            name: row.queried(),
            kind: row.kind.name(),
            labels: row
                .labels
                .iter()
                .map(|label| match label.values {
                    Values::Compiled => (label.name, Vec::new()),
                    Values::Closed(words) => (label.name, owned(words)),
                    Values::Open(words) => (label.name, [owned(words), codes()].concat()),
                })
                .collect(),
        });
    mediators
        .chain(operators(PROJECT, &PROMISES))
        .chain(operators(PREFIX, &ROWS))
        .chain(operators(meter::PREFIX, &meter::ROWS))
        .collect()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The codes that a call may end with, besides statuses of services.
fn codes() -> Vec<String> {
    ResultCode::NAMED.iter().map(ToString::to_string).collect()
}

fn boards() -> Vec<Value> {
    let parse = |text| serde_json::from_str(text).expect("JSON");
    BOARDS.into_iter().map(parse).collect()
}

/// The queries of a board's panels, and of its variables.
fn queries(board: &Value) -> Vec<&str> {
    let panels = board["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let variables = board["templating"]["list"].as_array().expect("variables");
    targets
        .filter_map(|target| target["expr"].as_str())
        .chain(
            variables
                .iter()
                .filter_map(|variable| variable["query"]["query"].as_str()),
        )
        .collect()
}

/// A part of a query that selects series: the metric, and its matchers as label and words.
struct Selector<'a> {
    metric: &'a str,
    matchers: Vec<(&'a str, Vec<&'a str>)>,
}

/// The selectors of a query, and the labels that it groups by.
fn read(query: &str) -> (Vec<Selector<'_>>, Vec<&str>) {
    let (mut selectors, mut groups) = (Vec::new(), Vec::new());
    let mut rest = query;
    while let Some(start) = rest.find(is_name) {
        let word = &rest[start..];
        let (word, after) = word.split_at(word.find(|c| !is_name(c)).unwrap_or(word.len()));
        rest = after;
        if word == "by" {
            let (list, after) = rest
                .trim_start_matches([' ', '('])
                .split_once(')')
                .expect("a group");
            groups.extend(list.split(", "));
            rest = after;
        } else if word.contains('_') && !rest.starts_with('(') {
            let mut matchers = Vec::new();
            if let Some(inner) = rest.strip_prefix('{') {
                let (inner, after) = inner.split_once('}').expect("the matchers' end");
                matchers.extend(inner.split("\",").map(matcher));
                rest = after;
            }
            selectors.push(Selector {
                metric: word,
                matchers,
            });
        } else if rest.starts_with('[') {
            panic!("a range without a metric: {query}");
        }
        if let Some(range) = rest.strip_prefix('[') {
            rest = range.split_once(']').expect("the range's end").1;
        }
    }
    (selectors, groups)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `label=~"a|b"`, perhaps without its last quote.
fn matcher(text: &str) -> (&str, Vec<&str>) {
    let (label, value) = text.split_once('"').expect("a quoted value");
    let words = value.trim_end_matches('"').split('|').collect();
    (label.trim_end_matches(['=', '~', '!']), words)
}

#[test]
fn the_boards_queries_name_existing_metrics_and_labels() {
    let known = known();
    for board in boards() {
        for query in queries(&board) {
            // Its last argument is a label of the target.
            let query = query
                .strip_prefix("label_values(")
                .and_then(|inner| inner.rsplit_once(", "))
                .map_or(query, |(selector, _)| selector);
            let (selectors, groups) = read(query);
            let mut labels = BTreeSet::from(TARGET);
            assert!(!selectors.is_empty(), "{query}");
            for Selector { metric, matchers } in selectors {
                let row = known
                    .iter()
                    .find(|row| row.is_named(metric))
                    .unwrap_or_else(|| panic!("no such metric: {metric}"));
                labels.extend(row.labels.iter().map(|(name, _)| *name));
                if metric.ends_with("_bucket") {
                    labels.insert(BUCKET);
                }
                for (label, words) in matchers {
                    if TARGET.contains(&label) {
                        continue;
                    }
                    let (_, values) = row
                        .labels
                        .iter()
                        .find(|(name, _)| *name == label)
                        .unwrap_or_else(|| panic!("no label {label} of {metric}"));
                    for word in words.into_iter().filter(|word| *word != "http_.*") {
                        assert!(
                            values.iter().any(|it| it == word),
                            "{metric} {label}: {word}"
                        );
                    }
                }
            }
            for label in groups {
                assert!(labels.contains(label), "no label {label}: {query}");
            }
        }
    }
}

#[test]
fn the_boards_count_every_code_of_a_denial() {
    let denials: BTreeSet<String> = ResultCode::DENIALS
        .iter()
        .map(ToString::to_string)
        .collect();
    for board in boards() {
        let mut counted = 0;
        for query in queries(&board) {
            for selector in read(query).0 {
                for (_, words) in selector.matchers {
                    if words.contains(&"permission_denied") {
                        let words: BTreeSet<String> =
                            words.into_iter().map(ToOwned::to_owned).collect();
                        assert_eq!(words, denials, "{query}");
                        counted += 1;
                    }
                }
            }
        }
        assert!(counted > 0, "no panel of denials: {}", board["title"]);
    }
}

/// Grafana draws panels that overlap or share an id above one another.
#[test]
fn the_boards_panels_have_a_place_and_a_description_each() {
    for board in boards() {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().expect("a title");
            assert!(
                panel["description"]
                    .as_str()
                    .is_some_and(|it| it.ends_with('.')),
                "{title}"
            );
            assert!(ids.insert(panel["id"].as_u64()), "{title}");
            let place = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
            assert!(place("x") + place("w") <= 24, "{title}");
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert((x, y)), "{title}");
                }
            }
        }
    }
}
