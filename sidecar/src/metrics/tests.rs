//! The text that a scrape gets, against the table of metrics.

use std::collections::BTreeSet;

use super::table::{Kind, ROWS, Values};
use super::*;

/// Metrics with at least one sample in each family.
fn filled() -> String {
    let metrics = Metrics::default();
    let second = Duration::from_secs(1);
    metrics.request("openai_chat", 200, second);
    metrics.rounds(1);
    metrics.tool_call("desk.quote", Some("http_503"));
    metrics.would_deny("desk.quote");
    metrics.tool_answered("desk", second);
    metrics.model_call("house", "ok", Some(second));
    metrics.feed_fetch("desk/tide", "ok");
    metrics.tokens(3, 4);
    metrics.intervention("mixed_tool_order");
    metrics.overhead(second);
    metrics.unrecorded(2);
    metrics.record_missed("stdout");
    metrics.unauthorized();
    metrics.connection_opened();
    metrics.connection_refused();
    metrics.link_report("ok");
    metrics.spans("exported", 5);
    metrics.mcp_refused("sampling");
    metrics.text(&State {
        keys: vec![("house".into(), KeyCounts::default())],
        ..State::default()
    })
}

#[test]
fn every_verdict_of_the_record_is_counted_under_its_word() {
    let words = DecisionVerdict::ALL.map(DecisionVerdict::word);
    assert_eq!(table::DECISIONS, words);
}

#[test]
fn a_scrape_has_exactly_the_metrics_of_the_table() {
    let text = filled();
    for row in ROWS {
        let kind = format!(
            "# TYPE {}_{} {}\n",
            table::PREFIX,
            row.name,
            row.kind.name()
        );
        assert!(text.contains(&kind), "{kind}{text}");
        let help = format!("# HELP {}_{} {}.\n", table::PREFIX, row.name, row.help);
        assert!(text.contains(&help), "{help}{text}");
        let sample = match row.kind {
            Kind::Counter | Kind::Gauge => row.queried(),
            Kind::Histogram => format!("{}_count", row.queried()),
        };
        let line = text
            .lines()
            .find(|line| {
                line.starts_with(&format!("{sample}{{")) || line.starts_with(&format!("{sample} "))
            })
            .unwrap_or_else(|| panic!("{sample}: {text}"));
        let labels: Vec<&str> = line
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'))
            .map(|(labels, _)| {
                labels
                    .split(',')
                    .filter_map(|it| it.split('=').next())
                    .collect()
            })
            .unwrap_or_default();
        let listed: Vec<&str> = row.labels.iter().map(|label| label.name).collect();
        assert_eq!(labels, listed, "{line}");
    }
    assert_eq!(text.matches("# TYPE").count(), ROWS.len());
}

/// All series of a row, if each of its labels has a list of values.
fn listed(row: &table::Row) -> Option<BTreeSet<String>> {
    let mut all = vec![Vec::new()];
    for label in row.labels {
        let words = match label.values {
            Values::Compiled => return None,
            Values::Closed(words) | Values::Open(words) => words,
        };
        all = all
            .into_iter()
            .flat_map(|before: Vec<String>| {
                words.iter().map(move |word| {
                    let label = format!("{}=\"{word}\"", label.name);
                    before.iter().cloned().chain([label]).collect()
                })
            })
            .collect();
    }
    Some(all.into_iter().map(|labels| labels.join(",")).collect())
}

/// The labels of a row's series as they are written.
fn written(text: &str, row: &table::Row) -> BTreeSet<String> {
    let suffix = match row.kind {
        Kind::Counter | Kind::Gauge => "",
        Kind::Histogram => "_count",
    };
    let name = row.queried() + suffix;
    text.lines()
        .filter_map(|line| line.strip_prefix(&name)?.strip_suffix(" 0"))
        .filter(|labels| labels.is_empty() || labels.starts_with('{'))
        .map(|labels| labels.trim_matches(['{', '}']).to_string())
        .collect()
}

#[test]
fn series_of_listed_words_begin_at_zero_with_the_process() {
    let metrics = Metrics::default();
    let text = metrics.text(&State::default());
    for row in ROWS {
        let expected = match row.name {
            // One state of the link is always 1.
            "link" => continue,
            _ => listed(row).unwrap_or_default(),
        };
        assert_eq!(written(&text, row), expected, "{}", row.name);
    }
}

#[test]
fn series_of_compiled_names_begin_at_zero_with_the_manifest() {
    let metrics = Metrics::default();
    let text = metrics.text(&State {
        tools: vec![("desk.quote".into(), "desk".into())],
        feeds: vec!["desk/tide".into()],
        keys: vec![("house".into(), KeyCounts::default())],
        ..State::default()
    });
    for row in ROWS.iter().filter(|row| listed(row).is_none()) {
        assert_ne!(written(&text, row), BTreeSet::new(), "{}", row.name);
    }
    let refused = r#"model_calls_total{provider="house",outcome="rate_limited"} 0"#;
    assert!(text.contains(refused), "{text}");
}

#[test]
fn each_dialect_has_its_series() {
    let names: Vec<&str> = toolcrib_dialect::Dialect::ALL
        .iter()
        .map(|dialect| dialect.name())
        .chain([crate::request::record::MCP])
        .collect();
    assert_eq!(names, table::DIALECTS);
    let own = toolcrib_mediation::RunnerCode::ALL.map(|code| code.status());
    assert!(own.iter().all(|it| table::STATUSES.contains(it)), "{own:?}");
}

#[test]
fn each_denial_and_each_service_without_an_answer_has_its_series() {
    use toolcrib_mediation::ResultCode;
    let unanswered = [ResultCode::RequestFailed, ResultCode::Timeout];
    let begun: Vec<String> = ResultCode::DENIALS
        .iter()
        .chain(&unanswered)
        .map(ToString::to_string)
        .collect();
    assert_eq!(table::TOOL_OUTCOMES[1..], begun);
}

#[test]
fn statuses_of_services_are_counted_by_class() {
    let metrics = Metrics::default();
    for status in 400..600 {
        let code = format!("http_{status}");
        metrics.tool_call("desk.quote", Some(&code));
    }
    let text = metrics.text(&State::default());
    assert_eq!(text.matches("_tool_calls_total{").count(), 2, "{text}");
    assert!(text.contains(r#"outcome="http_5xx"} 100"#), "{text}");
}
