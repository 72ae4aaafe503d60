//! Sessions with MCP servers: their credentials, their loss, and the end of calls in them.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;

use crate::support::mcp::{accepted, answers, events, progress, text};
use crate::support::{Answer, Files, World};

#[tokio::test]
async fn a_session_is_never_used_with_another_credential() {
    let two = |files: &mut Files| {
        files.over_mcp();
        files.tools["tools"][1]["execution"]["auth"]["token"] = json!("desk-token-0002");
    };
    World::each(two, &[], async |mut world| {
        world.desk.will_greet("s-1");
        world.desk.will(answers("result", text("1")));
        world.desk.will_greet("s-2");
        world.desk.will(answers("result", text("2")));
        world.desk.will(answers("result", text("3")));
        world.quote_mcp("A").await;
        world.call_mcp("desk__order", "A").await;
        world.quote_mcp("B").await;
        // A rotated credential counts as another one.
        world.files.tools["tools"][0]["execution"]["auth"]["token"] = json!("desk-token-0003");
        world.publish().await;
        world.desk.will_greet("s-3");
        world.desk.will(answers("result", text("4")));
        world.quote_mcp("C").await;
        let seen: Vec<_> = world
            .desk
            .requests()
            .iter()
            .filter_map(|it| {
                let token = it.header("authorization").unwrap();
                let token = token.strip_prefix("Bearer desk-token-000").unwrap();
                Some(format!("{token} in {}", it.header("mcp-session-id")?))
            })
            .collect();
        assert_eq!(
            seen,
            [
                "1 in s-1", "1 in s-1", "2 in s-2", "2 in s-2", "1 in s-1", "3 in s-3", "3 in s-3"
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn a_lost_session_is_renewed_once_and_the_call_repeated() {
    World::each(Files::over_mcp, &[], async |world| {
        world.desk.will_greet("s-1");
        world.desk.will(answers("result", text("1")));
        let lost = || {
            let error = json!({"code": -32001, "message": "Session not found"});
            let body = json!({"jsonrpc": "2.0", "id": "server-error", "error": error});
            Answer::text(404, &body.to_string()).header("content-type", "application/json")
        };
        world.desk.will(lost());
        world.desk.will_greet("s-2");
        world.desk.will(answers("result", text("2")));
        assert_eq!(world.quote_mcp("A").await["data"], 1);
        assert_eq!(world.quote_mcp("B").await["data"], 2);
        let spoken = world.desk.spoken();
        assert_eq!(
            spoken[4..],
            [
                "tools/call 2025-11-25 s-1",
                "server/discover 2026-07-28 -",
                "initialize - -",
                "notifications/initialized 2025-11-25 s-2",
                "tools/call 2025-11-25 s-2"
            ]
        );
        // Lost again at once: the call is not sent a third time.
        world.desk.will(lost());
        world.desk.will_greet("s-3");
        world.desk.will(lost());
        let result = world.quote_mcp("C").await;
        assert_eq!(result["error"]["code"], "http_404", "{result}");
        assert_eq!(world.desk.requests().len(), 14);
    })
    .await;
}

#[tokio::test]
async fn a_session_refused_with_400_is_dropped_and_the_call_not_repeated() {
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    world.desk.will_greet("s-1");
    world.desk.will(answers("result", text("1")));
    let no = json!({"code": -32000, "message": "No valid session ID provided"});
    let no = json!({"jsonrpc": "2.0", "id": "$ID", "error": no});
    world
        .desk
        .will(Answer::text(400, &no.to_string()).header("content-type", "application/json"));
    world.quote_mcp("A").await;
    let result = world.quote_mcp("B").await;
    assert_eq!(result["error"]["code"], "http_400");
    assert_eq!(result["error"]["details"]["retryable"], true);
    assert_eq!(world.desk.requests().len(), 5);
    world.desk.will_greet("s-2");
    world.desk.will(answers("result", text("2")));
    assert_eq!(world.quote_mcp("B").await["data"], 2);
}

#[tokio::test]
async fn an_answered_call_is_not_repeated_whatever_the_status() {
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    world.desk.will_greet("s-1");
    let done = json!({"jsonrpc": "2.0", "id": "$ID", "result": text("done")});
    let done = Answer::text(404, &done.to_string()).header("content-type", "application/json");
    world.desk.will(done);
    assert_eq!(world.quote_mcp("A").await["data"], "done");
    assert_eq!(world.desk.requests().len(), 4);
}

#[tokio::test]
async fn an_unrequested_session_is_ended() {
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    let no = json!({"code": -32602, "message": "Invalid request parameters"});
    world
        .desk
        .will(answers("error", no).header("mcp-session-id", "stray"));
    let old = json!({"protocolVersion": "1999-01-01"});
    world.desk.will(answers("result", old));
    world.desk.will(accepted());
    world.quote_mcp("A").await;
    world.desk.asked(3).await;
    assert_eq!(
        world.desk.spoken(),
        [
            "server/discover 2026-07-28 -",
            "initialize - -",
            "DELETE - stray"
        ]
    );
}

#[tokio::test]
async fn a_deadline_before_sending_reports_no_call() {
    let hasty = |files: &mut Files| {
        files.over_mcp();
        files.tools["policy"]["timeout_per_tool_ms"] = json!(500);
    };
    let world = World::start_with(hasty, |_| {}, &[]).await;
    world.desk.will(events(&[progress()]).never_ends());
    let result = world.quote_mcp("A").await;
    let error = &result["error"];
    assert_eq!(error["code"], "timeout", "{result}");
    assert_eq!(error["details"]["retryable"], true);
    let said = error["message"].as_str().unwrap();
    assert!(said.starts_with("desk.quote was not called"), "{said}");
    assert_eq!(world.desk.spoken(), ["server/discover 2026-07-28 -"]);
}

#[tokio::test]
async fn concurrent_calls_share_one_initialization() {
    let parallel = |files: &mut Files| {
        files.over_mcp();
        files.tools["tools"][0]["annotations"] = json!({"parallel_safe": true});
    };
    let world = World::start_with(parallel, |_| {}, &[]).await;
    world.desk.will_greet("s-1");
    for _ in 0..3 {
        world.desk.will(answers("result", text("1")));
    }
    let symbols = ["A", "B", "C"].map(|it| json!({"symbol": it}).to_string());
    let calls: Vec<_> = symbols
        .iter()
        .zip(["c1", "c2", "c3"])
        .map(|(symbol, id)| (id, "desk__quote", symbol.as_str()))
        .collect();
    world.model.will(world.wire.will_call(&calls));
    world.model.will(world.wire.will_say("done"));
    world.chat().await;
    let results = world.results();
    assert!(
        results.iter().all(|(_, it)| it["ok"] == true),
        "{results:?}"
    );
    assert_eq!(world.desk.requests().len(), 6);
}

/// The id of the last call, and that of the message that cancels it.
fn cancelled(world: &World) -> (serde_json::Value, serde_json::Value) {
    let asked = world.desk.requests();
    let of = |method: &str| {
        let mut bodies = asked.iter().rev().map(|it| it.json());
        bodies.find(|it| it["method"] == method).unwrap()
    };
    (
        of("tools/call")["id"].clone(),
        of("notifications/cancelled")["params"]["requestId"].clone(),
    )
}

#[tokio::test]
async fn progress_does_not_extend_the_deadline_and_the_call_is_cancelled() {
    World::each(Files::over_mcp, &[], async |mut world| {
        world.desk.will_greet("s-1");
        world.desk.will(answers("result", text("1")));
        world.quote_mcp("A").await;
        world.files.tools["policy"]["timeout_per_tool_ms"] = json!(500);
        world.publish().await;
        world
            .desk
            .will(events(&[progress(), progress()]).never_ends());
        world.desk.will(accepted());
        let result = world.quote_mcp("B").await;
        assert_eq!(result["error"]["code"], "timeout", "{result}");
        world.desk.asked(6).await;
        let (call, told) = cancelled(&world);
        assert_eq!(call, told);
        assert_eq!(
            world.desk.spoken()[5],
            "notifications/cancelled 2025-11-25 s-1"
        );
    })
    .await;
}

#[tokio::test]
async fn a_runner_that_hangs_up_cancels_its_call() {
    for is_stateless in [false, true] {
        let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
        let before = match is_stateless {
            true => {
                world.desk.will_discover();
                1
            }
            false => {
                world.desk.will_greet("s-1");
                3
            }
        };
        let arguments = json!({"symbol": "A"}).to_string();
        world
            .model
            .will(world.wire.will_call(&[("c1", "desk__quote", &arguments)]));
        let silence = Arc::new(Notify::new());
        world.desk.will(events(&[progress()]).never_ends());
        world.desk.will(accepted().gated(&silence));
        let request = world.request(&world.wire.chat()).send();
        let asked = world.desk.asked(before + 1);
        tokio::select! {
            answer = request => panic!("{answer:?}"),
            () = asked => {}
        }
        if is_stateless {
            // Closing the connection cancels the call.
            world.desk.hung_up(1).await;
        } else {
            world.desk.asked(before + 2).await;
            let (call, told) = cancelled(&world);
            assert_eq!(call, told);
        }
        world.turn_is_recorded().await;
    }
}
