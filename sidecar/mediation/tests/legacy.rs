//! A runner that speaks `functions`: its single call comes back as `function_call`, whole and
//! streamed. Its history reaches the provider in the form of `tools`, with the hidden rounds in
//! place.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use serde_json::{Value, json};
use support::*;
use toolcrib_dialect::{Dialect, MAX_REPLY, Reassembly, Request, SseParser};
use toolcrib_manifest::Streaming;
use toolcrib_mediation::*;

fn asks(stream: bool, messages: &Value) -> Request {
    let body = json!({"model": "m", "stream": stream, "messages": messages,
        "functions": [{"name": "shell", "parameters": {}}]});
    Request::decode(Dialect::OpenaiChat, body.to_string().into_bytes()).unwrap()
}

/// The choice as a client of legacy `functions` reads it.
fn choice(stream: bool, sent: Vec<u8>) -> Value {
    let body = if stream {
        let mut whole = Reassembly::new(Dialect::OpenaiChat, MAX_REPLY);
        for event in SseParser::new(MAX_REPLY).push(&sent).unwrap() {
            whole.push(event).unwrap();
        }
        whole.finish().unwrap().as_text().as_bytes().to_vec()
    } else {
        sent
    };
    serde_json::from_slice::<Value>(&body).unwrap()["choices"][0].clone()
}

/// Roles in order; a result with the tool of its call.
fn read(body: &Value) -> Vec<String> {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut seen = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        assert_eq!(message.get("function_call"), None, "{body}");
        let role = message["role"].as_str().unwrap();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let at = open.iter().position(|(open, _)| open == id).unwrap();
            seen.push(format!("result of {}", open.remove(at).1));
            continue;
        }
        assert_eq!(open, [], "{body}");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_string();
            open.push((text(&call["id"]), text(&call["function"]["name"])));
        }
        let calls: Vec<&str> = open.iter().map(|(_, name)| name.as_str()).collect();
        seen.push(format!("{role} {}", calls.join(" ")).trim().to_string());
    }
    assert_eq!(open, [], "{body}");
    seen
}

#[test]
fn legacy_history_becomes_tool_calls_with_hidden_rounds_in_place() {
    for (stream, streaming) in [
        (false, Streaming::Buffered),
        (true, Streaming::Buffered),
        (true, Streaming::Live),
    ] {
        for preamble in ["", "Wait."] {
            let turn = |history: &Value, replies, store: &mut Continuity| {
                let mut config = config(asks(stream, history), policy());
                config.streaming = streaming;
                config.history = store
                    .history_edits(&config.request, &config.presented)
                    .unwrap();
                run(config, replies, |_| responded(200, "1"))
            };
            let mut store = Continuity::new(1 << 20);
            let mut history = json!([{"role": "user", "content": "a"}]);
            let script = vec![
                reply(&[("pond__feed", "{}")], preamble),
                reply(&[("shell", r#"{"cmd":"ls"}"#)], ""),
            ];
            let first = turn(&history, script, &mut store);
            let got = choice(stream, first.sent);
            assert_eq!(got["finish_reason"], "function_call");
            let message = &got["message"];
            assert_eq!(message.get("tool_calls"), None, "{message}");
            assert_eq!(
                message["function_call"],
                json!({"name": "shell", "arguments": r#"{"cmd":"ls"}"#})
            );
            store.remember(first.answer.hidden.unwrap());

            let messages = history.as_array_mut().unwrap();
            messages.push(message.clone());
            messages.push(json!({"role": "function", "name": "shell", "content": "b"}));
            let next = turn(&history, vec![reply(&[], "done")], &mut store);
            assert_eq!(
                read(&next.bodies[0]),
                [
                    "user",
                    "assistant pond__feed",
                    "result of pond__feed",
                    "assistant shell",
                    "result of shell"
                ],
                "{stream} {streaming:?} {preamble:?}"
            );
            assert_eq!(choice(stream, next.sent)["message"]["content"], "done");
            assert!(next.answer.hidden.is_none());
        }
    }
}
