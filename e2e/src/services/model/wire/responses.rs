//! OpenAI responses.

use serde_json::{Value, json};

use crate::services::model::wire::{ModelReply, pieces, typed_frame};

pub fn document(answer: &ModelReply) -> Value {
    let output: Vec<Value> = items(answer).into_iter().map(|item| item.value).collect();
    response(answer, finish(answer), json!(output), usage(answer))
}

pub fn frames(answer: &ModelReply) -> Vec<String> {
    let mut events = Vec::new();
    let begun = response(answer, "in_progress", json!([]), Value::Null);
    events.push(json!({"type": "response.created", "response": begun}));
    events.push(json!({"type": "response.in_progress", "response": begun}));
    for (index, item) in items(answer).into_iter().enumerate() {
        events.extend(item.events(index));
    }
    let kind = if finish(answer) == "incomplete" {
        "response.incomplete"
    } else {
        "response.completed"
    };
    events.push(json!({"type": kind, "response": document(answer)}));
    events
        .into_iter()
        .enumerate()
        .map(|(number, mut event)| {
            event["sequence_number"] = json!(number);
            typed_frame(&event)
        })
        .collect()
}

struct Item {
    value: Value,
    content: Content,
}

enum Content {
    Reasoning(String),
    Text(String),
    Arguments(String),
}

fn items(answer: &ModelReply) -> Vec<Item> {
    let number = answer.number;
    let reasoning = answer.reasoning.iter().map(|text| Item {
        value: json!({"type": "reasoning", "id": format!("rs_{number}"),
            "summary": [{"type": "summary_text", "text": text}]}),
        content: Content::Reasoning(text.clone()),
    });
    let text = answer.text.iter().map(|text| Item {
        value: json!({"type": "message", "id": format!("msg_{number}"), "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}),
        content: Content::Text(text.clone()),
    });
    let calls = answer.calls.iter().map(|call| {
        let mut value = json!({"type": "function_call", "id": format!("fc_{}", call.id),
            "status": "completed", "call_id": call.id, "name": call.name,
            "arguments": call.arguments});
        if let Some(namespace) = &call.namespace {
            value["namespace"] = json!(namespace);
        }
        Item {
            value,
            content: Content::Arguments(call.arguments.clone()),
        }
    });
    reasoning.chain(text).chain(calls).collect()
}

impl Item {
    fn events(self, index: usize) -> Vec<Value> {
        let id = self.value["id"].clone();
        let mut begun = self.value.clone();
        if begun.get("status").is_some() {
            begun["status"] = json!("in_progress");
        }
        let empty = match &self.content {
            Content::Reasoning(_) => ("summary", json!([])),
            Content::Text(_) => ("content", json!([])),
            Content::Arguments(_) => ("arguments", json!("")),
        };
        begun[empty.0] = empty.1;
        let mut events = vec![
            json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
        ];
        match self.content {
            Content::Reasoning(text) => {
                let at = |kind: &str| json!({"type": kind, "item_id": id, "output_index": index, "summary_index": 0});
                let part = |text: &str| json!({"type": "summary_text", "text": text});
                let mut event = at("response.reasoning_summary_part.added");
                event["part"] = part("");
                events.push(event);
                for piece in pieces(&text) {
                    let mut event = at("response.reasoning_summary_text.delta");
                    event["delta"] = json!(piece);
                    events.push(event);
                }
                let mut event = at("response.reasoning_summary_text.done");
                event["text"] = json!(text);
                events.push(event);
                let mut event = at("response.reasoning_summary_part.done");
                event["part"] = part(&text);
                events.push(event);
            }
            Content::Text(text) => {
                let at = |kind: &str| json!({"type": kind, "item_id": id, "output_index": index, "content_index": 0});
                let part =
                    |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
                let mut event = at("response.content_part.added");
                event["part"] = part("");
                events.push(event);
                for piece in pieces(&text) {
                    let mut event = at("response.output_text.delta");
                    event["delta"] = json!(piece);
                    event["logprobs"] = json!([]);
                    events.push(event);
                }
                let mut event = at("response.output_text.done");
                event["text"] = json!(text);
                event["logprobs"] = json!([]);
                events.push(event);
                let mut event = at("response.content_part.done");
                event["part"] = part(&text);
                events.push(event);
            }
            Content::Arguments(arguments) => {
                let at = |kind: &str| json!({"type": kind, "item_id": id, "output_index": index});
                for piece in pieces(&arguments) {
                    let mut event = at("response.function_call_arguments.delta");
                    event["delta"] = json!(piece);
                    events.push(event);
                }
                let mut event = at("response.function_call_arguments.done");
                event["arguments"] = json!(arguments);
                event["name"] = self.value["name"].clone();
                events.push(event);
            }
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": self.value}),
        );
        events
    }
}

fn response(answer: &ModelReply, status: &str, output: Value, usage: Value) -> Value {
    let incomplete = match status {
        "incomplete" => json!({"reason": "max_output_tokens"}),
        _ => Value::Null,
    };
    json!({
        "id": format!("resp_{}", answer.number),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": null,
        "incomplete_details": incomplete,
        "instructions": null,
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": answer.previous_response_id,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "usage": usage,
    })
}

fn finish(answer: &ModelReply) -> &str {
    answer.finish.as_deref().unwrap_or("completed")
}

fn usage(answer: &ModelReply) -> Value {
    json!({
        "input_tokens": answer.usage.prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.usage.prompt + answer.usage.completion,
    })
}
