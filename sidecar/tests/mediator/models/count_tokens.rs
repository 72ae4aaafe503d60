//! `POST /v1/messages/count_tokens` counts the tokens of the request that a model would get.

use serde_json::{Value, json};
use toolcrib_dialect::Dialect;

use crate::support::{Answer, Files, RUNNER, Wire, World, within};

const WIRE: Wire = Wire(Dialect::AnthropicMessages);
const QUOTE: &str = r#"{"symbol":"OTR"}"#;

async fn world(edit: impl FnOnce(&mut Files)) -> World {
    World::speaking_with(WIRE, edit, &[]).await
}

/// The request of the SDK, with this key.
async fn count_as(world: &World, key: &str, body: &Value) -> (u16, Value) {
    let request = world
        .runner
        .post(world.url("/v1/messages/count_tokens"))
        .header("x-api-key", key)
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "token-counting-2024-11-01")
        .body(body.to_string());
    let response = within("a count", request.send()).await.unwrap();
    let status = response.status().as_u16();
    let text = within("its body", response.text()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap())
}

async fn count(world: &World, body: &Value) -> (u16, Value) {
    count_as(world, RUNNER, body).await
}

/// A message without the fields that only affect the answer.
fn uncounted() -> Value {
    let mut request = WIRE.chat_with_shell();
    request.as_object_mut().unwrap().remove("max_tokens");
    request
}

#[tokio::test]
async fn the_tools_and_hidden_rounds_of_the_message_are_counted() {
    let world = world(|_| {}).await;
    // A hidden round, which the next message brings along.
    let calls = [("c1", "desk__quote", QUOTE)];
    world.model.will(WIRE.will_call(&calls));
    world.desk.will(Answer::json(json!({"depth": 7})));
    world.model.will(WIRE.will_say("seven"));
    world.chat().await;
    let mut next = WIRE.follow_up("seven");
    world.model.will(WIRE.will_say("yes"));
    assert_eq!(world.ask(next.clone()).await.0, 200);
    let asked = world.model.requests().pop().unwrap().json();

    next.as_object_mut().unwrap().remove("max_tokens");
    world
        .model
        .will(Answer::json(json!({"input_tokens": 2095})));
    let counted = count(&world, &next).await;
    assert_eq!(counted, (200, json!({"input_tokens": 2095})));
    let request = world.model.requests().pop().unwrap();
    assert_eq!(request.target, "/v1/messages/count_tokens");
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(
        request.header("anthropic-beta"),
        Some("token-counting-2024-11-01")
    );
    assert_ne!(request.header("x-api-key"), Some(RUNNER));
    let request = request.json();
    let mut expected = asked;
    for name in ["max_tokens", "stream"] {
        expected.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(request, expected);
    assert_eq!(WIRE.offered(&request), ["desk__quote", "desk__order"]);
}

#[tokio::test]
async fn a_count_is_recorded_and_uses_no_tokens() {
    let world = world(|_| {}).await;
    world.model.will(Answer::json(json!({"input_tokens": 9})));
    assert_eq!(count(&world, &uncounted()).await.0, 200);
    let lines = world.all_lines();
    let seen: Vec<[&Value; 4]> = lines
        .iter()
        .map(|line| ["kind", "operation", "dialect", "model"].map(|name| &line[name]))
        .collect();
    let line = |kind: &str| {
        [kind, "count_tokens", "anthropic_messages", "house/otter-1"].map(|it| json!(it))
    };
    let (call, turn) = (line("model_call"), line("turn"));
    assert_eq!(seen, [call.each_ref(), turn.each_ref()]);
    let turn = &lines[1];
    assert_eq!(
        turn["usage"],
        json!({"prompt_tokens": 0, "completion_tokens": 0})
    );
    assert_eq!(turn["response"], json!({"input_tokens": 9}));
    assert_eq!(
        (&turn["status"], &turn["key"]),
        (&json!("ok"), &json!("k1"))
    );
}

#[tokio::test]
async fn an_agent_without_tools_has_its_body_counted_as_it_came() {
    let world = world(|files| files.no_tools()).await;
    world.model.will(Answer::json(json!({"input_tokens": 3})));
    let body = uncounted();
    assert_eq!(count(&world, &body).await.0, 200);
    let request = world.model.requests().pop().unwrap();
    let expected = body.to_string().replace("house/otter-1", "otter-1");
    assert_eq!(request.body, expected);
}

#[tokio::test]
async fn the_key_and_the_policy_are_those_of_messages() {
    let world = world(|_| {}).await;
    let refused = async |key: &str, body: Value| {
        let (status, body) = count_as(&world, key, &body).await;
        assert_eq!(body["type"], "error", "{body}");
        (status, WIRE.error_code(&body))
    };
    let error = |status, code: &str| (status, code.to_string());
    assert_eq!(
        refused("otter:wrong", uncounted()).await,
        error(401, "unauthorized")
    );
    let mut other = uncounted();
    other["model"] = json!("elsewhere/heron");
    assert_eq!(
        refused(RUNNER, other).await,
        error(403, "model_not_allowed")
    );
    let mut steers = uncounted();
    steers["api_base"] = json!("http://heron.example");
    assert_eq!(refused(RUNNER, steers).await, error(400, "field_refused"));
    let mut unknown = uncounted();
    unknown["tool_choice"] = json!({"type": "tool", "name": "no_such_tool"});
    assert_eq!(
        refused(RUNNER, unknown).await,
        error(400, "unknown_tool_choice")
    );
    assert_eq!(world.model.connections(), 0);
}

#[tokio::test]
async fn a_provider_that_does_not_count_is_an_error() {
    // It speaks OpenAI's API alone.
    let other = World::speaking(Wire::CHAT).await;
    let (status, body) = count(&other, &uncounted()).await;
    assert_eq!(
        (status, &*WIRE.error_code(&body)),
        (400, "dialect_unsupported")
    );
    assert_eq!(other.model.connections(), 0);
    // It has no such path.
    let world = world(|_| {}).await;
    let none = json!({"type": "error", "error": {"type": "not_found_error", "message": "no"}});
    world
        .model
        .will(Answer::text(404, &none.to_string()).header("content-type", "application/json"));
    assert_eq!(count(&world, &uncounted()).await, (404, none));
    assert_eq!(world.last_line()["error"], "upstream_error");
}
