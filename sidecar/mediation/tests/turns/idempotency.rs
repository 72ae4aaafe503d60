//! Calls of tools whose service recognizes a repetition by a key.

use super::*;
use toolcrib_manifest::{Tier, ToolsFile, Transport};

fn keyed_tools() -> ToolsFile {
    let mut file = tools();
    for tool in &mut file.tools {
        tool.execution.idempotency_header = Some("Idempotency-Key".into());
    }
    file
}

/// The results that the model read, and the key of each call that was dispatched.
type Outcome = (Vec<String>, Vec<Option<String>>);

/// Runs the calls in one round each; their outcomes are in the order of dispatch.
fn keyed(
    file: &ToolsFile,
    request_id: &str,
    calls: &[(&str, &str)],
    outcomes: Vec<ToolOutcome>,
) -> (Run, Outcome) {
    let authority = Authority::new(Catalog::load(file, Tier::Elevated).into(), None);
    let request = request(json!({}));
    let config = TurnConfig {
        presented: PresentedTools::new(&authority, &request, NOW),
        ..config(request, policy())
    };
    let mut replies: Vec<_> = calls.iter().map(|call| reply(&[*call], "")).collect();
    replies.push(reply(&[], "end"));
    let (mut outcomes, mut keys) = (outcomes.into_iter(), Vec::new());
    let run = run(config, replies, |call| {
        keys.push(call.idempotency_key(request_id));
        outcomes.next().unwrap()
    });
    assert_eq!(outcomes.next(), None, "fewer calls were dispatched");
    let results = run.results();
    (run, (results, keys))
}

#[track_caller]
fn check(
    calls: &[(&str, &str)],
    outcomes: Vec<ToolOutcome>,
    results: &[&str],
    keys: &[&str],
) -> Run {
    let (run, found) = keyed(&keyed_tools(), "r", calls, outcomes);
    let keys = keys.iter().map(|key| Some(key.to_string())).collect();
    let results = results.iter().map(ToString::to_string).collect();
    assert_eq!(found, (results, keys));
    run
}

fn timeout() -> ToolOutcome {
    ToolOutcome::Failed(ToolFailure::timeout("pond.feed"))
}

fn ok() -> ToolOutcome {
    responded(200, "1")
}

/// The attempts whose ids the services got, as the record has them.
fn recorded(run: &Run) -> Vec<Option<(u32, usize)>> {
    let rounds = run.answer.record.tool_trace.iter();
    rounds
        .flat_map(|round| round.tool_calls.iter().map(|call| call.first_attempt))
        .collect()
}

#[test]
fn a_repetition_after_an_unclear_outcome_is_sent_with_the_first_key() {
    let same = ("pond.feed", r#"{ "at" : 1.0 }"#);
    let run = check(
        &[FEED, same, FEED, FEED],
        vec![timeout(), responded(500, ""), ok()],
        &["timeout", "http_500", "ok", "duplicate_tool_call"],
        &["r-1-0", "r-1-0", "r-1-0"],
    );
    let first = Some((1, 0));
    assert_eq!(recorded(&run), [first, first, first, None]);
    let messages = run.bodies.last().unwrap()["messages"].as_array().unwrap();
    let results: Vec<Value> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| serde_json::from_str(message["content"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(results[0]["error"]["details"]["retryable"], true);
    assert_eq!(results[1]["error"]["details"]["retryable"], true);
}

#[test]
fn a_call_that_did_not_reach_its_service_keeps_its_key() {
    let unreachable = ToolOutcome::Failed(ToolFailure::unreachable("pond.feed"));
    check(
        &[FEED; 3],
        vec![unreachable, responded(503, ""), ok()],
        &["request_failed", "http_503", "ok"],
        &["r-1-0", "r-1-0", "r-1-0"],
    );
}

#[test]
fn other_arguments_and_other_tools_have_other_keys() {
    check(
        &[FEED, ("pond__feed", r#"{"at":2}"#), ("pond__set", FEED.1)],
        vec![timeout(), timeout(), ok()],
        &["timeout", "timeout", "ok"],
        &["r-1-0", "r-2-0", "r-3-0"],
    );
}

#[test]
fn a_call_that_ran_for_certain_is_not_sent_again() {
    for (status, code) in [(200, "ok"), (422, "http_422")] {
        check(
            &[FEED; 2],
            vec![responded(status, "")],
            &[code, "duplicate_tool_call"],
            &["r-1-0"],
        );
    }
}

#[test]
fn a_polling_tool_has_a_new_key_after_a_success() {
    check(
        &[("pond__wait", "{}"); 4],
        vec![ok(), timeout(), ok(), ok()],
        &["ok", "timeout", "ok", "ok"],
        &["r-1-0", "r-2-0", "r-2-0", "r-4-0"],
    );
}

#[test]
fn a_call_that_was_refused_gives_no_key_to_the_next() {
    let refused = ToolFailure::refused(ResultCode::RateLimited, "too often");
    let run = check(
        &[FEED; 2],
        vec![ToolOutcome::Failed(refused), ok()],
        &["rate_limited", "ok"],
        &["r-1-0", "r-2-0"],
    );
    assert_eq!(recorded(&run), [None, Some((2, 0))]);
}

#[test]
fn a_call_that_was_cut_short_has_its_key_in_the_record() {
    let authority = Authority::new(Catalog::load(&keyed_tools(), Tier::Elevated).into(), None);
    let request = request(json!({}));
    let config = TurnConfig {
        presented: PresentedTools::new(&authority, &request, NOW),
        ..config(request, policy())
    };
    let (mut turn, _) = Turn::start(config).unwrap();
    turn.step(Duration::ZERO, Event::Replied(reply(&[FEED], "")));
    let effects = turn.step(Duration::ZERO, Event::RunnerGone);
    let [Effect::Answer(answer)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let call = &answer.record.tool_trace[0].tool_calls[0];
    assert_eq!((call.executed, call.first_attempt), (true, Some((1, 0))));
}

#[test]
fn keys_do_not_reach_over_turns() {
    for request_id in ["r", "s"] {
        let (_, (results, keys)) = keyed(&keyed_tools(), request_id, &[FEED], vec![timeout()]);
        assert_eq!(results, ["timeout"]);
        assert_eq!(keys, [Some(format!("{request_id}-1-0"))]);
    }
}

#[test]
fn a_tool_without_the_header_and_a_tool_over_mcp_are_not_repeated() {
    let mut over_mcp = keyed_tools();
    for tool in &mut over_mcp.tools {
        tool.execution.transport = Transport::Mcp;
    }
    for file in [tools(), over_mcp] {
        let (run, (results, keys)) = keyed(&file, "r", &[FEED; 2], vec![timeout()]);
        assert_eq!(results, ["timeout", "duplicate_tool_call"]);
        assert_eq!(keys, [None]);
        assert_eq!(recorded(&run), [None, None]);
    }
}

/// In native mode the runner's next call is another request, which has another key.
#[test]
fn a_direct_call_has_its_own_key_and_its_repetition_is_not_safe() {
    let catalog = Catalog::load(&keyed_tools(), Tier::Elevated);
    let presented = PresentedTools::alone(&Authority::new(catalog.into(), None), NOW);
    let claw_id = ClawId {
        name: "otter".into(),
        namespace: "pond".into(),
    };
    let mut call = DirectCall::new(&presented, &claw_id, FEED.0, FEED.1);
    let started = call.start(Duration::ZERO).unwrap();
    assert_eq!(started.idempotency_key("r"), Some("r-1-0".into()));
    call.finish(&timeout(), None, None, Duration::ZERO, 1000);
    let end = call.end(None);
    let result: Value = serde_json::from_str(&end.result).unwrap();
    assert_eq!(result["error"]["details"]["retryable"], false);
    let traced = &end.record.tool_trace[0].tool_calls[0];
    assert_eq!(traced.first_attempt, Some((1, 0)));
}

#[test]
fn another_header_is_another_tool() {
    let digests = |file: &ToolsFile| -> Vec<String> {
        let catalog = Catalog::load(file, Tier::Elevated);
        let digests = catalog.tools().iter().map(|tool| tool.digest.clone());
        digests.collect()
    };
    let (with, without) = (digests(&keyed_tools()), digests(&tools()));
    assert!(
        with.iter()
            .zip(&without)
            .all(|(with, without)| with != without)
    );
}
