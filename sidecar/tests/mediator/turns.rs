//! Who executes which call, streaming and not.

use serde_json::{Value, json};

use crate::support::{Answer, TOOL_TOKEN, World, calls, chat, says, within};

#[tokio::test]
async fn a_managed_call_is_executed_and_the_runner_sees_the_answer_alone() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"OTR"}"#,
    )])));
    world.desk.will(Answer::json(json!({"price": 12.50})));
    world.model.will(Answer::json(says("12.50")));

    let answer = world.chat().await;
    assert_eq!(answer["choices"][0]["message"]["content"], "12.50");
    // Both rounds.
    assert_eq!(answer["usage"]["prompt_tokens"], 30);
    assert_eq!(answer["usage"]["completion_tokens"], 8);

    let asked = &world.desk.requests()[0];
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str()),
        ("GET", "/quotes/OTR?claw_id=otter")
    );
    assert_eq!(
        asked.header("authorization"),
        Some(&*format!("Bearer {TOOL_TOKEN}"))
    );
    assert_eq!(asked.header("x-claw-id"), Some("otter"));

    let first = world.model.requests()[0].json();
    let offered: Vec<_> = first["tools"].as_array().unwrap().iter().collect();
    assert_eq!(offered[0]["function"]["name"], "desk__quote");
    assert_eq!(first["model"], "otter-1");
    assert!(!first.to_string().contains("claw_id"), "{first}");
    assert_eq!(
        world.result(),
        json!({"ok": true, "status_code": 200, "data": {"price": 12.50}})
    );
}

#[tokio::test]
async fn a_call_of_the_runner_s_own_tool_passes_unchanged() {
    let world = World::start().await;
    let reply = calls(&[("c1", "shell", r#"{"cmd":"ls"}"#)]);
    world.model.will(Answer::json(reply.clone()));
    let mut request = chat();
    request["tools"] = json!([{"type": "function", "function": {"name": "shell",
        "parameters": {"type": "object"}}}]);
    let (status, answer) = world.ask(request).await;
    assert_eq!((status, &answer), (200, &reply));
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn runner_owned_before_managed_executes_nothing_and_the_model_replans() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[
        ("c1", "shell", "{}"),
        ("c2", "desk__quote", r#"{"symbol":"OTR"}"#),
    ])));
    world.model.will(Answer::json(says("again")));
    let mut request = chat();
    request["tools"] = json!([{"type": "function", "function": {"name": "shell",
        "parameters": {"type": "object"}}}]);
    let (status, answer) = world.ask(request).await;
    assert_eq!(status, 200);
    assert_eq!(answer["choices"][0]["message"]["content"], "again");
    assert_eq!(world.desk.connections(), 0);
    let codes: Vec<Value> = world
        .results()
        .into_iter()
        .map(|(_, result)| result["error"]["code"].clone())
        .collect();
    assert_eq!(codes, ["mixed_tool_order", "mixed_tool_order"]);
}

#[tokio::test]
async fn a_managed_prefix_runs_and_the_runner_s_suffix_is_hidden() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[
        ("c1", "desk__quote", r#"{"symbol":"OTR"}"#),
        ("c2", "shell", "{}"),
    ])));
    world.desk.will(Answer::json(json!(1)));
    world.model.will(Answer::json(says("done")));
    let mut request = chat();
    request["tools"] = json!([{"type": "function", "function": {"name": "shell",
        "parameters": {"type": "object"}}}]);
    let (status, _) = world.ask(request).await;
    assert_eq!(status, 200);
    let last = world.model.requests()[1].json().to_string();
    assert!(!last.contains("\"c2\""), "{last}");
    assert_eq!(world.results().len(), 1);
}

#[tokio::test]
async fn a_name_that_nobody_offers_is_executed_by_nobody() {
    let world = World::start().await;
    world
        .model
        .will(Answer::json(calls(&[("c1", "desk.cancel_all", "{}")])));
    world.model.will(Answer::json(says("no")));
    world.chat().await;
    assert_eq!(world.result()["error"]["code"], "unsupported_tool");
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_stream_is_asked_for_whole_and_streamed_again() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"OTR"}"#,
    )])));
    world.desk.will(Answer::json(json!({"price": 1})));
    world.model.will(Answer::json(says("one")));
    let mut request = chat();
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    let response = within("an answer", world.request(&request).send())
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = within("the stream", response.text()).await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let said: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(said, "one");
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 30);
    assert!(!text.contains("desk__quote"), "{text}");
    for request in world.model.requests() {
        assert_ne!(request.json()["stream"], json!(true));
    }
}

#[tokio::test]
async fn keepalives_fill_the_silence_of_hidden_rounds_and_a_late_error_ends_the_stream() {
    let world = World::start_with(|_| {}, |_| {}, &["--keepalive", "10ms"]).await;
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    world.model.will(Answer::text(500, "down").gated(&gate));
    let mut request = chat();
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
    assert!(rest.contains("upstream_unreachable"), "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[tokio::test]
async fn rounds_end_with_a_last_answer() {
    let world = World::start_with(
        |files| files.tools["policy"]["max_rounds"] = json!(1),
        |_| {},
        &[],
    )
    .await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"A"}"#,
    )])));
    world.desk.will(Answer::json(json!(1)));
    world.model.will(Answer::json(calls(&[(
        "c2",
        "desk__quote",
        r#"{"symbol":"B"}"#,
    )])));
    world.model.will(Answer::json(says("what I know")));
    let answer = world.chat().await;
    assert_eq!(answer["choices"][0]["message"]["content"], "what I know");
    let last = world.model.requests()[2].json();
    assert_eq!(last["tool_choice"], "none");
    assert_eq!(world.desk.requests().len(), 1);
}

#[tokio::test]
async fn the_total_timeout_is_one_502() {
    let world = World::start_with(
        |files| files.tools["policy"]["total_timeout_ms"] = json!(150),
        |_| {},
        &[],
    )
    .await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"A"}"#,
    )])));
    world.desk.will(Answer::chunks(200, &["{"]).never_ends());
    let (status, body) = world.ask(chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (502, &json!("total_timeout"))
    );
    let line = world.lines().pop().unwrap();
    assert_eq!(line["tool_trace"][0]["tool_calls"][0]["name"], "desk.quote");
}

#[tokio::test]
async fn a_runner_that_hangs_up_cancels_the_tool_and_what_ran_is_recorded() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__order",
        r#"{"symbol":"A"}"#,
    )])));
    world.desk.will(Answer::chunks(200, &["{"]).never_ends());
    let request = tokio::spawn(world.request(&chat()).send());
    world.desk.asked(1).await;
    request.abort();
    world.desk.hung_up(1).await;
    within("the record", async {
        while !world.lines().iter().any(|line| line["kind"] == "turn") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let line = world.lines().pop().unwrap();
    assert_eq!(
        (&line["status"], &line["error"]),
        (&json!("error"), &json!("canceled"))
    );
    let call = &line["tool_trace"][0]["tool_calls"][0];
    assert_eq!(
        (&call["name"], &call["executed"]),
        (&json!("desk.order"), &json!(true))
    );
}

#[tokio::test]
async fn hidden_rounds_are_there_in_the_next_turn_and_after_a_restart() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"OTR"}"#,
    )])));
    world.desk.will(Answer::json(json!({"price": 7})));
    world.model.will(Answer::json(says("seven")));
    world.chat().await;

    let World {
        server,
        files,
        history,
        model,
        runner,
        stdout,
        ..
    } = world;
    server.drain().await;
    let server = crate::support::start_server(&files, &history, Default::default(), stdout, &[])
        .await
        .unwrap();
    model.will(Answer::json(says("still seven")));
    let next = json!({"model": "house/otter-1", "messages": [
        {"role": "user", "content": "how deep?"},
        {"role": "assistant", "content": "seven"},
        {"role": "user", "content": "sure?"}]});
    let response = runner
        .post(format!("http://{}/v1/chat/completions", server.address))
        .header(
            "authorization",
            format!("Bearer {}", crate::support::RUNNER),
        )
        .body(next.to_string())
        .send();
    assert_eq!(within("an answer", response).await.unwrap().status(), 200);
    let sent = model.requests().last().unwrap().json();
    let roles: Vec<_> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
}
