//! An agent without managed tools: bytes pass unchanged, and failover between providers.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Files, RUNNER, Wire, World, chat, says, within};

#[tokio::test]
async fn bytes_pass_unchanged_in_both_directions() {
    let world = World::start_with(|files| files.no_tools(), |_| {}, &[]).await;
    let sse = [
        ": hi\r\n\r\ndata: {\"id\":\"1\",",
        "\"choices\":[]}\n\n",
        "data: [DONE]\n\n",
    ];
    world
        .model
        .will(Answer::chunks(200, &sse).header("content-type", "text/event-stream"));
    let sent = "{ \"messages\" : [ ] ,\n \"n\":2,\"stream\":true, \"seed\": 12345678901234567890123,\n\t\"model\":\"house/otter-1\", \"x\":1.50 }";
    let request = world
        .runner
        .post(world.url("/v1/chat/completions"))
        .header("x-api-key", RUNNER)
        .body(sent);
    let response = within("an answer", request.send()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let got = within("the stream", response.text()).await.unwrap();
    assert_eq!(got, sse.concat());
    let upstream = &world.model.requests()[0].body;
    assert_eq!(upstream, &sent.replace("house/otter-1", "otter-1"));
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_a_valid_error() {
    for wire in Wire::all() {
        let cut = std::sync::Arc::new(tokio::sync::Notify::new());
        let world = World::speaking_with(wire, |files| files.no_tools(), &[]).await;
        world.model.will(
            Answer::chunks(200, &[": hi\n\n"])
                .header("content-type", "text/event-stream")
                .breaks_off(&cut),
        );
        let mut request = wire.chat();
        request["stream"] = json!(true);
        let mut response = within("an answer", world.request(&request).send())
            .await
            .unwrap();
        within("a chunk", response.chunk()).await.unwrap().unwrap();
        cut.notify_one();
        let text = within("the stream", response.text()).await.unwrap();
        assert_eq!(wire.stream_error_code(&text), "upstream_unreachable");
        let line = &world.lines()[0];
        assert_eq!(line["error"], "upstream_unreachable");
        let connection = json!({"cause": "reset", "address": world.model.url()});
        assert_eq!(line["connection"], connection);
    }
}

/// Before the first byte the error is a 502, later it is an event of the stream.
#[tokio::test]
async fn the_total_timeout_applies_to_passed_requests() {
    let within_ms = |limit: u64| {
        move |files: &mut Files| {
            files.no_tools();
            files.tools["policy"]["total_timeout_ms"] = json!(limit);
        }
    };
    World::each(within_ms(50), &[], async |world| {
        let wire = world.wire;
        let never = std::sync::Arc::new(tokio::sync::Notify::new());
        world.model.will(wire.will_say("never").gated(&never));
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!((status, &*wire.error_code(&body)), (502, "total_timeout"));
        assert_eq!(world.last_line()["error"], "total_timeout");
    })
    .await;
    // Long enough for the first byte on a busy machine.
    World::each(within_ms(1500), &[], async |world| {
        let wire = world.wire;
        world.model.will(
            Answer::chunks(200, &[": hi\n\n"])
                .header("content-type", "text/event-stream")
                .never_ends(),
        );
        let mut request = wire.chat();
        request["stream"] = json!(true);
        let response = within("an answer", world.request(&request).send())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let text = within("the stream", response.text()).await.unwrap();
        assert_eq!(wire.stream_error_code(&text), "total_timeout");
        assert_eq!(world.last_line()["error"], "total_timeout");
        world.model.hung_up(1).await;
    })
    .await;
}

/// The model remembers a tool that was revoked before this pod was created, or invents one.
#[tokio::test]
async fn calls_that_the_runner_did_not_declare_are_recorded() {
    let called = [("c1", "shell", "{}"), ("c2", "desk__quote", "{\"a\":1}")];
    for (declares, expected) in [
        (true, json!(["desk__quote"])),
        (false, json!(["shell", "desk__quote"])),
    ] {
        for streamed in [false, true] {
            World::each(
                |files| files.no_tools(),
                &[],
                async |world| {
                    let wire = world.wire;
                    world.model.will(match streamed {
                        true => wire.will_stream("r1", (&["well"], &called)),
                        false => wire.will_call(&called),
                    });
                    let mut request = match declares {
                        true => wire.chat_with_shell(),
                        false => wire.chat(),
                    };
                    request["stream"] = json!(streamed);
                    let (status, answer) = world.ask(request).await;
                    assert_eq!(status, 200, "{answer}");
                    assert!(answer.to_string().contains("desk__quote"), "{answer}");
                    let line = world.last_line();
                    assert_eq!(line["undeclared_calls"], expected, "{line}");
                    assert_eq!(line["interventions"], json!(["undeclared_calls"]));
                    let metrics = world.metrics().await;
                    let count = r#"_interventions_total{code="undeclared_calls"} 1"#;
                    assert!(metrics.contains(count), "{metrics}");
                    // A call that the runner declares is its own.
                    let own = &called[..1];
                    world.model.will(wire.will_call(own));
                    world.ask(wire.chat_with_shell()).await;
                    let line = world.last_line();
                    assert_eq!(line["undeclared_calls"], Value::Null, "{line}");
                    assert_eq!(line["interventions"], Value::Null);
                },
            )
            .await;
        }
    }
}

/// The status of such an answer is 200.
#[tokio::test]
async fn an_answer_that_the_provider_ends_with_an_error_is_recorded_as_one() {
    World::each(
        |files| files.no_tools(),
        &[],
        async |world| {
            let wire = world.wire;
            let failure = match wire.0 {
                Dialect::OpenaiChat => json!({"error": {"message": "out of otters"}}),
                Dialect::AnthropicMessages => {
                    json!({"type": "error", "error": {"message": "out of otters"}})
                }
                Dialect::OpenaiResponses => json!({"type": "response.failed",
                    "response": {"status": "failed", "error": {"message": "out of otters"}}}),
            };
            let mut frames = wire.stream("r1", (&["well"], &[]));
            frames.truncate(2);
            frames.push(format!("data: {failure}\n\n"));
            let chunks: Vec<&str> = frames.iter().map(String::as_str).collect();
            let answer = Answer::chunks(200, &chunks);
            world
                .model
                .will(answer.header("content-type", "text/event-stream"));
            let mut request = wire.chat();
            request["stream"] = json!(true);
            let response = within("an answer", world.request(&request).send()).await;
            let text = within("the stream", response.unwrap().text()).await;
            assert_eq!(text.unwrap(), frames.concat());
            let line = world.last_line();
            let ended = (&line["http_status"], &line["status"], &line["error"]);
            let expected = (json!(200), json!("error"), json!("upstream_error"));
            assert_eq!(ended, (&expected.0, &expected.1, &expected.2));
        },
    )
    .await;
    let wire = Wire(Dialect::OpenaiResponses);
    let world = World::speaking_with(wire, |files| files.no_tools(), &[]).await;
    let failed = json!({"id": "r1", "object": "response", "status": "failed", "output": [],
        "error": {"message": "out of otters"}});
    world.model.will(Answer::json(failed));
    let (status, _) = world.ask(wire.chat()).await;
    assert_eq!(status, 200);
    assert_eq!(world.last_line()["error"], "upstream_error");
}

#[tokio::test]
async fn usage_of_passed_requests_is_recorded() {
    for wire in Wire::all() {
        let world = World::speaking_with(wire, |files| files.no_tools(), &[]).await;
        world.model.will(wire.will_say("hello"));
        world.chat().await;
        let line = world.lines().pop().unwrap();
        assert_eq!(line["usage"]["prompt_tokens"], 20);
        assert_eq!(line["usage"]["completion_tokens"], 5);
        assert_eq!(line["model"], "house/otter-1");
        assert_eq!(line["key"], "k1");
    }
}

#[tokio::test]
async fn a_withdrawn_agent_s_stream_ends_at_once() {
    let mut world = World::start_with(|files| files.no_tools(), |_| {}, &[]).await;
    world.model.will(
        Answer::chunks(200, &["data: {\"choices\":[]}\n\n"])
            .header("content-type", "text/event-stream")
            .never_ends(),
    );
    let mut request = chat();
    request["stream"] = json!(true);
    let mut response = within("an answer", world.request(&request).send())
        .await
        .unwrap();
    within("a chunk", response.chunk()).await.unwrap().unwrap();
    world.files.swap([]);
    let rest = within("the rest", response.text()).await.unwrap();
    assert!(rest.contains("access_withdrawn"), "{rest}");
    world.model.hung_up(1).await;
}

#[tokio::test]
async fn a_provider_is_called_only_in_its_own_dialects() {
    for speaks in Wire::all() {
        for asked in Wire::all() {
            let mut world = World::speaking_with(speaks, |files| files.no_tools(), &[]).await;
            world.wire = asked;
            world.model.will(asked.will_say("here"));
            let (status, body) = world.ask(asked.chat()).await;
            let spoken = match (speaks.0, asked.0) {
                // A provider of responses also speaks chat completions.
                (Dialect::OpenaiResponses, Dialect::OpenaiChat) => true,
                (speaks, asked) => speaks == asked,
            };
            if spoken {
                assert_eq!((status, asked.text(&body)), (200, "here".to_string()));
            } else {
                assert_eq!(
                    (status, &*asked.error_code(&body)),
                    (400, "dialect_unsupported")
                );
                assert_eq!(world.model.connections(), 0);
            }
        }
    }
}

#[tokio::test]
async fn the_last_error_passes_scrubbed_and_a_spent_key_is_not_used_again() {
    let world = World::start().await;
    let echo = format!("who is {}?", crate::support::MODEL_KEY);
    world
        .model
        .will(Answer::text(401, &echo).header("retry-after", "7"));
    let response = within("an answer", world.request(&chat()).send())
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["retry-after"], "7");
    let text = within("a body", response.text()).await.unwrap();
    assert_eq!(text, "who is [redacted]?");

    let (status, body) = world.ask(chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("no_usable_key"))
    );
    assert_eq!(world.model.requests().len(), 1);
}

#[tokio::test]
async fn no_answer_at_all_is_a_502_that_names_no_host() {
    let world = World::start_with(
        |files| {
            files.providers["providers"]["house"]["endpoints"][0]["base_url"] =
                json!("http://127.0.0.1:1/v1");
        },
        |_| {},
        &[],
    )
    .await;
    let (status, body) = world.ask(chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (502, &json!("upstream_unreachable"))
    );
    assert!(!body.to_string().contains("127.0.0.1"), "{body}");
}

#[tokio::test]
async fn too_many_requests_and_too_large_bodies_are_refused() {
    let world = World::start_with(
        |_| {},
        |limits| {
            limits.requests = 1;
            limits.body = 4096;
        },
        &[],
    )
    .await;
    let mut large = chat();
    large["messages"][0]["content"] = Value::String("x".repeat(5000));
    let (status, _) = world.ask(large).await;
    assert_eq!(status, 400);
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    world.model.will(Answer::json(says("late")).gated(&gate));
    let running = tokio::spawn(world.request(&chat()).send());
    world.model.asked(1).await;
    let (status, body) = world.ask(chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("overloaded"))
    );
    gate.notify_one();
    assert_eq!(
        within("the first", running)
            .await
            .unwrap()
            .unwrap()
            .status(),
        200
    );
}
