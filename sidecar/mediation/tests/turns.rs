//! Turns with the replies and results that models and services really send.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::*;
use toolcrib_dialect::{Dialect, Request};
use toolcrib_manifest::{Policy, RawJson};
use toolcrib_mediation::*;

/// Runs the calls round by round, then text; every service answers 200.
fn rounds(rounds: &[&[(&str, &str)]]) -> Run {
    let mut replies: Vec<_> = rounds.iter().map(|calls| reply(calls, "")).collect();
    replies.push(reply(&[], "end"));
    run(config(request(json!({})), policy()), replies, |_| {
        responded(200, r#"{"n":1}"#)
    })
}

fn check(script: &[&[(&str, &str)]], wanted: &[&str]) -> Run {
    let run = rounds(script);
    assert_eq!(run.results(), wanted);
    run
}

const FEED: (&str, &str) = ("pond__feed", r#"{"at":1}"#);

#[test]
fn arguments_are_read_strictly_and_checked_against_the_whole_schema() {
    check(&[&[("pond__feed", "")]], &["ok"]);
    check(&[&[("pond__feed", "null")]], &["invalid_arguments"]);
    check(&[&[("pond__feed", "[1]")]], &["invalid_arguments"]);
    check(
        &[&[("pond__feed", r#"{"at":1,"at":2}"#)]],
        &["invalid_arguments"],
    );
    check(
        &[&[("pond__feed", r#"{"at":1e999}"#)]],
        &["invalid_arguments"],
    );
    check(&[&[("pond__feed", r#"{"at":10}"#)]], &["schema_validation"]);
    check(
        &[&[("pond__feed", r#"{"other":1}"#)]],
        &["schema_validation"],
    );
    let deep = format!(r#"{{"at":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    check(&[&[("pond__feed", &deep)]], &["invalid_arguments"]);
    let long = format!(r#"{{"at":"{}"}}"#, "x".repeat(70_000));
    check(&[&[("pond__feed", &long)]], &["invalid_arguments"]);
}

#[test]
fn the_third_failure_comes_without_the_schema() {
    let bad: &[(&str, &str)] = &[("pond__feed", r#"{"at":10}"#)];
    let run = check(
        &[bad, bad, bad, bad, &[FEED]],
        &[
            "schema_validation",
            "schema_validation",
            "retries_exhausted",
            "retries_exhausted",
            "ok",
        ],
    );
    let result = |at: usize| {
        run.bodies[at]["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    let first: Value = serde_json::from_str(result(1)["content"].as_str().unwrap()).unwrap();
    let details = &first["error"]["details"];
    assert_eq!(details["path"], "/at");
    assert_eq!(details["rule"], "/properties/at/maximum");
    assert_eq!(details["schema"]["properties"]["at"]["maximum"], 9);
    assert!(!result(3)["content"].as_str().unwrap().contains("schema\":"));
}

#[test]
fn claw_id_is_authenticated_whatever_the_model_writes() {
    for said in [
        "{}",
        r#"{"claw_id":"heron"}"#,
        r#"{"claw\u005fid":"heron"}"#,
        r#"{"claw_id":null}"#,
    ] {
        let run = check(&[&[("pond__whose", said)]], &["ok"]);
        let got: Value = serde_json::from_str(&run.groups[0][0].1).unwrap();
        assert_eq!(got, json!({"claw_id": "otter"}), "{said}");
        let traced = &run.answer.record.tool_trace[0].tool_calls[0].arguments;
        assert_eq!(traced.get(), run.groups[0][0].1);
    }
    // Absent if neither schema nor path names it.
    let run = check(
        &[&[("pond__feed", r#"{"claw_id":"heron","at":1}"#)]],
        &["ok"],
    );
    assert_eq!(run.groups[0][0].1, r#"{"at":1}"#);
    // The model does not see the argument.
    let shown = run.bodies[0]["tools"].as_array().unwrap().last().unwrap();
    let schema = json!({"type": "object", "properties": {"at": {"type": "integer"}},
        "additionalProperties": false});
    assert_eq!(shown["function"]["parameters"], schema);
}

/// The path needs the identity, and a closed schema does not declare it.
#[test]
fn claw_id_fills_the_path_even_if_the_schema_omits_it() {
    let at = |additional: bool| {
        json!({"type": "object", "properties": {"at": {"type": "integer"}},
            "additionalProperties": additional})
    };
    for schema in [at(false), at(true)] {
        for said in [r#"{"at":1}"#, r#"{"at":1,"claw_id":"heron"}"#] {
            let mut file = tools();
            file.tools.truncate(1);
            file.tools[0].input_schema = RawJson::from_text(schema.to_string()).unwrap();
            file.tools[0].execution.path = Some("/of/{claw_id}".into());
            let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
            let authority = Authority::new(std::sync::Arc::new(catalog), None);
            let mut config = config(request(json!({})), policy());
            config.presented = PresentedTools::new(&authority, &config.request);
            let replies = vec![reply(&[("pond__depth", said)], ""), reply(&[], "end")];
            let run = run(config, replies, |call| {
                let call = http_call(&file.tools[0], call.arguments(), call.claw_id());
                assert_eq!(call.unwrap().path_and_query, "/of/otter?at=1");
                responded(200, "1")
            });
            assert_eq!(run.results(), ["ok"]);
            let traced = &run.answer.record.tool_trace[0].tool_calls[0].arguments;
            let traced: Value = serde_json::from_str(traced.get()).unwrap();
            assert_eq!(traced, json!({"at": 1, "claw_id": "otter"}));
        }
    }
}

#[test]
fn numbers_keep_their_digits_to_the_service_and_back() {
    let raw = r#"{"at": 900719925474099312}"#;
    let run = run(
        config(request(json!({})), policy()),
        vec![reply(&[("pond__whose", raw)], ""), reply(&[], "end")],
        |call| {
            responded(
                200,
                &format!(r#"{{"echo":{},"n":1.10}}"#, call.arguments().get()),
            )
        },
    );
    let content = run.bodies[1]["messages"][2]["content"].as_str().unwrap();
    assert!(
        content.contains("900719925474099312") && content.contains("1.10"),
        "{content}"
    );
}

/// Arguments that are refused for their depth, and a result that has it.
#[test]
fn json_that_collectors_reject_is_recorded_as_a_string() {
    let deep = |levels: usize| format!("{}\"]\"{}", "[".repeat(levels), "]".repeat(levels));
    for (value, is_text) in [
        (deep(50), false),
        (deep(100), true),
        (deep(7000), true),
        (
            r#"["\"[[[\\",1.5e300,-12,123456789012345678901234567890]"#.to_string(),
            false,
        ),
        ("[1e999]".to_string(), true),
        ("9".repeat(400), true),
    ] {
        let arguments = format!(r#"{{"at":{value}}}"#);
        let run = run(
            config(request(json!({})), policy()),
            vec![
                reply(&[("pond__feed", &arguments), ("pond__look", "{}")], ""),
                reply(&[], "end"),
            ],
            |_| responded(200, &value),
        );
        let record = serde_json::to_string(&run.answer.record).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        let calls = &record["tool_trace"][0]["tool_calls"];
        assert_eq!(calls[0]["arguments"].is_string(), is_text, "{value}");
        assert_eq!(calls[1]["result"].is_string(), is_text, "{value}");
    }
}

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
fn undeclared_names_are_answered_not_executed() {
    check(
        &[&[("pond.dive", "{}"), ("dive", "{}")]],
        &["unsupported_tool", "unsupported_tool"],
    );
    check(
        &[&[("shell", "{}"), ("dive", "{}")]],
        &["mixed_tool_order"; 2],
    );
    check(&[&[("dive", "{}"), ("shell", "{}")]], &["unsupported_tool"]);
    check(&[&[("pond__drain", "{}")]], &["permission_denied"]);
}

#[test]
fn a_reply_with_too_many_calls_fails_the_turn() {
    let calls = vec![("dive", "{}"); 513];
    let config = config(request(json!({})), policy());
    let run = run(config, vec![reply(&calls, "")], |_| responded(200, "1"));
    assert_eq!(run.status(), 502);
    assert_eq!(run.body()["error"]["code"], "upstream_malformed");
    assert_eq!(run.bodies.len(), 1);
}

#[test]
fn exhausted_rounds_end_in_an_answer_without_tools() {
    let policy = Policy {
        max_rounds: 2,
        ..policy()
    };
    let round = |at: usize| reply(&[("pond__feed", &format!(r#"{{"at":{at}}}"#))], "");
    let replies = vec![round(0), round(1), round(2), reply(&[], "end")];
    let run = run(config(request(json!({})), policy), replies, |_| {
        responded(200, "1")
    });
    assert_eq!(run.results(), ["ok", "ok", "tool_budget_exhausted"]);
    assert_eq!(run.purposes.last(), Some(&Purpose::Finalize));
    let last = run.bodies.last().unwrap();
    assert_eq!(last["tool_choice"], "none");
    assert!(
        last["tools"].as_array().unwrap().len() > 1,
        "tools stay listed"
    );
    assert_eq!(run.status(), 200);
    let hidden = serde_json::to_string(&run.answer.hidden).unwrap();
    assert!(hidden.contains("pond.feed") && !hidden.contains("tool_budget_exhausted"));

    let replies = vec![round(0), round(1), round(2), round(3)];
    let again = support::run(config(request(json!({})), policy), replies, |_| {
        responded(200, "1")
    });
    assert_eq!(again.status(), 502);
    assert_eq!(again.body()["error"]["code"], "budget_exhausted");
    assert_eq!(again.answer.record.status, RecordStatus::Error);
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
fn tool_choice_is_kept_renamed_and_relaxed() {
    let choices = |choice: Value, first: (&str, &str)| {
        let run = run(
            config(request(json!({"tool_choice": choice})), policy()),
            vec![reply(&[first], ""), reply(&[], "end")],
            |_| responded(200, "1"),
        );
        run.bodies
            .iter()
            .map(|body| body["tool_choice"].clone())
            .collect::<Vec<_>>()
    };
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let feed = named("pond__feed");
    assert_eq!(
        choices(json!("required"), FEED),
        [json!("required"), json!("auto")]
    );
    assert_eq!(choices(json!("auto"), FEED), [json!("auto"), json!("auto")]);
    assert_eq!(
        choices(named("pond.feed"), FEED),
        [feed.clone(), json!("auto")]
    );
    let bad = ("pond__feed", r#"{"at":10}"#);
    assert_eq!(choices(named("pond.feed"), bad), [feed.clone(), feed]);
    assert_eq!(
        choices(named("shell"), FEED),
        [named("shell"), named("shell")]
    );
    let refused = |extra: Value| {
        Turn::start(config(request(extra), policy()))
            .unwrap_err()
            .code
    };
    assert_eq!(
        refused(json!({"tool_choice": named("nobodys")})),
        RunnerCode::UnknownToolChoice
    );
    assert_eq!(refused(json!({"n": 2})), RunnerCode::NNotSupported);
}

#[test]
fn long_results_are_cut_between_characters_and_marked() {
    let data = |limit: u64, body: &str| {
        let policy = Policy {
            max_tool_result_bytes: limit,
            ..policy()
        };
        let run = run(
            config(request(json!({})), policy),
            vec![reply(&[FEED], ""), reply(&[], "end")],
            |_| responded(200, body),
        );
        let content = run.bodies[1]["messages"][2]["content"]
            .as_str()
            .unwrap()
            .to_string();
        serde_json::from_str::<Value>(&content).unwrap()
    };
    assert_eq!(
        data(4, "aé€"),
        json!({"ok": true, "status_code": 200, "data": "aé",
        "truncated": true, "original_bytes": 6})
    );
    assert_eq!(
        data(6, "aé€"),
        json!({"ok": true, "status_code": 200, "data": "aé€"})
    );
    let own = r#"{"truncated":true}"#;
    assert_eq!(
        data(99, own),
        json!({"ok": true, "status_code": 200, "data": {"truncated": true}})
    );
    assert_eq!(
        data(9, ""),
        json!({"ok": true, "status_code": 200, "data": null})
    );
}

#[test]
fn usage_is_summed_and_the_record_is_complete() {
    let run = rounds(&[&[FEED], &[("pond__depth", "{}"), ("shell", "{}")]]);
    assert_eq!(
        run.body()["usage"],
        json!({"prompt_tokens": 30, "completion_tokens": 3,
        "total_tokens": 33})
    );
    let record = serde_json::to_value(&run.answer.record).unwrap();
    assert_eq!(
        record,
        json!({
            "status": "ok",
            "usage": {"prompt_tokens": 30, "completion_tokens": 3, "total_rounds": 3},
            "tool_trace": [
                {"round": 1, "round_usage": {"prompt_tokens": 10, "completion_tokens": 1}, "tool_calls": [
                    {"name": "pond.feed", "arguments": {"at": 1}, "latency_ms": 7, "service": "pond",
                     "result": {"ok": true, "status_code": 200, "data": {"n": 1}}, "tier": "System",
                     "read_only": false, "grant": {"namespace": "pond", "name": "swim"}, "executed": true}]},
                {"round": 2, "round_usage": {"prompt_tokens": 10, "completion_tokens": 1}, "tool_calls": [
                    {"name": "pond.depth", "arguments": {}, "latency_ms": 7, "service": "pond",
                     "result": {"ok": true, "status_code": 200, "data": {"n": 1}}, "tier": "ReadOnly",
                     "read_only": true, "grant": {"namespace": "pond", "name": "swim"}, "executed": true}]},
            ],
        })
    );
}

#[test]
fn an_interrupted_turn_records_the_calls_that_ran() {
    for (event, status) in [(Event::Deadline, Some(502)), (Event::RunnerGone, None)] {
        let (mut turn, _) = Turn::start(config(request(json!({})), policy())).unwrap();
        let calls = [("pond__feed", "{}"), ("pond__set", "{}")];
        turn.step(
            Duration::from_millis(300),
            Event::Replied(reply(&calls, "")),
        );
        let mut effects = turn.step(Duration::from_secs(1), event);
        let Some(Effect::Answer(answer)) = effects.pop() else {
            panic!("no answer")
        };
        // A client that repeats the request would repeat the call.
        let response = answer.response.as_ref();
        assert_eq!(
            response.map(|it| (it.status, it.after_calls)),
            status.map(|status| (status, true))
        );
        let calls = &answer.record.tool_trace[0].tool_calls;
        let seen: Vec<_> = calls
            .iter()
            .map(|call| (call.executed, call.latency_ms))
            .collect();
        assert_eq!(seen, [(true, 700), (false, 0)]);
    }
    // Work that would begin after the deadline does not begin.
    let (mut turn, _) = Turn::start(config(request(json!({})), policy())).unwrap();
    let effects = turn.step(turn.deadline(), Event::Replied(reply(&[FEED], "")));
    assert!(matches!(&effects[..], [Effect::Answer(answer)]
        if answer.response.as_ref().unwrap().error == Some(RunnerCode::TotalTimeout)));
}

/// A lowered limit holds for the next call; a raised one holds from the next turn on.
#[test]
fn a_result_is_cut_at_the_lower_limit() {
    for (at_dispatch, shown) in [(5, "01234"), (2_000, "0123456789")] {
        let limited = Policy {
            max_tool_result_bytes: 10,
            ..policy()
        };
        let (mut turn, _) = Turn::start(config(request(json!({})), limited)).unwrap();
        let mut effects = turn.step(Duration::ZERO, Event::Replied(reply(&[FEED], "")));
        let Some(Effect::CallTools(calls)) = effects.pop() else {
            panic!("no call")
        };
        turn.step(
            Duration::ZERO,
            Event::ToolFinished {
                call: calls[0].id(),
                outcome: responded(200, "0123456789abcdef"),
                display: None,
                latency: Duration::ZERO,
                max_result_bytes: at_dispatch,
            },
        );
        let body: Value = serde_json::from_slice(&turn.request_body("m").unwrap()).unwrap();
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        let result: Value = serde_json::from_str(last["content"].as_str().unwrap()).unwrap();
        assert_eq!(
            result,
            json!({"ok": true, "status_code": 200, "data": shown, "truncated": true,
                "original_bytes": 16})
        );
    }
}

/// A client that retries after a call was executed would execute it twice.
#[test]
fn an_error_after_a_call_tells_clients_not_to_retry() {
    let failed = |replies: &[&[(&str, &str)]]| {
        let (mut turn, _) = Turn::start(config(request(json!({})), policy())).unwrap();
        let mut effects = Vec::new();
        for calls in replies {
            effects = turn.step(Duration::ZERO, Event::Replied(reply(calls, "")));
            if let Some(Effect::CallTools(calls)) = effects.pop() {
                for call in calls {
                    effects = turn.step(
                        Duration::ZERO,
                        Event::ToolFinished {
                            call: call.id(),
                            outcome: responded(200, "1"),
                            display: None,
                            latency: Duration::ZERO,
                            max_result_bytes: u64::MAX,
                        },
                    );
                }
            }
        }
        let message = "no provider answered".to_string();
        effects.extend(turn.step(
            Duration::ZERO,
            Event::ModelFailed(ModelFailure::Unreachable { message }),
        ));
        let Some(Effect::Answer(answer)) = effects.pop() else {
            panic!("no answer")
        };
        let response = answer.response.unwrap();
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        let text = body["error"]["message"].as_str().unwrap().to_string();
        (response.status, response.after_calls, text)
    };
    let (status, after_calls, text) = failed(&[]);
    assert_eq!((status, after_calls), (502, false));
    assert!(text.contains("try again"), "{text}");
    // Rejected calls: a round, but no execution.
    let (_, after_calls, _) = failed(&[&[("pond__nothing", "{}")]]);
    assert!(!after_calls);
    let (status, after_calls, text) = failed(&[&[FEED]]);
    assert_eq!((status, after_calls), (502, true));
    assert!(
        text.contains("call them again") && !text.contains("try again"),
        "{text}"
    );
}

#[test]
fn upstream_errors_pass_in_the_first_round_only() {
    let failure = || ModelFailure::Http {
        status: 429,
        content_type: "application/json".into(),
        body: b"slow down".to_vec(),
        retry_after: Some("3".into()),
    };
    let end = |turn: &mut Turn| match turn
        .step(Duration::ZERO, Event::ModelFailed(failure()))
        .pop()
    {
        Some(Effect::Answer(answer)) => answer.response.unwrap(),
        other => panic!("{other:?}"),
    };
    let (mut turn, _) = Turn::start(config(request(json!({})), policy())).unwrap();
    let first = end(&mut turn);
    assert_eq!(
        (first.status, first.body.as_slice()),
        (429, &b"slow down"[..])
    );
    let (mut turn, _) = Turn::start(config(request(json!({})), policy())).unwrap();
    turn.step(
        Duration::ZERO,
        Event::Replied(reply(&[("nobodys", "{}")], "")),
    );
    assert_eq!(end(&mut turn).status, 502);
    let streamed = request(json!({"stream": true}));
    let (mut turn, _) = Turn::start(config(streamed, policy())).unwrap();
    let emitted = turn.step(Duration::ZERO, Event::KeepaliveDue);
    assert!(matches!(&emitted[..], [Effect::Emit(bytes)] if bytes.starts_with(b":")));
    let body = String::from_utf8(end(&mut turn).body).unwrap();
    assert!(
        body.starts_with("data: {\"error\"") && body.ends_with("data: [DONE]\n\n"),
        "{body}"
    );
}

#[test]
fn legacy_functions_get_legacy_function_calls() {
    let legacy = || {
        Request::decode(
            Dialect::OpenaiChat,
            json!({"model": "m", "messages": [], "functions": [{"name": "shell"}]})
                .to_string()
                .into_bytes(),
        )
        .unwrap()
    };
    let one = run(
        config(legacy(), policy()),
        vec![reply(&[("shell", "{}")], "")],
        |_| unreachable!(),
    );
    let choice = &one.body()["choices"][0];
    assert_eq!(
        choice["message"]["function_call"],
        json!({"name": "shell", "arguments": "{}"})
    );
    assert_eq!(choice["finish_reason"], "function_call");
    // The legacy form has room for one call, so the model has to plan two again.
    let two = run(
        config(legacy(), policy()),
        vec![
            reply(&[("shell", "{}"), ("shell", "1")], ""),
            reply(&[], "end"),
        ],
        |_| unreachable!(),
    );
    assert_eq!(two.results(), ["mixed_tool_order"; 2]);
}

#[test]
fn aliases_are_short_distinct_and_yield_to_the_runners_tools() {
    assert_eq!(alias("pond.depth"), "pond__depth");
    let names = [
        "pond.depth",
        "pond._depth",
        "pond_.depth",
        "pond.de__pth",
        "pond__de.pth",
        "pond.dépth",
        "pond.de.pth",
        "pond.de_pth",
        "depth",
        "pond.",
        &format!("pond.{}", "x".repeat(60)),
        &format!("pond.{}y", "x".repeat(59)),
    ];
    let aliases: Vec<String> = names.iter().map(|name| alias(name)).collect();
    assert!(
        counts(&aliases).values().all(|count| *count == 1),
        "{aliases:?}"
    );
    assert!(aliases.iter().all(|a| {
        a.len() <= 64
            && a.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    }));

    let taken =
        request(json!({"tools": [{"type": "function", "function": {"name": "pond__depth"}}]}));
    let presented = PresentedTools::new(&authority(), &taken);
    assert!(matches!(
        presented.resolve("pond__depth"),
        NameOwner::Runner
    ));
    let renamed = presented.new_name("pond.depth").unwrap();
    assert_ne!(renamed, "pond__depth");
    assert!(
        matches!(presented.resolve(&renamed), NameOwner::Managed(tool) if tool.name() == "pond.depth")
    );
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
    assert!(load(&file).permits(call).is_ok());
    file.tools[1].input_schema = RawJson::from_text(r#"{"type":"object"}"#).unwrap();
    assert!(matches!(
        load(&file).permits(call),
        Err(Denial::Changed { .. })
    ));
    file.tools[1].extension.tier = Some("Elevated".into());
    assert!(matches!(
        load(&file).permits(call),
        Err(Denial::Withdrawn { .. })
    ));
    file.tools.remove(1);
    assert!(matches!(
        load(&file).permits(call),
        Err(Denial::Withdrawn { .. })
    ));
    // A floor takes tools away, and grants none.
    let floor = |digest: &str| toolcrib_manifest::Floor {
        rules: std::collections::BTreeMap::new(),
        tools: [
            ("pond.feed".to_string(), digest.to_string()),
            ("pond.new".into(), "v1:0".into()),
        ]
        .into(),
        feeds: vec![],
        providers: vec![],
        models: None,
    };
    let with = |digest: &str| {
        let catalog = Catalog::load(&tools(), toolcrib_manifest::Tier::Elevated);
        Authority::new(std::sync::Arc::new(catalog), Some(&floor(digest)))
    };
    assert!(with(call.digest()).permits(call).is_ok());
    assert!(with("v1:other").permits(call).is_err());
    assert_eq!(
        PresentedTools::new(&with(call.digest()), &request(json!({}))).len(),
        1
    );
}

/// The service would get 100.00000000000000001 although the schema's check saw 100.
#[test]
fn a_bound_on_numbers_is_not_evaded_by_digits_that_a_float_drops() {
    let result = |schema: Value, arguments: &str| {
        let mut file = tools();
        file.tools.truncate(1);
        file.tools[0].input_schema = RawJson::from_text(schema.to_string()).unwrap();
        let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
        let authority = Authority::new(std::sync::Arc::new(catalog), None);
        let mut config = config(request(json!({})), policy());
        config.presented = PresentedTools::new(&authority, &config.request);
        let replies = vec![reply(&[("pond__depth", arguments)], ""), reply(&[], "end")];
        run(config, replies, |_| responded(200, "1"))
            .results()
            .remove(0)
    };
    let most = || json!({"properties": {"n": {"type": "number", "maximum": 100}}});
    assert_eq!(result(most(), r#"{"n":100}"#), "ok");
    assert_eq!(result(most(), r#"{"n":99.999999999999}"#), "ok");
    assert_eq!(result(most(), r#"{"n":1e2}"#), "ok");
    for number in [
        "100.00000000000000001",
        "100.0000000000000000000000001e0",
        "10000000000000000000001e-20",
    ] {
        let arguments = format!(r#"{{"n":{number}}}"#);
        assert_eq!(result(most(), &arguments), "invalid_arguments", "{number}");
    }
    let integer = json!({"properties": {"n": {"type": "integer"}}});
    assert_eq!(
        result(integer, r#"{"n":1.00000000000000000001}"#),
        "invalid_arguments"
    );
    // Without a bound there is nothing to evade, and the service gets all digits.
    let any = json!({"properties": {"n": {"type": "number"}}});
    assert_eq!(result(any, r#"{"n":100.00000000000000001}"#), "ok");
}

#[test]
fn schemas_that_explode_are_not_evaluated() {
    let result = |schema: Value, arguments: &str| {
        let mut file = tools();
        file.tools.truncate(1);
        file.tools[0].input_schema = RawJson::from_text(schema.to_string()).unwrap();
        let catalog = Catalog::load(&file, toolcrib_manifest::Tier::Elevated);
        let authority = Authority::new(std::sync::Arc::new(catalog), None);
        let mut config = config(request(json!({})), policy());
        config.presented = PresentedTools::new(&authority, &config.request);
        let replies = vec![reply(&[("pond__depth", arguments)], ""), reply(&[], "end")];
        run(config, replies, |_| responded(200, "1"))
            .results()
            .remove(0)
    };
    let mut doubling = json!({"d0": {"type": "object"}});
    for level in 1..=40 {
        let below = format!("#/$defs/d{}", level - 1);
        doubling[format!("d{level}")] = json!({"allOf": [{"$ref": below}, {"$ref": below}]});
    }
    let schema = |more: Value| {
        let mut schema = json!({"type": "object", "$defs": doubling});
        for (key, value) in more.as_object().unwrap() {
            schema[key] = value.clone();
        }
        schema
    };
    assert_eq!(
        result(schema(json!({"$ref": "#/$defs/d40"})), "{}"),
        "unsupported_tool"
    );
    assert_eq!(result(schema(json!({"$ref": "#/$defs/d4"})), "{}"), "ok");
    assert_eq!(
        result(json!({"allOf": [{"$ref": "#"}]}), "{}"),
        "unsupported_tool"
    );
    // Below an `$id`, "#" is that subschema and not the whole.
    let itself = json!({"$id": "urn:at", "$defs": {"b": {"allOf": [{"$ref": "#/$defs/b"}]}}});
    let hidden = json!({"$ref": "#/$defs/a/$defs/b", "$defs": {"a": itself}});
    assert_eq!(result(hidden, "{}"), "unsupported_tool");
    assert_eq!(
        result(json!({"$ref": "file:///etc/passwd"}), "{}"),
        "unsupported_tool"
    );
    assert_eq!(
        result(json!({"$ref": "http://pond.test/s"}), "{}"),
        "unsupported_tool"
    );
    // A listed value costs every evaluation in proportion to its length.
    let list = |length: usize| (0..length).map(|at| json!({"n": at})).collect::<Vec<_>>();
    let listing = |length: usize| json!({"properties": {"at": {"enum": list(length)}}});
    assert_eq!(result(listing(1_000), r#"{"at":{"n":7}}"#), "ok");
    assert_eq!(result(listing(20_000), "{}"), "unsupported_tool");
    let many = format!(r#"{{"at":[{}]}}"#, vec!["1"; 2_000].join(","));
    let each = json!({"properties": {"at": {"items": {"not": {"enum": list(3_000)}}}}});
    assert_eq!(result(each.clone(), r#"{"at":[1,2]}"#), "ok");
    assert_eq!(result(each, &many), "invalid_arguments");
    let names: Vec<_> = (0..20_000).map(|at| format!("n{at}")).collect();
    assert_eq!(result(json!({"required": names}), "{}"), "unsupported_tool");
    let nodes = vec![json!({"type": "object"}); 20_000];
    assert_eq!(result(json!({"allOf": nodes}), "{}"), "unsupported_tool");
    // Compilers of earlier releases accepted patterns that need backtracking.
    let pattern = |pattern: &str| json!({"properties": {"at": {"pattern": pattern}}});
    assert_eq!(result(pattern("^((?=b)b+)+$"), "{}"), "unsupported_tool");
    assert_eq!(result(pattern(r"^\p{L}{1,60}$"), "{}"), "unsupported_tool");
    assert_eq!(result(pattern("^b+$"), r#"{"at":"bbb"}"#), "ok");
    // A recursion that descends with the value is accepted.
    let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
    assert_eq!(result(tree, r#"{"next":{"next":{}}}"#), "ok");
}
