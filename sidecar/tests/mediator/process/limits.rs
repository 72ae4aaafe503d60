//! The resources that any client of the port can use, and shutdown.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::process::binary::Mediator;
use toolcrib_sidecar::app::Limits;

use crate::support::{Answer, Files, POLL, RUNNER, Wire, World, says, until, within};

async fn connect(world: &World) -> TcpStream {
    within("a connection", TcpStream::connect(world.server.address))
        .await
        .unwrap()
}

/// Reads until the other side closes; an abort counts as closing.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // Err: reset, which closes the connection too.
    within("a close", stream.read_to_end(&mut bytes)).await.ok();
    String::from_utf8(bytes).unwrap()
}

async fn health(world: &World) -> u16 {
    let url = format!("http://{}/healthz", world.server.admin_address);
    let response = within("health", world.runner.get(url).send()).await;
    response.unwrap().status().as_u16()
}

#[tokio::test]
async fn fifty_malformed_tokens_get_one_401_and_no_connection() {
    let mut malformed: Vec<String> = vec![
        String::new(),
        "Bearer".into(),
        "Bearer ".into(),
        "bearer\tx".into(),
        "Basic b3R0ZXI6cnVubmVyLXNlY3JldA==".into(),
        "Digest username=\"otter\"".into(),
        RUNNER.into(),
        format!("Bearer {RUNNER},{RUNNER}"),
        format!("Bearer {RUNNER}, Bearer {RUNNER}"),
        format!("Token {RUNNER}"),
        format!("Bearer \"{RUNNER}\""),
        format!("Bearer {}", RUNNER.to_uppercase()),
        format!("Bearer {}", RUNNER.replace(':', "%3A")),
        "Bearer null".into(),
        "Bearer undefined".into(),
        format!("Bearer {}", "x".repeat(30_000)),
    ];
    // Every prefix, and every replacement of a single character.
    for at in 1..RUNNER.len() {
        malformed.push(format!("Bearer {}", &RUNNER[..at]));
        let mut other = RUNNER.as_bytes().to_vec();
        other[at] ^= 1;
        malformed.push(format!("Bearer {}", String::from_utf8(other).unwrap()));
    }
    assert!(malformed.len() >= 50);
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let mut seen = Vec::new();
        for value in &malformed {
            let request = world
                .runner
                .post(world.url(&format!("/v1{}", wire.0.resource())))
                .header("authorization", value)
                .body(wire.chat().to_string());
            let response = within("an answer", request.send()).await.unwrap();
            let head: Vec<_> = response
                .headers()
                .iter()
                .filter(|(name, _)| *name != "date")
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect();
            let status = response.status().as_u16();
            seen.push((
                status,
                head,
                within("a body", response.text()).await.unwrap(),
            ));
        }
        seen.dedup();
        let [(401, _, body)] = &seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(
            wire.error_code(&serde_json::from_str(body).unwrap()),
            "unauthorized"
        );
        assert_eq!(
            (world.model.connections(), world.desk.connections()),
            (0, 0)
        );
        assert!(world.lines().is_empty());
    }
}

#[tokio::test]
async fn connections_are_bounded_and_health_checks_are_exempt() {
    let world = World::start_with(|_| {}, |limits| limits.connections.connections = 4, &[]).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(connect(&world).await);
    }
    for _ in 0..20 {
        let mut refused = connect(&world).await;
        let text = rest(&mut refused).await;
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert!(text.contains(r#""code":"overloaded""#), "{text}");
        assert_eq!(health(&world).await, 200);
    }
    // A released connection makes room for another.
    open.pop();
    within("room", async {
        loop {
            let mut next = connect(&world).await;
            next.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                .await
                .ok();
            if rest(&mut next).await.starts_with("HTTP/1.1 404 ") {
                break;
            }
        }
    })
    .await;
}

/// With managed tools, a body and the forwarded request are held at once; a body that passes
/// through is held once.
#[tokio::test]
async fn bodies_are_refused_when_their_total_exceeds_the_budget() {
    let of_kib =
        |kib: usize| json!({"messages": [{"role": "user", "content": "x".repeat(kib * 1024)}]});
    for (tools, body, limit, more) in [
        (true, 100, 330, 100),
        (true, 1500, 4400, 1500),
        (false, 100, 330, 100),
        // The record keeps both ends of a long body that passes, so only the forwarded request is
        // held.
        (false, 1500, 4700, 1600),
        (false, 1500, 6300, 1600),
    ] {
        let world = World::start_with(
            |files| {
                if !tools {
                    files.no_tools();
                }
            },
            |limits| limits.bodies_kib = limit,
            &[],
        )
        .await;
        let bodies = world.server.app.bodies.clone();
        let gate = Arc::new(Notify::new());
        world.model.will(Answer::json(says("first")).gated(&gate));
        world.model.will(Answer::json(says("second")));
        let first = tokio::spawn(world.request(&of_kib(body)).send());
        world.model.asked(1).await;
        let held = limit - bodies.available_permits();
        let copies = if !tools && body > 1024 { 1 } else { 2 };
        assert!(
            held >= copies * body && held <= copies * body + 8,
            "{held} for {body}"
        );
        // Enough memory for its text, or for the text and one copy, but not for another copy.
        let (status, refused) = world.ask(of_kib(more)).await;
        let fits = held + 2 * more + 4 <= limit;
        let expected = if fits { 200 } else { 503 };
        assert_eq!(status, expected, "{refused}");
        gate.notify_one();
        let response = within("an answer", first).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        until("all memory to be released", || {
            (bodies.available_permits() == limit).then_some(())
        })
        .await;
    }
}

/// The index of a body's parts takes more memory than a digit and a comma.
#[tokio::test]
async fn a_body_of_many_small_parts_is_refused() {
    let world = World::start().await;
    let items = format!("{{\"messages\":[{}]}}", vec!["0"; 200_000].join(","));
    let members: Vec<_> = (0..200_000).map(|at| format!("\"k{at}\":0")).collect();
    for text in [items, format!("{{{}}}", members.join(","))] {
        let request = world.runner.post(world.url("/v1/chat/completions"));
        let request = request.bearer_auth(RUNNER).body(text);
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 400);
        let text = within("its body", response.text()).await.unwrap();
        assert!(text.contains("invalid_request"), "{text}");
    }
    assert_eq!(world.model.connections(), 0);
}

#[tokio::test]
async fn a_slow_or_endless_head_is_cut_off() {
    let world = World::start_with(
        |_| {},
        |limits| {
            limits.connections.head = Duration::from_millis(50);
            limits.connections.head_bytes = 4096;
        },
        &[],
    )
    .await;
    let mut silent = connect(&world).await;
    assert_eq!(rest(&mut silent).await, "");
    let mut slow = connect(&world).await;
    slow.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-a: ")
        .await
        .unwrap();
    assert_eq!(rest(&mut slow).await, "");
    let mut endless = connect(&world).await;
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-a: {}", "a".repeat(8192));
    endless.write_all(head.as_bytes()).await.unwrap();
    let text = rest(&mut endless).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    assert_eq!(health(&world).await, 200);
}

#[tokio::test]
async fn a_body_that_never_arrives_is_refused_in_the_dialect() {
    for wire in Wire::all() {
        let world = World::start_with(
            |files| files.speak(wire.0),
            |limits| limits.body_timeout = Duration::from_millis(50),
            &[],
        )
        .await;
        let mut slow = connect(&world).await;
        let head = format!(
            "POST /v1{} HTTP/1.1\r\nhost: a\r\nx-api-key: {RUNNER}\r\nconnection: close\r\n\
             content-length: 10\r\n\r\n{{",
            wire.0.resource()
        );
        slow.write_all(head.as_bytes()).await.unwrap();
        let text = rest(&mut slow).await;
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        let body = text.split_once("\r\n\r\n").unwrap().1;
        let body = serde_json::from_str(body).unwrap();
        assert_eq!(wire.error_code(&body), "invalid_request");
        assert_eq!(world.model.connections(), 0);
    }
}

#[tokio::test]
async fn a_compressed_body_is_refused_with_its_reason() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let request = world.request(&json!({})).header("content-encoding", "gzip");
        let request = request.body(b"\x1f\x8b".to_vec());
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 400);
        let text = within("a body", response.text()).await.unwrap();
        assert!(text.contains("content-encoding"), "{text}");
        // A header that declares no compression is accepted.
        world.model.will(wire.will_say("here"));
        let plain = world.request(&wire.chat());
        let plain = plain.header("content-encoding", "identity");
        let response = within("an answer", plain.send()).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn the_error_for_an_unknown_path_lists_the_known_paths() {
    let world = World::start().await;
    for (method, path) in [
        ("GET", "/"),
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/readyz"),
        ("GET", "/v1/realtime"),
        ("GET", "/v1/responses/resp_1"),
        ("POST", "/v1/conversations"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/files"),
    ] {
        let request = world
            .runner
            .request(method.parse().unwrap(), world.url(path));
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 404, "{method} {path}");
        let text = within("a body", response.text()).await.unwrap();
        let body = serde_json::from_str(&text).unwrap();
        assert_eq!(Wire::CHAT.error_code(&body), "not_found");
        assert!(text.contains("POST /v1/chat/completions"), "{text}");
    }
}

#[tokio::test]
async fn a_websocket_is_refused_at_once_and_paths_need_no_version() {
    let world = World::start().await;
    let request = world
        .runner
        .get(world.url("/v1/responses"))
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    let response = within("an answer", request.send()).await.unwrap();
    assert_eq!(response.status(), 426);
    assert_eq!(response.headers()["upgrade"], "HTTP/1.1");
    let body = within("a body", response.json()).await.unwrap();
    assert_eq!(Wire::CHAT.error_code(&body), "websocket_not_supported");

    for path in ["/models", "/v1/models"] {
        let request = world.runner.get(world.url(path));
        let response = within("an answer", request.send()).await.unwrap();
        // The token is asked for.
        assert_eq!(response.status(), 401, "{path}");
    }
}

#[tokio::test]
async fn draining_finishes_requests_closes_idle_connections_and_flushes_the_record() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let mut kept = connect(&world).await;
        kept.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        within("an answer", kept.read_exact(&mut first))
            .await
            .unwrap();
        assert_eq!(&first, b"HTTP/1.1 404");
        let gate = Arc::new(Notify::new());
        world
            .model
            .will(wire.will_call(&[("c1", "desk__order", r#"{"symbol":"OTR"}"#)]));
        world.desk.will(Answer::json(json!({})).gated(&gate));
        world.model.will(wire.will_say("done"));
        let running = tokio::spawn(world.request(&wire.chat()).send());
        world.desk.asked(1).await;

        let (address, history) = (world.server.address, world.history.path().to_path_buf());
        let draining = tokio::spawn(world.server.drain());
        // The idle connection is closed although a request still runs, and new ones are refused.
        rest(&mut kept).await;
        within("a refusal", async {
            while TcpStream::connect(address).await.is_ok() {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
        assert!(!draining.is_finished());
        gate.notify_one();
        let response = within("the answer", running).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let body = within("its body", response.text()).await.unwrap();
        assert_eq!(wire.text(&serde_json::from_str(&body).unwrap()), "done");
        within("the end", draining).await.unwrap();
        let record = std::fs::read_to_string(history.join("history.jsonl")).unwrap();
        // With the line that begins the chain.
        assert_eq!(record.lines().count(), 4, "{record}");
        assert!(world.stdout.text().contains("\"kind\":\"turn\""));
    }
}

#[tokio::test]
async fn a_request_that_outlasts_the_drain_is_cut_and_recorded() {
    // During a call, and during an answer that passes through.
    for managed in [true, false] {
        let edit = |files: &mut Files| {
            if !managed {
                files.no_tools();
            }
        };
        let short = |limits: &mut Limits| limits.drain = Duration::from_millis(50);
        let world = World::start_with(edit, short, &[]).await;
        let wire = Wire::CHAT;
        let endless = || Answer::chunks(200, &["{"]).never_ends();
        if managed {
            world
                .model
                .will(wire.will_call(&[("c1", "desk__order", "{}")]));
            world.desk.will(endless());
        } else {
            world.model.will(endless());
        }
        let asked = if managed { &world.desk } else { &world.model };
        let running = tokio::spawn(world.request(&wire.chat()).send());
        asked.asked(1).await;
        let history = world.history.path().to_path_buf();
        within("the end", world.server.drain()).await;
        let answer = within("an end of the request", running).await.unwrap();
        let record = std::fs::read_to_string(history.join("history.jsonl")).unwrap();
        let lines: Vec<Value> = record
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let turn = lines.last().unwrap();
        assert_eq!(
            (&turn["kind"], &turn["error"]),
            (&json!("turn"), &json!("overloaded")),
            "{record}"
        );
        assert!(world.stdout.text().contains("\"kind\":\"turn\""));
        if managed {
            assert_eq!(lines[2]["kind"], "intent");
            let call = &turn["tool_trace"][0]["tool_calls"][0];
            assert_eq!(
                (&call["executed"], &turn["http_status"]),
                (&json!(true), &json!(503))
            );
            // The runner gets an error that it does not retry by itself.
            let answer = answer.unwrap();
            assert_eq!(answer.status(), 503);
            assert_eq!(answer.headers()["x-should-retry"], "false");
        }
    }
}

/// Reads a gauge of the program.
async fn gauge(mediator: &Mediator, name: &str) -> u64 {
    let text = mediator.metrics().await;
    let sample = format!("toolcrib_mediator_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&sample));
    line.unwrap_or_else(|| panic!("{name}: {text}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_thousand_cancelled_streams_leave_nothing_behind() {
    let wire = Wire::CHAT;
    let mut mediator = Mediator::start(wire).await;
    // Half of them wait for a model with managed tools, half read a stream that passes.
    let mut before = None;
    for round in 0..2 {
        if round == 1 {
            mediator.files.no_tools();
            mediator.files.publish();
            until("pass-through", || {
                let log = mediator.log();
                (log.iter()
                    .filter(|it| it["message"] == "config loaded")
                    .count()
                    == 2)
                    .then_some(())
            })
            .await;
        }
        let mut request = wire.chat();
        request["stream"] = json!(true);
        for batch in 0..11 {
            let at = mediator.model.requests().len();
            let mut running = Vec::new();
            for _ in 0..50 {
                mediator.model.will(
                    Answer::chunks(200, &["data: {\"choices\":[]}\n\n"])
                        .header("content-type", "text/event-stream")
                        .never_ends(),
                );
                running.push(tokio::spawn(mediator.request(&request).send()));
            }
            mediator.model.asked(at + 50).await;
            for request in running {
                request.abort();
            }
            mediator.model.hung_up(at + 50).await;
            // The first batch fills the caches.
            if before.is_none() && batch == 0 {
                before = Some(settled(&mediator).await);
            }
        }
    }
    let (tasks, descriptors) = before.unwrap();
    let after = settled(&mediator).await;
    assert!(
        after.0 <= tasks && after.1 <= descriptors + 2,
        "{tasks} {descriptors} {after:?}"
    );
    let lines = mediator.lines();
    assert_eq!(lines.len(), 1100);
    assert!(lines.iter().all(|line| line["error"] == "canceled"));
}

/// Tasks and descriptors once no request runs and no other connection is open.
async fn settled(mediator: &Mediator) -> (u64, u64) {
    within("a rest", async {
        while gauge(mediator, "requests_running").await > 0
            || gauge(mediator, "connections").await > 0
        {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    (
        gauge(mediator, "tasks").await,
        gauge(mediator, "open_descriptors").await,
    )
}
