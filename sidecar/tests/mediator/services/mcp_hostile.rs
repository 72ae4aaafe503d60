//! MCP servers that lie, flood, or request what they may not have.

use serde_json::{Value, json};

use crate::support::mcp::{accepted, answers, asks, events, message, progress, text};
use crate::support::{Answer, Fake, Files, MODEL_KEY, TOOL_TOKEN, World};

#[tokio::test]
async fn requests_of_a_server_during_a_call_are_refused_and_counted() {
    World::each(Files::over_mcp, &[], async |world| {
        world.desk.will_greet("s-1");
        let methods = [
            "sampling/createMessage",
            "elicitation/create",
            "roots/list",
            "tasks/list",
            "ping",
        ];
        let mut said: Vec<_> = methods.iter().map(|it| asks(json!(it), it)).collect();
        said.push(message("result", text("all the same")));
        world.desk.will(events(&said));
        for _ in methods {
            world.desk.will(accepted());
        }
        let result = world.quote_mcp("A").await;
        assert_eq!(result["data"], "all the same");
        let asked = world.desk.requests();
        assert_eq!(asked.len(), 4 + methods.len());
        for (told, method) in asked[4..].iter().zip(methods) {
            let told_in = told.header("mcp-session-id");
            assert_eq!(told_in, Some("s-1"));
            let told = told.json();
            assert_eq!(told["id"], method);
            let expected = match method {
                "ping" => (Value::Null, json!({})),
                _ => (json!(-32601), Value::Null),
            };
            assert_eq!(
                (told["error"]["code"].clone(), told["result"].clone()),
                expected
            );
        }
        let metrics = world.metrics().await;
        for kind in ["sampling", "elicitation", "roots", "other"] {
            let line = format!(r#"mcp_requests_refused_total{{kind="{kind}"}} 1"#);
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
        let asked = world.model.requests();
        assert_eq!(asked.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn requests_of_a_stateless_server_are_not_answered() {
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    world.desk.will_discover();
    let said = [
        asks(json!(1), "sampling/createMessage"),
        message("result", text("fine")),
    ];
    world.desk.will(events(&said));
    assert_eq!(world.quote_mcp("A").await["data"], "fine");
    assert_eq!(world.desk.requests().len(), 2);
    let metrics = world.metrics().await;
    assert!(
        metrics.contains(r#"mcp_requests_refused_total{kind="sampling"} 1"#),
        "{metrics}"
    );
}

/// Answers of a lying stateless server, and the code that the model reads.
fn lies() -> Vec<(&'static str, Answer, &'static str)> {
    let json_of = |body: Value| Answer::json(body);
    let result = |id: Value| json!({"jsonrpc": "2.0", "id": id, "result": text("forged")});
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":"$ID","result":{{"structuredContent":{}1{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let mut flood = vec![progress(); 5000];
    flood.push(message("result", text("late")));
    let mut insists = vec![asks(json!(1), "roots/list"); 17];
    insists.push(message("result", text("late")));
    let large = "x".repeat(5 * 1024 * 1024);
    let json_type = "application/json";
    vec![
        ("another id", json_of(result(json!(99_999))), "mcp_error"),
        ("its text", json_of(result(json!("2"))), "mcp_error"),
        ("no id", json_of(result(Value::Null)), "mcp_error"),
        (
            "another id in a stream",
            events(&[result(json!(99_999)), message("result", text("true"))]),
            "mcp_error",
        ),
        (
            "a batch",
            json_of(json!([message("result", text("1"))])),
            "mcp_error",
        ),
        ("a page", Answer::text(200, "<html>"), "mcp_error"),
        ("nothing", accepted(), "mcp_error"),
        ("a stream of nothing", events(&[]), "request_failed"),
        (
            "an encoding",
            answers("result", text("1")).header("content-encoding", "gzip"),
            "mcp_error",
        ),
        (
            "nesting",
            Answer::text(200, &deep).header("content-type", json_type),
            "mcp_error",
        ),
        ("a flood", events(&flood), "request_failed"),
        ("insistence", events(&insists), "mcp_error"),
        (
            "a large result",
            answers("result", text(&large)),
            "request_failed",
        ),
        (
            "a large event",
            events(&[message("result", text(&large))]),
            "request_failed",
        ),
    ]
}

#[tokio::test]
async fn an_invalid_or_oversized_answer_is_an_error() {
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    world.desk.will_discover();
    for (symbol, answer, code) in lies() {
        world.desk.will(answer);
        let result = world.quote_mcp(symbol).await;
        assert_eq!(result["error"]["code"], code, "{symbol}: {result}");
        assert!(!result.to_string().contains("forged"), "{symbol}: {result}");
    }
    // No call was sent twice, and the next honest answer is accepted.
    assert_eq!(world.desk.requests().len(), 1 + lies().len());
    world.desk.will(answers("result", text("1")));
    assert_eq!(world.quote_mcp("Z").await["data"], 1);
}

#[tokio::test]
async fn no_message_follows_a_redirect() {
    let other = Fake::start().await;
    let moved = || Answer::text(307, "moved").header("location", &other.url());
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    world.desk.will(moved());
    let result = world.quote_mcp("A").await;
    assert_eq!(result["error"]["code"], "http_307");
    world.desk.will_discover();
    world.desk.will(moved());
    let result = world.quote_mcp("B").await;
    assert_eq!(result["error"]["code"], "http_307");
    assert!(!result.to_string().contains(&other.url()), "{result}");
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn an_echoed_credential_reaches_neither_model_nor_record() {
    World::each(Files::over_mcp, &[], async |world| {
        world.desk.will_discover();
        let echo = json!({"structuredContent": {"token": TOOL_TOKEN, "fine": "text"}});
        world.desk.will(answers("result", echo));
        let result = world.quote_mcp("A").await;
        assert_eq!(
            result["data"],
            json!({"token": "[redacted]", "fine": "text"})
        );
        let said = format!("{MODEL_KEY} and {TOOL_TOKEN}");
        world.desk.will(answers("result", text(&said)));
        assert_eq!(
            world.quote_mcp("B").await["data"],
            "[redacted] and [redacted]"
        );
        let error = json!({"code": -32603, "message": format!("no {TOOL_TOKEN}")});
        world.desk.will(answers("error", error));
        let result = world.quote_mcp("C").await;
        assert_eq!(result["error"]["details"]["body"], "no [redacted]");
        let record = std::fs::read_to_string(world.history.path().join("history.jsonl")).unwrap();
        for text in [record, world.stdout.text()] {
            assert!(!text.contains(TOOL_TOKEN), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_of_an_unknown_revision_gets_no_call() {
    let cases = [
        (vec![Answer::text(503, "later")], "http_503", true),
        (vec![Answer::text(403, "no")], "http_403", false),
        (
            vec![
                Answer::text(404, "what?"),
                answers("result", json!({"protocolVersion": "1999-01-01"})),
            ],
            "mcp_error",
            false,
        ),
        (
            vec![
                Answer::text(404, "what?"),
                answers("error", json!({"code": -32603, "message": "no"})),
            ],
            "mcp_error",
            false,
        ),
        (
            vec![
                Answer::text(404, "what?"),
                answers("result", json!({"protocolVersion": "2025-11-25"}))
                    .header("mcp-session-id", "two words"),
            ],
            "mcp_error",
            false,
        ),
    ];
    for (script, code, retryable) in cases {
        let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
        script
            .into_iter()
            .for_each(|answer| world.desk.will(answer));
        let result = world.quote_mcp("A").await;
        assert_eq!(result["error"]["code"], code, "{result}");
        assert_eq!(result["error"]["details"]["retryable"], retryable);
        let said = result["error"]["message"].as_str().unwrap();
        assert!(said.starts_with("desk.quote was not called"), "{said}");
        let spoken = world.desk.spoken();
        assert!(
            !spoken.iter().any(|it| it.starts_with("tools/call")),
            "{spoken:?}"
        );
        // No grant denied it.
        let usage = world.server.app.metrics.usage.read();
        assert_eq!((usage.calls, usage.failed, usage.denied), (1, 1, 0));
    }
}
