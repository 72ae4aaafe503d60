//! Anthropic messages.

use serde_json::{Value, json};

use crate::services::model::wire::{ModelReply, pieces, typed_frame};

pub fn document(answer: &ModelReply) -> Value {
    let blocks: Vec<Value> = blocks(answer).into_iter().map(Block::whole).collect();
    json!({
        "id": format!("msg_{}", answer.number),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": blocks,
        "stop_reason": finish(answer),
        "stop_sequence": null,
        "usage": {"input_tokens": answer.usage.prompt, "output_tokens": answer.usage.completion},
    })
}

pub fn frames(answer: &ModelReply) -> Vec<String> {
    let mut start = document(answer);
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(0);
    let mut frames = vec![typed_frame(
        &json!({"type": "message_start", "message": start}),
    )];
    for (index, block) in blocks(answer).into_iter().enumerate() {
        let (empty, deltas) = block.streamed();
        frames.push(typed_frame(
            &json!({"type": "content_block_start", "index": index, "content_block": empty}),
        ));
        frames.extend(deltas.into_iter().map(|delta| {
            typed_frame(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
        }));
        frames.push(typed_frame(
            &json!({"type": "content_block_stop", "index": index}),
        ));
    }
    frames.push(typed_frame(&json!({
        "type": "message_delta",
        "delta": {"stop_reason": finish(answer), "stop_sequence": null},
        "usage": {"output_tokens": answer.usage.completion},
    })));
    frames.push(typed_frame(&json!({"type": "message_stop"})));
    frames
}

enum Block<'a> {
    Thinking(&'a str),
    Text(&'a str),
    ToolUse {
        id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
}

/// A scripted signature: real ones are opaque too, and must be sent back unchanged.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

fn blocks(answer: &ModelReply) -> Vec<Block<'_>> {
    let thinking = answer.reasoning.as_deref().map(Block::Thinking);
    let text = answer.text.as_deref().map(Block::Text);
    let calls = answer.calls.iter().map(|call| Block::ToolUse {
        id: &call.id,
        name: &call.name,
        arguments: &call.arguments,
    });
    thinking.into_iter().chain(text).chain(calls).collect()
}

impl Block<'_> {
    fn whole(self) -> Value {
        match self {
            Block::Thinking(text) => {
                json!({"type": "thinking", "thinking": text, "signature": SIGNATURE})
            }
            Block::Text(text) => json!({"type": "text", "text": text}),
            // This dialect cannot carry arguments that are not JSON; as a string they stay invalid.
            Block::ToolUse {
                id,
                name,
                arguments,
            } => json!({
                "type": "tool_use", "id": id, "name": name,
                "input": serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments)),
            }),
        }
    }

    /// The empty block of the start event, and the deltas.
    fn streamed(self) -> (Value, Vec<Value>) {
        let deltas = |text: &str, kind: &str, key: &str| -> Vec<Value> {
            pieces(text)
                .into_iter()
                .map(|piece| json!({"type": kind, key: piece}))
                .collect()
        };
        match self {
            Block::Thinking(text) => {
                let mut parts = deltas(text, "thinking_delta", "thinking");
                parts.push(json!({"type": "signature_delta", "signature": SIGNATURE}));
                (
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    parts,
                )
            }
            Block::Text(text) => (
                json!({"type": "text", "text": ""}),
                deltas(text, "text_delta", "text"),
            ),
            Block::ToolUse {
                id,
                name,
                arguments,
            } => (
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                deltas(arguments, "input_json_delta", "partial_json"),
            ),
        }
    }
}

fn finish(answer: &ModelReply) -> &str {
    let implied = if answer.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    answer.finish.as_deref().unwrap_or(implied)
}
