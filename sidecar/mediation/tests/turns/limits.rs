//! Limits on calls, rounds and results.

use super::*;

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
                allowed_by: None,
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
