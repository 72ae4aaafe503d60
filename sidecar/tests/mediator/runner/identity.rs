//! Authentication of the runner: other callers do not cause even a connection.

use serde_json::{Value, json};

use crate::support::{Answer, Files, MODEL_KEY, RUNNER, Wire, World, chat, says, within};

#[tokio::test]
async fn every_wrong_token_gets_the_same_401_and_causes_no_request() {
    let world = World::start().await;
    let long = format!("Bearer otter:{}", "x".repeat(4000));
    let wrong: &[(&str, &str)] = &[
        ("authorization", ""),
        ("authorization", "Bearer"),
        ("authorization", "Bearer "),
        ("authorization", "Bearer otter"),
        ("authorization", "Bearer otter:"),
        ("authorization", "Bearer :runner-secret"),
        ("authorization", "Bearer heron:runner-secret"),
        ("authorization", "Bearer otter:runner-secre"),
        ("authorization", "Bearer otter:runner-secret2"),
        ("authorization", "Bearer  otter:runner-secret"),
        ("authorization", "Basic b3R0ZXI6cnVubmVyLXNlY3JldA=="),
        ("authorization", "otter:runner-secret"),
        ("authorization", "Bearer OTTER:RUNNER-SECRET"),
        ("authorization", "Bearer null"),
        ("authorization", &long),
        ("x-api-key", ""),
        ("x-api-key", "otter"),
        ("x-api-key", "Bearer otter:runner-secret"),
        ("x-api-key", "otter:wrong"),
        ("cookie", "otter:runner-secret"),
        ("x-claw-id", "otter"),
    ];
    let mut bodies = Vec::new();
    for (name, value) in wrong {
        let request = world
            .runner
            .post(world.url("/v1/chat/completions"))
            .header(*name, *value)
            .body(chat().to_string());
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 401, "{name}: {value}");
        bodies.push(within("a body", response.text()).await.unwrap());
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let body: Value = serde_json::from_str(&bodies[0]).unwrap();
    assert_eq!(body["error"]["code"], "unauthorized");
    let listed = within(
        "an answer",
        world.runner.get(world.url("/v1/models")).send(),
    )
    .await;
    assert_eq!(listed.unwrap().status(), 401);
    assert_eq!(
        (world.model.connections(), world.desk.connections()),
        (0, 0)
    );
}

#[tokio::test]
async fn either_header_authenticates_and_neither_is_forwarded() {
    let world = World::start().await;
    for (name, value) in [
        ("authorization", format!("Bearer {RUNNER}")),
        ("x-api-key", RUNNER.into()),
    ] {
        world.model.will(Answer::json(says("hello")));
        let request = world
            .runner
            .post(world.url("/v1/chat/completions"))
            .header(name, value)
            .header("cookie", "session=1")
            .header("x-claw-id", "heron")
            .header("x-toolcrib-debug", "1")
            .header("host", "elsewhere.example")
            .body(chat().to_string());
        assert_eq!(
            within("an answer", request.send()).await.unwrap().status(),
            200
        );
    }
    for asked in world.model.requests() {
        assert_eq!(
            asked.header("authorization"),
            Some(&*format!("Bearer {MODEL_KEY}"))
        );
        for absent in ["x-api-key", "cookie", "x-claw-id", "x-toolcrib-debug"] {
            assert_eq!(asked.header(absent), None, "{absent}");
        }
        assert_eq!(
            asked.header("host").unwrap(),
            world.model.url().trim_start_matches("http://")
        );
    }
}

/// A gateway would take its address, account or model from such headers.
#[tokio::test]
async fn headers_that_configure_a_gateway_are_not_forwarded() {
    let sent = [
        ("anthropic-beta", "b-1"),
        ("openai-beta", "assistants=v2"),
        ("x-stainless-os", "Linux"),
        ("x-request-id", "r-1"),
        ("idempotency-key", "i-1"),
        ("x-title", "Otter"),
        ("x-portkey-custom-host", "https://elsewhere.example/v1"),
        ("helicone-target-url", "https://elsewhere.example"),
        ("cf-aig-authorization", "k"),
        ("x-litellm-model", "large"),
        ("x-goog-api-key", "k"),
        ("x-amz-security-token", "k"),
        ("openai-organization", "org-1"),
        ("content-encoding", "identity"),
    ];
    for (listed, passed) in [
        (json!([]), &sent[..5]),
        (
            json!(["x-title", "x-goog-*", "content-encoding", "*"]),
            &sent[..6],
        ),
    ] {
        let at = |files: &mut Files| {
            files.providers["providers"]["house"]["pass_headers"] = listed.clone();
        };
        let world = World::start_with(at, |_| {}, &[]).await;
        world.model.will(Answer::json(says("hello")));
        let url = world.url("/v1/chat/completions");
        let mut request = world.runner.post(url).header("x-api-key", RUNNER);
        for (name, value) in sent {
            request = request.header(name, value);
        }
        let request = request.body(chat().to_string());
        let answer = within("an answer", request.send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        let asked = world.model.requests().pop().unwrap();
        for (name, value) in sent {
            let expected = passed.contains(&(name, value)).then_some(value);
            assert_eq!(asked.header(name), expected, "{name} with {listed}");
        }
    }
}

#[tokio::test]
async fn a_removed_token_ends_the_running_turn_and_is_refused_afterwards() {
    for wire in Wire::all() {
        let mut world = World::speaking(wire).await;
        let gate = std::sync::Arc::new(tokio::sync::Notify::new());
        world
            .model
            .will(wire.will_call(&[("c1", "desk__quote", "{}")]).gated(&gate));
        let running = tokio::spawn(world.request(&wire.chat()).send());
        world.model.asked(1).await;
        world.files.agent["tokens"] = json!([{"id": "t2", "sha256": "00"}]);
        world.publish().await;
        let response = within("the end of the turn", running)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(response.status(), 401);
        let (status, body) = world.ask(wire.chat()).await;
        assert_eq!((status, &*wire.error_code(&body)), (401, "unauthorized"));
        assert_eq!(world.desk.connections(), 0);
    }
}

#[tokio::test]
async fn the_list_of_models_has_exactly_the_allowed_ones() {
    // The default may be requested by its name, too, and is listed once.
    for (models, expected) in [
        (
            json!({"default": "house/otter-1", "allowed": ["house/otter-1"]}),
            vec!["house/otter-1"],
        ),
        (
            json!({"default": "house/otter-1", "allowed": ["house/heron-9", "barn/owl-2"]}),
            vec!["house/heron-9", "house/otter-1"],
        ),
        (
            json!({"default": "house/otter-1", "allowed": []}),
            vec!["house/otter-1"],
        ),
        // Without a policy every model is allowed: only the provider knows the list.
        (Value::Null, vec!["house/otter-1", "house/reef/owl-2"]),
    ] {
        let is_open = models.is_null();
        let world = World::start_with(|files| files.agent["models"] = models, |_| {}, &[]).await;
        let offered = json!({"object": "list", "data": [
            {"id": "otter-1", "object": "model"}, {"id": "reef/owl-2"}, {"id": ""}]});
        world.model.will(Answer::json(offered));
        let request = world
            .runner
            .get(world.url("/v1/models"))
            .header("x-api-key", RUNNER);
        let response = within("an answer", request.send()).await.unwrap();
        let text = within("its body", response.text()).await.unwrap();
        let listed: Value = serde_json::from_str(&text).unwrap();
        let listed = listed["data"].as_array().unwrap().iter();
        let ids: Vec<&str> = listed.map(|it| it["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected);
        let asked = world.model.requests();
        assert_eq!(asked.len(), usize::from(is_open));
        if let [asked] = &asked[..] {
            assert_eq!(asked.header("authorization"), Some("Bearer sk-house-key-1"));
            assert_eq!(asked.header("x-api-key"), None);
        }
    }
}

#[tokio::test]
async fn a_provider_that_lists_nothing_is_left_out_of_the_list_and_keeps_its_key() {
    let open = |files: &mut Files| files.agent["models"] = Value::Null;
    let world = World::start_with(open, |_| {}, &[]).await;
    for answer in [
        Answer::text(401, "no"),
        Answer::text(200, "<h1>hello</h1>"),
        Answer::text(500, "boom"),
    ] {
        world.model.will(answer);
        let request = world.runner.get(world.url("/v1/models"));
        let request = request.header("x-api-key", RUNNER);
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let text = within("its body", response.text()).await.unwrap();
        let listed: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(listed["data"], json!([]));
    }
    world.model.will(Answer::json(says("hello")));
    assert_eq!(world.ask(chat()).await.0, 200);
}

#[tokio::test]
async fn without_a_policy_an_unprefixed_model_goes_to_the_only_provider_of_the_dialect() {
    let mut world = World::start().await;
    world.files.agent["models"] = Value::Null;
    let mut barn = world.files.providers["providers"]["house"].clone();
    barn["endpoints"][0]["dialect"] = json!("anthropic");
    world.files.providers["providers"]["barn"] = barn.clone();
    world.publish().await;
    let mut request = chat();
    request["model"] = json!("heron-9");
    world.model.will(Answer::json(says("hello")));
    assert_eq!(world.ask(request.clone()).await.0, 200);
    assert_eq!(world.model.requests()[0].json()["model"], "heron-9");

    barn["endpoints"][0]["dialect"] = json!("openai");
    world.files.providers["providers"]["barn"] = barn;
    world.publish().await;
    let (status, body) = world.ask(request).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!("model_missing"))
    );
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("barn/heron-9, house/heron-9"), "{message}");
}

#[tokio::test]
async fn the_error_for_a_forbidden_model_lists_the_allowed_ones() {
    let world = World::start().await;
    let mut request = chat();
    for (model, status, code) in [
        (json!("house/heron-9"), 403, "model_not_allowed"),
        (json!("heron-9"), 403, "model_not_allowed"),
        (json!("barn/otter-1"), 403, "model_not_allowed"),
    ] {
        request["model"] = model;
        let (seen, body) = world.ask(request.clone()).await;
        assert_eq!(
            (seen, &body["error"]["code"]),
            (status, &json!(code)),
            "{body}"
        );
        assert!(
            body["error"]["message"]
                .as_str()
                .unwrap()
                .contains("house/otter-1")
        );
    }
    request["model"] = json!("house/otter-1");
    for (field, value) in [
        ("api_base", json!("http://elsewhere")),
        ("base_url", json!("http://elsewhere")),
        ("models", json!(["barn/owl-2"])),
        ("user_config", json!({"model_list": []})),
        ("fallbacks", json!(["barn/owl-2"])),
        ("MODEL", json!("large")),
        ("API_BASE", json!("http://elsewhere")),
        ("N", json!(2)),
        ("toolChoice", json!("none")),
        ("stream_options", json!({"INCLUDE_USAGE": true})),
        (
            "tools",
            json!([{"type": "function", "TYPE": "mcp", "function": {"name": "a"}}]),
        ),
    ] {
        let mut request = request.clone();
        request[field] = value;
        let (status, body) = world.ask(request).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (400, &json!("field_refused")),
            "{field}"
        );
    }
    assert_eq!(world.model.connections(), 0);

    world.model.will(Answer::json(says("hello")));
    let (status, _) = world.ask(json!({"messages": []})).await;
    assert_eq!(status, 200);
    assert_eq!(world.model.requests()[0].json()["model"], "otter-1");
}

#[tokio::test]
async fn an_unauthorized_error_has_the_dialects_shape() {
    for wire in Wire::all() {
        let world = World::speaking(wire).await;
        let path = format!("/v1{}", wire.0.resource());
        let request = world.runner.post(world.url(&path)).body("{}");
        let request = request.header("x-api-key", "otter:wrong");
        let response = within("an answer", request.send()).await.unwrap();
        assert_eq!(response.status(), 401);
        let text = within("its body", response.text()).await.unwrap();
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(wire.error_code(&body), "unauthorized");
        assert_eq!(body["error"]["type"], "authentication_error");
    }
}

/// Elsewhere the agent `news` of the namespace `shared` is called `news.shared`.
#[tokio::test]
async fn a_pods_name_with_a_dot_is_no_identity() {
    for (identity, pod, status) in [
        ("Pod", "news.shared", 403),
        ("Pod", "news-0", 200),
        ("Agent", "news.shared", 200),
    ] {
        let at = |files: &mut Files| files.agent["identity"] = json!(identity);
        let world = World::start_with(at, |_| {}, &["--pod", pod]).await;
        if status == 200 {
            world.model.will(Answer::json(says("hello")));
        }
        let (got, body) = world.ask(json!({"messages": []})).await;
        assert_eq!(got, status, "{identity} {pod}: {body}");
        if status == 403 {
            assert_eq!(body["error"]["code"], "identity_refused");
            assert_eq!(world.model.connections(), 0);
        }
    }
}

#[tokio::test]
async fn services_see_the_pods_name_as_the_identity_and_a_foreign_one_the_namespace_too() {
    for (identity, own, foreign) in [
        ("Pod", "news-0", "news-0.pond"),
        ("Agent", "otter", "otter.pond"),
    ] {
        let at = |files: &mut Files| {
            files.agent["identity"] = json!(identity);
            let mut other = files.tools["tools"][0].clone();
            other["name"] = json!("desk.foreign");
            other["x-toolcrib"]["foreign"] = json!(true);
            files.tools["tools"].as_array_mut().unwrap().push(other);
        };
        World::each(at, &["--pod", "news-0"], async |world| {
            let calls = [
                ("c1", "desk__quote", r#"{"symbol":"OTR"}"#),
                ("c2", "desk__foreign", r#"{"symbol":"OTR"}"#),
            ];
            world.model.will(world.wire.will_call(&calls));
            world.model.will(world.wire.will_say("done"));
            for _ in &calls {
                world.desk.will(Answer::json(json!({})));
            }
            assert_eq!(world.ask(world.wire.chat()).await.0, 200, "{identity}");
            let mut seen: Vec<String> = world
                .desk
                .requests()
                .iter()
                .map(|asked| asked.header("x-claw-id").unwrap().to_owned())
                .collect();
            // The two calls may run at the same time.
            seen.sort();
            assert_eq!(seen, [own, foreign], "{identity}");
        })
        .await;
    }
}
