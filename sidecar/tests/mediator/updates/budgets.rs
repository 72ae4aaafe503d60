//! Budgets of calls and tokens: what they refuse, what they count, and what outlives a restart.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_sidecar::app::budgets::BudgetStore;

use super::link::linked_by;
use crate::support::{Answer, Fake, Files, World, chat, until, within};

const QUOTE: &str = r#"{"symbol":"OTR"}"#;
/// Tokens of a reply with a call, and of one with text.
const CALLING: u64 = 13;
const SAYING: u64 = 25;

fn budget(unit: &str, limit: u64) -> Value {
    // A month: the test is over before the next one, or begins in it.
    json!({"unit": unit, "limit": limit, "per": "Month"})
}

fn limited(unit: &'static str, limit: u64) -> impl Fn(&mut Files) {
    move |files| {
        files.agent["budgets"] = json!([budget(unit, limit)]);
        files.agent["requires"] = json!(["budgets/1"]);
    }
}

/// What this pod has used of the one budget.
fn used(world: &World) -> u64 {
    let app = &world.server.app;
    let version = app.current.now().version().unwrap().clone();
    let used = app
        .budgets
        .counts()
        .own(&version.agent.budgets, jiff::Timestamp::now());
    assert_eq!(used.len(), 1, "{used:?}");
    used[0].used
}

#[tokio::test]
async fn the_turn_in_which_the_tokens_end_gets_one_more_reply_and_the_next_request_none() {
    World::each(limited("Tokens", CALLING), &[], async |mut world| {
        let wire = world.wire;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
        world.desk.will(Answer::json(json!({"price": 1})));
        world.model.will(wire.will_say("It is 1."));
        let answer = world.chat().await;
        assert_eq!(wire.text(&answer), "It is 1.");
        let asked = world.model.requests()[1].json();
        assert_eq!(asked["tool_choice"], wire.no_more_calls());
        assert_eq!(used(&world), CALLING + SAYING);

        for restarts in 0..2 {
            let refused = within("a refusal", world.request(&wire.chat()).send())
                .await
                .unwrap();
            assert_eq!(refused.status(), 429);
            // The month is not over soon, so clients must not wait and try again.
            let retry = refused.headers().get("x-should-retry").cloned();
            assert!(refused.headers().get("retry-after").is_none());
            assert_eq!(retry.unwrap(), "false");
            let body: Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
            assert_eq!(wire.error_code(&body), "quota_exhausted");
            let text = body.to_string();
            assert!(
                text.contains("the budget of 13 tokens per month is used up"),
                "{text}"
            );
            assert_eq!(world.last_line()["error"], "quota_exhausted");
            assert_eq!(world.model.requests().len(), 2);
            if restarts == 0 {
                world = world.restart().await;
                world.wire = wire;
            }
        }
        // A higher budget counts what was used.
        world.files.agent["budgets"] = json!([budget("Tokens", CALLING + SAYING + 1)]);
        world.publish().await;
        world.model.will(wire.will_say("Here."));
        world.chat().await;
        assert_eq!(world.ask(wire.chat()).await.0, 429);
    })
    .await;
}

#[tokio::test]
async fn a_call_in_the_last_reply_ends_the_turn_with_the_budgets_error() {
    World::each(limited("Tokens", CALLING), &[], async |world| {
        let wire = world.wire;
        let call = [("c1", "desk__quote", QUOTE)];
        world.model.will(wire.will_call(&call));
        world.desk.will(Answer::json(json!({"price": 1})));
        world.model.will(wire.will_call(&call));
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!((status, &*wire.error_code(&body)), (429, "quota_exhausted"));
        assert_eq!(world.desk.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_agent_without_tools_is_refused_too_and_may_count_tokens() {
    let edit = |files: &mut Files| {
        files.no_tools();
        limited("Tokens", SAYING)(files);
    };
    World::each(edit, &[], async |world| {
        let wire = world.wire;
        let mut streamed = wire.chat();
        streamed["stream"] = json!(true);
        world
            .model
            .will(wire.will_stream("r1", (&["On", "e"], &[])));
        assert_eq!(world.ask(streamed).await.0, 200);
        assert_eq!(used(&world), SAYING);
        let refused = within("a refusal", world.request(&wire.chat()).send())
            .await
            .unwrap();
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["x-should-retry"], "false");
        assert_eq!(world.last_line()["error"], "quota_exhausted");
        assert_eq!(world.model.requests().len(), 1);
    })
    .await;
    let edit = |files: &mut Files| {
        files.speak(toolcrib_dialect::Dialect::AnthropicMessages);
        limited("Tokens", 0)(files);
    };
    let world = World::start_with(edit, |_| {}, &[]).await;
    world.model.will(Answer::json(json!({"input_tokens": 9})));
    let asked = json!({"model": "otter-1", "messages": [{"role": "user", "content": "hi"}]});
    let count = world
        .runner
        .post(world.url("/v1/messages/count_tokens"))
        .header("x-api-key", crate::support::RUNNER)
        .header("anthropic-version", "2023-06-01")
        .header("content-type", "application/json")
        .body(asked.to_string());
    assert_eq!(within("a count", count.send()).await.unwrap().status(), 200);
    assert_eq!(used(&world), 0);
}

/// A program that disconnects before the provider reports its usage pays for the tokens.
#[tokio::test]
async fn an_interrupted_reply_counts_by_its_bytes() {
    for has_tools in [true, false] {
        let edit = |files: &mut Files| {
            files.agent["streaming"] = json!("Live");
            if !has_tools {
                files.no_tools();
            }
            limited("Tokens", 1_000_000)(files);
        };
        World::each(edit, &[], async |world| {
            let wire = world.wire;
            let never = Arc::new(Notify::new());
            let long = "word ".repeat(200);
            let frames = wire.stream("r1", (&["On", &long, "e"], &[]));
            let at = frames.iter().position(|it| it.contains("\"e\"")).unwrap();
            let answer = wire.will_stream("r1", (&["On", &long, "e"], &[]));
            world.model.will(answer.paused(at, &never));
            let mut request = wire.chat();
            request["stream"] = json!(true);
            let mut response = within("an answer", world.request(&request).send())
                .await
                .unwrap();
            let mut heard = String::new();
            while !heard.contains("word word") {
                let chunk = within("a chunk", response.chunk()).await.unwrap().unwrap();
                heard.push_str(&String::from_utf8_lossy(&chunk));
            }
            drop(response);
            world.turn_is_recorded().await;
            let tokens = used(&world);
            assert!((250..1_000).contains(&tokens), "{tokens}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_provider_that_fails_costs_nothing_and_one_that_reports_nothing_costs_its_bytes() {
    World::each(limited("Tokens", 1_000), &[], async |world| {
        let wire = world.wire;
        world.model.will(Answer::text(400, "{}"));
        assert_eq!(world.ask(wire.chat()).await.0, 400);
        assert_eq!(used(&world), 0);
        let mut said = wire.says("hello");
        said.as_object_mut().unwrap().remove("usage");
        let bytes = said.to_string().len() as u64;
        world.model.will(Answer::json(said));
        world.chat().await;
        let asked = world.model.requests().pop().unwrap().body.len() as u64;
        assert_eq!(used(&world), (asked + bytes).div_ceil(4));
    })
    .await;
}

#[tokio::test]
async fn calls_are_counted_for_models_and_mcp_clients_alike() {
    let edit = |files: &mut Files| {
        files.agent["native"] = json!(true);
        limited("Calls", 3)(files);
    };
    let world = World::start_with(edit, |_| {}, &[]).await;
    let two = [
        ("c1", "desk__quote", QUOTE),
        ("c2", "desk__quote", r#"{"symbol":"EEL"}"#),
    ];
    world.model.will(world.wire.will_call(&two));
    world.desk.will(Answer::json(json!({"price": 1})));
    // One that fails was sent, so it counts.
    world.desk.will(Answer::text(500, ""));
    world.model.will(world.wire.will_say("done"));
    world.chat().await;
    let session = world.greeted().await;
    world.desk.will(Answer::json(json!({"price": 2})));
    // A wrong call is not sent, and does not count.
    let (_, is_error) = session.call("desk__quote", json!({})).await;
    assert!(is_error);
    let (_, is_error) = session.call("desk__quote", json!({"symbol": "OTR"})).await;
    assert!(!is_error);
    let (result, is_error) = session.call("desk__quote", json!({"symbol": "OTR"})).await;
    assert!(is_error);
    assert_eq!(result["error"]["code"], "quota_exhausted");
    world.model.will(world.wire.will_call(&two[..1]));
    world.model.will(world.wire.will_say("not now"));
    world.chat().await;
    let error = world.result()["error"].clone();
    assert_eq!(error["code"], "quota_exhausted");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("the budget of 3 calls per month is used up"),
        "{message}"
    );
    assert!(error["details"]["retry_after_s"].as_u64().unwrap() > 0);
    assert_eq!(error["details"]["retryable"], true);
    assert_eq!(world.desk.requests().len(), 3);
    let denied = r#"_tool_calls_total{tool="desk.quote",outcome="quota_exhausted"} 2"#;
    let metrics = world.metrics().await;
    assert!(metrics.contains(denied), "{metrics}");
    let session = world.greeted().await;
    // A tool that is not granted is refused as such.
    let (result, _) = session.call("desk__sell", json!({})).await;
    assert_ne!(result["error"]["code"], "quota_exhausted");
}

#[tokio::test]
async fn a_call_or_request_whose_count_cannot_be_written_is_refused() {
    let edit = |files: &mut Files| {
        files.agent["budgets"] = json!([budget("Calls", 9), budget("Tokens", 1_000)]);
    };
    let world = World::start_with(edit, |_| {}, &[]).await;
    let file = world.history.path().join("budgets.jsonl");
    // A folder of that name can be neither written nor replaced.
    std::fs::create_dir_all(file.join("in the way")).unwrap();
    world
        .model
        .will(world.wire.will_call(&[("c1", "desk__quote", QUOTE)]));
    let (status, body) = world.ask(chat()).await;
    // The tokens of the first reply could not be written, so the model is not asked again.
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("record_unavailable"))
    );
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(world.ask(chat()).await.0, 503);
    assert_eq!(world.model.requests().len(), 1);
    assert!(BudgetStore::open(world.history.path(), jiff::Timestamp::now()).is_err());
    std::fs::remove_dir_all(&file).unwrap();
    world.model.will(world.wire.will_say("here"));
    world.chat().await;
}

/// The link carries what this pod has used up, and what the other pods have.
#[tokio::test]
async fn other_pods_count_and_this_one_is_reported() {
    let operator = Fake::start().await;
    let month = {
        let now = jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date();
        format!("{}T00:00:00Z", now.first_of_month())
    };
    let used = |used: u64| json!({"unit": "Tokens", "per": "Month", "since": month, "used": used});
    let answer = |seq: u64, others: u64| {
        Answer::json(json!({"seq": seq, "agent": "Present", "budgets": [used(others)]}))
    };
    let never = Arc::new(Notify::new());
    let gate = Arc::new(Notify::new());
    operator.will(answer(1, 60));
    operator.will(answer(2, 90).gated(&gate));
    operator.will(answer(2, 90).gated(&never));
    let (world, _token) = linked_by(&operator, limited("Tokens", 100)).await;
    world.until(|now| now.seen == 1).await;
    operator.asked(2).await;
    world.model.will(world.wire.will_say("here"));
    world.chat().await;
    // 25 here and 60 elsewhere: there is room for another request.
    world.model.will(world.wire.will_say("here"));
    world.chat().await;
    assert_eq!(world.ask(chat()).await.0, 429);
    gate.notify_one();
    until("a report of what was used", || {
        let report = operator.requests().last()?.json();
        (report["budgets"] == json!([used(2 * SAYING)])).then_some(())
    })
    .await;
    let first = operator.requests()[0].json();
    assert_eq!(first["budgets"], json!([used(0)]));
    // More often than without budgets: the others wait for what this pod has used.
    assert_eq!(first["hold_ms"], 7_000);
}
