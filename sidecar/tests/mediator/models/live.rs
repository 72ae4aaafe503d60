//! `streaming: Live`: the model's text is forwarded while it is written, and only the runner's
//! own calls are.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Files, StreamedReply, Wire, World, within};

const QUOTE: &str = r#"{"symbol":"OTR"}"#;

fn live(files: &mut Files) {
    files.agent["streaming"] = json!("Live");
}

async fn world(wire: Wire) -> World {
    World::speaking_with(wire, live, &[]).await
}

/// Sends the request as a streaming one.
async fn begin(world: &World, mut request: Value) -> reqwest::Response {
    request["stream"] = json!(true);
    if let Dialect::OpenaiChat = world.wire.0 {
        request["stream_options"] = json!({"include_usage": true});
    }
    let response = within("an answer", world.request(&request).send())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    response
}

async fn stream(world: &World, request: Value) -> String {
    let response = begin(world, request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    within("the stream", response.text()).await.unwrap()
}

/// Reads until the runner has received this text.
async fn heard(response: &mut reqwest::Response, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let chunk = within(text, response.chunk()).await.unwrap();
        read.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
    read
}

/// The distinct values of a field that must be the same in the whole stream.
fn ids(wire: Wire, text: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(data) = serde_json::from_str::<Value>(data) else {
            continue;
        };
        let id = match wire.0 {
            Dialect::OpenaiChat => &data["id"],
            Dialect::AnthropicMessages => &data["message"]["id"],
            Dialect::OpenaiResponses => &data["response"]["id"],
        };
        ids.extend(id.as_str().map(String::from));
    }
    ids.dedup();
    ids
}

#[tokio::test]
async fn text_is_forwarded_while_the_model_writes() {
    for wire in Wire::all() {
        let world = world(wire).await;
        let gate = Arc::new(Notify::new());
        let frames = wire.stream("r1", (&["On", "e"], &[]));
        let at = frames.iter().position(|it| it.contains("\"e\"")).unwrap();
        world.model.will(
            wire.will_stream("r1", (&["On", "e"], &[]))
                .paused(at, &gate),
        );
        let mut response = begin(&world, wire.chat()).await;
        let mut text = heard(&mut response, "\"On\"").await;
        assert!(!text.contains("\"e\""));
        gate.notify_one();
        text += &within("the rest", response.text()).await.unwrap();
        let expected = StreamedReply {
            text: "One".to_string(),
            calls: Vec::new(),
            tokens: (20, 5),
        };
        assert_eq!(wire.read_stream(&text), expected);
        let asked = world.model.requests()[0].json();
        assert_eq!(asked["stream"], true);
        if let Dialect::OpenaiChat = wire.0 {
            assert_eq!(asked["stream_options"]["include_usage"], true);
        }
        let line = world.lines().pop().unwrap();
        assert_eq!(line["usage"]["prompt_tokens"], 20);
        let recorded = line["response"].as_str().unwrap();
        assert!(recorded.contains("\"On\""), "{recorded}");
    }
}

#[tokio::test]
async fn a_hidden_round_s_call_is_held_and_the_stream_is_one_reply() {
    for wire in Wire::all() {
        let world = World::speaking_with(wire, live, &["--keepalive", "10ms"]).await;
        let gate = Arc::new(Notify::new());
        let calls = [("c1", "desk__quote", QUOTE)];
        world
            .model
            .will(wire.will_stream("r1", (&["Let me ", "look."], &calls)));
        world
            .desk
            .will(Answer::json(json!({"price": 1})).gated(&gate));
        world
            .model
            .will(wire.will_stream("r2", (&["It is 1."], &[])));
        let mut response = begin(&world, wire.chat()).await;
        let mut text = heard(&mut response, "look.").await;
        // Silent while the tool runs, except for keepalives.
        text += &heard(&mut response, ": keepalive").await;
        gate.notify_one();
        text += &within("the rest", response.text()).await.unwrap();

        let read = wire.read_stream(&text);
        let said = match wire.0 {
            Dialect::OpenaiChat => "Let me look.\n\nIt is 1.",
            // These dialects have blocks or items of their own for each round.
            Dialect::AnthropicMessages | Dialect::OpenaiResponses => "Let me look.It is 1.",
        };
        assert_eq!((read.text.as_str(), read.calls), (said, vec![]));
        let tokens = match wire.0 {
            // The first event's prompt usage is that of the first round.
            Dialect::AnthropicMessages => (10, 8),
            Dialect::OpenaiChat | Dialect::OpenaiResponses => (30, 8),
        };
        assert_eq!(read.tokens, tokens, "{wire:?}");
        assert!(!text.contains("desk__quote"), "{text}");
        assert_eq!(ids(wire, &text), ["r1"], "{text}");
        let line = world.lines().pop().unwrap();
        assert_eq!(line["usage"]["prompt_tokens"], 30);
        let asked = world.model.requests()[1].json();
        assert_eq!(wire.results(&asked).len(), 1);
        assert!(asked.to_string().contains("Let me look."), "{asked}");
    }
}

#[tokio::test]
async fn the_runner_s_own_call_is_handed_over_in_the_stream() {
    for wire in Wire::all() {
        let world = world(wire).await;
        let quote = [("c1", "desk__quote", QUOTE)];
        let shell = [("c2", "shell", r#"{"cmd":"ls"}"#)];
        world.model.will(wire.will_stream("r1", (&[], &quote)));
        world.desk.will(Answer::json(json!(1)));
        world
            .model
            .will(wire.will_stream("r2", (&["Now "], &shell)));
        let text = stream(&world, wire.chat_with_shell()).await;
        let read = wire.read_stream(&text);
        assert_eq!(read.text, "Now ");
        let expected = [("shell".to_string(), r#"{"cmd":"ls"}"#.to_string())];
        assert_eq!(read.calls, expected);
        let finish = match wire.0 {
            Dialect::OpenaiChat => "\"finish_reason\":\"tool_calls\"",
            Dialect::AnthropicMessages => "\"stop_reason\":\"tool_use\"",
            Dialect::OpenaiResponses => "\"status\":\"completed\"",
        };
        assert!(text.contains(finish) && text.contains("\"c2\""), "{text}");
        assert!(!text.contains("desk__quote"), "{text}");
    }
}

/// The runner's next request repeats the joined text, which is no single reply of the model.
#[tokio::test]
async fn the_preamble_of_a_hidden_round_is_recognized_and_not_repeated() {
    for wire in Wire::all() {
        let world = world(wire).await;
        let calls = [("c1", "desk__quote", QUOTE)];
        world
            .model
            .will(wire.will_stream("r1", (&["Wait."], &calls)));
        world.desk.will(Answer::json(json!({"price": 7})));
        world.model.will(wire.will_stream("r2", (&["Seven."], &[])));
        stream(&world, wire.chat()).await;

        let world = world.restart().await;
        world.model.will(wire.will_stream("r3", (&["Yes."], &[])));
        let mut follow_up = wire.follow_up("");
        let history = match wire.0 {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => &mut follow_up["messages"],
            Dialect::OpenaiResponses => &mut follow_up["input"],
        };
        let part = |text: &str| json!({"type": "text", "text": text});
        let stored = match wire.0 {
            Dialect::OpenaiChat => vec![json!("Wait.\n\nSeven.")],
            Dialect::AnthropicMessages => vec![json!([part("Wait."), part("Seven.")])],
            Dialect::OpenaiResponses => vec![json!("Wait."), json!("Seven.")],
        };
        let stored = stored
            .iter()
            .map(|said| json!({"role": "assistant", "content": said}));
        history.as_array_mut().unwrap().splice(1..2, stored);
        stream(&world, follow_up).await;
        assert_eq!(world.results().len(), 1);
        let sent = world.model.requests().last().unwrap().json().to_string();
        let at = |text: &str| sent.find(text).unwrap_or_else(|| panic!("{text}: {sent}"));
        assert!(
            at("Wait.") < at("price") && at("price") < at("Seven."),
            "{sent}"
        );
        assert_eq!(sent.matches("Wait.").count(), 1, "{sent}");
        assert_eq!(sent.matches("Seven.").count(), 1, "{sent}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_the_dialect_s_error() {
    for wire in Wire::all() {
        let world = world(wire).await;
        let frames = wire.stream("r1", (&["On", "e"], &[]));
        let half: Vec<&str> = frames
            .iter()
            .map(String::as_str)
            .take(frames.len() / 2)
            .collect();
        let answer = || Answer::chunks(200, &half).header("content-type", "text/event-stream");
        // The stream simply ends.
        world.model.will(answer());
        let text = stream(&world, wire.chat()).await;
        assert_eq!(wire.stream_error_code(&text), "upstream_unreachable");
        // The connection breaks, or its bytes are not of the dialect.
        let gate = Arc::new(Notify::new());
        let garbage = [half.as_slice(), &["data: {\n\n"]].concat();
        let garbled = Answer::chunks(200, &garbage).paused(half.len(), &gate);
        let garbled = garbled.header("content-type", "text/event-stream");
        let reset = json!({"cause": "reset", "address": world.model.url()});
        for (bad, code, connection) in [
            (answer().breaks_off(&gate), "upstream_unreachable", reset),
            (garbled, "upstream_malformed", Value::Null),
        ] {
            world.model.will(bad);
            let mut response = begin(&world, wire.chat()).await;
            let begun = heard(&mut response, "\"On\"").await;
            gate.notify_one();
            let rest = within("the rest", response.text()).await.unwrap();
            let text = begun + &rest;
            assert_eq!(wire.stream_error_code(&text), code);
            assert_eq!(world.last_line()["connection"], connection);
        }
        let line = world.lines().pop().unwrap();
        assert_eq!(line["error"], "upstream_malformed");
        // Usage received by then is kept.
        let prompt = match wire.0 {
            Dialect::AnthropicMessages => 10 * 2,
            // These dialects send usage at the end.
            Dialect::OpenaiChat | Dialect::OpenaiResponses => 0,
        };
        assert_eq!(line["usage"]["prompt_tokens"], prompt);
        // An error after a hidden round, when the stream had begun.
        let calls = [("c1", "desk__quote", QUOTE)];
        world
            .model
            .will(wire.will_stream("r1", (&["Wait."], &calls)));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(Answer::text(500, "down"));
        let text = stream(&world, wire.chat()).await;
        assert!(text.contains("Wait."), "{text}");
        assert_eq!(wire.stream_error_code(&text), "upstream_error");
    }
}

#[tokio::test]
async fn an_error_before_the_first_byte_passes_unchanged() {
    for wire in Wire::all() {
        let world = world(wire).await;
        world.model.will(Answer::text(418, "teapot"));
        let mut request = wire.chat();
        request["stream"] = json!(true);
        assert_eq!(world.ask(request).await, (418, json!("teapot")));
    }
}

#[tokio::test]
async fn a_runner_that_hangs_up_cancels_the_model() {
    for wire in Wire::all() {
        let world = world(wire).await;
        let never = Arc::new(Notify::new());
        let frames = wire.stream("r1", (&["On", "e"], &[]));
        let at = frames.iter().position(|it| it.contains("\"e\"")).unwrap();
        world.model.will(
            wire.will_stream("r1", (&["On", "e"], &[]))
                .paused(at, &never),
        );
        let mut response = begin(&world, wire.chat()).await;
        heard(&mut response, "\"On\"").await;
        drop(response);
        world.model.hung_up(1).await;
    }
}

#[tokio::test]
async fn the_reply_of_a_server_without_streaming_is_streamed() {
    for wire in Wire::all() {
        let world = world(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(wire.will_say("one"));
        let text = stream(&world, wire.chat()).await;
        let read = wire.read_stream(&text);
        assert_eq!((read.text.as_str(), read.calls.len()), ("one", 0));
    }
}

#[tokio::test]
async fn without_a_stream_request_no_stream_is_sent_or_requested() {
    for wire in Wire::all() {
        let world = world(wire).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(wire.will_say("one"));
        assert_eq!(wire.text(&world.chat().await), "one");
        for request in world.model.requests() {
            assert_ne!(request.json()["stream"], json!(true));
        }
    }
}
