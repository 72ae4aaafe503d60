//! Native mode: the tools that a client of `/mcp` sees and calls, and the record of its calls.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::native::{answered, names, read};
use crate::support::{Answer, RUNNER, TOOL_TOKEN, Wire, World, calls, chat, says, until, within};

#[tokio::test]
async fn a_client_sees_exactly_the_granted_tools_and_calls_them_with_their_credential() {
    let world = World::native().await;
    let session = world.greeted().await;
    let (status, listed) = session.ask("tools/list", json!({})).await;
    assert_eq!(status, 200);
    let [quote, order] = &listed["result"]["tools"].as_array().unwrap()[..] else {
        panic!("{listed}");
    };
    assert_eq!(
        *quote,
        json!({
            "name": "desk__quote", "title": "desk.quote", "description": "A price",
            "inputSchema": {"type": "object", "required": ["symbol"],
                "properties": {"symbol": {"type": "string"}}},
            "annotations": {"readOnlyHint": true, "idempotentHint": false},
        })
    );
    assert_eq!(order["name"], "desk__order");
    assert_eq!(order["annotations"]["readOnlyHint"], false);
    let text = listed.to_string();
    for hidden in [TOOL_TOKEN, &world.desk.url(), "desk-readers", "claw_id"] {
        assert!(!text.contains(hidden), "{hidden}");
    }

    world.desk.will(Answer::json(json!({"price": 3})));
    let called = session.call("desk__quote", json!({"symbol": "OTR"})).await;
    let expected = json!({"ok": true, "status_code": 200, "data": {"price": 3}});
    assert_eq!(called, (expected, false));
    let request = &world.desk.requests()[0];
    assert!(request.target.starts_with("/quotes/OTR"), "{request:?}");
    let bearer = format!("Bearer {TOOL_TOKEN}");
    assert_eq!(request.header("authorization"), Some(bearer.as_str()));
    assert_eq!(request.header("x-claw-id"), Some("otter"));

    // The canonical name is accepted, too.
    world.desk.will(Answer::text(404, "no such symbol"));
    let (result, is_error) = session.call("desk.quote", json!({"symbol": "X"})).await;
    assert_eq!(result["error"]["code"], "http_404");
    assert!(is_error);
}

/// The record has the same form for both paths.
#[tokio::test]
async fn native_and_mediated_calls_have_the_same_record() {
    let world = World::native().await;
    let price = || Answer::json(json!({"price": 3}));
    world.desk.will(price());
    let session = world.greeted().await;
    session.call("desk__quote", json!({"symbol": "OTR"})).await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"OTR"}"#,
    )])));
    world.desk.will(price());
    world.model.will(Answer::json(says("three")));
    world.chat().await;

    let mut lines = world.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (at, line) in lines.iter_mut().enumerate() {
        let path = line.as_object_mut().unwrap().remove("path");
        let expected = (at < 2).then(|| json!("native"));
        assert_eq!(path, expected, "{line}");
        let line = line.as_object_mut().unwrap();
        for own in ["request_id", "timestamp", "seq", "prev"] {
            assert!(line.remove(own).is_some(), "{own}");
        }
        // The chain's members of one of the two lines, or of the lines after a model call.
        for own in ["call_id", "duration_ms", "aside"] {
            line.remove(own);
        }
    }
    assert_eq!(lines[0], lines[2], "the write-ahead lines");
    let (native, mediated) = (&mut lines[1].clone(), &mut lines[3].clone());
    assert_eq!(native["request"]["method"], "tools/call");
    assert_eq!(native["response"]["result"]["isError"], false);
    for line in [&mut *native, &mut *mediated] {
        let line = line.as_object_mut().unwrap();
        // Fields of a turn that a direct call does not have.
        for of_the_model in ["model", "key", "usage", "dialect", "request", "response"] {
            line.remove(of_the_model);
        }
        let round = &mut line["tool_trace"][0];
        assert!(round["tool_calls"][0]["call_id"].take().is_string());
        assert!(round["round_usage"].take().is_object());
        assert!(round["received_ms"].take().is_u64());
        assert!(round["tool_calls"][0]["latency_ms"].take().is_u64());
    }
    assert_eq!(native, mediated);
}

/// The list is empty by then, so the call's name is all that tells which tool it was.
#[tokio::test]
async fn a_call_of_a_withdrawn_tool_is_denied_under_its_own_name() {
    let mut world = World::native().await;
    let name = world.greeted().await.name;
    let (_, listed) = world.session(&name).ask("tools/list", json!({})).await;
    assert_eq!(names(&listed["result"]), ["desk__quote", "desk__order"]);
    world.files.no_tools();
    world.publish().await;
    let arguments = json!({"symbol": "OTR"});
    let called = world.session(&name).call("desk__order", arguments).await;
    assert_eq!(called.0["error"]["code"], "permission_denied");
    let line = world.last_line();
    let call = &line["tool_trace"][0]["tool_calls"][0];
    assert_eq!(
        (&call["name"], &call["executed"]),
        (&json!("desk.order"), &json!(false))
    );
    let count = r#"_tool_calls_total{tool="desk.order",outcome="permission_denied"} 1"#;
    let metrics = world.metrics().await;
    assert!(metrics.contains(count), "{metrics}");
}

#[tokio::test]
async fn without_a_session_each_request_names_method_and_revision() {
    let world = World::native().await;
    let (status, found) = answered(world.stateless("server/discover", json!({}))).await;
    assert_eq!(status, 200, "{found}");
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        found["result"]["capabilities"],
        json!({"tools": {"listChanged": true}})
    );
    let (_, listed) = answered(world.stateless("tools/list", json!({}))).await;
    assert_eq!(names(&listed["result"]), ["desk__quote", "desk__order"]);
    assert_eq!(listed["result"]["resultType"], "complete");

    world.desk.will(Answer::json(json!({"price": 3})));
    let call = || json!({"name": "desk__quote", "arguments": {"symbol": "OTR"}});
    let (status, called) = answered(world.stateless("tools/call", call())).await;
    assert_eq!(status, 200, "{called}");
    assert_eq!(read(&called["result"]).0["data"], json!({"price": 3}));

    let other = world.stateless("tools/call", call());
    let (status, refused) = answered(other.header("mcp-name", "desk__order")).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32020)));
    let newer = world.stateless("tools/list", json!({}));
    let newer = newer.header("mcp-protocol-version", "2031-01-01");
    assert_eq!(answered(newer).await.0, 400);
    assert_eq!(world.desk.requests().len(), 1);
}

/// Marked arguments are headers, too, and a call whose headers differ does not run.
#[tokio::test]
async fn a_marked_argument_must_equal_its_header() {
    let world = World::start_with(
        |files| {
            files.agent["native"] = json!(true);
            let schema = &mut files.tools["tools"][0]["inputSchema"];
            schema["properties"]["symbol"]["x-mcp-header"] = json!("Symbol");
        },
        |_| {},
        &[],
    )
    .await;
    let call = || {
        let params = json!({"name": "desk__quote", "arguments": {"symbol": "OTR"}});
        world.stateless("tools/call", params)
    };
    for refused in [call(), call().header("mcp-param-symbol", "OWL")] {
        let (status, answer) = answered(refused).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)));
    }
    world.desk.will(Answer::json(json!({"price": 3})));
    let right = call().header("mcp-param-symbol", "OTR");
    let (_, answer) = answered(right).await;
    assert!(!read(&answer["result"]).1);
}

#[tokio::test]
async fn a_denied_call_is_a_result_with_the_reason() {
    let world = World::start_with(
        |files| {
            files.agent["native"] = json!(true);
            files.tools["tools"][1]["x-toolcrib"]["tier"] = json!("Elevated");
        },
        |_| {},
        &[],
    )
    .await;
    let session = world.greeted().await;
    for (name, arguments, code) in [
        ("desk__quote", json!({"symbol": 7}), "schema_validation"),
        ("desk__quote", json!([]), "invalid_arguments"),
        ("desk__order", json!({}), "permission_denied"),
        ("desk__sell", json!({}), "permission_denied"),
    ] {
        let (result, is_error) = session.call(name, arguments).await;
        assert_eq!((&result["error"]["code"], is_error), (&json!(code), true));
    }
    assert_eq!(world.desk.connections(), 0);
    let kinds: Vec<Value> = world.lines().iter().map(|it| it["kind"].clone()).collect();
    assert_eq!(kinds, ["turn"; 4]);
    let metrics = world.metrics().await;
    let denied =
        r#"toolcrib_mediator_tool_calls_total{tool="desk.order",outcome="permission_denied"} 1"#;
    assert!(metrics.contains(denied), "{metrics}");
    assert!(!metrics.contains("desk__sell"), "{metrics}");
}

#[tokio::test]
async fn unauthorized_clients_get_one_answer_and_cause_no_request() {
    let world = World::native().await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let mut heard = BTreeSet::new();
    for token in ["", "otter:wrong", "heron:runner-secret"] {
        let request = world.runner.post(world.url("/mcp")).bearer_auth(token);
        heard.insert(answered(request.body(list.to_string())).await.1.to_string());
        let stream = world.runner.get(world.url("/mcp")).bearer_auth(token);
        assert_eq!(answered(stream).await.0, 401);
        let end = world.runner.delete(world.url("/mcp")).bearer_auth(token);
        assert_eq!(answered(end).await.0, 401);
    }
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard.first().unwrap().contains("unauthorized"));
    let metrics = world.metrics().await;
    for counted in [
        r#"toolcrib_mediator_requests_total{dialect="mcp",status="401"} 9"#,
        "toolcrib_mediator_unauthorized_total 9",
    ] {
        assert!(metrics.contains(counted), "{counted}\n{metrics}");
    }
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_request_from_a_web_page_is_refused() {
    let world = World::native().await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
    for (name, value) in [("origin", "https://evil.test"), ("host", "evil.test")] {
        let request = world.message(&list).header(name, value);
        assert_eq!(answered(request).await.0, 403, "{name}");
    }
}

#[tokio::test]
async fn a_mediated_agent_has_no_mcp_endpoint() {
    let world = World::start().await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let (status, answer) = answered(world.message(&list)).await;
    assert_eq!(status, 404);
    let text = answer["error"]["message"].as_str().unwrap();
    assert!(text.contains("mode: Native"), "{text}");
    let wrong = world.runner.post(world.url("/mcp")).bearer_auth("otter:no");
    assert_eq!(answered(wrong).await.0, 401);
}

#[tokio::test]
async fn in_native_mode_model_requests_pass_unchanged() {
    let world = World::start_with(|files| files.agent["mode"] = json!("Native"), |_| {}, &[]).await;
    world.model.will(Answer::json(says("hello")));
    world.chat().await;
    let mut expected = chat();
    expected["model"] = json!("otter-1");
    assert_eq!(world.model.requests()[0].json(), expected);
    let session = world.greeted().await;
    assert_eq!(session.names().await, ["desk__quote", "desk__order"]);
    world.desk.will(Answer::json(json!({"price": 3})));
    let (_, is_error) = session.call("desk__quote", json!({"symbol": "OTR"})).await;
    assert!(!is_error);
    assert_eq!(world.wire.0, Wire::CHAT.0);
}

#[tokio::test]
async fn a_credential_that_a_service_echoes_reaches_neither_client_nor_record() {
    let world = World::native().await;
    let session = world.greeted().await;
    let echo = format!("you sent Bearer {TOOL_TOKEN}");
    world.desk.will(Answer::json(json!({"echo": echo})));
    let (result, _) = session.call("desk__quote", json!({"symbol": "OTR"})).await;
    assert_eq!(result["data"]["echo"], "you sent Bearer [redacted]");
    let record = world
        .lines()
        .iter()
        .map(Value::to_string)
        .collect::<String>();
    assert!(!record.contains(TOOL_TOKEN), "{record}");
}

#[tokio::test]
async fn an_invalid_message_is_refused_as_the_protocol_requires() {
    let world = World::native().await;
    let session = world.greeted().await;
    let nested = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#,
        "a".repeat(1 << 20)
    );
    let request = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
    };
    for (body, status, code) in [
        ("{".to_string(), 400, -32700),
        ("\u{0}".to_string(), 400, -32700),
        (nested, 400, -32700),
        ("[]".to_string(), 400, -32600),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.to_string(),
            400,
            -32600,
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_string(),
            400,
            -32600,
        ),
        (long, 400, -32000),
        (request("prompts/list", "{}"), 200, -32601),
        (
            request("resources/read", r#"{"uri":"file:///etc/passwd"}"#),
            200,
            -32601,
        ),
        (request("logging/setLevel", "{}"), 200, -32601),
        (request("tools/list", r#"{"cursor":"7"}"#), 200, -32602),
        (request("tools/call", "[]"), 200, -32602),
        (request("tools/call", r#"{"name":7}"#), 200, -32602),
        (
            request(
                "tools/call",
                r#"{"name":"desk__quote","name":"desk__order"}"#,
            ),
            200,
            -32602,
        ),
        (
            request("tools/call", r#"{"name":"desk__quote","task":{}}"#),
            200,
            -32602,
        ),
    ] {
        let message = session.with(&json!({})).body(body.clone());
        let (seen, answer) = answered(message).await;
        let shown = &body[..body.len().min(80)];
        assert_eq!(
            (seen, &answer["error"]["code"]),
            (status, &json!(code)),
            "{shown}"
        );
    }
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(session.ask("ping", json!({})).await.1["result"], json!({}));
}

#[tokio::test]
async fn the_earlier_token_is_accepted_while_it_is_listed() {
    let mut world = World::native().await;
    let session = world.greeted().await.name;
    let tokens = world.files.agent["tokens"].as_array_mut().unwrap();
    let other = crate::support::hash("otter:newer");
    tokens.insert(0, json!({"id": "t2", "sha256": other}));
    world.publish().await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let ask = |token: &str| {
        let request = world.runner.post(world.url("/mcp")).bearer_auth(token);
        request
            .header("mcp-session-id", &session)
            .body(list.to_string())
    };
    assert_eq!(answered(ask(RUNNER)).await.0, 200);
    assert_eq!(answered(ask("otter:newer")).await.0, 200);
    world.files.agent["tokens"].as_array_mut().unwrap().pop();
    world.publish().await;
    let ask = |token: &str| world.runner.post(world.url("/mcp")).bearer_auth(token);
    assert_eq!(answered(ask(RUNNER)).await.0, 401);
}

#[tokio::test]
async fn a_native_call_is_counted_and_logged_like_a_mediated_one() {
    let world = World::native().await;
    let session = world.greeted().await;
    world.desk.will(Answer::json(json!({})));
    session.call("desk__order", json!({"symbol": "A"})).await;
    let metrics = world.metrics().await;
    for counted in [
        r#"toolcrib_mediator_requests_total{dialect="mcp",status="200"} 2"#,
        r#"toolcrib_mediator_tool_calls_total{tool="desk.order",outcome="ok"} 1"#,
        "toolcrib_mediator_rounds_total 0",
    ] {
        assert!(metrics.contains(counted), "{counted}\n{metrics}");
    }
    let printed = || {
        world
            .stdout
            .text()
            .contains(r#""path":"native""#)
            .then_some(())
    };
    within("stdout", until("stdout", printed)).await;
}
