//! The order of calls: repetitions, groups, the last call, and authority at each dispatch.

use super::*;

#[test]
fn a_repeated_call_with_equivalent_arguments_is_skipped() {
    let run = check(
        &[&[FEED], &[("pond.feed", r#"{ "at" : 1.0 }"#), FEED]],
        &["ok", "duplicate_tool_call", "duplicate_tool_call"],
    );
    let second = &run.answer.record.tool_trace[1].tool_calls;
    assert_eq!(
        second[1].duplicate,
        Some(DuplicateOf { round: 1, count: 2 })
    );
    assert!(!second[1].executed);
    // Also within one reply, and also of a tool that runs in parallel.
    let look = ("pond__look", r#"{"at":1}"#);
    check(&[&[look, look]], &["ok", "duplicate_tool_call"]);
    check(
        &[&[("pond__wait", "{}"), ("pond__wait", "{}")]],
        &["ok", "ok"],
    );
    check(&[&[FEED, ("pond__feed", r#"{"at":2}"#)]], &["ok", "ok"]);
}

#[test]
fn a_call_that_may_have_run_is_not_run_again() {
    let twice = |name: &str, outcome: fn(&str) -> ToolOutcome| {
        let calls = [(name, "{}")];
        let run = run(
            config(request(json!({})), policy()),
            vec![reply(&calls, ""), reply(&calls, ""), reply(&[], "end")],
            |call| outcome(call.name()),
        );
        run.results()
    };
    let timeout = |name: &str| ToolOutcome::Failed(ToolFailure::timeout(name));
    let unreachable = |name: &str| ToolOutcome::Failed(ToolFailure::unreachable(name));
    assert_eq!(
        twice("pond__feed", timeout),
        ["timeout", "duplicate_tool_call"]
    );
    assert_eq!(twice("pond__set", timeout), ["timeout", "timeout"]);
    assert_eq!(twice("pond__depth", timeout), ["timeout", "timeout"]);
    assert_eq!(
        twice("pond__feed", unreachable),
        ["request_failed", "request_failed"]
    );
    assert_eq!(
        twice("pond__feed", |_| responded(503, "")),
        ["http_503", "http_503"]
    );
    assert_eq!(
        twice("pond__feed", |_| responded(500, "")),
        ["http_500", "duplicate_tool_call"]
    );
    assert_eq!(
        twice("pond__feed", |_| responded(422, "")),
        ["http_422", "duplicate_tool_call"]
    );
    // The record refers to the round whose result counts: the one after the failures.
    let feed = [FEED];
    let replies = [&feed[..], &feed, &feed, &[]].map(|calls| reply(calls, ""));
    let mut outcomes = [503, 200].into_iter();
    let run = run(config(request(json!({})), policy()), replies.into(), |_| {
        responded(outcomes.next().unwrap(), "1")
    });
    assert_eq!(run.results(), ["http_503", "ok", "duplicate_tool_call"]);
    let last = run.bodies.last().unwrap()["messages"].as_array().unwrap();
    let result: Value =
        serde_json::from_str(last.last().unwrap()["content"].as_str().unwrap()).unwrap();
    assert_eq!(result["error"]["details"], json!({"round": 2, "count": 1}));
    let traced = &run.answer.record.tool_trace[2].tool_calls[0];
    assert_eq!(traced.duplicate, Some(DuplicateOf { round: 2, count: 1 }));
}

#[test]
fn calls_run_in_order_and_only_safe_ones_together() {
    let look = |at: usize| format!(r#"{{"at":{at}}}"#);
    let args: Vec<String> = (0..9).map(look).collect();
    let mut calls: Vec<(&str, &str)> = args.iter().map(|a| ("pond__look", a.as_str())).collect();
    calls.insert(2, FEED);
    let run = check(&[&calls], &["ok"; 10]);
    let sizes: Vec<usize> = run.groups.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1, 7]);
    let many: Vec<(&str, &str)> = args.iter().map(|a| ("pond__look", a.as_str())).collect();
    let sizes: Vec<usize> = rounds(&[&many]).groups.iter().map(Vec::len).collect();
    assert_eq!(sizes, [8, 1]);
}

#[test]
fn a_terminal_success_ends_the_turn_and_must_be_last() {
    let leave = ("pond__leave", "{}");
    let run = rounds(&[&[FEED, leave]]);
    assert_eq!(run.bodies.len(), 1);
    let message = &run.body()["choices"][0];
    assert_eq!(
        message["message"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(message["finish_reason"], "stop");
    check(&[&[leave, FEED]], &["terminal_on_success_order"; 2]);
    check(&[&[leave, ("shell", "{}")]], &["terminal_on_success_order"]);
    let failed = support::run(
        config(request(json!({})), policy()),
        vec![reply(&[leave], ""), reply(&[], "end")],
        |_| responded(500, ""),
    );
    assert_eq!(failed.results(), ["http_500"]);
}

#[test]
fn authority_is_checked_at_dispatch() {
    let mut file = tools();
    let load = |file: &toolcrib_manifest::ToolsFile| {
        Authority::new(
            std::sync::Arc::new(Catalog::load(file, toolcrib_manifest::Tier::System)),
            None,
        )
    };
    let (mut turn, _) = Turn::start(config(request(json!({})), policy())).unwrap();
    let effects = turn.step(Duration::ZERO, Event::Replied(reply(&[FEED], "")));
    let [Effect::CallTools(calls)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let call = &calls[0];
    assert!(
        load(&file)
            .permits(call, &RateCounts::default(), &BudgetCounts::default(), NOW)
            .is_ok()
    );
    file.tools[1].input_schema = RawJson::from_text(r#"{"type":"object"}"#).unwrap();
    assert!(matches!(
        load(&file).permits(call, &RateCounts::default(), &BudgetCounts::default(), NOW),
        Err(Denial::Changed { .. })
    ));
    file.tools[1].extension.tier = Some("Elevated".into());
    assert!(matches!(
        load(&file).permits(call, &RateCounts::default(), &BudgetCounts::default(), NOW),
        Err(Denial::Withdrawn { .. })
    ));
    file.tools.remove(1);
    assert!(matches!(
        load(&file).permits(call, &RateCounts::default(), &BudgetCounts::default(), NOW),
        Err(Denial::Withdrawn { .. })
    ));
    // An allowlist takes tools away, and grants none.
    let allowlist = |digest: &str| toolcrib_manifest::LinkAllowlist {
        rules: std::collections::BTreeMap::new(),
        tools: [
            ("pond.feed".to_string(), digest.to_string()),
            ("pond.new".into(), "v1:0".into()),
        ]
        .into(),
        feeds: vec![],
        providers: vec![],
        models: None,
        models_matching: Vec::new(),
    };
    let with = |digest: &str| {
        let catalog = Catalog::load(&tools(), toolcrib_manifest::Tier::Elevated);
        Authority::new(std::sync::Arc::new(catalog), Some(&allowlist(digest)))
    };
    assert!(
        with(call.digest())
            .permits(call, &RateCounts::default(), &BudgetCounts::default(), NOW)
            .is_ok()
    );
    assert!(
        with("v1:other")
            .permits(call, &RateCounts::default(), &BudgetCounts::default(), NOW)
            .is_err()
    );
    assert_eq!(
        PresentedTools::new(&with(call.digest()), &request(json!({})), NOW).len(),
        1
    );
}
