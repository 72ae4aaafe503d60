//! OpenTelemetry traces, as a receiver of OTLP over HTTP gets them.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use toolcrib_dialect::Dialect;

use crate::support::native::answered;
use crate::support::{
    Answer, Fake, Files, MODEL_KEY, POLL, RUNNER, TOOL_TOKEN, Wire, World, within,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const QUOTE: &str = r#"{"symbol":"OTR"}"#;

async fn world(wire: Wire, receiver: &Fake, edit: impl FnOnce(&mut Files)) -> World {
    World::speaking_with(wire, edit, &["--otlp-endpoint", &receiver.url()]).await
}

async fn ask(world: &World, flags: &str) -> u16 {
    let request = world
        .request(&world.wire.chat())
        .header("traceparent", format!("00-{TRACE}-{PARENT}-{flags}"))
        .header("tracestate", "pond=1")
        .header("baggage", "who=otter");
    let response = within("an answer", request.send()).await.unwrap();
    let status = response.status().as_u16();
    within("its body", response.bytes()).await.unwrap();
    status
}

/// Every span that arrived, once the mediator has ended.
fn received(receiver: &Fake) -> Vec<Span> {
    let mut spans = Vec::new();
    for request in receiver.requests() {
        assert_eq!((&*request.method, &*request.target), ("POST", "/v1/traces"));
        assert_eq!(
            request.header("content-type"),
            Some("application/x-protobuf")
        );
        let message = ExportTraceServiceRequest::decode(request.body).unwrap();
        for from in message.resource_spans {
            let resource = attributes(&from.resource.unwrap().attributes);
            assert_eq!(resource["service.name"], "toolcrib-mediator");
            assert_eq!(resource["k8s.pod.name"], "otter-0");
            spans.extend(from.scope_spans.into_iter().flat_map(|it| it.spans));
        }
    }
    spans
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| {
        let value = pair.value.as_ref().unwrap().value.as_ref().unwrap();
        if let Value::IntValue(number) = value {
            return number.to_string();
        }
        let Value::StringValue(text) = value else {
            panic!("{value:?}");
        };
        text.clone()
    };
    pairs.iter().map(|it| (it.key.clone(), text(it))).collect()
}

#[tokio::test]
async fn a_turn_is_a_span_with_its_model_and_tool_calls_under_it() {
    for wire in Wire::all() {
        let receiver = Fake::start().await;
        receiver.will(Answer::text(200, ""));
        let world = world(wire, &receiver, |_| {}).await;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::text(503, "a secret result"));
        world.model.will(wire.will_say("a secret answer"));
        assert_eq!(ask(&world, "01").await, 200);
        for asked in world.model.requests().iter().chain(&world.desk.requests()) {
            for name in ["traceparent", "tracestate", "baggage"] {
                assert_eq!(asked.header(name), None, "{name}");
            }
        }
        world.server.drain().await;

        let spans = received(&receiver);
        let names: Vec<&str> = spans.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "invoke_agent otter",
                "chat otter-1",
                "execute_tool desk.quote",
                "chat otter-1"
            ]
        );
        let root = &spans[0];
        assert_eq!(hex::encode(&root.trace_id), TRACE);
        assert_eq!(hex::encode(&root.parent_span_id), PARENT);
        for span in &spans {
            assert_eq!(
                (&span.trace_id, &*span.trace_state),
                (&root.trace_id, "pond=1")
            );
            assert!(root.start_time_unix_nano <= span.start_time_unix_nano);
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        }
        assert!(
            spans[1..]
                .iter()
                .all(|it| it.parent_span_id == root.span_id)
        );
        let provider = match wire.0 {
            toolcrib_dialect::Dialect::AnthropicMessages => "anthropic",
            toolcrib_dialect::Dialect::OpenaiChat | toolcrib_dialect::Dialect::OpenaiResponses => {
                "openai"
            }
        };
        let of = |at: usize| attributes(&spans[at].attributes);
        for (at, key, value) in [
            (0, "gen_ai.operation.name", "invoke_agent"),
            (0, "gen_ai.provider.name", provider),
            (0, "gen_ai.agent.name", "otter"),
            (0, "gen_ai.request.model", "house/otter-1"),
            (0, "gen_ai.usage.input_tokens", "30"),
            (0, "gen_ai.usage.output_tokens", "8"),
            (0, "http.response.status_code", "200"),
            (1, "gen_ai.operation.name", "chat"),
            (1, "gen_ai.request.model", "otter-1"),
            (1, "toolcrib.provider", "house"),
            (1, "gen_ai.usage.input_tokens", "10"),
            (2, "gen_ai.operation.name", "execute_tool"),
            (2, "gen_ai.tool.name", "desk.quote"),
            (2, "error.type", "503"),
            (2, "toolcrib.display", "desk.quote: status 503, 15 bytes"),
            (3, "gen_ai.usage.output_tokens", "5"),
        ] {
            assert_eq!(of(at)[key], value, "{key}");
        }
        assert!(!of(0).contains_key("error.type") && !of(3).contains_key("error.type"));
        // The record has the texts; a span does not.
        let text = format!("{:?}", receiver.requests());
        let bytes: Vec<u8> = receiver
            .requests()
            .iter()
            .flat_map(|it| it.body.to_vec())
            .collect();
        let bytes = String::from_utf8_lossy(&bytes);
        for absent in ["how deep?", "OTR", "secret", MODEL_KEY, TOOL_TOKEN, RUNNER] {
            assert!(
                !bytes.contains(absent) && !text.contains(absent),
                "{absent}"
            );
        }
    }
}

#[tokio::test]
async fn a_native_call_is_a_span_with_its_tool_under_it() {
    let receiver = Fake::start().await;
    receiver.will(Answer::text(200, ""));
    let native = |files: &mut Files| files.agent["native"] = json!(true);
    let world = world(Wire::CHAT, &receiver, native).await;
    world.desk.will(Answer::json(json!({"price": 3})));
    let params = json!({"name": "desk__quote", "arguments": {"symbol": "OTR"}});
    let call = world.stateless("tools/call", params);
    let call = call.header("traceparent", format!("00-{TRACE}-{PARENT}-01"));
    assert_eq!(answered(call).await.0, 200);
    world.server.drain().await;
    let spans = received(&receiver);
    let names: Vec<&str> = spans.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["tools/call", "execute_tool desk.quote"]);
    assert_eq!(hex::encode(&spans[0].parent_span_id), PARENT);
    assert_eq!(spans[1].parent_span_id, spans[0].span_id);
    let root = attributes(&spans[0].attributes);
    assert_eq!(root["mcp.method.name"], "tools/call");
    assert_eq!(root["gen_ai.agent.name"], "otter");
}

/// The span of a streamed model call has that call's tokens. If the stream breaks off, it has the
/// tokens that were reported by then.
#[tokio::test]
async fn a_streamed_model_call_has_its_own_usage() {
    for wire in Wire::all() {
        let receiver = Fake::start().await;
        receiver.will(Answer::text(200, ""));
        let live = |files: &mut Files| files.agent["streaming"] = json!("Live");
        let world = world(wire, &receiver, live).await;
        let mut request = wire.chat();
        request["stream"] = json!(true);
        let calls = [("c1", "desk__quote", QUOTE)];
        world
            .model
            .will(wire.will_stream("r1", (&["Let me look."], &calls)));
        world.desk.will(Answer::json(json!(1)));
        world
            .model
            .will(wire.will_stream("r2", (&["It is 1."], &[])));
        for cut in [false, true] {
            if cut {
                let frames = wire.stream("r3", (&["It", " is"], &[]));
                let half: Vec<&str> = frames[..2].iter().map(String::as_str).collect();
                let cut = Answer::chunks(200, &half);
                world
                    .model
                    .will(cut.header("content-type", "text/event-stream"));
            }
            let response = within("an answer", world.request(&request).send()).await;
            within("its body", response.unwrap().bytes()).await.unwrap();
        }
        world.server.drain().await;
        let usage: Vec<_> = received(&receiver)
            .iter()
            .filter(|span| span.name == "chat otter-1")
            .map(|span| {
                let said = attributes(&span.attributes);
                ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"]
                    .map(|key| said.get(key).cloned().unwrap_or_default())
            })
            .collect();
        // Only Anthropic sends the prompt's usage at once.
        let cut = match wire.0 {
            Dialect::AnthropicMessages => "20",
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "",
        };
        assert_eq!(usage[..2], [["10", "3"], ["20", "5"]], "{wire:?}");
        assert_eq!(usage[2][0], cut, "{wire:?}");
        assert_eq!(usage.len(), 3);
    }
}

#[tokio::test]
async fn passed_and_failed_requests_are_spans_too() {
    for wire in Wire::all() {
        let receiver = Fake::start().await;
        receiver.will(Answer::text(200, ""));
        let world = world(wire, &receiver, |files| files.no_tools()).await;
        world.model.will(wire.will_say("hello"));
        assert_eq!(ask(&world, "01").await, 200);
        world.model.will(Answer::text(500, "down"));
        assert_eq!(ask(&world, "01").await, 500);
        world.server.drain().await;
        let spans = received(&receiver);
        let seen: Vec<_> = spans
            .iter()
            .map(|it| {
                (
                    it.name.as_str(),
                    attributes(&it.attributes).get("error.type").cloned(),
                )
            })
            .collect();
        let code = Some("upstream_error".to_string());
        assert_eq!(
            seen,
            [
                ("invoke_agent otter", None),
                ("chat otter-1", None),
                ("invoke_agent otter", code),
                ("chat otter-1", Some("500".to_string())),
            ]
        );
        let usage = attributes(&spans[1].attributes);
        assert_eq!(usage["gen_ai.usage.input_tokens"], "20");
    }
}

#[tokio::test]
async fn an_unsampled_trace_is_not_sampled() {
    let receiver = Fake::start().await;
    let world = world(Wire::CHAT, &receiver, |_| {}).await;
    world.model.will(world.wire.will_say("hello"));
    assert_eq!(ask(&world, "00").await, 200);
    world.server.drain().await;
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_slow_or_missing_receiver_costs_spans_only() {
    let receiver = Fake::start().await;
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    receiver.will(Answer::text(400, "no").gated(&gate));
    let world = world(Wire::CHAT, &receiver, |files| files.no_tools()).await;
    for _ in 0..200 {
        world.model.will(world.wire.will_say("hello"));
        assert_eq!(ask(&world, "01").await, 200);
    }
    let url = format!("http://{}/metrics", world.server.admin_address);
    let dropped = async || {
        let response = within("metrics", world.runner.get(&url).send())
            .await
            .unwrap();
        let text = within("metrics", response.text()).await.unwrap();
        let sample = r#"toolcrib_mediator_spans_total{outcome="dropped"} "#;
        let line = text.lines().find_map(|line| line.strip_prefix(sample));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    gate.notify_one();
    within("a drop", async {
        while dropped().await == 0 {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    within("the end", world.server.drain()).await;
}

#[tokio::test]
async fn queued_spans_are_sent_at_shutdown() {
    let receiver = Fake::start().await;
    receiver.will(Answer::json(json!({})));
    let world = world(Wire::CHAT, &receiver, |_| {}).await;
    world.model.will(world.wire.will_say("hello"));
    assert_eq!(ask(&world, "01").await, 200);
    world.server.drain().await;
    assert_eq!(received(&receiver).len(), 2);
}
