//! Changes of the files under a running mediator.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Answer, Sink, Wire, World, start_server, within};

/// Runs a turn whose first reply is held while `change` happens. Then the desk answers with
/// `desk` if it is called, and the model with `says`.
async fn turn_with(
    wire: Wire,
    change: impl AsyncFnOnce(&mut World),
    desk: Option<Value>,
    says: Option<&str>,
) -> (World, u16, Value) {
    let mut world = World::speaking(wire).await;
    let gate = Arc::new(Notify::new());
    let first = wire.will_call(&[("c1", "desk__quote", r#"{"symbol":"OTR"}"#)]);
    world.model.will(first.gated(&gate));
    if let Some(value) = desk {
        world.desk.will(Answer::json(value));
    }
    if let Some(text) = says {
        world.model.will(wire.will_say(text));
    }
    let running = tokio::spawn(world.request(&wire.chat()).send());
    world.model.asked(1).await;
    change(&mut world).await;
    gate.notify_one();
    let response = within("the turn", running).await.unwrap().unwrap();
    let status = response.status().as_u16();
    let text = within("a body", response.text()).await.unwrap();
    (world, status, serde_json::from_str(&text).unwrap())
}

/// The tool is presented to a running turn, revoked in one of these ways, and then called.
#[tokio::test]
async fn a_revoked_tool_is_denied_in_the_turn_that_presented_it() {
    /// An edit of the tools and of agent.json.
    type Change = fn(&mut Value, &mut Value);
    let ways: [(&str, Change); 5] = [
        ("withdrawn", |tools, _| {
            tools.as_array_mut().unwrap().remove(0);
        }),
        ("changed", |tools, _| {
            tools[0]["x-toolcrib"]["entry_digest"] = json!("v1:other");
        }),
        ("changed without a digest", |tools, _| {
            tools[0]["x-toolcrib"] = json!({"tier": "ReadOnly"});
            tools[0]["inputSchema"]["properties"]["more"] = json!({});
        }),
        ("raised above max_tier", |tools, agent| {
            tools[0]["x-toolcrib"]["tier"] = json!("System");
            agent["max_tier"] = json!("ReadOnly");
        }),
        ("with a requirement that nobody knows", |tools, _| {
            tools[0]["x-toolcrib"]["requires"] = json!(["quarantine"]);
        }),
    ];
    for wire in Wire::all() {
        for (way, take) in ways {
            let change = async |world: &mut World| {
                let files = &mut world.files;
                take(&mut files.tools["tools"], &mut files.agent);
                world.publish().await;
            };
            let (world, status, _) = turn_with(wire, change, None, Some("denied")).await;
            assert_eq!(status, 200, "{way}");
            // An unknown requirement has a code of its own; everything else is a denial.
            let code = match way {
                "with a requirement that nobody knows" => "unsupported_requirement",
                _ => "permission_denied",
            };
            assert_eq!(world.result()["error"]["code"], code, "{way}");
            assert_eq!(world.desk.connections(), 0);
            let usage = world.server.app.metrics.usage.read();
            assert_eq!((usage.calls, usage.denied), (0, 1), "{way}");
            // The next turn is offered the changed tool, if that is allowed.
            world.model.will(wire.will_say("fine"));
            world.chat().await;
            let next = world.model.requests().last().unwrap().json();
            let offered = wire.offered(&next).contains(&"desk__quote");
            assert_eq!(offered, way.starts_with("changed"), "{way}");
        }
    }
}

#[tokio::test]
async fn a_rotated_credential_is_used_by_the_next_dispatch_and_both_are_scrubbed() {
    for wire in Wire::all() {
        let rotate = async |world: &mut World| {
            world.files.tools["tools"][0]["execution"]["auth"]["token"] = json!("desk-token-0002");
            world.publish().await;
        };
        let echo = json!({"old": crate::support::TOOL_TOKEN, "new": "desk-token-0002"});
        let (world, _, _) = turn_with(wire, rotate, Some(echo), Some("fine")).await;
        let asked = &world.desk.requests()[0];
        assert_eq!(
            asked.header("authorization"),
            Some("Bearer desk-token-0002")
        );
        let data = world.result()["data"].clone();
        assert_eq!(data, json!({"old": "[redacted]", "new": "[redacted]"}));
    }
}

#[tokio::test]
async fn a_lowered_limit_cuts_the_next_result() {
    for wire in Wire::all() {
        let lower = async |world: &mut World| {
            world.files.tools["policy"]["max_tool_result_bytes"] = json!(8);
            world.publish().await;
        };
        let long = json!("0123456789abcdef");
        let (world, _, _) = turn_with(wire, lower, Some(long), Some("fine")).await;
        assert_eq!(
            world.result(),
            json!({"ok": true, "status_code": 200, "data": "\"0123456", "truncated": true,
                "original_bytes": 18})
        );
    }
}

#[tokio::test]
async fn a_withdrawn_model_or_provider_ends_the_turn_at_its_next_round() {
    let ways: [fn(&mut Value, &mut Value); 2] = [
        |agent, _| agent["models"] = json!({"allowed": ["house/owl-2"]}),
        |_, providers| providers["providers"] = json!({}),
    ];
    for wire in Wire::all() {
        for take in ways {
            let withdraw = async |world: &mut World| {
                take(&mut world.files.agent, &mut world.files.providers);
                world.publish().await;
            };
            let (world, status, body) = turn_with(wire, withdraw, Some(json!(1)), None).await;
            assert_eq!(
                (status, &*wire.error_code(&body)),
                (403, "model_not_allowed")
            );
            assert_eq!(world.model.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn vanished_files_deny_everything_and_come_back() {
    for wire in Wire::all() {
        let vanish = async |world: &mut World| {
            world.files.swap([]);
            world.until(|now| now.version().is_err()).await;
        };
        let (mut world, status, body) = turn_with(wire, vanish, None, None).await;
        assert_eq!(
            (status, &*wire.error_code(&body)),
            (403, "access_withdrawn")
        );
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!(
            (status, &*wire.error_code(&body)),
            (403, "access_withdrawn")
        );
        let ready = format!("http://{}/readyz", world.server.admin_address);
        let response = within("readiness", world.runner.get(ready).send()).await;
        assert_eq!(response.unwrap().status(), 503);
        let with = |token: &'static str| {
            let request = world
                .runner
                .get(world.url("/v1/models"))
                .header("x-api-key", token);
            async move {
                within("an answer", request.send())
                    .await
                    .unwrap()
                    .status()
                    .as_u16()
            }
        };
        assert_eq!(with(crate::support::RUNNER).await, 403);
        assert_eq!(with("otter:wrong").await, 401);
        assert_eq!(world.desk.connections(), 0);

        world.publish().await;
        world.model.will(wire.will_say("back"));
        world.chat().await;
    }
}

#[tokio::test]
async fn an_invalid_version_leaves_the_last_valid_one_in_force_and_is_reported() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        let agent = world.files.agent.to_string();
        let tools = world.files.tools.to_string();
        let half = tools.replace("A price", "Another price");
        let providers = world.files.providers.to_string();
        for (files, error) in [
            // An incomplete update: the digests are those of other bytes.
            (
                vec![
                    ("agent.json", agent.as_str()),
                    ("tools.json", half.as_str()),
                    ("providers.json", providers.as_str()),
                    ("feeds.json", "[]"),
                ],
                "tools.json: its digest differs from",
            ),
            (
                vec![("agent.json", "{\"version\":1,\"agent\":\"sekrit")],
                "missing: tools.json",
            ),
            (
                vec![
                    ("agent.json", "{\"version\":1,\"agent\":\"sekrit"),
                    ("tools.json", ""),
                    ("providers.json", ""),
                    ("feeds.json", ""),
                ],
                "agent.json: cannot be decoded",
            ),
        ] {
            world.files.swap(files);
            world
                .until(|now| {
                    now.load_state
                        .error()
                        .is_some_and(|it| it.starts_with(error))
                })
                .await;
            world.model.will(wire.will_say("still here"));
            world.chat().await;
            let ready = format!("http://{}/readyz", world.server.admin_address);
            let response = within("readiness", world.runner.get(ready).send())
                .await
                .unwrap();
            assert_eq!(response.status(), 200);
            let text = response.text().await.unwrap();
            assert!(text.contains(error) && !text.contains("sekrit"), "{text}");
        }
        world.publish().await;
        assert_eq!(world.server.app.current.now().load_state.error(), None);
    }
}

#[tokio::test]
async fn an_unknown_restriction_denies_everything() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        world.files.agent["requires"] = json!(["quarantine"]);
        world.files.publish();
        world.until(|now| now.version().is_err()).await;
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!((status, &*wire.error_code(&body)), (503, "manifest_broken"));
    }
}

#[tokio::test]
async fn invalid_files_at_start_serve_nothing_and_are_not_ready() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        let history = tempfile::tempdir().unwrap();
        world.files.swap([
            ("agent.json", "{"),
            ("tools.json", "{"),
            ("providers.json", "{"),
            ("feeds.json", "{"),
        ]);
        let server = start_server(
            &world.files,
            &history,
            Default::default(),
            Sink::default(),
            &[],
        )
        .await
        .unwrap();
        world.server.drain().await;
        world.server = server;
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!((status, &*wire.error_code(&body)), (503, "manifest_broken"));
        let ready = format!("http://{}/readyz", world.server.admin_address);
        let response = within("readiness", world.runner.get(ready).send())
            .await
            .unwrap();
        assert_eq!(response.status(), 503);
        world.publish().await;
        world.model.will(wire.will_say("here"));
        world.chat().await;
    }
}

#[tokio::test]
async fn a_plain_directory_is_read_and_watched_too() {
    let mut world = World::start().await;
    let plain = tempfile::tempdir().unwrap();
    world.files.agent["files"] = Value::Null;
    let write = |files: &crate::support::Files| {
        for (name, value) in [
            ("tools.json", &files.tools),
            ("providers.json", &files.providers),
            ("feeds.json", &files.feeds),
            ("agent.json", &files.agent),
        ] {
            std::fs::write(plain.path().join(name), value.to_string()).unwrap();
        }
    };
    write(&world.files);
    let current = Arc::new(toolcrib_sidecar::config::CurrentConfig::default());
    let mut changes = current.subscribe();
    let _watch = toolcrib_sidecar::config::watch::Watch::start(
        plain.path().to_path_buf(),
        current.clone(),
        |_| {},
    )
    .unwrap();
    let tools = |count: usize| {
        let now = current.now();
        now.version()
            .is_ok_and(|version| version.catalog.tools().len() == count)
    };
    within("the first load", async {
        while !tools(2) {
            changes.changed().await.unwrap();
        }
    })
    .await;
    world.files.no_tools();
    write(&world.files);
    within("the second load", async {
        while !tools(0) {
            changes.changed().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_swaps_under_load_are_never_torn() {
    let mut world = World::start_with(|files| files.no_tools(), |_| {}, &[]).await;
    // Version n has key n and model n: in a mixture they would differ.
    let version = |files: &mut crate::support::Files, n: usize| {
        files.providers["providers"]["house"]["keys"][0]["secret"] = json!(format!("sk-key-{n}"));
        files.agent["models"] = json!({"default": format!("house/m-{n}"), "allowed": []});
    };
    version(&mut world.files, 0);
    world.publish().await;
    let url = world.url("/v1/chat/completions");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load = tokio::spawn({
        let (runner, stop) = (world.runner.clone(), stop.clone());
        async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let request = runner
                    .post(&url)
                    .header("x-api-key", crate::support::RUNNER)
                    .body(r#"{"messages":[]}"#);
                let status = within("an answer", request.send()).await.unwrap().status();
                // The script is empty: a 599 is an answer, a 503 would be a torn read.
                assert_eq!(status.as_u16(), 599);
            }
        }
    });
    for n in 1..=1000 {
        version(&mut world.files, n);
        world.files.publish();
        if n % 100 == 0 {
            world.publish().await;
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    load.await.unwrap();
    let requests = world.model.requests();
    assert!(!requests.is_empty());
    for asked in requests {
        let key = asked
            .header("authorization")
            .unwrap()
            .trim_start_matches("Bearer sk-key-")
            .to_string();
        let model = asked.json()["model"]
            .as_str()
            .unwrap()
            .trim_start_matches("m-")
            .to_string();
        assert_eq!(key, model);
    }
}
