//! Turns that fail or end early, and their record.

use super::*;

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
                {"round": 1, "received_ms": 0, "round_usage": {"prompt_tokens": 10, "completion_tokens": 1}, "tool_calls": [
                    {"name": "pond.feed", "arguments": {"at": 1}, "latency_ms": 7, "service": "pond",
                     "result": {"ok": true, "status_code": 200, "data": {"n": 1}}, "tier": "System",
                     "read_only": false, "grant": {"namespace": "pond", "name": "swim"}, "executed": true}]},
                {"round": 2, "received_ms": 0, "round_usage": {"prompt_tokens": 10, "completion_tokens": 1}, "tool_calls": [
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
                            allowed_by: None,
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
