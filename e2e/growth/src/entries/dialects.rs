//! Requests, replies and streams of the model APIs.

use std::hint::black_box;

use toolcrib_dialect::{Dialect, Reassembly, Reply, Request, SseParser};

use super::{Entry, KIB, MAX, entry};
use crate::shapes::{
    Shape, broken_json, json_texts, json_values, list, numbered, repeated, shape, within,
};

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = vec![
        entry("SSE", "a reply, 32 MiB", KIB / 2, sse_shapes(), |text| {
            let mut parser = SseParser::new(MAX);
            drop(black_box(parser.push(text.as_bytes())));
        }),
        entry(
            "SSE, a byte at a time",
            "a reply, 32 MiB",
            KIB / 4,
            sse_shapes(),
            |text| {
                let mut parser = SseParser::new(MAX);
                for byte in text.as_bytes() {
                    drop(black_box(parser.push(&[*byte])));
                }
            },
        ),
    ];
    for (dialect, names) in [
        (
            Dialect::OpenaiChat,
            [
                "request of Chat Completions",
                "reply of Chat Completions",
                "stream of Chat Completions",
            ],
        ),
        (
            Dialect::AnthropicMessages,
            [
                "request of Messages",
                "reply of Messages",
                "stream of Messages",
            ],
        ),
        (
            Dialect::OpenaiResponses,
            [
                "request of Responses",
                "reply of Responses",
                "stream of Responses",
            ],
        ),
    ] {
        let [request, reply, stream] = names;
        let of = move |pieces: [fn(usize) -> String; 3]| match dialect {
            Dialect::OpenaiChat => pieces[0],
            Dialect::AnthropicMessages => pieces[1],
            Dialect::OpenaiResponses => pieces[2],
        };
        let mut requests = within(
            json_values(),
            r#"{"model":"m","max_tokens":5,"messages":[],"input":"","x":"#,
            "}",
        );
        requests.extend(broken_json());
        requests.push(shape(
            "items",
            of([
                |bytes| {
                    format!(
                        r#"{{"model":"m","messages":[{}]}}"#,
                        list(bytes, r#"{"role":"user","content":"é\\#"}"#, ",")
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","max_tokens":5,"messages":[{}]}}"#,
                        list(
                            bytes,
                            r#"{"role":"user","content":[{"type":"text","text":"é\\#"}]}"#,
                            ","
                        )
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","input":[{}]}}"#,
                        list(
                            bytes,
                            r#"{"role":"user","content":[{"type":"input_text","text":"é\\#"}]}"#,
                            ","
                        )
                    )
                },
            ]),
        ));
        requests.push(shape(
            "tools",
            of([
                |bytes| {
                    format!(
                        r#"{{"model":"m","messages":[],"tools":[{}]}}"#,
                        list(
                            bytes,
                            r#"{"type":"function","function":{"name":"t#"}}"#,
                            ","
                        )
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","max_tokens":5,"messages":[],"tools":[{}]}}"#,
                        list(bytes, r#"{"name":"t#","input_schema":{}}"#, ",")
                    )
                },
                |bytes| {
                    format!(
                        r#"{{"model":"m","input":[],"tools":[{}]}}"#,
                        list(bytes, r#"{"type":"function","name":"t#"}"#, ",")
                    )
                },
            ]),
        ));
        entries.push(entry(request, "32 MiB", KIB, requests, move |text| {
            drop(black_box(Request::decode(
                dialect,
                text.as_bytes().to_vec(),
            )));
        }));
        let mut replies = json_texts();
        replies.push(shape("calls", of([
            |bytes| format!(r#"{{"choices":[{{"finish_reason":"tool_calls","message":{{"role":"assistant","content":null,"tool_calls":[{}]}}}}]}}"#, list(bytes, r#"{"id":"c#","type":"function","function":{"name":"t","arguments":"{}"}}"#, ",")),
            |bytes| format!(r#"{{"type":"message","role":"assistant","stop_reason":"tool_use","content":[{}]}}"#, list(bytes, r#"{"type":"tool_use","id":"c#","name":"t","input":{}}"#, ",")),
            |bytes| format!(r#"{{"object":"response","status":"completed","output":[{}]}}"#, list(bytes, r#"{"type":"function_call","call_id":"c#","name":"t","arguments":"{}"}"#, ",")),
        ])));
        entries.push(entry(reply, "32 MiB", KIB, replies, move |text| {
            drop(black_box(Reply::decode(dialect, text.as_bytes().to_vec())));
        }));
        entries.push(entry(
            stream,
            "32 MiB",
            KIB,
            streams(dialect),
            move |text| {
                let mut parser = SseParser::new(MAX);
                let mut whole = Reassembly::new(dialect, MAX);
                for event in parser.push(text.as_bytes()).unwrap_or_default() {
                    drop(whole.push(event));
                }
                drop(black_box(whole.finish()));
            },
        ));
    }
    entries
}

fn streams(dialect: Dialect) -> Vec<Shape> {
    match dialect {
        Dialect::OpenaiChat => within(
            vec![
                repeated(
                    "text",
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\\\"}}]}\n\n",
                ),
                numbered(
                    "calls",
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":#,\"id\":\"c#\",\"function\":{\"name\":\"t\",\"arguments\":\"{}\"}}]}}]}\n\n",
                    "",
                ),
                repeated(
                    "parts of one call",
                    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" \"}}]}}]}\n\n",
                ),
                numbered(
                    "choices",
                    "data: {\"choices\":[{\"index\":#,\"delta\":{\"content\":\"a\"}}]}\n\n",
                    "",
                ),
            ],
            "",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ),
        Dialect::AnthropicMessages => within(
            vec![
                repeated(
                    "text",
                    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\\\\"}}\n\n",
                ),
                numbered(
                    "blocks",
                    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":#,\"content_block\":{\"type\":\"tool_use\",\"id\":\"c#\",\"name\":\"t\",\"input\":{}}}\n\n",
                    "",
                ),
                repeated("pings", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
            ],
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        Dialect::OpenaiResponses => within(
            vec![
                repeated(
                    "text",
                    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"\\\\\"}\n\n",
                ),
                numbered(
                    "items",
                    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":#,\"item\":{\"type\":\"function_call\",\"call_id\":\"c#\",\"name\":\"t\",\"arguments\":\"{}\"}}\n\n",
                    "",
                ),
            ],
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"status\":\"in_progress\",\"output\":[]}}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"status\":\"completed\",\"output\":[]}}\n\n",
        ),
    }
}

pub(super) fn sse_shapes() -> Vec<Shape> {
    vec![
        repeated("empty lines", "\n"),
        repeated("carriage returns", "\r"),
        repeated("comments", ":\n"),
        repeated("lines of one event", "data: x\n"),
        repeated("events", "data: x\n\n"),
        repeated("a line without end", "data: x"),
        repeated("names", "event: x\r\n"),
        repeated("marks of byte order", "\u{feff}"),
    ]
}
