//! A model's streams in each dialect, an event per chunk, as documented by the providers.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use super::{Answer, Wire};

/// Pieces of text, then calls `(id, name, arguments)`, each in two pieces.
pub type ReplyParts<'s> = (&'s [&'s str], &'s [(&'s str, &'s str, &'s str)]);

impl Wire {
    /// One reply of the model, with the same token counts as [`Wire::says`] and [`Wire::calls`].
    pub fn will_stream(self, id: &str, said: ReplyParts) -> Answer {
        let chunks = self.stream(id, said);
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        Answer::chunks(200, &chunks).header("content-type", "text/event-stream; charset=utf-8")
    }

    /// The frames of the reply.
    pub fn stream(self, id: &str, said: ReplyParts) -> Vec<String> {
        let tokens = if said.1.is_empty() { (20, 5) } else { (10, 3) };
        match self.0 {
            Dialect::OpenaiChat => chunks(id, said, tokens),
            Dialect::AnthropicMessages => blocks(id, said, tokens),
            Dialect::OpenaiResponses => items(id, said, tokens),
        }
    }
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at(text.len() / 2)
}

fn chunks(id: &str, (text, calls): ReplyParts, tokens: (u64, u64)) -> Vec<String> {
    let frame = |choices: Value, usage: Value| {
        let chunk = json!({"id": id, "object": "chat.completion.chunk", "created": 1,
            "model": "otter-1", "system_fingerprint": "fp", "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let delta = |delta: Value, finish: Value| {
        let choice = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        frame(choice, Value::Null)
    };
    let mut frames = vec![delta(
        json!({"role": "assistant", "content": ""}),
        Value::Null,
    )];
    frames.extend(
        text.iter()
            .map(|text| delta(json!({"content": text}), Value::Null)),
    );
    for (at, (id, name, arguments)) in calls.iter().enumerate() {
        let call = |call: Value| delta(json!({"tool_calls": [call]}), Value::Null);
        let (a, b) = halves(arguments);
        frames.push(call(json!({"index": at, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}})));
        frames.push(call(json!({"index": at, "function": {"arguments": a}})));
        frames.push(call(json!({"index": at, "function": {"arguments": b}})));
    }
    let finish = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    frames.push(delta(json!({}), json!(finish)));
    let usage = json!({"prompt_tokens": tokens.0, "completion_tokens": tokens.1,
        "total_tokens": tokens.0 + tokens.1});
    frames.push(frame(json!([]), usage));
    frames.push("data: [DONE]\n\n".to_string());
    frames
}

fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap();
    format!("event: {name}\ndata: {data}\n\n")
}

fn blocks(id: &str, (text, calls): ReplyParts, tokens: (u64, u64)) -> Vec<String> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": id, "type": "message",
            "role": "assistant", "model": "otter-1", "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": {"input_tokens": tokens.0, "output_tokens": 1}}}),
        json!({"type": "ping"}),
    ];
    let mut index = 0;
    let mut block = |opening: Value, deltas: Vec<Value>| {
        events
            .push(json!({"type": "content_block_start", "index": index, "content_block": opening}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !text.is_empty() {
        let deltas = text
            .iter()
            .map(|text| json!({"type": "text_delta", "text": text}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for (id, name, arguments) in calls {
        let (a, b) = halves(arguments);
        let deltas = [a, b].map(|it| json!({"type": "input_json_delta", "partial_json": it}));
        let opening = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        block(opening, deltas.to_vec());
    }
    let stop = if calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": tokens.1}}),
    );
    events.push(json!({"type": "message_stop"}));
    events.iter().map(event).collect()
}

fn items(id: &str, (text, calls): ReplyParts, tokens: (u64, u64)) -> Vec<String> {
    let mut number = 0;
    let mut events = Vec::new();
    let mut say = |mut data: Value| {
        data["sequence_number"] = json!(number);
        number += 1;
        events.push(event(&data));
    };
    let mut response = json!({"id": id, "object": "response", "created_at": 1, "model": "otter-1",
        "status": "in_progress", "error": null, "incomplete_details": null, "output": [],
        "tools": [{"type": "function", "name": "desk__quote"}], "tool_choice": "auto",
        "usage": null});
    say(json!({"type": "response.created", "response": response}));
    say(json!({"type": "response.in_progress", "response": response}));
    let mut output = Vec::new();
    if !text.is_empty() {
        let item_id = format!("msg_{id}");
        let item = |status: &str, content: Value| {
            json!({"type": "message", "id": item_id, "role": "assistant", "status": status,
                "content": content})
        };
        let part = |text: &str| json!({"type": "output_text", "annotations": [], "text": text});
        let place = json!({"item_id": item_id, "output_index": 0, "content_index": 0});
        let mut at_part = |kind: &str, more: Value| {
            let mut data = place.clone();
            data["type"] = json!(kind);
            for (key, value) in more.as_object().unwrap() {
                data[key] = value.clone();
            }
            say(data);
        };
        let whole = text.concat();
        at_part(
            "response.output_item.added",
            json!({"item": item("in_progress", json!([]))}),
        );
        at_part("response.content_part.added", json!({"part": part("")}));
        for text in text {
            at_part("response.output_text.delta", json!({"delta": text}));
        }
        at_part("response.output_text.done", json!({"text": whole}));
        at_part("response.content_part.done", json!({"part": part(&whole)}));
        output.push(item("completed", json!([part(&whole)])));
        at_part("response.output_item.done", json!({"item": output[0]}));
    }
    for (call_id, name, arguments) in calls {
        let at = output.len();
        let item = |status: &str, arguments: &str| {
            json!({"type": "function_call", "id": format!("fc_{call_id}"), "call_id": call_id,
                "name": name, "status": status, "arguments": arguments})
        };
        let (a, b) = halves(arguments);
        say(
            json!({"type": "response.output_item.added", "output_index": at,
            "item": item("in_progress", "")}),
        );
        for delta in [a, b] {
            say(
                json!({"type": "response.function_call_arguments.delta", "output_index": at,
                "item_id": format!("fc_{call_id}"), "delta": delta}),
            );
        }
        say(
            json!({"type": "response.function_call_arguments.done", "output_index": at,
            "item_id": format!("fc_{call_id}"), "arguments": arguments}),
        );
        output.push(item("completed", arguments));
        say(json!({"type": "response.output_item.done", "output_index": at, "item": output[at]}));
    }
    response["status"] = json!("completed");
    response["output"] = json!(output);
    response["usage"] = json!({"input_tokens": tokens.0, "output_tokens": tokens.1,
        "total_tokens": tokens.0 + tokens.1});
    say(json!({"type": "response.completed", "response": response}));
    events
}
