//! Tests the scripted model and the trading desk at their sockets: authentication, recorded
//! requests, and faults on the wire as scripted.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use toolcrib_e2e::services::desk::DeskState;
use toolcrib_e2e::services::model::{ModelState, Script};
use toolcrib_e2e::services::serving::serve_on;
use toolcrib_e2e::services::{desk, model};

struct Services {
    model_state: Arc<ModelState>,
    model: SocketAddr,
    desk: SocketAddr,
    files: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

/// The bytes received before the connection ended, and how it ended.
struct RawResponse {
    status: u16,
    head: String,
    body: String,
    end: io::Result<()>,
}

impl Services {
    fn start(script: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("key"), "sk-otter\n").unwrap();
        fs::create_dir(files.path().join("tokens")).unwrap();
        fs::write(files.path().join("tokens/otter"), "fish-1\n").unwrap();
        fs::write(files.path().join("tokens/heron"), "fish-2\n").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let serve = |router| {
            let bind = tokio::net::TcpListener::bind(("127.0.0.1", 0));
            let listener = runtime.block_on(bind).unwrap();
            let address = listener.local_addr().unwrap();
            runtime.spawn(serve_on(listener, router, std::future::pending()));
            address
        };
        let script = Script::parse(script).unwrap();
        let model_state = ModelState::new(files.path().join("key"), script);
        let model = serve(model::router(model_state.clone()));
        let desk = serve(desk::router(DeskState::new(files.path().join("tokens"))));
        Self {
            model_state,
            model,
            desk,
            files,
            _runtime: runtime,
        }
    }

    fn ask_model(&self, key: &str, body: &Value) -> RawResponse {
        exchange(
            self.model,
            "POST",
            "/v1/chat/completions",
            key,
            &body.to_string(),
        )
    }
}

fn exchange(to: SocketAddr, method: &str, path: &str, token: &str, body: &str) -> RawResponse {
    let mut stream = TcpStream::connect(to).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut bytes = Vec::new();
    let mut end = stream.read_to_end(&mut bytes).map(drop);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    // A body that ends before its last chunk is truncated, even if the socket closes cleanly.
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    if end.is_ok() && chunked && !body.ends_with("0\r\n\r\n") {
        end = Err(io::ErrorKind::UnexpectedEof.into());
    }
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    RawResponse {
        status,
        head: head.to_string(),
        body: body.to_string(),
        end,
    }
}

fn json_of(answer: &RawResponse) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.body))
}

#[test]
fn the_model_requires_its_key_and_records_every_request() {
    let services = Services::start("steps: [{reply: {text: hello}}]");
    assert_eq!(services.ask_model("wrong", &json!({})).status, 401);
    assert_eq!(
        exchange(services.model, "GET", "/requests", "wrong", "").status,
        401
    );
    assert_eq!(
        exchange(services.model, "POST", "/script", "wrong", "steps: []").status,
        401
    );
    let answer = services.ask_model("sk-otter", &json!({"model": "m"}));
    assert_eq!(
        json_of(&answer)["choices"][0]["message"]["content"],
        "hello"
    );

    let log = json_of(&exchange(
        services.model,
        "GET",
        "/requests",
        "sk-otter",
        "",
    ));
    let authorized: Vec<_> = log["requests"].as_array().unwrap().iter().collect();
    let authorized: Vec<_> = authorized
        .iter()
        .map(|request| &request["authorized"])
        .collect();
    assert_eq!(authorized, [&json!(false), &json!(true)]);
    assert_eq!(
        services.model_state.recorder().since(1).requests[0]
            .body
            .get(),
        r#"{"model":"m"}"#
    );
}

#[test]
fn a_rotated_key_is_valid_at_once() {
    let services = Services::start("steps: [{reply: {text: hello}}]");
    fs::write(services.files.path().join("key"), "sk-heron").unwrap();
    assert_eq!(services.ask_model("sk-otter", &json!({})).status, 401);
    assert_eq!(services.ask_model("sk-heron", &json!({})).status, 200);
    fs::write(services.files.path().join("key"), "").unwrap();
    assert_eq!(
        services.ask_model("", &json!({})).status,
        401,
        "an empty key lets nobody in"
    );
}

#[test]
fn a_script_is_replaced_unless_it_is_invalid() {
    let services = Services::start("steps: [{reply: {text: hello}}]");
    let replace = |script: &str| exchange(services.model, "POST", "/script", "sk-otter", script);
    assert_eq!(replace("steps: [{reply: {text: goodbye}}]").status, 200);
    assert_eq!(replace("steps: [{reply: {txt: hm}}]").status, 400);
    let answer = services.ask_model("sk-otter", &json!({}));
    assert_eq!(
        json_of(&answer)["choices"][0]["message"]["content"],
        "goodbye"
    );
}

/// Plays one fault, as a document and as a stream.
fn fault(fault: &str) -> [RawResponse; 2] {
    let reply = format!("steps: [{{reply: {{text: hello out there, fault: {fault}}}}}]");
    let services = Services::start(&reply);
    [false, true].map(|stream| services.ask_model("sk-otter", &json!({"stream": stream})))
}

#[test]
fn reset() {
    for answer in fault("reset") {
        assert_eq!(answer.head, "");
        assert_eq!(
            answer.end.unwrap_err().kind(),
            io::ErrorKind::ConnectionReset
        );
    }
}

#[test]
fn status() {
    for answer in fault("{status: {code: 429, retry_after: 7}}") {
        assert_eq!(answer.status, 429);
        assert!(answer.head.contains("retry-after: 7"), "{}", answer.head);
        assert_eq!(json_of(&answer)["error"]["type"], "rate_limit_error");
    }
}

#[test]
fn truncated() {
    for answer in fault("truncated") {
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains("choices"), "{}", answer.body);
        assert!(answer.end.is_err(), "{}", answer.body);
    }
}

#[test]
fn malformed() {
    let [document, stream] = fault("malformed");
    assert!(
        serde_json::from_str::<Value>(&document.body).is_err(),
        "{}",
        document.body
    );
    assert!(
        stream.body.contains("data: {\"scripted\": mal"),
        "{}",
        stream.body
    );
    assert!(document.end.is_ok() && stream.end.is_ok());
}

#[test]
fn the_desk_identifies_the_tokens_principal() {
    let services = Services::start("steps: []");
    let context = "/api/v1/market_context/pond";
    let ask = |token: &str| exchange(services.desk, "GET", context, token, "");
    assert_eq!(ask("fish-3").status, 401);
    assert_eq!(
        json_of(&ask("fish-1")),
        desk::market_context("pond", "otter")
    );
    assert_eq!(
        json_of(&ask("fish-2")),
        desk::market_context("pond", "heron")
    );

    let order = r#"{"symbol":"EEL","side":"sell","quantity":2.50}"#;
    let traded = exchange(services.desk, "POST", "/api/v1/trades", "fish-2", order);
    assert_eq!(
        (traded.status, &json_of(&traded)["trade"]["id"]),
        (201, &json!(1))
    );
    let refused = exchange(services.desk, "POST", "/api/v1/trades", "fish-2", "{}");
    assert_eq!(refused.status, 422);
    let positions = exchange(services.desk, "GET", "/api/v1/positions", "fish-1", "");
    assert_eq!(json_of(&positions)["trades"].as_array().unwrap().len(), 1);

    assert_eq!(
        exchange(services.desk, "GET", "/log", "fish-3", "").status,
        401
    );
    let log = json_of(&exchange(
        services.desk,
        "GET",
        "/log?since=3",
        "fish-1",
        "",
    ));
    let entry = &log["requests"][0];
    assert_eq!(
        (&entry["principal"], &entry["body"]),
        (&json!("heron"), &json!(order))
    );
    assert!(
        !log.to_string().contains("fish-"),
        "the log holds a token: {log}"
    );
}
