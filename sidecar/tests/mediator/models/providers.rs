//! Failing providers, in every dialect: the next provider, the state of keys, and the runner's
//! error.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use toolcrib_sidecar::app::Limits;

use crate::support::{Answer, Files, MODEL_KEY, Wire, World, within};

const QUOTE: &str = r#"{"symbol":"OTR"}"#;

/// With managed tools the reply is whole; without, it passes through.
const MANAGED: [bool; 2] = [true, false];

fn prepare(files: &mut Files, managed: bool) {
    if !managed {
        files.no_tools();
    }
}

/// Adds a second provider, `barn`, as fallback; the desk's server plays it.
async fn with_barn(wire: Wire, managed: bool) -> World {
    with_barn_and(wire, managed, |_| {}).await
}

async fn with_barn_and(wire: Wire, managed: bool, limit: impl FnOnce(&mut Limits)) -> World {
    let edit = |files: &mut Files| {
        files.speak(wire.0);
        prepare(files, managed);
    };
    let mut world = World::start_with(edit, limit, &[]).await;
    world.wire = wire;
    let mut barn = world.files.providers["providers"]["house"].clone();
    barn["endpoints"][0]["base_url"] = json!(format!("{}/v1", world.desk.url()));
    barn["auth"] = json!("none");
    barn["keys"] = json!([]);
    world.files.providers["providers"]["barn"] = barn;
    world.files.agent["models"]["fallbacks"] = json!(["barn/owl-2"]);
    world.publish().await;
    world
}

/// Two keys for one provider.
fn two_keys(files: &mut Files) {
    files.providers["providers"]["house"]["keys"] =
        json!([{"id": "k1", "secret": MODEL_KEY}, {"id": "k2", "secret": "sk-house-key-2"}]);
}

fn keys_used(world: &World) -> Vec<String> {
    let requests = world.model.requests();
    let keys = requests.iter().map(|it| {
        let bearer = it.header("authorization");
        let key = bearer.map(|it| it.trim_start_matches("Bearer "));
        key.or(it.header("x-api-key"))
            .unwrap_or_default()
            .to_string()
    });
    keys.collect()
}

fn error(status: u16, code: &str) -> Answer {
    let body = json!({"error": {"type": code, "code": code, "message": "no"}});
    Answer::text(status, &body.to_string()).header("content-type", "application/json")
}

#[tokio::test]
async fn a_failing_provider_fails_over_and_a_refusing_one_does_not() {
    for wire in Wire::all() {
        for managed in MANAGED {
            let world = with_barn(wire, managed).await;
            let cut = Arc::new(Notify::new());
            cut.notify_one();
            for failing in [
                error(500, "down"),
                error(503, "down"),
                error(529, "overloaded_error"),
                Answer::chunks(200, &[]).breaks_off(&cut),
            ] {
                world.model.will(failing);
                world.desk.will(wire.will_say("from the barn"));
                assert_eq!(wire.text(&world.chat().await), "from the barn");
            }
            let asked = world.desk.requests();
            assert_eq!(asked.len(), 4);
            for request in &asked {
                assert_eq!(request.json()["model"], "owl-2");
                assert_eq!(request.header("authorization"), None);
                assert_eq!(request.header("x-api-key"), None);
            }
            for status in [400, 403, 404, 422] {
                world.model.will(error(status, "content"));
                let (seen, body) = world.ask(wire.chat()).await;
                assert_eq!((seen, &body["error"]["message"]), (status, &json!("no")));
            }
            assert_eq!(world.desk.requests().len(), 4);
            // Whatever `Retry-After` says, the same key is not used again at once.
            world
                .model
                .will(error(429, "rate_limit").header("retry-after", "0"));
            world.desk.will(wire.will_say("from the barn"));
            assert_eq!(wire.text(&world.chat().await), "from the barn");
            let text = metrics(&world).await;
            for sample in [
                r#"model_calls_total{provider="house",outcome="server_error"} 3"#,
                r#"model_calls_total{provider="house",outcome="rate_limited"} 1"#,
                r#"model_calls_total{provider="house",outcome="unreachable"} 1"#,
                r#"model_calls_total{provider="house",outcome="refused"} 4"#,
                r#"model_calls_total{provider="barn",outcome="ok"} 5"#,
            ] {
                assert!(text.contains(sample), "{sample}: {text}");
            }
        }
    }
}

async fn metrics(world: &World) -> String {
    let url = format!("http://{}/metrics", world.server.admin_address);
    let response = within("metrics", world.runner.get(url).send()).await;
    within("metrics", response.unwrap().text()).await.unwrap()
}

#[tokio::test]
async fn each_status_has_its_effect_on_the_key() {
    for wire in Wire::all() {
        for managed in MANAGED {
            for (answer, spends) in [
                (error(401, "invalid_api_key"), Some("retired")),
                (error(429, "insufficient_quota"), Some("retired")),
                (
                    error(429, "rate_limit").header("retry-after", "60"),
                    Some("cooling"),
                ),
                (error(403, "content_policy"), None),
            ] {
                let edit = |files: &mut Files| {
                    prepare(files, managed);
                    two_keys(files);
                };
                let world = World::speaking_with(wire, edit, &[]).await;
                world.model.will(answer);
                if spends.is_some() {
                    world.model.will(wire.will_say("with the other key"));
                }
                let (first, _) = world.ask(wire.chat()).await;
                world.model.will(wire.will_say("again"));
                world.chat().await;
                let text = metrics(&world).await;
                match spends {
                    Some(state) => {
                        assert_eq!(first, 200);
                        let second = "sk-house-key-2";
                        assert_eq!(keys_used(&world), [MODEL_KEY, second, second]);
                        let sample =
                            format!(r#"provider_keys{{provider="house",state="{state}"}} 1"#);
                        assert!(text.contains(&sample), "{sample}: {text}");
                    }
                    None => {
                        assert_eq!(first, 403);
                        assert_eq!(keys_used(&world), [MODEL_KEY, MODEL_KEY]);
                    }
                }
                assert!(!text.contains(MODEL_KEY), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn the_last_error_passes_scrubbed_and_cooling_keys_give_503_with_retry_after() {
    for wire in Wire::all() {
        for managed in MANAGED {
            let world = World::speaking_with(wire, |files| prepare(files, managed), &[]).await;
            let echo = format!("who is {MODEL_KEY}?");
            world
                .model
                .will(Answer::text(429, &echo).header("retry-after", "60"));
            let response = within("an answer", world.request(&wire.chat()).send())
                .await
                .unwrap();
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()["retry-after"], "60");
            let text = within("a body", response.text()).await.unwrap();
            assert_eq!(text, "who is [redacted]?");

            let response = within("an answer", world.request(&wire.chat()).send())
                .await
                .unwrap();
            assert_eq!(response.status(), 503);
            let wait = response.headers()["retry-after"].to_str().unwrap();
            assert!((1..=60).contains(&wait.parse::<u64>().unwrap()), "{wait}");
            let text = within("a body", response.text()).await.unwrap();
            let body: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(wire.error_code(&body), "no_usable_key");
            assert_eq!(world.model.requests().len(), 1);
            // Both attempts are in the record.
            let statuses: Vec<_> = world
                .lines()
                .iter()
                .map(|line| line["http_status"].clone())
                .collect();
            assert_eq!(statuses, [429, 503]);
        }
    }
}

#[tokio::test]
async fn a_refused_key_is_the_reason_of_the_requests_after_it() {
    for wire in Wire::all() {
        for managed in MANAGED {
            let world = World::speaking_with(wire, |files| prepare(files, managed), &[]).await;
            world.model.will(Answer::text(401, "wrong key"));
            let first = within("an answer", world.request(&wire.chat()).send()).await;
            assert_eq!(first.unwrap().status(), 401);
            let second = within("an answer", world.request(&wire.chat()).send()).await;
            let second = second.unwrap();
            assert_eq!(second.status(), 503);
            assert!(second.headers().get("retry-after").is_none());
            let text = within("a body", second.text()).await.unwrap();
            let said = "no key of any provider can be used now: house refused its key with \
                status 401; try again later, or have a key of the provider corrected or added";
            assert!(text.contains(said), "{text}");
            assert!(!text.contains(MODEL_KEY), "{text}");
        }
    }
}

#[tokio::test]
async fn a_failure_after_a_hidden_round_is_a_502_and_no_call_is_repeated() {
    for wire in Wire::all() {
        let cut = Arc::new(Notify::new());
        cut.notify_one();
        for (failing, code) in [
            (error(500, "down"), "upstream_error"),
            (error(400, "no"), "upstream_error"),
            (
                Answer::chunks(200, &["{"]).breaks_off(&cut),
                "upstream_unreachable",
            ),
            (Answer::text(200, "no JSON"), "upstream_malformed"),
            (Answer::json(json!({"unheard": "of"})), "upstream_malformed"),
            (Answer::text(200, ""), "upstream_malformed"),
        ] {
            let world = World::speaking(wire).await;
            world
                .model
                .will(wire.will_call(&[("c1", "desk__order", QUOTE)]));
            world.desk.will(Answer::json(json!({"done": true})));
            world.model.will(failing);
            let (status, body) = world.ask(wire.chat()).await;
            assert_eq!((status, &*wire.error_code(&body)), (502, code));
            assert_eq!(world.desk.requests().len(), 1);
            let lines = world.lines();
            let call = &lines[1]["tool_trace"][0]["tool_calls"][0];
            assert_eq!(
                (&call["name"], &call["executed"]),
                (&json!("desk.order"), &json!(true))
            );
        }
    }
}

/// The provider was reached, so it is not called unreachable; the log says what to do.
#[tokio::test]
async fn a_provider_s_error_is_recorded_as_one() {
    for wire in Wire::all() {
        for tools in [true, false] {
            let edit = |files: &mut Files| {
                if !tools {
                    files.no_tools();
                }
            };
            let world = World::speaking_with(wire, edit, &[]).await;
            for status in [400, 403, 404, 500] {
                world.model.will(error(status, "no"));
                assert_eq!(world.ask(wire.chat()).await.0, status);
                assert_eq!(world.last_line()["error"], "upstream_error");
            }
        }
        let world = World::speaking(wire).await;
        for (status, cure) in [(403, "key"), (404, "model's name")] {
            let calls = [("c1", "desk__quote", QUOTE)];
            world.model.will(wire.will_call(&calls));
            world.desk.will(Answer::json(json!(1)));
            world.model.will(error(status, "no"));
            let (status, body) = world.ask(wire.chat()).await;
            assert_eq!((status, &*wire.error_code(&body)), (502, "upstream_error"));
            assert!(body.to_string().contains(cure), "{body}");
        }
    }
}

#[tokio::test]
async fn a_malformed_first_reply_is_a_502_in_the_dialect() {
    for wire in Wire::all() {
        for bad in ["", "no JSON", "[]", "{}", "{\"a\":1", "\u{fffd}"] {
            let world = World::speaking(wire).await;
            world.model.will(Answer::text(200, bad));
            let (status, body) = world.ask(wire.chat()).await;
            assert_eq!(
                (status, &*wire.error_code(&body)),
                (502, "upstream_malformed"),
                "{bad}"
            );
            assert_eq!(world.lines()[0]["error"], "upstream_malformed");
        }
    }
}

/// The action of a provider on its socket, after it has read a request's head.
#[derive(Clone, Copy, Debug)]
enum ProviderAction {
    /// Closes the connection without an answer.
    Hangs,
    /// Sends this text and closes.
    Says(&'static str),
}

/// The address of a provider that does this with each connection.
async fn provider(doing: ProviderAction) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            if stream.read(&mut head).await.is_ok()
                && let ProviderAction::Says(text) = doing
            {
                // Err: the mediator has closed the connection already.
                stream.write_all(text.as_bytes()).await.ok();
            }
        }
    });
    (format!("http://{address}/v1"), task)
}

#[tokio::test]
async fn resets_and_bad_framing_are_a_502_that_names_no_host() {
    for doing in [
        ProviderAction::Hangs,
        ProviderAction::Says("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"a\":"),
        ProviderAction::Says(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n",
        ),
        ProviderAction::Says("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}"),
        ProviderAction::Says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
        ProviderAction::Says("HTTP/1.1 20\r\n\r\n"),
        ProviderAction::Says("220 mail.example ESMTP\r\n"),
    ] {
        let (url, task) = provider(doing).await;
        for wire in Wire::all() {
            let edit = |files: &mut Files| {
                files.providers["providers"]["house"]["endpoints"][0]["base_url"] = json!(url);
            };
            let world = World::speaking_with(wire, edit, &[]).await;
            let (status, body) = world.ask(wire.chat()).await;
            assert_eq!(
                (status, &*wire.error_code(&body)),
                (502, "upstream_unreachable"),
                "{doing:?}"
            );
            assert!(!body.to_string().contains("127.0.0.1"), "{body}");
        }
        task.abort();
    }
}

#[tokio::test]
async fn a_stall_before_the_first_byte_fails_over_and_one_after_it_ends_the_stream() {
    for wire in Wire::all() {
        let mut request = wire.chat();
        request["stream"] = json!(true);
        let short = Duration::from_millis(50);
        let world = with_barn_and(wire, false, |it| it.first_byte = short).await;
        world
            .model
            .will(wire.will_say("never").gated(&Arc::new(Notify::new())));
        world.desk.will(wire.will_say("from the barn"));
        let (_, answer) = world.ask(request.clone()).await;
        assert_eq!(wire.text(&answer), "from the barn");

        let world = with_barn_and(wire, false, |it| it.silence = short).await;
        world.model.will(
            Answer::chunks(200, &[": hi\n\n"])
                .header("content-type", "text/event-stream")
                .never_ends(),
        );
        let response = within("an answer", world.request(&request).send())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let text = within("the stream", response.text()).await.unwrap();
        assert_eq!(wire.stream_error_code(&text), "upstream_unreachable");
        // After the first byte there is no failover.
        assert_eq!(world.desk.requests().len(), 0);
    }
}

/// A reply that has begun is not abandoned for another candidate, however long it takes.
#[tokio::test]
async fn the_failover_timeout_covers_the_first_byte_only() {
    // Long enough for the first byte on a busy machine.
    let patience = Duration::from_secs(2);
    let wire = Wire::CHAT;
    let limit = |limits: &mut Limits| limits.first_byte = patience;
    let mut world = World::start_with(|_| {}, limit, &[]).await;
    let mut barn = world.files.providers["providers"]["house"].clone();
    barn["endpoints"][0]["base_url"] = json!(format!("{}/v1", world.desk.url()));
    world.files.providers["providers"]["barn"] = barn;
    world.files.agent["models"]["fallbacks"] = json!(["barn/owl-2"]);
    world.publish().await;

    let gate = Arc::new(Notify::new());
    let body = wire.says("slow and whole").to_string();
    let (begun, rest) = body.split_at(10);
    let answer = Answer::chunks(200, &[begun, rest]).paused(1, &gate);
    world
        .model
        .will(answer.header("content-type", "application/json"));
    let running = tokio::spawn(world.request(&wire.chat()).send());
    world.model.asked(1).await;
    // A failover would send a request to the barn.
    let impatient = tokio::time::timeout(patience * 3 / 2, world.desk.asked(1));
    assert!(impatient.await.is_err(), "the barn was asked");
    gate.notify_one();
    let response = within("an answer", running).await.unwrap().unwrap();
    let text = within("its body", response.text()).await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(wire.text(&body), "slow and whole");
}

/// A provider's reasoning is valid only there, and a provider that failed is not waited for in
/// each round.
#[tokio::test]
async fn a_turn_stays_with_the_provider_of_its_last_round() {
    for wire in Wire::all() {
        let world = with_barn(wire, true).await;
        world.model.will(error(500, "down"));
        // The barn's server is the tool's service too.
        let call = [("c1", "desk__quote", QUOTE)];
        world.desk.will(wire.will_call(&call));
        world.desk.will(Answer::json(json!({"price": 1})));
        world.desk.will(wire.will_say("from the barn"));
        assert_eq!(wire.text(&world.chat().await), "from the barn");
        assert_eq!(world.model.requests().len(), 1);
        // The next turn begins with the first provider again.
        world.model.will(wire.will_say("from the house"));
        assert_eq!(wire.text(&world.chat().await), "from the house");
    }
}

/// The first byte of a whole reply comes when the model is done, so it gets a share of the total
/// time.
#[tokio::test]
async fn a_whole_reply_may_use_time_not_reserved_for_the_fallback() {
    for wire in Wire::all() {
        for managed in MANAGED {
            let world = with_barn_and(wire, managed, |it| it.first_byte = Duration::ZERO).await;
            world.model.will(wire.will_say("slow and whole"));
            assert_eq!(wire.text(&world.chat().await), "slow and whole");
            assert_eq!(world.desk.requests().len(), 0);
        }
    }
}

/// Without candidates the error names the objects to look at.
#[tokio::test]
async fn without_a_usable_provider_the_error_says_where_to_look() {
    for policy in [
        json!({"default": "house/otter-1", "allowed": ["house/otter-1"], "unknown": "Refuse"}),
        Value::Null,
    ] {
        let none = |files: &mut Files| {
            files.agent["models"] = policy.clone();
            files.providers["providers"] = json!({});
        };
        let world = World::start_with(none, |_| {}, &[]).await;
        for model in ["house/otter-1", "heron-9"] {
            let mut request = Wire::CHAT.chat();
            request["model"] = json!(model);
            let (status, answer) = world.ask(request).await;
            let message = answer["error"]["message"].as_str().unwrap();
            assert_eq!(status, 403, "{message}");
            assert!(
                message.contains("no usable ModelProvider; `kubectl describe agent otter --namespace pond` says why"),
                "{message}"
            );
        }
    }
}

/// `models.unknown` applies to an unprefixed name, and only if there is a default.
#[tokio::test]
async fn an_unknown_model_is_the_default_if_policy_says_so() {
    for wire in Wire::all() {
        let lenient = |files: &mut Files| {
            files.agent["models"] =
                json!({"default": "house/otter-1", "allowed": [], "unknown": "Default"});
        };
        let mut world = World::speaking_with(wire, lenient, &[]).await;
        let ask = async |world: &World, model: Value, expected: u16| {
            let mut request = wire.chat();
            request["model"] = model.clone();
            if expected == 200 {
                world.model.will(wire.will_say("here"));
            }
            assert_eq!(world.ask(request).await.0, expected, "{model}");
        };
        ask(&world, json!("gpt-of-some-framework"), 200).await;
        assert_eq!(world.model.requests()[0].json()["model"], "otter-1");
        // Only a provider's name is a prefix; a model's name may contain a slash.
        ask(&world, json!("house/heron-9"), 403).await;
        ask(&world, json!("meta-llama/heron-9"), 200).await;
        world.files.agent["models"]["unknown"] = json!("Refuse");
        world.publish().await;
        ask(&world, json!("gpt-of-some-framework"), 403).await;
        world.files.agent["models"] = json!({"allowed": ["house/otter-1"], "unknown": "Default"});
        world.publish().await;
        ask(&world, json!("gpt-of-some-framework"), 403).await;
    }
}

/// If nothing listens there, the record has the cause and the address, for providers and
/// services.
#[tokio::test]
async fn a_connection_that_fails_is_on_record_with_its_cause_and_address() {
    let nobody = "http://127.0.0.1:9";
    let refused = json!({"cause": "refused", "address": nobody});
    for managed in MANAGED {
        let away = |files: &mut Files| {
            files.providers["providers"]["house"]["endpoints"][0]["base_url"] =
                json!(format!("{nobody}/v1"));
            if !managed {
                files.no_tools();
            }
        };
        let world = World::start_with(away, |_| {}, &[]).await;
        let (status, answer) = world.ask(Wire::CHAT.chat()).await;
        assert_eq!(status, 502, "{answer}");
        // The runner's error has no address.
        assert!(!answer.to_string().contains("127.0.0.1"), "{answer}");
        assert_eq!(world.lines()[0]["connection"], refused);
    }

    let away = |files: &mut Files| {
        files.tools["tools"][0]["execution"]["base_url"] = json!(nobody);
    };
    let world = World::start_with(away, |_| {}, &[]).await;
    let call = [("c1", "desk__quote", r#"{"symbol":"OTR"}"#)];
    world.model.will(Wire::CHAT.will_call(&call));
    world.model.will(Wire::CHAT.will_say("done"));
    world.chat().await;
    let result = world.result();
    assert_eq!(result["error"]["details"]["retryable"], true, "{result}");
    assert!(!result.to_string().contains("127.0.0.1"), "{result}");
    let lines = world.lines();
    let call = &lines.last().unwrap()["tool_trace"][0]["tool_calls"][0];
    assert_eq!(call["connection"], refused);
    assert_eq!(call["executed"], false);
}
