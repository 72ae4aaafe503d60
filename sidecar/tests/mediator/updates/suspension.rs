//! A suspended agent: first the link denies everything, then the files say why.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_manifest::{AgentPresence, LinkAllowlist, LinkDown};

use crate::support::native::answered;
use crate::support::{Answer, Files, RUNNER, Wire, World, within};

const REASON: &str = "runaway loop, see INC-7";
const QUOTE: &str = r#"{"symbol":"OTR"}"#;

/// The files of a suspended agent, as the operator compiles them.
fn suspend(files: &mut Files) {
    give_nothing(files);
    files.agent["suspension"] = json!({"reason": REASON});
}

fn give_nothing(files: &mut Files) {
    files.no_tools();
    files.providers["providers"] = json!({});
    files.feeds = json!([]);
}

/// The link's answer for a suspended agent, or for one that has everything.
fn answer(seq: u64, agent: AgentPresence) -> LinkDown {
    let allowlist = match agent {
        AgentPresence::Present => Some(LinkAllowlist {
            rules: std::collections::BTreeMap::new(),
            tools: [("desk.quote".into(), "v1:quote".into())].into(),
            feeds: vec!["desk/tide".into()],
            providers: vec!["house".into()],
            models: None,
            models_matching: Vec::new(),
        }),
        AgentPresence::Deleted => None,
    };
    LinkDown {
        budgets: Vec::new(),
        decisions: Vec::new(),
        rates: Vec::new(),
        seq,
        want: None,
        allowlist,
        agent,
    }
}

fn hear(world: &World, seq: u64, agent: AgentPresence) {
    let current = &world.server.app.current;
    current.accept(answer(seq, agent), Instant::now()).unwrap();
}

async fn publish_suspended(world: &mut World) {
    suspend(&mut world.files);
    world.files.publish();
    world
        .until(|now| {
            let version = now.load_state.version();
            version.is_some_and(|it| it.agent.suspension.is_some())
        })
        .await;
}

/// Every way to ask the mediator for something, with its status and code.
async fn every_request(world: &World) -> Vec<(&'static str, u16, String)> {
    let code = |body: &Value| {
        body["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut said = Vec::new();
    let mut of = |what, (status, body): (u16, Value)| said.push((what, status, code(&body)));
    for (what, wire) in ["chat", "messages", "responses"]
        .into_iter()
        .zip(Wire::all())
    {
        let path = format!("/v1{}", wire.0.resource());
        let request = world.runner.post(world.url(&path)).bearer_auth(RUNNER);
        of(what, answered(request.body(wire.chat().to_string())).await);
    }
    let count = world.runner.post(world.url("/v1/messages/count_tokens"));
    let count = count.header("x-api-key", RUNNER);
    let body = json!({"model": "otter-1", "messages": [{"role": "user", "content": "hi"}]});
    of("count_tokens", answered(count.body(body.to_string())).await);
    let models = world.runner.get(world.url("/v1/models"));
    of("models", answered(models.bearer_auth(RUNNER)).await);

    let mut of = |what, (status, body): (u16, Value)| {
        let code = body["error"]["data"]["code"].as_str().unwrap_or_default();
        said.push((what, status, code.to_owned()));
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    of("initialize", answered(world.message(&hello)).await);
    of(
        "tools/list",
        answered(world.stateless("tools/list", json!({}))).await,
    );
    let call = json!({"name": "desk__quote", "arguments": {"symbol": "OTR"}});
    of(
        "tools/call",
        answered(world.stateless("tools/call", call)).await,
    );
    said
}

fn all_refused(code: &str) -> Vec<(&'static str, u16, String)> {
    let ways = [
        "chat",
        "messages",
        "responses",
        "count_tokens",
        "models",
        "initialize",
        "tools/list",
        "tools/call",
    ];
    ways.map(|way| (way, 403, code.to_owned())).into()
}

fn with_feed(files: &mut Files) {
    let url = files.tools["tools"][0]["execution"]["base_url"].clone();
    let url = format!("{}/tide", url.as_str().unwrap());
    files.agent["native"] = json!(true);
    files.feeds =
        json!([{"name": "tide", "source": "desk", "path": "/tide", "url": url, "ttl": 30}]);
}

#[tokio::test]
async fn every_request_is_refused_by_the_link_first_and_by_the_files_then() {
    let mut world = World::start_with(with_feed, |_| {}, &[]).await;
    hear(&world, 1, AgentPresence::Present);
    hear(&world, 2, AgentPresence::Deleted);
    assert_eq!(every_request(&world).await, all_refused("access_withdrawn"));
    publish_suspended(&mut world).await;
    assert_eq!(every_request(&world).await, all_refused("agent_suspended"));
    for wire in Wire::all() {
        world.wire = wire;
        let (_, body) = world.ask(wire.chat()).await;
        let message = body["error"]["message"].as_str().unwrap();
        let expected = format!("this agent is suspended: {REASON}; ask the owner");
        assert!(message.starts_with(&expected), "{message}");
    }
    // A stranger learns nothing.
    let models = world
        .runner
        .get(world.url("/v1/models"))
        .bearer_auth("otter:wrong");
    assert_eq!(answered(models).await.0, 401);
    assert_eq!(
        (world.desk.connections(), world.model.connections()),
        (0, 0)
    );

    // Resumed: the link allows everything again, and the files decide.
    hear(&world, 3, AgentPresence::Present);
    assert_eq!(every_request(&world).await, all_refused("agent_suspended"));
}

#[tokio::test]
async fn a_call_that_has_left_ends_and_is_recorded() {
    for wire in Wire::all() {
        for by_link in [true, false] {
            let mut world = World::speaking(wire).await;
            world
                .model
                .will(wire.will_call(&[("c1", "desk__quote", QUOTE)]));
            let gate = Arc::new(Notify::new());
            world
                .desk
                .will(Answer::json(json!({"price": 7})).gated(&gate));
            let running = tokio::spawn(world.request(&wire.chat()).send());
            world.desk.asked(1).await;
            let code = if by_link {
                hear(&world, 1, AgentPresence::Deleted);
                "access_withdrawn"
            } else {
                publish_suspended(&mut world).await;
                "agent_suspended"
            };
            let response = within("the turn", running).await.unwrap().unwrap();
            let status = response.status().as_u16();
            let text = within("a body", response.text()).await.unwrap();
            let body: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, &*wire.error_code(&body)), (403, code));
            // The service sees the connection end.
            world.desk.hung_up(1).await;
            world.turn_is_recorded().await;
            let line = world.last_line();
            assert_eq!(line["error"], code, "{line}");
            assert_eq!(line["kind"], "turn");
            assert_eq!(world.model.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_resumed_agent_is_served_again() {
    let mut world = World::start().await;
    let given = (world.files.tools.clone(), world.files.providers.clone());
    publish_suspended(&mut world).await;
    assert_eq!(world.ask(world.wire.chat()).await.0, 403);
    (world.files.tools, world.files.providers) = given;
    world.files.agent["suspension"] = Value::Null;
    world.publish().await;
    world.model.will(world.wire.will_say("back"));
    world.chat().await;
}

#[tokio::test]
async fn a_suspended_agents_pod_is_ready_and_reports_its_files() {
    let mut world = World::start().await;
    publish_suspended(&mut world).await;
    let ready = format!("http://{}/readyz", world.server.admin_address);
    let (status, body) = answered(world.runner.get(ready)).await;
    assert_eq!(
        (
            status,
            &body["ready"],
            &body["error"],
            &body["digest"]["manifest"]
        ),
        (
            200,
            &json!(true),
            &json!(format!("this agent is suspended: {REASON}")),
            &json!("manifest-2")
        )
    );
}

/// A mediator that does not know `suspension` ignores it, as every unknown field.
#[tokio::test]
async fn files_without_tools_and_providers_serve_nothing_by_themselves() {
    let nothing = |files: &mut Files| {
        with_feed(files);
        give_nothing(files);
    };
    let world = World::start_with(nothing, |_| {}, &[]).await;
    for (what, status, code) in every_request(&world).await {
        match what {
            "chat" | "messages" | "responses" | "count_tokens" => {
                assert_eq!((status, &*code), (403, "model_not_allowed"), "{what}");
            }
            _ => {}
        }
    }
    let session = world.greeted().await;
    assert_eq!(session.names().await, [] as [String; 0]);
    let (status, answer) = session
        .ask(
            "tools/call",
            json!({"name": "desk__quote", "arguments": {"symbol": "OTR"}}),
        )
        .await;
    let refused = answer["error"].is_object() || answer["result"]["isError"] == true;
    assert!(refused, "{status} {answer}");
    assert_eq!(
        (world.desk.connections(), world.model.connections()),
        (0, 0)
    );
}
