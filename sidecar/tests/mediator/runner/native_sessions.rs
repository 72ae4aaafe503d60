//! Native mode over time: revocations while a client is connected, cancelled calls, and the end
//! of sessions.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_manifest::{AgentPresence, LinkAllowlist, LinkDown};

use crate::process::binary::Mediator;
use crate::support::native::{Events, answered, read};
use crate::support::{Answer, RUNNER, Wire, World, until, within};

const CHANGED: &str = "notifications/tools/list_changed";

/// The link allows only these tools.
fn allowlist(world: &World, seq: u64, tools: &[(&str, &str)]) {
    let tools = tools.iter();
    let answer = LinkDown {
        budgets: Vec::new(),
        decisions: Vec::new(),
        rates: Vec::new(),
        seq,
        want: None,
        allowlist: Some(LinkAllowlist {
            rules: std::collections::BTreeMap::new(),
            tools: tools
                .map(|(tool, digest)| (tool.to_string(), digest.to_string()))
                .collect(),
            feeds: Vec::new(),
            providers: vec!["house".into()],
            models: None,
            models_matching: Vec::new(),
        }),
        agent: AgentPresence::Present,
    };
    let current = &world.server.app.current;
    current.accept(answer, tokio::time::Instant::now()).unwrap();
}

const BOTH: [(&str, &str); 2] = [("desk.quote", "v1:quote"), ("desk.order", "v1:order")];

#[tokio::test]
async fn a_tool_revoked_by_the_link_is_announced_once_and_refused() {
    let world = World::native().await;
    let session = world.greeted().await;
    assert_eq!(session.names().await.len(), 2);
    let mut events = session.listen().await;
    // The client's list of tools does not change here.
    allowlist(&world, 1, &BOTH);
    allowlist(&world, 2, &BOTH[..1]);
    assert_eq!(events.next().await.unwrap()["method"], CHANGED);
    assert_eq!(session.names().await, ["desk__quote"]);
    let (result, is_error) = session.call("desk__order", json!({"symbol": "A"})).await;
    assert_eq!(
        (&result["error"]["code"], is_error),
        (&json!("permission_denied"), true)
    );
    assert_eq!(world.desk.connections(), 0);
    // One event for each real change: the next event is of the next change.
    allowlist(&world, 3, &BOTH[..1]);
    allowlist(&world, 4, &[]);
    assert_eq!(events.next().await.unwrap()["method"], CHANGED);
    assert!(session.names().await.is_empty());
    session.end().await;
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_new_version_is_announced_if_it_changes_the_tools() {
    let mut world = World::native().await;
    let name = world.greeted().await.name;
    let mut events = world.session(&name).listen().await;
    assert_eq!(world.session(&name).names().await.len(), 2);
    // A rotated credential causes no event.
    world.files.tools["tools"][0]["execution"]["auth"]["token"] = json!("desk-token-0002");
    world.publish().await;
    world.files.tools["tools"].as_array_mut().unwrap().remove(1);
    world.publish().await;
    assert_eq!(events.next().await.unwrap()["method"], CHANGED);
    assert_eq!(world.session(&name).names().await, ["desk__quote"]);
    // A client that has listed the tools after a change gets no event for it.
    world.files.tools["tools"][0]["description"] = json!("Another price");
    world.publish().await;
    assert_eq!(events.next().await.unwrap()["method"], CHANGED);
    world.files.agent["tokens"] = json!([]);
    world.publish().await;
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_change_without_a_stream_is_announced_on_the_next_stream() {
    let world = World::native().await;
    let session = world.greeted().await;
    session.names().await;
    allowlist(&world, 1, &BOTH[..1]);
    let mut events = session.listen().await;
    assert_eq!(events.next().await.unwrap()["method"], CHANGED);
    // Another stream replaces this one, and does not repeat the event.
    let mut next = session.listen().await;
    assert_eq!(events.next().await, None);
    allowlist(&world, 2, &[]);
    assert_eq!(next.next().await.unwrap()["method"], CHANGED);
}

#[tokio::test]
async fn a_subscription_is_acknowledged_notified_and_answered_at_its_end() {
    let mut world = World::native().await;
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut events = Events::of(world.stateless("subscriptions/listen", params)).await;
    let key = "io.modelcontextprotocol/subscriptionId";
    let first = events.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    assert_eq!(first["params"]["_meta"][key], 7);
    // Events that were not requested are not sent.
    let params = json!({"notifications": {"promptsListChanged": true}});
    let mut others = Events::of(world.stateless("subscriptions/listen", params)).await;
    let agreed = &others.next().await.unwrap()["params"]["notifications"];
    assert_eq!(*agreed, json!({}));
    let nothing = world.stateless("subscriptions/listen", json!({}));
    assert_eq!(answered(nothing).await.1["error"]["code"], -32602);
    allowlist(&world, 1, &BOTH[..1]);
    let told = events.next().await.unwrap();
    assert_eq!(
        (&told["method"], &told["params"]["_meta"][key]),
        (&json!(CHANGED), &json!(7))
    );
    world.files.agent["native"] = json!(false);
    world.publish().await;
    let last = events.next().await.unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!(7), &json!("complete"))
    );
    assert_eq!(events.next().await, None);
    assert_eq!(others.next().await, Some(last));
}

#[tokio::test]
async fn a_session_has_an_id_and_belongs_to_its_agent() {
    let mut world = World::native().await;
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    assert_eq!(answered(world.message(&list)).await.0, 400);
    let stranger = world.session("0123456789abcdef0123456789abcdef");
    assert_eq!(stranger.ask("tools/list", json!({})).await.0, 404);
    let ended = world.greeted().await;
    ended.end().await;
    assert_eq!(ended.ask("tools/list", json!({})).await.0, 404);

    let name = world.greeted().await.name;
    assert_eq!(world.session(&name).ask("ping", json!({})).await.0, 200);
    // Another agent with the very same token.
    world.files.agent["agent"] = json!("heron");
    world.publish().await;
    assert_eq!(world.session(&name).ask("ping", json!({})).await.0, 404);
    let end = world.runner.delete(world.url("/mcp")).bearer_auth(RUNNER);
    assert_eq!(answered(end.header("mcp-session-id", &name)).await.0, 404);
}

#[tokio::test]
async fn the_least_recently_used_session_makes_room() {
    let world = World::native().await;
    let first = world.greeted().await;
    for _ in 0..64 {
        world.greeted().await;
    }
    assert_eq!(first.ask("ping", json!({})).await.0, 404);
}

/// The call that the desk holds, and its record when it is over.
async fn cut_short(world: &World) -> Value {
    within("the service", world.desk.hung_up(1)).await;
    world.turn_is_recorded().await;
    let turn = world.last_line();
    let call = &turn["tool_trace"][0]["tool_calls"][0];
    assert_eq!(call["executed"], true, "{turn}");
    assert_eq!(call["result"]["error"]["code"], "canceled", "{turn}");
    turn
}

#[tokio::test]
async fn a_call_that_its_client_cancels_ends() {
    let world = World::native().await;
    let session = world.greeted().await;
    world
        .desk
        .will(Answer::json(json!({})).gated(&Arc::new(Notify::new())));
    let call = tokio::spawn(answered(
        session.calling("desk__order", json!({"symbol": "A"})),
    ));
    world.desk.asked(1).await;
    let again = session.calling("desk__order", json!({"symbol": "A"}));
    assert_eq!(answered(again).await.1["error"]["code"], -32600);
    let cancelled = |id: u64| {
        session.with(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id}}),
        )
    };
    // The cancellation names another request.
    assert_eq!(answered(cancelled(8)).await.0, 202);
    assert_eq!(answered(cancelled(7)).await.0, 202);
    let (status, answer) = within("the call", call).await.unwrap();
    assert_eq!(
        (status, &answer["error"]["data"]["code"]),
        (200, &json!("canceled"))
    );
    assert_eq!(cut_short(&world).await["error"], "canceled");
}

#[tokio::test]
async fn a_call_whose_client_hangs_up_ends() {
    let world = World::native().await;
    let params = json!({"name": "desk__order", "arguments": {"symbol": "A"}});
    world
        .desk
        .will(Answer::json(json!({})).gated(&Arc::new(Notify::new())));
    let call = tokio::spawn(world.stateless("tools/call", params).send());
    world.desk.asked(1).await;
    call.abort();
    assert_eq!(cut_short(&world).await["http_status"], 499);
}

#[tokio::test]
async fn a_call_ends_with_the_access_of_its_runner() {
    let mut world = World::native().await;
    let name = world.greeted().await.name;
    world
        .desk
        .will(Answer::json(json!({})).gated(&Arc::new(Notify::new())));
    let calling = world
        .session(&name)
        .calling("desk__order", json!({"symbol": "A"}));
    let call = tokio::spawn(answered(calling));
    world.desk.asked(1).await;
    world.files.agent["tokens"] = json!([]);
    world.publish().await;
    let (status, answer) = within("the call", call).await.unwrap();
    assert_eq!(
        (status, &answer["error"]["data"]["code"]),
        (401, &json!("unauthorized"))
    );
    assert_eq!(cut_short(&world).await["error"], "unauthorized");
}

#[tokio::test]
async fn the_end_of_the_process_ends_streams_at_once_and_waits_for_calls() {
    let world = World::native().await;
    let session = world.greeted().await;
    let mut events = session.listen().await;
    let gate = Arc::new(Notify::new());
    world
        .desk
        .will(Answer::json(json!({"done": true})).gated(&gate));
    let calling = session.calling("desk__order", json!({"symbol": "A"}));
    let call = tokio::spawn(answered(calling));
    world.desk.asked(1).await;
    let World {
        server,
        desk: _desk,
        ..
    } = world;
    let draining = tokio::spawn(server.drain());
    assert_eq!(events.next().await, None);
    gate.notify_one();
    let (_, answer) = within("the call", call).await.unwrap();
    assert_eq!(read(&answer["result"]).0["data"], json!({"done": true}));
    within("the end", draining).await.unwrap();
}

#[tokio::test]
async fn a_kill_during_a_call_leaves_the_intent_on_record() {
    let mut mediator = Mediator::start(Wire::CHAT).await;
    mediator.files.agent["native"] = json!(true);
    mediator.files.publish();
    let message = |params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        mediator.native().body(message.to_string())
    };
    within("native mode", async {
        while answered(message(json!({}))).await.0 == 404 {
            tokio::time::sleep(crate::support::POLL).await;
        }
    })
    .await;
    mediator
        .desk
        .will(Answer::json(json!({})).gated(&Arc::new(Notify::new())));
    let call = message(json!({"name": "desk__order", "arguments": {"quantity": 3},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}));
    let call = tokio::spawn(call.header("mcp-name", "desk__order").send());
    mediator.desk.asked(1).await;
    mediator.signal(rustix::process::Signal::KILL);
    mediator.ended().await;
    within("the error", call).await.unwrap().unwrap_err();
    let on_disk = || (mediator.lines().len() == 1).then(|| mediator.lines().remove(0));
    let line = until("the record", on_disk).await;
    let seen = (
        &line["kind"],
        &line["path"],
        &line["name"],
        &line["arguments"]["quantity"],
    );
    assert_eq!(
        seen,
        (
            &json!("intent"),
            &json!("native"),
            &json!("desk.order"),
            &json!(3)
        )
    );
}
