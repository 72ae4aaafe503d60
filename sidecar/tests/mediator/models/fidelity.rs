//! Fields of a reply besides its text reach the runner after a hidden round, whole and streamed:
//! the stop reason, refusals, reasoning, and the sum of usage.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Wire, World, within};

/// Replies that end for another reason than completion.
fn endings(wire: Wire) -> [Value; 2] {
    let mut endings = [wire.says("Not all of"), wire.says("It")];
    let [cut, refused] = &mut endings;
    match wire.0 {
        Dialect::OpenaiChat => {
            cut["choices"][0]["finish_reason"] = json!("length");
            cut["choices"][0]["message"]["reasoning_content"] = json!("How deep? Deep.");
            refused["choices"][0]["finish_reason"] = json!("content_filter");
            refused["choices"][0]["message"]["refusal"] = json!("I will not.");
        }
        Dialect::AnthropicMessages => {
            cut["stop_reason"] = json!("max_tokens");
            cut["content"] = json!([
                {"type": "thinking", "thinking": "How deep? Deep.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "cmVk"},
                {"type": "text", "text": "Not all of"}]);
            refused["stop_reason"] = json!("refusal");
        }
        Dialect::OpenaiResponses => {
            cut["status"] = json!("incomplete");
            cut["incomplete_details"] = json!({"reason": "max_output_tokens"});
            let thought = json!([{"type": "summary_text", "text": "How deep? Deep."}]);
            let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": thought,
                "encrypted_content": "ZW5j"});
            cut["output"].as_array_mut().unwrap().insert(0, reasoning);
            refused["status"] = json!("incomplete");
            refused["incomplete_details"] = json!({"reason": "content_filter"});
            refused["output"][0]["content"] =
                json!([{"type": "refusal", "refusal": "I will not."}]);
        }
    }
    endings
}

/// The compared part of a reply: everything except usage and echoes of the request.
fn substance(wire: Wire, answer: &Value) -> Value {
    match wire.0 {
        Dialect::OpenaiChat => {
            let choice = &answer["choices"][0];
            let text = |key: &str| {
                choice["message"][key]
                    .as_str()
                    .unwrap_or_default()
                    .to_string()
            };
            let said = ["content", "refusal", "reasoning_content"].map(text);
            json!([choice["finish_reason"], said])
        }
        Dialect::AnthropicMessages => json!([answer["stop_reason"], answer["content"]]),
        Dialect::OpenaiResponses => json!([
            answer["status"],
            answer["incomplete_details"],
            answer["output"]
        ]),
    }
}

/// The reply with its usage, assembled as a client does it.
fn put_together(wire: Wire, stream: &str) -> Value {
    let data = stream.lines().filter_map(|it| it.strip_prefix("data: "));
    let events: Vec<Value> = data
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    match wire.0 {
        Dialect::OpenaiChat => {
            let mut message = json!({});
            for key in ["content", "refusal", "reasoning_content"] {
                let deltas = events.iter().map(|it| &it["choices"][0]["delta"][key]);
                message[key] = json!(deltas.filter_map(Value::as_str).collect::<String>());
            }
            let finish = events.iter().map(|it| &it["choices"][0]["finish_reason"]);
            let finish: Vec<&Value> = finish.filter(|it| it.is_string()).collect();
            assert_eq!(finish.len(), 1, "{stream}");
            json!({"choices": [{"message": message, "finish_reason": finish[0]}],
                "usage": events.last().unwrap()["usage"]})
        }
        Dialect::AnthropicMessages => {
            let mut message = events[0]["message"].clone();
            let mut content: Vec<Value> = Vec::new();
            for event in &events {
                let block = event["index"]
                    .as_u64()
                    .map(|at| usize::try_from(at).unwrap());
                match event["type"].as_str().unwrap() {
                    "content_block_start" => content.push(event["content_block"].clone()),
                    "content_block_delta" => {
                        let delta = event["delta"].as_object().unwrap();
                        let block = &mut content[block.unwrap()];
                        for (key, more) in delta.iter().filter(|(key, _)| *key != "type") {
                            let so_far = block[key].as_str().unwrap_or_default();
                            block[key] = json!(so_far.to_string() + more.as_str().unwrap());
                        }
                    }
                    "message_delta" => {
                        message["stop_reason"] = event["delta"]["stop_reason"].clone();
                        message["usage"]["output_tokens"] = event["usage"]["output_tokens"].clone();
                    }
                    _ => {}
                }
            }
            message["content"] = json!(content);
            message
        }
        Dialect::OpenaiResponses => {
            let last = events.last().unwrap();
            assert_eq!(last["type"], "response.incomplete", "{stream}");
            let done = events
                .iter()
                .filter(|it| it["type"] == "response.output_item.done");
            let items: Vec<&Value> = done.map(|it| &it["item"]).collect();
            assert_eq!(json!(items), last["response"]["output"], "{stream}");
            last["response"].clone()
        }
    }
}

#[tokio::test]
async fn stop_reasons_refusals_and_reasoning_reach_the_runner() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        for (at, ending) in endings(wire).into_iter().enumerate() {
            for streamed in [false, true] {
                // Another symbol each time, so no turn repeats another's call.
                let symbol = json!({"symbol": format!("S{at}{streamed}")}).to_string();
                world
                    .model
                    .will(wire.will_call(&[("c1", "desk__quote", &symbol)]));
                world.desk.will(Answer::json(json!(1)));
                world.model.will(Answer::json(ending.clone()));
                let mut request = wire.chat();
                request["stream"] = json!(streamed);
                if let (Dialect::OpenaiChat, true) = (wire.0, streamed) {
                    request["stream_options"] = json!({"include_usage": true});
                }
                let response = within("an answer", world.request(&request).send())
                    .await
                    .unwrap();
                assert_eq!(response.status(), 200);
                let text = within("its body", response.text()).await.unwrap();
                let answer = if streamed {
                    put_together(wire, &text)
                } else {
                    serde_json::from_str(&text).unwrap()
                };
                assert_eq!(
                    substance(wire, &answer),
                    substance(wire, &ending),
                    "{wire:?} streamed: {streamed}"
                );
                // The sum of both rounds.
                assert_eq!(wire.tokens(&answer["usage"]), (30, 8), "{wire:?}");
            }
        }
    }
}
