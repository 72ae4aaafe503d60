//! The messages of runner and model in each dialect, as its provider documents them.

use serde_json::{Value, json};
use toolcrib_dialect::{Dialect, MAX_REPLY, Reassembly, Reply, Request, SseParser};

#[derive(Clone, Copy, Debug)]
pub struct Wire(pub Dialect);

/// One reply of a model.
#[derive(Clone, Debug, Default)]
pub struct ModelReply {
    pub id: String,
    pub text: String,
    pub calls: Vec<ReplyCall>,
    /// The reply was cut at a limit, with the dialect's finish reason for it.
    pub cut_short: bool,
}

#[derive(Clone, Debug)]
pub struct ReplyCall {
    /// `None` if the server sent no id.
    pub id: Option<String>,
    pub name: String,
    pub arguments: String,
}

impl Wire {
    pub fn all() -> impl Iterator<Item = Wire> {
        Dialect::ALL.into_iter().map(Wire)
    }

    /// The member that holds the history.
    pub fn history(self) -> &'static str {
        match self.0 {
            Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
            Dialect::OpenaiResponses => "input",
        }
    }

    /// A request with this history, and tools of the runner.
    pub fn body(self, history: &[Value], tools: &[&str]) -> Value {
        let mut body = json!({"model": "house/otter-1"});
        if self.0 == Dialect::AnthropicMessages {
            body["max_tokens"] = json!(99);
        }
        body[self.history()] = json!(history);
        let tools: Vec<Value> = tools.iter().map(|name| self.tool(name)).collect();
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        body
    }

    pub fn decode(self, body: &Value) -> Request {
        Request::decode(self.0, body.to_string().into_bytes()).unwrap()
    }

    /// Requests a stream that reports its usage.
    pub fn streamed(self, mut body: Value) -> Value {
        body["stream"] = json!(true);
        if self.0 == Dialect::OpenaiChat {
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    fn tool(self, name: &str) -> Value {
        let schema = json!({"type": "object"});
        match self.0 {
            Dialect::OpenaiChat => {
                json!({"type": "function", "function": {"name": name, "parameters": schema}})
            }
            Dialect::AnthropicMessages => json!({"name": name, "input_schema": schema}),
            Dialect::OpenaiResponses => {
                json!({"type": "function", "name": name, "parameters": schema})
            }
        }
    }

    /// A `tool_choice` that forces any call, or a call of this tool.
    pub fn forced(self, name: Option<&str>) -> Value {
        match (self.0, name) {
            (Dialect::OpenaiChat | Dialect::OpenaiResponses, None) => json!("required"),
            (Dialect::AnthropicMessages, None) => json!({"type": "any"}),
            (Dialect::OpenaiChat, Some(name)) => {
                json!({"type": "function", "function": {"name": name}})
            }
            (Dialect::AnthropicMessages, Some(name)) => json!({"type": "tool", "name": name}),
            (Dialect::OpenaiResponses, Some(name)) => json!({"type": "function", "name": name}),
        }
    }

    /// The result of the runner's tool, as an item of the next request.
    pub fn result(self, call: &str, text: &str) -> Value {
        match self.0 {
            Dialect::OpenaiChat => json!({"role": "tool", "tool_call_id": call, "content": text}),
            Dialect::AnthropicMessages => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call, "content": text}]}),
            Dialect::OpenaiResponses => {
                json!({"type": "function_call_output", "call_id": call, "output": text})
            }
        }
    }

    /// A reply of ten prompt tokens and one completion token.
    pub fn reply(self, said: &ModelReply) -> Reply {
        let body = match self.0 {
            Dialect::OpenaiChat => completion(said),
            Dialect::AnthropicMessages => message(said),
            Dialect::OpenaiResponses => response(said),
        };
        Reply::decode(self.0, body.to_string().into_bytes()).unwrap()
    }

    /// The body of the answer, reassembled if it was streamed.
    pub fn whole(self, content_type: &str, body: &[u8]) -> Value {
        if content_type != "text/event-stream" {
            return serde_json::from_slice(body).unwrap();
        }
        let mut reassembly = Reassembly::new(self.0, MAX_REPLY);
        for event in SseParser::new(MAX_REPLY).push(body).unwrap() {
            reassembly.push(event).unwrap();
        }
        serde_json::from_str(reassembly.finish().unwrap().as_text()).unwrap()
    }

    /// The part of an answer's body that the runner sends back.
    pub fn stored(self, body: &Value) -> Vec<Value> {
        match self.0 {
            Dialect::OpenaiChat => vec![body["choices"][0]["message"].clone()],
            Dialect::AnthropicMessages => {
                vec![json!({"role": "assistant", "content": body["content"]})]
            }
            Dialect::OpenaiResponses => body["output"].as_array().unwrap().clone(),
        }
    }
}

fn with_id(mut call: Value, key: &str, id: Option<&String>) -> Value {
    if let Some(id) = id {
        call[key] = json!(id);
    }
    call
}

fn completion(said: &ModelReply) -> Value {
    let calls = said.calls.iter().map(|call| {
        let function = json!({"name": call.name, "arguments": call.arguments});
        let written = json!({"type": "function", "function": function});
        with_id(written, "id", call.id.as_ref())
    });
    let calls: Vec<Value> = calls.collect();
    let text = match (said.text.as_str(), calls.is_empty()) {
        ("", false) => Value::Null,
        (text, _) => json!(text),
    };
    let finish = match (said.cut_short, calls.is_empty()) {
        (true, _) => "length",
        (false, true) => "stop",
        (false, false) => "tool_calls",
    };
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({"id": said.id, "object": "chat.completion", "created": 1, "model": "otter-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}})
}

fn message(said: &ModelReply) -> Value {
    let text = (!said.text.is_empty()).then(|| json!({"type": "text", "text": said.text}));
    let calls = said.calls.iter().map(|call| {
        let input: Value = serde_json::from_str(&call.arguments).unwrap();
        let block = json!({"type": "tool_use", "name": call.name, "input": input});
        with_id(block, "id", call.id.as_ref())
    });
    let blocks: Vec<Value> = text.into_iter().chain(calls).collect();
    let stop = match (said.cut_short, said.calls.is_empty()) {
        (true, _) => "max_tokens",
        (false, true) => "end_turn",
        (false, false) => "tool_use",
    };
    json!({"id": said.id, "type": "message", "role": "assistant", "model": "otter-1",
        "content": blocks, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 10, "output_tokens": 1}})
}

fn response(said: &ModelReply) -> Value {
    let status = if said.cut_short {
        "incomplete"
    } else {
        "completed"
    };
    let text = (!said.text.is_empty()).then(|| {
        json!({"type": "message", "id": format!("msg_{}", said.id), "status": status,
            "role": "assistant",
            "content": [{"type": "output_text", "text": said.text, "annotations": []}]})
    });
    let calls = said.calls.iter().map(|call| {
        let item = json!({"type": "function_call", "status": "completed", "name": call.name,
            "arguments": call.arguments});
        let own = call.id.as_ref().map(|id| format!("fc_{id}"));
        with_id(
            with_id(item, "call_id", call.id.as_ref()),
            "id",
            own.as_ref(),
        )
    });
    let items: Vec<Value> = text.into_iter().chain(calls).collect();
    let details = match said.cut_short {
        true => json!({"reason": "max_output_tokens"}),
        false => Value::Null,
    };
    json!({"id": said.id, "object": "response", "created_at": 1, "model": "otter-1",
        "status": status, "incomplete_details": details, "output": items,
        "usage": {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}})
}
