//! The owner of each call in a turn, streaming and not.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Files, MODEL_KEY, StreamedReply, TOOL_TOKEN, Wire, World, within};

const QUOTE: &str = r#"{"symbol":"OTR"}"#;

#[tokio::test]
async fn a_managed_call_is_executed_and_the_runner_sees_the_answer_alone() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!({"price": 12.50})));
        world.model.will(wire.will_say("12.50"));

        let answer = world.chat().await;
        assert_eq!(wire.text(&answer), "12.50");
        // The sum of both rounds.
        assert_eq!(wire.tokens(&answer["usage"]), (30, 8), "{wire:?}");
        let line = world.lines().pop().unwrap();
        assert_eq!(line["usage"]["prompt_tokens"], 30);
        assert_eq!(line["usage"]["completion_tokens"], 8);

        let asked = &world.desk.requests()[0];
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("GET", "/quotes/OTR?claw_id=otter")
        );
        let bearer = format!("Bearer {TOOL_TOKEN}");
        assert_eq!(asked.header("authorization"), Some(&*bearer));
        assert_eq!(asked.header("x-claw-id"), Some("otter"));

        let request = &world.model.requests()[0];
        assert_eq!(request.target, format!("/v1{}", wire.0.resource()));
        let bearer = format!("Bearer {MODEL_KEY}");
        let (authorization, key) = match wire.0 {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => (Some(&*bearer), None),
            Dialect::AnthropicMessages => (None, Some(MODEL_KEY)),
        };
        assert_eq!(request.header("authorization"), authorization);
        assert_eq!(request.header("x-api-key"), key);
        let first = request.json();
        assert_eq!(wire.offered(&first), ["desk__quote", "desk__order"]);
        assert_eq!(first["model"], "otter-1");
        assert!(!first.to_string().contains("claw_id"), "{first}");
        assert_eq!(
            world.result(),
            json!({"ok": true, "status_code": 200, "data": {"price": 12.50}})
        );
    }
}

/// A provider answers a repeated key with its earlier answer, whatever the request.
#[tokio::test]
async fn the_runners_idempotency_key_is_sent_in_the_first_round_only() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(wire.will_say("one"));
        let request = world.request(&wire.chat()).header("idempotency-key", "k1");
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let asked = world.model.requests();
        let keys = asked.iter().map(|it| it.header("idempotency-key"));
        assert_eq!(keys.collect::<Vec<_>>(), [Some("k1"), None]);
    }
}

#[tokio::test]
async fn a_call_of_the_runner_s_own_tool_passes_unchanged() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let reply = wire.calls(&[("c1", "shell", r#"{"cmd":"ls"}"#)]);
        world.model.will(Answer::json(reply.clone()));
        let (status, answer) = world.ask(wire.chat_with_shell()).await;
        assert_eq!((status, &answer), (200, &reply));
        assert_eq!(world.desk.connections(), 0);
    }
}

#[tokio::test]
async fn runner_owned_before_managed_executes_nothing_and_the_model_replans() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let mixed = [("c1", "shell", "{}"), ("c2", "desk__quote", QUOTE)];
        world.model.will(wire.will_call(&mixed));
        world.model.will(wire.will_say("again"));
        let (status, answer) = world.ask(wire.chat_with_shell()).await;
        assert_eq!(status, 200);
        assert_eq!(wire.text(&answer), "again");
        assert_eq!(world.desk.connections(), 0);
        let codes: Vec<Value> = world
            .results()
            .into_iter()
            .map(|(_, result)| result["error"]["code"].clone())
            .collect();
        assert_eq!(codes, ["mixed_tool_order", "mixed_tool_order"]);
    }
}

#[tokio::test]
async fn a_managed_prefix_runs_and_the_runner_s_suffix_is_hidden() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let mixed = [("c1", "desk__quote", QUOTE), ("c2", "shell", "{}")];
        world.model.will(wire.will_call(&mixed));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(wire.will_say("done"));
        let (status, _) = world.ask(wire.chat_with_shell()).await;
        assert_eq!(status, 200);
        let last = world.model.requests()[1].json().to_string();
        assert!(!last.contains("\"c2\""), "{last}");
        assert_eq!(world.results().len(), 1);
    }
}

#[tokio::test]
async fn a_call_of_an_unknown_name_is_not_executed() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk.cancel_all", "{}")]));
        world.model.will(wire.will_say("no"));
        world.chat().await;
        assert_eq!(world.result()["error"]["code"], "unsupported_tool");
        assert_eq!(world.desk.connections(), 0);
    }
}

/// Requests a stream and reads all of it.
async fn stream(world: &World, mut request: Value) -> String {
    request["stream"] = json!(true);
    if let Dialect::OpenaiChat = world.wire.0 {
        request["stream_options"] = json!({"include_usage": true});
    }
    let response = within("an answer", world.request(&request).send())
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    within("the stream", response.text()).await.unwrap()
}

#[tokio::test]
async fn a_streamed_request_is_sent_unstreamed_and_its_reply_streamed() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!({"price": 1})));
        world.model.will(wire.will_say("one"));
        let text = stream(&world, wire.chat()).await;
        let expected = StreamedReply {
            text: "one".to_string(),
            calls: Vec::new(),
            tokens: (30, 8),
        };
        assert_eq!(wire.read_stream(&text), expected);
        assert!(!text.contains("desk__quote"), "{text}");

        // The runner's own calls after a hidden round.
        world
            .model
            .will(wire.will_call(&[("c2", "desk__quote", r#"{"symbol":"B"}"#)]));
        world.desk.will(Answer::json(json!({"price": 2})));
        world
            .model
            .will(wire.will_call(&[("c3", "shell", r#"{"cmd":"ls"}"#)]));
        let text = stream(&world, wire.chat_with_shell()).await;
        let expected = StreamedReply {
            text: String::new(),
            calls: vec![("shell".to_string(), r#"{"cmd":"ls"}"#.to_string())],
            tokens: (20, 6),
        };
        assert_eq!(wire.read_stream(&text), expected);
        for request in world.model.requests() {
            assert_ne!(request.json()["stream"], json!(true));
        }
    }
}

#[tokio::test]
async fn keepalives_fill_the_silence_of_hidden_rounds_and_a_late_error_ends_the_stream() {
    for wire in Wire::all() {
        let world = World::speaking_with(wire, |_| {}, &["--keepalive", "10ms"]).await;
        let gate = std::sync::Arc::new(tokio::sync::Notify::new());
        world.model.will(Answer::text(500, "down").gated(&gate));
        let mut request = wire.chat();
        request["stream"] = json!(true);
        let mut response = within("an answer", world.request(&request).send())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let first = within("a keepalive", response.chunk())
            .await
            .unwrap()
            .unwrap();
        assert!(first.starts_with(b": keepalive\n\n"));
        gate.notify_one();
        let rest = within("the rest", response.text()).await.unwrap();
        assert_eq!(wire.stream_error_code(&rest), "upstream_error");
    }
}

#[tokio::test]
async fn an_error_has_the_dialect_s_shape() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let mut request = wire.chat();
        request["model"] = json!("elsewhere/heron");
        let (status, body) = world.ask(request).await;
        assert_eq!(
            (status, &*wire.error_code(&body)),
            (403, "model_not_allowed")
        );
        // After a hidden round no answer of the provider passes, and no SDK repeats the request,
        // which would call the service again.
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(Answer::text(500, "down"));
        let response = within("an answer", world.request(&wire.chat()).send())
            .await
            .unwrap();
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["x-should-retry"], "false");
        let text = within("its body", response.text()).await.unwrap();
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(wire.error_code(&body), "upstream_error");
        assert!(text.contains("would call them again"), "{text}");
        // Before any call it may be repeated.
        world.model.will(Answer::text(500, "down"));
        let response = within("an answer", world.request(&wire.chat()).send())
            .await
            .unwrap();
        assert_eq!(response.status(), 500);
        assert!(!response.headers().contains_key("x-should-retry"));
    }
}

#[tokio::test]
async fn rounds_end_with_a_last_answer() {
    for wire in Wire::all() {
        let one = |files: &mut Files| files.tools["policy"]["max_rounds"] = json!(1);
        let world = World::speaking_with(wire, one, &[]).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", r#"{"symbol":"A"}"#)]));
        world.desk.will(Answer::json(json!(1)));
        world
            .model
            .will(wire.will_call(&[("c2", "desk__quote", r#"{"symbol":"B"}"#)]));
        world.model.will(wire.will_say("what I know"));
        let answer = world.chat().await;
        assert_eq!(wire.text(&answer), "what I know");
        let last = world.model.requests()[2].json();
        assert_eq!(last["tool_choice"], wire.no_more_calls());
        assert_eq!(world.desk.requests().len(), 1);
    }
}

#[tokio::test]
async fn the_total_timeout_is_one_502() {
    // Long enough to reach the tool on a busy machine.
    let short = |files: &mut Files| files.tools["policy"]["total_timeout_ms"] = json!(1000);
    World::each(short, &[], async |world| {
        let wire = world.wire;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::chunks(200, &["{"]).never_ends());
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!((status, &*wire.error_code(&body)), (502, "total_timeout"));
        let line = world.lines().pop().unwrap();
        let call = &line["tool_trace"][0]["tool_calls"][0];
        assert_eq!(
            (&call["name"], &call["executed"]),
            (&json!("desk.quote"), &json!(true))
        );
        // The call ran until then, and its latency is counted.
        assert!(call["latency_ms"].as_u64().unwrap() > 0, "{call}");
        let usage = world.server.app.metrics.usage.read();
        assert_eq!((usage.requests, usage.rounds), (1, 1));
        assert_eq!((usage.calls, usage.failed, usage.denied), (1, 1, 0));
    })
    .await;
}

#[tokio::test]
async fn hidden_rounds_return_in_the_next_turn_and_after_a_restart() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!({"price": 7})));
        world.model.will(wire.will_say("seven"));
        world.chat().await;

        let world = world.restart().await;
        world.model.will(wire.will_say("still seven"));
        let (status, body) = world.ask(wire.follow_up("seven")).await;
        assert_eq!(status, 200, "{body}");
        let result = json!({"ok": true, "status_code": 200, "data": {"price": 7}});
        assert_eq!(world.results(), [("c1".to_string(), result)]);
        let sent = world.model.requests().last().unwrap().json().to_string();
        let at = |text: &str| sent.find(text).unwrap_or_else(|| panic!("{text}: {sent}"));
        assert!(at("how deep?") < at("desk__quote\""), "{sent}");
        assert!(at("price") < at("\"seven\""), "{sent}");
    }
}

/// The model remembers a tool whose grant, the agent's last, is gone.
#[tokio::test]
async fn revoking_the_last_tool_is_denied_and_recorded() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        world.model.will(wire.will_say("with tools"));
        world.chat().await;
        world.files.no_tools();
        world.publish().await;
        for restarted in [false, true] {
            if restarted {
                world = world.restart().await;
            }
            let order = [("c1", "desk__order", r#"{"symbol":"OTR"}"#)];
            world.model.will(wire.will_call(&order));
            world.model.will(wire.will_say("not done"));
            assert_eq!(wire.text(&world.chat().await), "not done", "{restarted}");
            assert_eq!(world.result()["error"]["code"], "permission_denied");
            assert_eq!(world.desk.connections(), 0);
            let line = world.last_line();
            let call = &line["tool_trace"][0]["tool_calls"][0];
            assert_eq!(
                (&call["name"], &call["executed"]),
                (&json!("desk.order"), &json!(false))
            );
            let calls = r#"_tool_calls_total{tool="desk.order",outcome="permission_denied"}"#;
            let count = format!("{calls} 1");
            let metrics = world.metrics().await;
            assert!(metrics.contains(&count), "{metrics}");
            // An unknown name is the runner's, as if the agent had never had tools.
            world
                .model
                .will(wire.will_call(&[("c2", "somebody__else", "{}")]));
            let answer = world.chat().await;
            assert!(answer.to_string().contains("somebody__else"), "{answer}");
        }
    }
}

/// The tool was offered, and no request had shown it to the model.
#[tokio::test]
async fn a_tool_that_no_request_showed_is_denied_after_it_is_revoked() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        world.files.no_tools();
        world.publish().await;
        for restarted in [false, true] {
            if restarted {
                world = world.restart().await;
            }
            let order = [("c1", "desk__order", r#"{"symbol":"OTR"}"#)];
            world.model.will(wire.will_call(&order));
            world.model.will(wire.will_say("not done"));
            assert_eq!(wire.text(&world.chat().await), "not done", "{restarted}");
            assert_eq!(world.result()["error"]["code"], "permission_denied");
            assert_eq!(world.desk.connections(), 0);
            let line = world.last_line();
            let call = &line["tool_trace"][0]["tool_calls"][0];
            assert_eq!(
                (&call["name"], &call["executed"]),
                (&json!("desk.order"), &json!(false))
            );
        }
    }
}

/// The tool was never shown, but its name is in the files.
#[tokio::test]
async fn a_tool_withheld_from_the_start_is_denied_and_recorded() {
    let above = |files: &mut Files| {
        files.agent["max_tier"] = json!("ReadOnly");
        let tools = files.tools["tools"].as_array_mut().unwrap();
        tools.retain(|tool| tool["name"] == "desk.order");
    };
    World::each(above, &[], async |world| {
        let wire = world.wire;
        for (at, name) in ["desk__order", "desk.order"].into_iter().enumerate() {
            // No provider allows a dot in a name; some models write one.
            world.model.will(wire.will_call(&[("c1", name, "{}")]));
            world.model.will(wire.will_say("not done"));
            assert_eq!(wire.text(&world.chat().await), "not done");
            assert_eq!(world.result()["error"]["code"], "permission_denied");
            let line = world.last_line();
            let call = &line["tool_trace"][0]["tool_calls"][0];
            assert_eq!(
                (&call["name"], &call["executed"]),
                (&json!("desk.order"), &json!(false))
            );
            let calls = r#"_tool_calls_total{tool="desk.order",outcome="permission_denied"}"#;
            let count = format!("{calls} {}", at + 1);
            let metrics = world.metrics().await;
            assert!(metrics.contains(&count), "{metrics}");
        }
        // Names that are not in the files are the runner's.
        let own = [("c2", "somebody__else", "{}")];
        world.model.will(wire.will_call(&own));
        let answer = world.chat().await;
        assert!(answer.to_string().contains("somebody__else"), "{answer}");
    })
    .await;
}

/// Hidden rounds belong to the conversation, whatever the agent may call by now.
#[tokio::test]
async fn hidden_rounds_stay_when_the_last_tool_is_revoked() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!({"depth": 7})));
        world.model.will(wire.will_say("seven"));
        assert_eq!(wire.text(&world.chat().await), "seven");
        world.files.no_tools();
        world.publish().await;
        world.model.will(wire.will_say("still seven"));
        assert_eq!(world.ask(wire.follow_up("seven")).await.0, 200);
        let results = world.results();
        assert_eq!(results.len(), 1, "{results:?}");
        assert_eq!(results[0].1["data"]["depth"], 7);
    }
}
