//! OpenAI chat completions.

use serde_json::{Value, json};

use crate::services::model::wire::{ModelReply, data_frame, pieces};

pub fn document(answer: &ModelReply) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text, "refusal": null});
    if let Some(reasoning) = &answer.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if !answer.calls.is_empty() {
        message["tool_calls"] = answer
            .calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            })
            .collect();
    }
    json!({
        "id": format!("chatcmpl-{}", answer.number),
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer)}],
        "usage": usage(answer),
    })
}

pub fn frames(answer: &ModelReply) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        data_frame(&json!({
            "id": format!("chatcmpl-{}", answer.number),
            "object": "chat.completion.chunk",
            "created": answer.created,
            "model": answer.model,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        }))
    };
    let mut frames = vec![chunk(
        json!({"role": "assistant", "content": ""}),
        Value::Null,
    )];
    for piece in answer.reasoning.iter().flat_map(|text| pieces(text)) {
        frames.push(chunk(json!({"reasoning_content": piece}), Value::Null));
    }
    for piece in answer.text.iter().flat_map(|text| pieces(text)) {
        frames.push(chunk(json!({"content": piece}), Value::Null));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let head = json!({"index": index, "id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": ""}});
        frames.push(chunk(json!({"tool_calls": [head]}), Value::Null));
        for piece in pieces(&call.arguments) {
            let part = json!({"index": index, "function": {"arguments": piece}});
            frames.push(chunk(json!({"tool_calls": [part]}), Value::Null));
        }
    }
    frames.push(chunk(json!({}), json!(finish(answer))));
    if answer.usage_in_stream {
        frames.push(data_frame(&json!({
            "id": format!("chatcmpl-{}", answer.number),
            "object": "chat.completion.chunk",
            "created": answer.created,
            "model": answer.model,
            "choices": [],
            "usage": usage(answer),
        })));
    }
    frames.push("data: [DONE]\n\n".to_string());
    frames
}

fn finish(answer: &ModelReply) -> &str {
    let implied = if answer.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    answer.finish.as_deref().unwrap_or(implied)
}

fn usage(answer: &ModelReply) -> Value {
    json!({
        "prompt_tokens": answer.usage.prompt,
        "completion_tokens": answer.usage.completion,
        "total_tokens": answer.usage.prompt + answer.usage.completion,
    })
}
