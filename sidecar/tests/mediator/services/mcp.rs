//! Tools of an MCP server: the requests that it gets, and the results that the model reads, in
//! both revisions and in each dialect.

use serde_json::{Value, json};

use crate::support::mcp::{accepted, answers, events, message, progress, text};
use crate::support::{Answer, Fake, Files, TOOL_TOKEN, World};

#[tokio::test]
async fn each_call_of_a_stateless_server_is_complete() {
    World::each(Files::over_mcp, &[], async |world| {
        world.desk.will_discover();
        world.desk.will(answers("result", text("12")));
        world.desk.will(answers("result", text("13")));
        let result = world.quote_mcp("OTR").await;
        assert_eq!(result, json!({"ok": true, "data": 12}));
        assert_eq!(world.quote_mcp("Ü").await["data"], 13);
        let asked = world.desk.requests();
        assert_eq!(
            world.desk.spoken(),
            [
                "server/discover 2026-07-28 -",
                "tools/call 2026-07-28 -",
                "tools/call 2026-07-28 -"
            ]
        );
        let call = &asked[1];
        assert_eq!((&*call.method, &*call.target), ("POST", "/mcp"));
        for (name, value) in [
            ("mcp-method", "tools/call"),
            ("mcp-name", "quote"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("authorization", &format!("Bearer {TOOL_TOKEN}")),
            ("x-claw-id", "otter"),
        ] {
            assert_eq!(call.header(name), Some(value), "{name}");
        }
        let params = &call.json()["params"];
        assert_eq!(params["name"], "quote");
        assert_eq!(
            params["arguments"],
            json!({"symbol": "OTR", "claw_id": "otter"})
        );
        let meta = &params["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert_ne!(asked[1].json()["id"], asked[2].json()["id"]);
        // Recorded like any call, with its outcome.
        let lines = world.lines();
        let of = |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap();
        assert_eq!(of("intent")["transport"], "mcp");
        let call = &of("turn")["tool_trace"][0]["tool_calls"][0];
        assert_eq!(
            (&call["transport"], &call["service"]),
            (&json!("mcp"), &json!("desk"))
        );
        let metrics = world.metrics().await;
        assert!(
            metrics.contains(r#"tool_calls_total{tool="desk.quote",outcome="ok"} 2"#),
            "{metrics}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_server_of_the_earlier_revision_gets_one_session_which_is_ended() {
    for wire in crate::support::Wire::all() {
        let world = World::speaking_with(wire, Files::over_mcp, &[]).await;
        world.desk.will_greet("s-1");
        world.desk.will(answers("result", text("12")));
        let quick = json!({"structuredContent": {"price": 1.50}, "content": []});
        let streamed = [progress(), progress(), message("result", quick)];
        world.desk.will(events(&streamed));
        assert_eq!(world.quote_mcp("A").await, json!({"ok": true, "data": 12}));
        assert_eq!(
            world.quote_mcp("B").await,
            json!({"ok": true, "data": {"price": 1.5}})
        );
        world.desk.will(accepted());
        let World { server, desk, .. } = world;
        server.drain().await;
        assert_eq!(
            desk.spoken(),
            [
                "server/discover 2026-07-28 -",
                "initialize - -",
                "notifications/initialized 2025-11-25 s-1",
                "tools/call 2025-11-25 s-1",
                "tools/call 2025-11-25 s-1",
                "DELETE 2025-11-25 s-1"
            ]
        );
        let asked = desk.requests();
        let token = format!("Bearer {TOOL_TOKEN}");
        assert!(
            asked
                .iter()
                .all(|it| it.header("authorization") == Some(&*token))
        );
        let initialize = asked[1].json();
        assert_eq!(initialize["params"]["protocolVersion"], "2025-11-25");
        assert_eq!(initialize["params"]["capabilities"], json!({}));
        let call = asked[3].json();
        assert!(call["params"].get("_meta").is_none());
        assert_eq!(asked[3].header("mcp-method"), None);
    }
}

#[tokio::test]
async fn a_server_without_sessions_is_initialized_and_called() {
    let world = World::start_with(Files::over_mcp, |_| {}, &[]).await;
    world.desk.will_greet("");
    world.desk.will(answers("result", text("fine")));
    assert_eq!(world.quote_mcp("A").await["data"], "fine");
    assert_eq!(world.desk.spoken()[3], "tools/call 2025-11-25 -");
}

/// Has a stateless server answer so; returns the result that the model read.
async fn answered(world: &World, symbol: &str, answer: Answer) -> Value {
    if world.desk.requests().is_empty() {
        world.desk.will_discover();
    }
    world.desk.will(answer);
    world.quote_mcp(symbol).await
}

#[tokio::test]
async fn each_kind_of_answer_is_a_result_or_an_error_of_its_own() {
    World::each(Files::over_mcp, &[], async |world| {
        let failed = json!({"content": [{"type": "text", "text": "no such fish"}], "isError": true});
        let result = answered(&world, "A", answers("result", failed)).await;
        assert_eq!(result["error"]["code"], "tool_error");
        assert_eq!(result["error"]["details"]["body"], "no such fish");

        let image = json!({"content": [{"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "resource_link", "uri": "http://169.254.169.254/", "name": "more"}]});
        let result = answered(&world, "B", answers("result", image)).await;
        assert_eq!(
            result["data"],
            "[image/png, 5 bytes]\n[more: http://169.254.169.254/]"
        );

        let unknown = json!({"code": -32602, "message": "Unknown tool: quote"});
        let refused = Answer::text(400, &message("error", unknown).to_string())
            .header("content-type", "application/json");
        let result = answered(&world, "C", refused).await;
        let error = &result["error"];
        assert_eq!(error["code"], "mcp_error");
        let said = error["message"].as_str().unwrap();
        assert!(said.ends_with("changed since review"), "{said}");
        assert_eq!(error["details"]["body"], "Unknown tool: quote");
        assert_eq!(error["details"]["rpc_code"], -32602);
        assert_eq!(error["details"]["retryable"], false);

        let internal = json!({"code": -32603, "message": "boom"});
        let result = answered(&world, "D", answers("error", internal)).await;
        assert_eq!(result["error"]["code"], "mcp_error");
        assert_eq!(result["error"]["details"]["rpc_code"], -32603);

        let result = answered(&world, "E", Answer::text(503, "later")).await;
        assert_eq!(result["error"]["code"], "http_503");
        assert_eq!(result["error"]["details"]["retryable"], true);

        for (symbol, odd) in [
            ("F", json!({"resultType": "input_required", "inputRequests": {}})),
            ("G", json!({"resultType": "task", "taskId": "t"})),
            ("H", json!([])),
        ] {
            let result = answered(&world, symbol, answers("result", odd)).await;
            assert_eq!(result["error"]["code"], "mcp_error", "{result}");
        }
        let long = json!({"structuredContent": {"text": "ü".repeat(300)}});
        let result = answered(&world, "I", answers("result", long)).await;
        assert_eq!(result["truncated"], true);
        assert_eq!(result["original_bytes"], 611);
        assert_eq!(result["data"].as_str().unwrap().len(), 399);
    })
    .await;
}

#[tokio::test]
async fn structured_results_match_the_reviewed_schema_or_fail() {
    let reviewed = |files: &mut Files| {
        files.over_mcp();
        files.tools["tools"][0]["x-toolcrib"]["output_schema"] = json!({"type": "object",
            "required": ["price"], "properties": {"price": {"type": "number"}},
            "additionalProperties": false});
    };
    let world = World::start_with(reviewed, |_| {}, &[]).await;
    let fine = json!({"structuredContent": {"price": 12.5}});
    let result = answered(&world, "A", answers("result", fine)).await;
    assert_eq!(result["data"]["price"], 12.5);
    let failed = json!({"content": [], "isError": true});
    let result = answered(&world, "B", answers("result", failed)).await;
    assert_eq!(result["error"]["code"], "tool_error");
    for (symbol, other) in [
        ("C", json!({"structuredContent": {"price": "12"}})),
        (
            "D",
            json!({"structuredContent": {"price": 1, (TOOL_TOKEN): 2}}),
        ),
        ("E", text("12.5")),
    ] {
        let result = answered(&world, symbol, answers("result", other)).await;
        assert_eq!(result["error"]["code"], "mcp_error", "{result}");
        let said = result["error"]["message"].as_str().unwrap();
        assert!(said.contains("changed since review"), "{said}");
        assert!(!said.contains(TOOL_TOKEN), "{said}");
    }
}

#[tokio::test]
async fn marked_arguments_are_headers_in_stateless_calls_only() {
    let marked = |files: &mut Files| {
        files.over_mcp();
        let symbol = &mut files.tools["tools"][0]["inputSchema"]["properties"]["symbol"];
        symbol["x-mcp-header"] = json!("Symbol");
    };
    let world = World::start_with(marked, |_| {}, &[]).await;
    answered(&world, "é", answers("result", text("1"))).await;
    let call = &world.desk.requests()[1];
    assert_eq!(call.header("mcp-param-symbol"), Some("=?base64?w6k=?="));
    let world = World::start_with(marked, |_| {}, &[]).await;
    world.desk.will_greet("s-1");
    world.desk.will(answers("result", text("1")));
    world.quote_mcp("A").await;
    assert_eq!(world.desk.requests()[3].header("mcp-param-symbol"), None);
}

#[tokio::test]
async fn mcp_servers_get_issued_tokens_and_a_refused_one_is_renewed() {
    let issuer = Fake::start().await;
    let auth = json!({"type": "oauth", "token_url": format!("{}/token", issuer.url()),
        "client_id": "otter", "client_secret": "client-s3cret",
        "resource": "https://desk.test/mcp"});
    let oauth = |files: &mut Files| {
        files.over_mcp();
        files.tools["tools"][0]["execution"]["auth"] = auth;
    };
    let world = World::start_with(oauth, |_| {}, &[]).await;
    for token in ["access-token-one", "access-token-two"] {
        issuer.will(Answer::json(
            json!({"access_token": token, "token_type": "Bearer", "expires_in": 600}),
        ));
    }
    world.desk.will_greet("s-1");
    world.desk.will(answers("result", text("1")));
    world.desk.will(Answer::text(401, "who?"));
    // Another token is another credential: the earlier session is not used.
    world.desk.will_greet("s-2");
    world
        .desk
        .will(answers("result", text("access-token-two is yours")));
    assert_eq!(world.quote_mcp("A").await["data"], 1);
    let refused = world.quote_mcp("B").await;
    assert_eq!(refused["error"]["code"], "http_401");
    assert_eq!(refused["error"]["details"]["retryable"], true);
    assert_eq!(world.quote_mcp("B").await["data"], "[redacted] is yours");
    let asked = world.desk.requests();
    let bearer = |at: usize| asked[at].header("authorization").unwrap().to_string();
    for at in 0..5 {
        assert_eq!(bearer(at), "Bearer access-token-one");
    }
    for at in 5..9 {
        assert_eq!(bearer(at), "Bearer access-token-two");
    }
    assert_eq!(world.desk.spoken()[8], "tools/call 2025-11-25 s-2");
    let asked = issuer.requests();
    assert_eq!(asked.len(), 2);
    let form = std::str::from_utf8(&asked[0].body).unwrap();
    assert!(
        form.contains("resource=https%3A%2F%2Fdesk.test%2Fmcp"),
        "{form}"
    );
}
