//! The metrics under OpenTelemetry's names, as a scrape gets them after turns, streams and passed requests.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;
use toolcrib_dialect::Dialect;

use crate::support::mcp::{answers, text};
use crate::support::{Answer, Files, Wire, World, within};

/// The labels of a model call, without the last one.
fn model(wire: Wire, name: &str) -> String {
    let format = match wire.0 {
        Dialect::OpenaiChat | Dialect::OpenaiResponses => "openai",
        Dialect::AnthropicMessages => "anthropic",
    };
    format!(
        r#"gen_ai_operation_name="chat",gen_ai_provider_name="{format}",gen_ai_request_model="{name}",toolcrib_provider="house""#
    )
}

fn ended(wire: Wire, name: &str, error: &str, count: u64) -> String {
    let labels = model(wire, name);
    format!(
        "\ngen_ai_client_operation_duration_seconds_count{{{labels},error_type=\"{error}\"}} {count}\n"
    )
}

fn used(wire: Wire, name: &str, kind: &str, tokens: u64) -> String {
    let labels = model(wire, name);
    format!("\ngen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"{kind}\"}} {tokens}.0\n")
}

async fn check(world: &World, samples: &[String]) {
    let metrics = world.metrics().await;
    for sample in samples {
        assert!(metrics.contains(sample), "{sample}{metrics}");
    }
    let series = "gen_ai_client_operation_duration_seconds_count{";
    let ends = samples.iter().filter(|it| it.contains(series)).count();
    assert_eq!(metrics.matches(series).count(), ends, "{metrics}");
}

#[tokio::test]
async fn a_turn_with_an_mcp_tool_has_its_model_calls_tokens_and_tool_calls() {
    World::each(Files::over_mcp, &[], async |world| {
        let wire = world.wire;
        world.desk.will_discover();
        world.desk.will(answers("result", text("12")));
        world.quote_mcp("OTR").await;
        let failed = json!({"isError": true, "content": []});
        world.desk.will(answers("result", failed));
        world.quote_mcp("OTR").await;
        world.model.will(Answer::text(503, "{}"));
        assert_eq!(world.ask(wire.chat()).await.0, 503);
        let call = |error: &str| {
            format!("\nmcp_client_operation_duration_seconds_count{{mcp_method_name=\"tools/call\",gen_ai_operation_name=\"execute_tool\",gen_ai_tool_name=\"desk.quote\",network_transport=\"tcp\",error_type=\"{error}\"}} 1\n")
        };
        let samples = [
            ended(wire, "otter-1", "", 4),
            ended(wire, "otter-1", "http_5xx", 1),
            used(wire, "otter-1", "input", 60),
            used(wire, "otter-1", "output", 16),
            call(""),
            call("tool_error"),
        ];
        check(&world, &samples).await;
    })
    .await;
}

#[tokio::test]
async fn a_live_stream_is_one_call_from_its_request_to_its_last_event() {
    for wire in Wire::all() {
        let live = |files: &mut Files| files.agent["streaming"] = json!("Live");
        let world = World::speaking_with(wire, live, &[]).await;
        let gate = Arc::new(Notify::new());
        let reply = wire.will_stream("m-1", (&["It ", "is."], &[]));
        world.model.will(reply.paused(1, &gate));
        let mut request = wire.chat();
        request["stream"] = json!(true);
        if let Dialect::OpenaiChat = wire.0 {
            request["stream_options"] = json!({"include_usage": true});
        }
        let sent = within("an answer", world.request(&request).send());
        let response = sent.await.unwrap();
        check(&world, &[]).await;
        gate.notify_one();
        within("the stream", response.text()).await.unwrap();
        let samples = [
            ended(wire, "otter-1", "", 1),
            used(wire, "otter-1", "input", 20),
            used(wire, "otter-1", "output", 5),
        ];
        check(&world, &samples).await;
    }
}

#[tokio::test]
async fn a_passed_request_counts_and_a_model_that_no_object_names_is_other() {
    for wire in Wire::all() {
        let open = |files: &mut Files| {
            files.no_tools();
            files.agent.as_object_mut().unwrap().remove("models");
        };
        let world = World::speaking_with(wire, open, &[]).await;
        world.model.will(wire.will_say("done"));
        world.chat().await;
        let cut = Arc::new(Notify::new());
        let begun = Answer::chunks(200, &[": hi\n\n"]);
        let begun = begun.header("content-type", "text/event-stream");
        world.model.will(begun.breaks_off(&cut));
        let mut request = wire.chat();
        request["stream"] = json!(true);
        let sent = within("an answer", world.request(&request).send());
        let mut broken = sent.await.unwrap();
        within("a chunk", broken.chunk()).await.unwrap().unwrap();
        cut.notify_one();
        within("the stream", broken.text()).await.unwrap();
        let samples = [
            ended(wire, "_OTHER", "", 1),
            ended(wire, "_OTHER", "interrupted", 1),
            used(wire, "_OTHER", "input", 20),
            used(wire, "_OTHER", "output", 5),
        ];
        check(&world, &samples).await;
    }
}
