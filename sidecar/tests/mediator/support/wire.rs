//! Requests of the runner and replies of the model in each dialect, and their readers. They are
//! written from the providers' documentation and not with the product's own reader, which they
//! check.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use super::Answer;

#[derive(Clone, Copy, Debug)]
pub struct Wire(pub Dialect);

/// A stream, assembled as a client does it.
#[derive(Debug, PartialEq)]
pub struct StreamedReply {
    pub text: String,
    /// Name and arguments.
    pub calls: Vec<(String, String)>,
    /// Tokens of prompt and completion.
    pub tokens: (u64, u64),
}

impl Wire {
    pub const CHAT: Wire = Wire(Dialect::OpenaiChat);

    pub fn all() -> impl Iterator<Item = Wire> {
        Dialect::ALL.into_iter().map(Wire)
    }

    /// The usual request.
    pub fn chat(self) -> Value {
        let said = json!([{"role": "user", "content": "how deep?"}]);
        match self.0 {
            Dialect::OpenaiChat => json!({"model": "house/otter-1", "messages": said}),
            Dialect::AnthropicMessages => {
                json!({"model": "house/otter-1", "max_tokens": 99, "messages": said})
            }
            Dialect::OpenaiResponses => json!({"model": "house/otter-1", "input": "how deep?"}),
        }
    }

    /// The usual request, with `shell` as the runner's own tool.
    pub fn chat_with_shell(self) -> Value {
        let mut request = self.chat();
        let schema = json!({"type": "object"});
        request["tools"] = match self.0 {
            Dialect::OpenaiChat => {
                json!([{"type": "function", "function": {"name": "shell", "parameters": schema}}])
            }
            Dialect::AnthropicMessages => json!([{"name": "shell", "input_schema": schema}]),
            Dialect::OpenaiResponses => {
                json!([{"type": "function", "name": "shell", "parameters": schema, "strict": false}])
            }
        };
        request
    }

    /// The request after `chat` was answered with `text`.
    pub fn follow_up(self, text: &str) -> Value {
        let mut request = self.chat();
        let said = json!([{"role": "user", "content": "how deep?"},
            {"role": "assistant", "content": text}, {"role": "user", "content": "sure?"}]);
        match self.0 {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => request["messages"] = said,
            Dialect::OpenaiResponses => request["input"] = said,
        }
        request
    }

    /// A model's reply that calls tools: `(id, name, arguments)`.
    pub fn calls(self, calls: &[(&str, &str, &str)]) -> Value {
        let each = |call: &dyn Fn(&str, &str, &str) -> Value| -> Vec<Value> {
            calls
                .iter()
                .map(|(id, name, said)| call(id, name, said))
                .collect()
        };
        match self.0 {
            Dialect::OpenaiChat => {
                let calls = each(&|id, name, arguments| {
                    json!({"id": id, "type": "function",
                           "function": {"name": name, "arguments": arguments}})
                });
                let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
                completion("cmpl-1", message, "tool_calls", (10, 3))
            }
            Dialect::AnthropicMessages => {
                let blocks = each(&|id, name, arguments| {
                    let input: Value = serde_json::from_str(arguments).unwrap();
                    json!({"type": "tool_use", "id": id, "name": name, "input": input})
                });
                message("msg_1", blocks, "tool_use", (10, 3))
            }
            Dialect::OpenaiResponses => {
                let items = each(&|id, name, arguments| {
                    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id,
                           "status": "completed", "name": name, "arguments": arguments})
                });
                response("resp_1", items, (10, 3))
            }
        }
    }

    pub fn says(self, text: &str) -> Value {
        match self.0 {
            Dialect::OpenaiChat => {
                let message = json!({"role": "assistant", "content": text});
                completion("cmpl-2", message, "stop", (20, 5))
            }
            Dialect::AnthropicMessages => {
                let blocks = vec![json!({"type": "text", "text": text})];
                message("msg_2", blocks, "end_turn", (20, 5))
            }
            Dialect::OpenaiResponses => {
                let items = vec![
                    json!({"type": "message", "id": "m_2", "status": "completed",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]}),
                ];
                response("resp_2", items, (20, 5))
            }
        }
    }

    /// A reply with these calls. Arguments are sent exactly as written here, also where the
    /// dialect has them as JSON.
    pub fn will_call(self, calls: &[(&str, &str, &str)]) -> Answer {
        let place = |at: usize| format!("<arguments {at}>");
        let places: Vec<String> = (0..calls.len())
            .map(|at| json!(place(at)).to_string())
            .collect();
        let marked: Vec<_> = calls
            .iter()
            .zip(&places)
            .map(|((id, name, _), place)| (*id, *name, place.as_str()))
            .collect();
        let mut text = self.calls(&marked).to_string();
        for ((_, _, arguments), place) in calls.iter().zip(&places) {
            text = match self.0 {
                Dialect::OpenaiChat | Dialect::OpenaiResponses => {
                    text.replace(&json!(place).to_string(), &json!(arguments).to_string())
                }
                Dialect::AnthropicMessages => text.replace(place, arguments),
            };
        }
        Answer::text(200, &text).header("content-type", "application/json")
    }

    pub fn will_say(self, text: &str) -> Answer {
        Answer::json(self.says(text))
    }

    /// The text of an answer.
    pub fn text(self, answer: &Value) -> String {
        let text = match self.0 {
            Dialect::OpenaiChat => &answer["choices"][0]["message"]["content"],
            Dialect::AnthropicMessages => &answer["content"][0]["text"],
            Dialect::OpenaiResponses => &answer["output"][0]["content"][0]["text"],
        };
        text.as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_string()
    }

    /// Tokens of prompt and completion.
    pub fn tokens(self, usage: &Value) -> (u64, u64) {
        let (prompt, completion) = match self.0 {
            Dialect::OpenaiChat => ("prompt_tokens", "completion_tokens"),
            Dialect::AnthropicMessages | Dialect::OpenaiResponses => {
                ("input_tokens", "output_tokens")
            }
        };
        let at = |key: &str| usage[key].as_u64().unwrap_or_else(|| panic!("{usage}"));
        (at(prompt), at(completion))
    }

    /// Names of the tools in a model request.
    pub fn offered(self, request: &Value) -> Vec<&str> {
        let tools = request["tools"].as_array();
        tools
            .into_iter()
            .flatten()
            .map(|tool| match self.0 {
                Dialect::OpenaiChat => &tool["function"]["name"],
                Dialect::AnthropicMessages | Dialect::OpenaiResponses => &tool["name"],
            })
            .map(|name| name.as_str().unwrap())
            .collect()
    }

    /// The value of `tool_choice` that forbids calls.
    pub fn no_more_calls(self) -> Value {
        match self.0 {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => json!("none"),
            Dialect::AnthropicMessages => json!({"type": "none"}),
        }
    }

    /// The tool results in a model request, by call id.
    pub fn results(self, request: &Value) -> Vec<(String, Value)> {
        let history = match self.0 {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => &request["messages"],
            Dialect::OpenaiResponses => &request["input"],
        };
        // A history that is one text has no results.
        let history = history.as_array().cloned().unwrap_or_default();
        let found: Vec<(Value, Value)> = match self.0 {
            Dialect::OpenaiChat => history
                .iter()
                .filter(|message| message["role"] == "tool")
                .map(|message| (message["tool_call_id"].clone(), message["content"].clone()))
                .collect(),
            Dialect::AnthropicMessages => history
                .iter()
                .filter_map(|message| message["content"].as_array())
                .flatten()
                .filter(|block| block["type"] == "tool_result")
                .map(|block| (block["tool_use_id"].clone(), block["content"].clone()))
                .collect(),
            Dialect::OpenaiResponses => history
                .iter()
                .filter(|item| item["type"] == "function_call_output")
                .map(|item| (item["call_id"].clone(), item["output"].clone()))
                .collect(),
        };
        found
            .into_iter()
            .map(|(id, text)| {
                let result = serde_json::from_str(text.as_str().unwrap()).unwrap();
                (id.as_str().unwrap().to_string(), result)
            })
            .collect()
    }

    /// Reads a stream to its proper end. Panics where a client would fail.
    pub fn read_stream(self, text: &str) -> StreamedReply {
        let events = self.events(text);
        match self.0 {
            Dialect::OpenaiChat => read_chunks(&events),
            Dialect::AnthropicMessages => read_blocks(&events),
            Dialect::OpenaiResponses => read_items(&events),
        }
    }

    /// The code of an error's body in this dialect's shape.
    pub fn error_code(self, body: &Value) -> String {
        let error = &body["error"];
        match self.0 {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => {
                assert!(
                    error["param"].is_null() && body.get("type").is_none(),
                    "{body}"
                );
            }
            Dialect::AnthropicMessages => assert_eq!(body["type"], "error", "{body}"),
        }
        assert!(
            error["type"].is_string() && error["message"].is_string(),
            "{body}"
        );
        error["code"]
            .as_str()
            .unwrap_or_else(|| panic!("{body}"))
            .to_string()
    }

    /// The code of the error that ends this stream.
    pub fn stream_error_code(self, text: &str) -> String {
        let events = self.events(text);
        let last = events.last().unwrap();
        match self.0 {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => self.error_code(last),
            Dialect::OpenaiResponses => {
                assert_eq!(last["type"], "error", "{text}");
                last["code"].as_str().unwrap().to_string()
            }
        }
    }

    /// The data of each event; `[DONE]` is checked and left out.
    fn events(self, text: &str) -> Vec<Value> {
        assert!(text.ends_with("\n\n"), "{text}");
        let mut events = Vec::new();
        for block in text.split("\n\n") {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            let Some(data) = field("data: ").filter(|data| *data != "[DONE]") else {
                continue;
            };
            let data: Value = serde_json::from_str(data).unwrap();
            match self.0 {
                Dialect::OpenaiChat => assert_eq!(field("event: "), None),
                // The SDKs use the event's name, other clients the data's type.
                Dialect::AnthropicMessages | Dialect::OpenaiResponses => {
                    assert_eq!(field("event: "), data["type"].as_str(), "{block}");
                }
            }
            events.push(data);
        }
        let done = text.ends_with("data: [DONE]\n\n");
        assert_eq!(done, matches!(self.0, Dialect::OpenaiChat), "{text}");
        events
    }
}

fn read_chunks(chunks: &[Value]) -> StreamedReply {
    let deltas = || chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let mut calls: Vec<(String, String)> = Vec::new();
    for part in deltas()
        .filter_map(|delta| delta["tool_calls"].as_array())
        .flatten()
    {
        let at = usize::try_from(part["index"].as_u64().unwrap()).unwrap();
        calls.resize(calls.len().max(at + 1), Default::default());
        let said = |key: &str| part["function"][key].as_str().unwrap_or_default();
        calls[at].0.push_str(said("name"));
        calls[at].1.push_str(said("arguments"));
    }
    let text = deltas()
        .filter_map(|delta| delta["content"].as_str())
        .collect();
    let tokens = Wire::CHAT.tokens(&chunks.last().unwrap()["usage"]);
    StreamedReply {
        text,
        calls,
        tokens,
    }
}

fn read_blocks(events: &[Value]) -> StreamedReply {
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let deltas = |index: u64, key: &'static str| -> String {
        of("content_block_delta")
            .filter(|event| event["index"] == index)
            .filter_map(|event| event["delta"][key].as_str())
            .collect()
    };
    let (mut text, mut calls) = (String::new(), Vec::new());
    for (index, start) in (0..).zip(of("content_block_start")) {
        assert_eq!(start["index"], index);
        assert_eq!(
            of("content_block_stop")
                .filter(|it| it["index"] == index)
                .count(),
            1
        );
        match start["content_block"]["type"].as_str() {
            Some("tool_use") => {
                let name = start["content_block"]["name"].as_str().unwrap().to_string();
                calls.push((name, deltas(index, "partial_json")));
            }
            _ => text.push_str(&deltas(index, "text")),
        }
    }
    assert_eq!(events[0]["type"], "message_start");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let prompt = &events[0]["message"]["usage"]["input_tokens"];
    let completion = &of("message_delta").next().unwrap()["usage"]["output_tokens"];
    let tokens = (prompt.as_u64().unwrap(), completion.as_u64().unwrap());
    StreamedReply {
        text,
        calls,
        tokens,
    }
}

fn read_items(events: &[Value]) -> StreamedReply {
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    assert_eq!(events[0]["type"], "response.created");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let done: Vec<Value> = of("response.output_item.done")
        .map(|it| it["item"].clone())
        .collect();
    assert_eq!(last["response"]["output"], json!(done));
    let calls = done.iter().filter(|item| item["type"] == "function_call");
    let said = |item: &Value, key: &str| item[key].as_str().unwrap().to_string();
    let text: String = of("response.output_text.delta")
        .filter_map(|event| event["delta"].as_str())
        .collect();
    StreamedReply {
        text,
        calls: calls
            .map(|item| (said(item, "name"), said(item, "arguments")))
            .collect(),
        tokens: Wire(Dialect::OpenaiResponses).tokens(&last["response"]["usage"]),
    }
}

fn completion(id: &str, message: Value, finish: &str, tokens: (u64, u64)) -> Value {
    json!({"id": id, "object": "chat.completion", "created": 1, "model": "otter-1",
           "choices": [{"index": 0, "finish_reason": finish, "message": message}],
           "usage": {"prompt_tokens": tokens.0, "completion_tokens": tokens.1,
                     "total_tokens": tokens.0 + tokens.1}})
}

fn message(id: &str, blocks: Vec<Value>, stop: &str, tokens: (u64, u64)) -> Value {
    json!({"id": id, "type": "message", "role": "assistant", "model": "otter-1",
           "content": blocks, "stop_reason": stop, "stop_sequence": null,
           "usage": {"input_tokens": tokens.0, "output_tokens": tokens.1}})
}

fn response(id: &str, output: Vec<Value>, tokens: (u64, u64)) -> Value {
    json!({"id": id, "object": "response", "created_at": 1, "status": "completed",
           "model": "otter-1", "error": null, "incomplete_details": null, "output": output,
           "usage": {"input_tokens": tokens.0, "output_tokens": tokens.1,
                     "total_tokens": tokens.0 + tokens.1}})
}
