//! The lines of the record, and when they are written.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;

use crate::support::{Answer, Files, Wire, World, calls, chat, hash, says, until, within};

const QUOTE: &str = r#"{"symbol":"OTR"}"#;

#[tokio::test]
async fn the_line_has_agent_calls_and_results() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__quote",
        r#"{"symbol":"OTR"}"#,
    )])));
    world.desk.will(Answer::json(json!({"price": 3})));
    world.model.will(Answer::json(says("three")));
    world.chat().await;
    let lines = world.lines();
    let [intent, turn] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(intent["kind"], "intent");
    assert_eq!(intent["name"], "desk.quote");
    assert_eq!(
        intent["arguments"],
        json!({"symbol": "OTR", "claw_id": "otter"})
    );
    assert_eq!(intent["request_id"], turn["request_id"]);
    assert_eq!(turn["kind"], "turn");
    assert_eq!(
        (&turn["agent_id"], &turn["pod"]),
        (&json!("otter"), &json!("otter-0"))
    );
    assert_eq!(
        (&turn["status"], &turn["http_status"]),
        (&json!("ok"), &json!(200))
    );
    assert_eq!(
        turn["usage"],
        json!({"prompt_tokens": 30, "completion_tokens": 8, "total_rounds": 2})
    );
    assert_eq!(turn["request"], chat());
    assert_eq!(
        turn["response"]["choices"][0]["message"]["content"],
        "three"
    );
    let call = &turn["tool_trace"][0]["tool_calls"][0];
    assert_eq!(call["name"], "desk.quote");
    assert_eq!(
        call["grant"],
        json!({"namespace": "pond", "name": "desk-readers"})
    );
    assert_eq!(call["result"]["data"], json!({"price": 3}));

    // stdout has the same line without texts.
    world.stdout_has("\"kind\":\"turn\"").await;
    let out = world.stdout.text();
    assert!(
        out.contains("desk.quote") && out.contains("\"total_rounds\":2"),
        "{out}"
    );
    assert!(
        !out.contains("how deep?") && !out.contains("three"),
        "{out}"
    );
}

#[tokio::test]
async fn the_intent_is_on_disk_before_the_call_leaves() {
    let world = World::start().await;
    let gate = Arc::new(Notify::new());
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk__order",
        r#"{"symbol":"A"}"#,
    )])));
    world.desk.will(Answer::json(json!({})).gated(&gate));
    let running = tokio::spawn(world.request(&chat()).send());
    // The service has the call and no answer has come: a kill would come here.
    world.desk.asked(1).await;
    let lines = world.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["name"]),
        (&json!("intent"), &json!("desk.order"))
    );
    let heard = || (world.stdout.text().lines().count() == 2).then_some(());
    until("stdout", heard).await;
    running.abort();
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_is_not_sent() {
    let world = World::start().await;
    let gate = Arc::new(Notify::new());
    let call = calls(&[("c1", "desk__order", r#"{"symbol":"A"}"#)]);
    world.model.will(Answer::json(call).gated(&gate));
    world.model.will(Answer::json(says("not done")));
    let running = tokio::spawn(world.request(&chat()).send());
    world.model.asked(1).await;
    // A closed record stands in for a full disk: its writes fail.
    world.server.app.history.close();
    gate.notify_one();
    let response = within("an answer", running).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(world.result()["error"]["code"], "request_failed");
    assert_eq!(world.desk.connections(), 0);
}

/// A kill leaves the line before the model call, for an agent with tools and without.
#[tokio::test]
async fn a_model_is_called_only_after_its_line_is_recorded() {
    for tools in [true, false] {
        let edit = |files: &mut Files| {
            if !tools {
                files.no_tools();
            }
        };
        let world = World::start_with(edit, |_| {}, &[]).await;
        world.model.will(Answer::json(says("three")));
        world.chat().await;
        let lines = world.all_lines();
        let kinds: Vec<_> = lines.iter().map(|line| &line["kind"]).collect();
        assert_eq!(kinds, ["model_call", "turn"]);
        assert_eq!(lines[0]["request_id"], lines[1]["request_id"]);
        world.stdout_has("\"kind\":\"turn\"").await;
        assert!(!world.stdout.text().contains("model_call"));

        world.server.app.history.close();
        let (status, refused) = world.ask(chat()).await;
        assert_eq!(
            (status, &refused["error"]["code"]),
            (503, &json!("record_unavailable"))
        );
        assert_eq!(world.model.requests().len(), 1);
    }
}

/// A prompt is not hidden behind a mebibyte of blanks.
#[tokio::test]
async fn the_record_has_both_ends_of_long_bodies() {
    for tools in [true, false] {
        let edit = |files: &mut Files| {
            if !tools {
                files.no_tools();
            }
        };
        let world = World::start_with(edit, |_| {}, &[]).await;
        let long = |begin: &str, end: &str| format!("{begin}{}{end}", " ".repeat(2 << 20));
        world
            .model
            .will(Answer::json(says(&long("said-first", "said-last"))));
        let content = long("asked-first", "asked-last");
        let asked = json!({"messages": [{"role": "user", "content": content}]});
        let (status, _) = world.ask(asked.clone()).await;
        assert_eq!(status, 200);
        let line = world.last_line();
        let sent = asked.to_string();
        assert_eq!(line["request"]["bytes"], sent.len());
        assert_eq!(line["request"]["sha256"], hash(&sent));
        for (body, name) in [("request", "asked"), ("response", "said")] {
            for (end, word) in [("first", "-first"), ("last", "-last")] {
                let text = line[body][end].as_str().unwrap();
                assert!(text.contains(&format!("{name}{word}")), "{body} {end}");
                assert!(text.len() <= 32 * 1024);
            }
        }

        // The same for a refused request.
        let (status, _) = world
            .ask(json!({"model": "barn/owl", "messages": [content]}))
            .await;
        assert_eq!(status, 403);
        let line = world.last_line();
        assert!(
            line["request"]["last"]
                .as_str()
                .unwrap()
                .contains("asked-last")
        );
    }
}

#[tokio::test]
async fn failed_requests_are_recorded_too() {
    let world = World::start().await;
    let (status, _) = world
        .ask(json!({"model": "barn/owl", "messages": []}))
        .await;
    assert_eq!(status, 403);
    let (status, _) = world.ask(json!({"messages": 7})).await;
    assert_eq!(status, 400);
    let errors: Vec<_> = world
        .lines()
        .iter()
        .map(|line| line["error"].clone())
        .collect();
    assert_eq!(errors, ["model_not_allowed", "invalid_request"]);
}

#[tokio::test]
async fn bodies_go_to_stdout_only_if_configured() {
    let world = World::start_with(|_| {}, |_| {}, &["--record-bodies"]).await;
    world.model.will(Answer::json(says("three")));
    world.chat().await;
    world.stdout_has("how deep?").await;
}

#[tokio::test]
async fn the_metrics_port_has_the_metrics_and_nothing_else() {
    let world = World::start_with(|_| {}, |_| {}, &["--metrics-port", "0"]).await;
    let port = world.server.metrics_address.unwrap().port();
    for (path, status) in [("/metrics", 200), ("/readyz", 404), ("/healthz", 404)] {
        let url = format!("http://127.0.0.1:{port}{path}");
        let response = within("an answer", world.runner.get(url).send()).await;
        assert_eq!(response.unwrap().status(), status, "{path}");
    }
}

#[tokio::test]
async fn metric_labels_are_compiled_names_only() {
    let world = World::start().await;
    world.model.will(Answer::json(calls(&[
        ("c1", "desk__quote", r#"{"symbol":"A"}"#),
        ("c2", "made_up_name", "{}"),
    ])));
    world.desk.will(Answer::json(json!(1)));
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    let url = format!("http://{}/metrics", world.server.admin_address);
    let text = within("metrics", world.runner.get(url).send())
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        text.contains(r#"tool="desk.quote",outcome="ok"} 1"#),
        "{text}"
    );
    assert!(text.contains(r#"kind="prompt"} 30"#), "{text}");
    assert!(!text.contains("made_up_name"), "{text}");
    let usage = world.server.app.metrics.usage.read();
    assert_eq!((usage.requests, usage.calls, usage.rounds), (1, 1, 1));
    assert_eq!((usage.failed, usage.denied), (0, 1));
}

/// A denied call counts once, wherever it was denied; a failed one does not.
#[tokio::test]
async fn a_denied_call_counts_as_denied_once() {
    let cases: [(&str, &str, u64); 4] = [
        ("made_up_name", "{}", 1),
        ("desk__drain", r#"{"symbol":"EEL"}"#, 1),
        ("desk__quote", r#"{"wrong":1}"#, 0),
        ("desk__quote", QUOTE, 0),
    ];
    for (name, arguments, denied) in cases {
        for wire in Wire::all() {
            let world = World::speaking_with(
                wire,
                |files| {
                    let mut drain = files.tools["tools"][0].clone();
                    drain["name"] = json!("desk.drain");
                    drain["x-toolcrib"]["tier"] = json!("Elevated");
                    files.tools["tools"].as_array_mut().unwrap().push(drain);
                    files.agent["max_tier"] = json!("Elevated");
                },
                &[],
            )
            .await;
            world.model.will(wire.will_call(&[("c1", name, arguments)]));
            world.desk.will(Answer::json(json!(1)));
            world.model.will(wire.will_say("done"));
            let (status, _) = world.ask(wire.chat()).await;
            assert_eq!(status, 200);
            let usage = world.server.app.metrics.usage.read();
            let calls = u64::from(arguments == QUOTE);
            assert_eq!((usage.calls, usage.denied), (calls, denied), "{name}");
        }
    }
}

/// A secret that is a bare number appears unquoted in a service's or runner's JSON.
#[tokio::test]
async fn a_secret_that_is_a_number_leaves_the_lines_json() {
    const PIN: &str = "31415926";
    let pin = |files: &mut crate::support::Files| {
        files.tools["tools"][0]["execution"]["auth"]["token"] = json!(PIN);
        files.tools["tools"][0]["inputSchema"]["properties"]["n"] = json!({});
    };
    for wire in Wire::all() {
        let world = World::speaking_with(wire, pin, &["--record-bodies"]).await;
        let arguments = r#"{"symbol":"OTR","n":31415926}"#;
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", arguments)]));
        world.desk.will(Answer::text(200, r#"{"price":31415926}"#));
        world.model.will(wire.will_say("done"));
        let mut request = wire.chat();
        request["metadata"] = json!({"pin": 31415926});
        let (status, body) = world.ask(request).await;
        assert_eq!(status, 200, "{body}");
        // Here each line is parsed as JSON.
        let lines = world.lines();
        let [intent, turn] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(intent["arguments"]["n"], "[redacted]");
        let call = &turn["tool_trace"][0]["tool_calls"][0];
        assert_eq!(call["arguments"]["n"], "[redacted]");
        assert_eq!(turn["request"]["metadata"]["pin"], "[redacted]");
        world.stdout_has("\"kind\":\"turn\"").await;
        let out = world.stdout.text();
        for line in out.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        assert!(!out.contains(PIN), "{out}");
    }
}
