//! Calls of a service: their bounds, and the model's result, in each dialect.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Answer, Fake, Files, IN_A_POD, MODEL_KEY, TOOL_TOKEN, World};

/// Makes one call of `tool` with this answer; returns the result that the model read.
async fn call(world: &World, tool: &str, arguments: &str, answer: Option<Answer>) -> Value {
    world
        .model
        .will(world.wire.will_call(&[("c1", tool, arguments)]));
    if let Some(answer) = answer {
        world.desk.will(answer);
    }
    world.model.will(world.wire.will_say("done"));
    world.chat().await;
    world.result()
}

const QUOTE: &str = r#"{"symbol":"OTR"}"#;

#[tokio::test]
async fn a_failing_service_is_a_structured_error() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let result = call(
                &world,
                "desk__quote",
                QUOTE,
                Some(Answer::text(500, "boom")),
            )
            .await;
            assert_eq!(result["error"]["code"], "http_500");
            assert_eq!(result["status_code"], 500);
            let refused = world.desk.url();
            let text = result.to_string();
            assert!(
                !text.contains(refused.trim_start_matches("http://")),
                "{text}"
            );
        },
    )
    .await;
}

#[tokio::test]
async fn an_unreachable_service_is_named_by_tool_only() {
    let nobody = |files: &mut Files| {
        files.tools["tools"][0]["execution"]["base_url"] = json!("http://127.0.0.1:1");
    };
    World::each(nobody, &[], async |world| {
        let result = call(&world, "desk__quote", QUOTE, None).await;
        assert_eq!(result["error"]["code"], "request_failed");
        assert_eq!(result["error"]["details"]["retryable"], true);
        assert!(!result.to_string().contains("127.0.0.1"), "{result}");
    })
    .await;
}

#[tokio::test]
async fn one_deadline_covers_headers_and_body() {
    let impatient = |files: &mut Files| {
        files.tools["policy"]["timeout_per_tool_ms"] = json!(100);
    };
    World::each(impatient, &[], async |world| {
        for slow in [
            Answer::chunks(200, &["{\"a\":"]).never_ends(),
            Answer::json(json!(1)).gated(&Arc::new(Notify::new())),
        ] {
            let result = call(&world, "desk__quote", QUOTE, Some(slow)).await;
            assert_eq!(result["error"]["code"], "timeout");
        }
    })
    .await;
}

#[tokio::test]
async fn a_redirect_is_an_error_and_its_target_is_never_dialled() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let other = Fake::start().await;
            for status in [301, 302, 303, 307, 308] {
                let target = format!("{}/quotes/{status}", other.url());
                let answer = Answer::text(status, "moved").header("location", &target);
                let arguments = format!(r#"{{"symbol":"S{status}"}}"#);
                let result = call(&world, "desk__quote", &arguments, Some(answer)).await;
                assert_eq!(result["error"]["code"], format!("http_{status}"));
                assert!(!result.to_string().contains(&other.url()), "{result}");
            }
            assert_eq!(other.connections(), 0);
        },
    )
    .await;
}

#[tokio::test]
async fn a_long_result_is_cut_and_states_its_length() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let exact = "x".repeat(400);
            let result = call(
                &world,
                "desk__quote",
                r#"{"symbol":"A"}"#,
                Some(Answer::text(200, &exact)),
            )
            .await;
            assert_eq!(
                result,
                json!({"ok": true, "status_code": 200, "data": exact})
            );
            let over = "ü".repeat(300);
            for (symbol, answer) in [
                ("B", Answer::text(200, &over)),
                // A body without a declared length.
                ("C", Answer::chunks(200, &[&over[..200], &over[200..]])),
            ] {
                let arguments = format!(r#"{{"symbol":"{symbol}"}}"#);
                let result = call(&world, "desk__quote", &arguments, Some(answer)).await;
                assert_eq!(
                    (&result["truncated"], &result["original_bytes"]),
                    (&json!(true), &json!(600))
                );
                assert_eq!(result["data"], "ü".repeat(200));
            }
            // Cut in the middle of a character.
            let odd = format!("a{}", "ü".repeat(300));
            let result = call(
                &world,
                "desk__quote",
                r#"{"symbol":"D"}"#,
                Some(Answer::text(200, &odd)),
            )
            .await;
            assert_eq!(result["data"], format!("a{}", "ü".repeat(199)));
        },
    )
    .await;
}

#[tokio::test]
async fn an_echoed_credential_reaches_neither_model_nor_record() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let echo = json!({"token": TOOL_TOKEN, "key": MODEL_KEY, "fine": "text"});
            let result = call(&world, "desk__quote", QUOTE, Some(Answer::json(echo))).await;
            assert_eq!(result["data"]["token"], "[redacted]");
            assert_eq!(result["data"]["key"], "[redacted]");
            assert_eq!(result["data"]["fine"], "text");
            let record =
                std::fs::read_to_string(world.history.path().join("history.jsonl")).unwrap();
            for text in [record, world.stdout.text()] {
                assert!(
                    !text.contains(TOOL_TOKEN) && !text.contains(MODEL_KEY),
                    "{text}"
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn the_identity_is_the_mediators_in_every_place() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let arguments = r#"{"symbol":"OTR","quantity":12345678901234567890,"claw_id":"heron"}"#;
            let result = call(
                &world,
                "desk__order",
                arguments,
                Some(Answer::json(json!({}))),
            )
            .await;
            assert_eq!(result["ok"], true);
            let asked = &world.desk.requests()[0];
            assert_eq!(
                (asked.method.as_str(), asked.target.as_str()),
                ("POST", "/agents/otter/orders")
            );
            assert_eq!(asked.header("x-claw-id"), Some("otter"));
            assert_eq!(
                asked.body,
                r#"{"symbol":"OTR","quantity":12345678901234567890}"#
            );
            assert!(
                !world
                    .lines()
                    .iter()
                    .any(|line| line.to_string().contains("heron") && line["kind"] == "intent")
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_value_that_would_leave_its_path_segment_is_refused() {
    World::each(
        |_| {},
        &[],
        async |world| {
            for value in ["..", "a/b", "%2e%2e", "a?b", "a#b", ""] {
                let arguments = json!({"symbol": value}).to_string();
                let result = call(&world, "desk__quote", &arguments, None).await;
                assert_eq!(result["error"]["code"], "invalid_arguments", "{value}");
            }
            assert_eq!(world.desk.connections(), 0);
        },
    )
    .await;
}

#[tokio::test]
async fn this_machine_is_not_dialled_unless_allowed() {
    let by_name = |files: &mut Files| {
        let url = &mut files.tools["tools"][0]["execution"]["base_url"];
        *url = json!(url.as_str().unwrap().replace("127.0.0.1", "localhost"));
    };
    World::each(by_name, &[], async |world| {
        let result = call(&world, "desk__quote", QUOTE, Some(Answer::json(json!(1)))).await;
        assert_eq!(result["ok"], true, "{result}");
    })
    .await;
    for host in ["127.0.0.1", "localhost"] {
        let edit = |files: &mut Files| {
            let url = &mut files.providers["providers"]["house"]["endpoints"][0]["base_url"];
            *url = json!(url.as_str().unwrap().replace("127.0.0.1", host));
        };
        World::each(edit, &[IN_A_POD], async |world| {
            let (status, body) = world.ask(world.wire.chat()).await;
            assert_eq!(
                (status, &*world.wire.error_code(&body)),
                (502, "upstream_unreachable")
            );
            let connection = &world.last_line()["connection"];
            assert_eq!(connection["cause"], "address_refused", "{host}");
            assert_eq!(world.model.connections(), 0);
        })
        .await;
    }
}

#[tokio::test]
async fn a_read_only_agent_is_not_offered_writing_tools() {
    let reads = |files: &mut Files| files.agent["max_tier"] = json!("ReadOnly");
    World::each(reads, &[], async |world| {
        let result = call(&world, "desk__order", "{}", None).await;
        assert_eq!(result["error"]["code"], "permission_denied");
        let result = call(&world, "desk__quote", QUOTE, Some(Answer::json(json!(1)))).await;
        assert_eq!(result["ok"], true);
        let asked = world.model.requests()[0].json();
        assert_eq!(world.wire.offered(&asked), ["desk__quote"]);
    })
    .await;
}

#[tokio::test]
async fn unknown_compression_is_an_error() {
    World::each(
        |_| {},
        &[],
        async |world| {
            let answer = Answer::text(200, "\u{1f}\u{8b}").header("content-encoding", "gzip");
            let result = call(&world, "desk__quote", QUOTE, Some(answer)).await;
            assert_eq!(result["error"]["code"], "request_failed");
        },
    )
    .await;
}
