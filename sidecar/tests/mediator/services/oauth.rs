//! OAuth client credentials: the token requests, the service's credential, and where secrets must
//! not appear.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Answer, Fake, World, calls, says, within};

const SECRET: &str = "client-s3cret/with+more";
const FIRST: &str = "access-token-one";
const SECOND: &str = "access-token-two";

/// The agent whose `desk` authenticates with tokens of `issuer`, and that issuer.
async fn start(edit: impl FnOnce(&mut Value)) -> (World, Fake) {
    let issuer = Fake::start().await;
    let mut auth = json!({"type": "oauth", "token_url": format!("{}/token", issuer.url()),
        "client_id": "otter client", "client_secret": SECRET,
        "resource": "https://desk.test/", "scopes": ["read", "trade"]});
    edit(&mut auth);
    let set = |files: &mut crate::support::Files| {
        for tool in files.tools["tools"].as_array_mut().unwrap() {
            tool["execution"]["auth"] = auth.clone();
        }
    };
    (World::start_with(set, |_| {}, &[]).await, issuer)
}

fn granted(token: &str, expires_in: u64) -> Answer {
    Answer::json(
        json!({"access_token": token, "token_type": "Bearer", "expires_in": expires_in, "scope": "read"}),
    )
}

/// Makes one call with this answer; returns the result that the model read. Each call has another
/// symbol.
async fn call(world: &World, symbol: &str, answer: Option<Answer>) -> Value {
    let arguments = json!({"symbol": symbol}).to_string();
    world
        .model
        .will(Answer::json(calls(&[("c1", "desk__quote", &arguments)])));
    if let Some(answer) = answer {
        world.desk.will(answer);
    }
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    world.result()
}

fn bearers(world: &World) -> Vec<String> {
    let requests = world.desk.requests();
    let bearer =
        |it: &crate::support::RecordedRequest| it.header("authorization").unwrap().to_string();
    requests.iter().map(bearer).collect()
}

/// Checks that the secrets are in no model request, record, stdout or metric.
async fn check_hidden(world: &World, secrets: &[&str]) {
    let history = std::fs::read_to_string(world.history.path().join("history.jsonl")).unwrap();
    let mut texts = vec![history, world.stdout.text(), world.metrics().await];
    for request in world.model.requests() {
        texts.push(String::from_utf8(request.body.to_vec()).unwrap());
        texts.push(format!("{:?}", request.headers));
    }
    for secret in secrets {
        for text in &texts {
            assert!(!text.contains(secret), "{secret} in {text}");
            assert!(
                !text.contains(&STANDARD.encode(secret)),
                "{secret} in {text}"
            );
        }
    }
}

#[tokio::test]
async fn a_token_is_requested_once_and_used_until_it_expires() {
    let (world, issuer) = start(|_| {}).await;
    issuer.will(granted(FIRST, 600));
    for symbol in ["A", "B"] {
        let result = call(&world, symbol, Some(Answer::json(json!(1)))).await;
        assert_eq!(result["ok"], true, "{result}");
    }
    let bearer = format!("Bearer {FIRST}");
    assert_eq!(bearers(&world), [bearer.clone(), bearer]);
    let asked = issuer.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!((&*asked[0].method, &*asked[0].target), ("POST", "/token"));
    let basic = STANDARD.encode("otter+client:client-s3cret%2Fwith%2Bmore");
    assert_eq!(
        asked[0].header("authorization"),
        Some(&*format!("Basic {basic}"))
    );
    assert_eq!(
        asked[0].body,
        "grant_type=client_credentials&scope=read+trade&resource=https%3A%2F%2Fdesk.test%2F"
    );
    // The issuer never gets the service's header, nor its identity header.
    assert_eq!(asked[0].header("x-claw-id"), None);
    check_hidden(&world, &[SECRET, FIRST]).await;
}

#[tokio::test]
async fn a_token_that_expires_at_once_serves_one_call() {
    let (world, issuer) = start(|_| {}).await;
    issuer.will(granted(FIRST, 0));
    issuer.will(granted(SECOND, 0));
    for symbol in ["A", "B"] {
        call(&world, symbol, Some(Answer::json(json!(1)))).await;
    }
    assert_eq!(
        bearers(&world),
        [format!("Bearer {FIRST}"), format!("Bearer {SECOND}")]
    );
}

#[tokio::test]
async fn concurrent_calls_share_one_token_request() {
    let (world, issuer) = start(|_| {}).await;
    let gate = Arc::new(Notify::new());
    issuer.will(granted(FIRST, 600).gated(&gate));
    // Each conversation may get any line of the script: the lines are alike.
    for _ in 0..3 {
        world.model.will(Answer::json(calls(&[(
            "c1",
            "desk__quote",
            r#"{"symbol":"A"}"#,
        )])));
    }
    for _ in 0..3 {
        world.model.will(Answer::json(says("done")));
        world.desk.will(Answer::json(json!(1)));
    }
    let open = async {
        // All three models have chosen their calls before any token arrives.
        world.model.asked(3).await;
        issuer.asked(1).await;
        gate.notify_one();
    };
    let asks = futures::future::join_all((0..3).map(|_| world.chat()));
    within("three answers", futures::future::join(asks, open)).await;
    assert_eq!(
        (issuer.requests().len(), world.desk.requests().len()),
        (1, 3)
    );
}

#[tokio::test]
async fn a_refused_token_is_renewed_for_the_next_call_and_no_call_is_repeated() {
    let (world, issuer) = start(|_| {}).await;
    issuer.will(granted(FIRST, 600));
    issuer.will(granted(SECOND, 600));
    call(&world, "A", Some(Answer::json(json!(1)))).await;
    let result = call(&world, "B", Some(Answer::text(401, "who?"))).await;
    assert_eq!(result["error"]["code"], "http_401");
    assert_eq!(result["error"]["details"]["retryable"], true);
    assert_eq!(world.desk.requests().len(), 2);
    let result = call(&world, "B", Some(Answer::json(json!(2)))).await;
    assert_eq!(result["data"], 2);
    assert_eq!(bearers(&world)[2], format!("Bearer {SECOND}"));
    assert_eq!(issuer.requests().len(), 2);
}

#[tokio::test]
async fn refusing_a_fresh_token_is_not_retryable() {
    let (world, issuer) = start(|_| {}).await;
    issuer.will(granted(FIRST, 600));
    let result = call(&world, "A", Some(Answer::text(401, "who?"))).await;
    assert_eq!(result["error"]["code"], "http_401");
    assert_eq!(result["error"]["details"]["retryable"], false);
}

#[tokio::test]
async fn an_echoed_token_or_secret_is_scrubbed() {
    let (world, issuer) = start(|_| {}).await;
    issuer.will(granted(FIRST, 600));
    let echo = json!({"token": FIRST, "secret": SECRET, "encoded": STANDARD.encode(FIRST),
        "basic": STANDARD.encode(format!("otter:{SECRET}"))});
    let result = call(&world, "A", Some(Answer::json(echo))).await;
    assert_eq!(result["data"]["token"], "[redacted]");
    assert_eq!(result["data"]["secret"], "[redacted]");
    check_hidden(&world, &[SECRET, FIRST]).await;
}

#[tokio::test]
async fn a_failing_issuer_is_a_tool_error_and_no_call_is_sent() {
    let elsewhere = Fake::start().await;
    let location = elsewhere.url();
    let odd = |body: Value| Answer::json(body);
    for (answer, retryable) in [
        (Answer::text(503, "later"), true),
        (
            Answer::text(
                401,
                &json!({"error": "invalid_client", "hint": SECRET}).to_string(),
            ),
            false,
        ),
        (
            Answer::text(307, "moved").header("location", &location),
            false,
        ),
        (Answer::text(200, "not json"), false),
        (odd(json!({"access_token": FIRST})), false),
        (
            odd(json!({"access_token": "", "token_type": "bearer"})),
            false,
        ),
        (
            odd(json!({"access_token": "a\r\nHost: b", "token_type": "bearer"})),
            false,
        ),
        (
            odd(json!({"access_token": FIRST, "token_type": "mac"})),
            false,
        ),
        (
            odd(json!({"access_token": FIRST, "token_type": "bearer", "x": "y".repeat(70_000)})),
            false,
        ),
    ] {
        let (world, issuer) = start(|_| {}).await;
        issuer.will(answer);
        let result = call(&world, "A", None).await;
        assert_eq!(result["error"]["code"], "request_failed", "{result}");
        assert_eq!(
            result["error"]["details"]["retryable"], retryable,
            "{result}"
        );
        let text = result.to_string();
        assert!(text.contains("desk.quote was not called"), "{text}");
        assert!(
            !text.contains("127.0.0.1") && !text.contains(SECRET),
            "{text}"
        );
        assert_eq!(world.desk.connections(), 0);
        if !retryable {
            // A wrong credential is not retried in a loop.
            call(&world, "B", None).await;
            assert_eq!(issuer.requests().len(), 1);
        }
        check_hidden(&world, &[SECRET, FIRST]).await;
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn a_slow_issuer_counts_against_the_calls_deadline() {
    let issuer = Fake::start().await;
    issuer.will(granted(FIRST, 600).gated(&Arc::new(Notify::new())));
    let url = format!("{}/token", issuer.url());
    let set = |files: &mut crate::support::Files| {
        files.tools["policy"]["timeout_per_tool_ms"] = json!(100);
        files.tools["tools"][0]["execution"]["auth"] = json!({"type": "oauth", "token_url": url,
            "client_id": "c", "client_secret": SECRET});
    };
    let world = World::start_with(set, |_| {}, &[]).await;
    let result = call(&world, "A", None).await;
    assert_eq!(result["error"]["code"], "timeout");
    assert_eq!(result["error"]["details"]["retryable"], true);
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_rotated_secret_never_uses_the_earlier_token() {
    let (mut world, issuer) = start(|_| {}).await;
    issuer.will(granted(FIRST, 600));
    issuer.will(granted(SECOND, 600));
    call(&world, "A", Some(Answer::json(json!(1)))).await;
    for tool in world.files.tools["tools"].as_array_mut().unwrap() {
        tool["execution"]["auth"]["client_secret"] = json!("client-s3cret-rotated");
    }
    world.publish().await;
    call(&world, "B", Some(Answer::json(json!(1)))).await;
    assert_eq!(bearers(&world)[1], format!("Bearer {SECOND}"));
}

#[tokio::test]
async fn a_secret_from_a_file_works_and_a_feed_renews_its_token() {
    let (mut world, issuer) = start(|_| {}).await;
    let mut auth = world.files.tools["tools"][0]["execution"]["auth"].clone();
    auth["client_secret"].take();
    auth["file"] = json!("desk-secret");
    world.files.feeds = json!([{"name": "tide", "source": "desk", "path": "/tide", "ttl": 1,
        "url": format!("{}/tide", world.desk.url()), "auth": auth}]);
    world.files.secrets = vec![("desk-secret".into(), format!("{SECRET}\n"))];
    world.publish().await;
    issuer.will(granted(FIRST, 600));
    issuer.will(granted(SECOND, 600));
    world.desk.will(Answer::text(200, "high"));
    world.desk.will(Answer::text(401, "who?"));
    world
        .desk
        .will(Answer::text(200, &format!("low, says {SECOND}")));
    within("the renewed copy", async {
        loop {
            world.model.will(Answer::json(says("done")));
            world.chat().await;
            let body = world.model.requests().last().unwrap().json().to_string();
            assert!(!body.contains("unavailable"), "{body}");
            if body.contains("low, says [redacted]") {
                break;
            }
        }
    })
    .await;
    let bearer = |token: &str| format!("Bearer {token}");
    assert_eq!(
        bearers(&world),
        [bearer(FIRST), bearer(FIRST), bearer(SECOND)]
    );
    check_hidden(&world, &[SECRET, FIRST, SECOND]).await;
}
