//! The text that a scrape gets, against the table of metrics.

use std::collections::BTreeSet;

use super::table::{Kind, Values};
use super::*;

/// Every metric, those of OpenTelemetry's names too.
fn rows() -> impl Iterator<Item = &'static table::Row> {
    table::ROWS.iter().chain(&otel::ROWS)
}

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
    let model = ServingModel::chat("openai", "house".into(), "large".into());
    metrics.model_tokens(&model, 3, 4);
    metrics.model_operation(model, "", second);
    metrics.mcp_call("desk.quote", Some("tool_error"), second);
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
    for row in rows() {
        let kind = format!("# TYPE {} {}\n", row.family(), row.kind.name());
        assert!(text.contains(&kind), "{kind}{text}");
        let help = format!("# HELP {} {}.\n", row.family(), row.help);
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
    assert_eq!(text.matches("# TYPE").count(), rows().count());
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
    for row in table::ROWS {
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
    for row in table::ROWS.iter().filter(|row| listed(row).is_none()) {
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

#[test]
fn the_names_of_opentelemetry_have_a_sample_per_use_and_words_of_their_lists() {
    let metrics = Metrics::default();
    let model = ServingModel::chat("openai", "house".into(), otel::OTHER.into());
    // A provider that reports no tokens has no sample.
    metrics.model_tokens(&model, 0, 0);
    metrics.model_tokens(&model, 300, 0);
    metrics.mcp_call("desk.quote", Some("http_599"), Duration::from_millis(15));
    let text = metrics.text(&State::default());
    let input = r#"gen_ai_client_token_usage_bucket{le="256.0",gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="_OTHER",toolcrib_provider="house",gen_ai_token_type="input"} 0"#;
    assert!(text.contains(input), "{text}");
    assert_eq!(text.matches("gen_ai_client_token_usage_count{").count(), 1);
    let call = r#"mcp_client_operation_duration_seconds_count{mcp_method_name="tools/call",gen_ai_operation_name="execute_tool",gen_ai_tool_name="desk.quote",network_transport="tcp",error_type="http_5xx"} 1"#;
    assert!(text.contains(call), "{text}");
}
