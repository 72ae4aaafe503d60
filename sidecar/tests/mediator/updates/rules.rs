//! Rules of grants at the socket: the link takes one away, a window closes, an older operator does
//! not know them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_sidecar::app::rates::RateStore;

use super::link::linked_by;
use crate::support::{Answer, Fake, Files, World, calls, chat, says, until, within};

/// Gives `desk.order` by these rules.
fn gives(files: &mut Files, rules: &Value) {
    let entry = &mut files.tools["tools"][1]["x-toolcrib"];
    entry["rules"] = rules.clone();
    entry["requires"] = json!(["rules/1"]);
}

fn rule(digest: &str, conditions: &Value) -> Value {
    let mut rule = json!({"digest": digest, "grant": {"namespace": "pond", "name": digest}});
    for (name, value) in conditions.as_object().unwrap() {
        rule[name] = value.clone();
    }
    rule
}

/// At most 100 of any symbol, and any number of OTR.
fn small_or_otr() -> Value {
    json!([
        rule(
            "r1:small",
            &json!({"arguments": {"properties": {"quantity": {"maximum": 100}}}})
        ),
        rule("r1:otr", &json!({"pin": {"symbol": "OTR"}})),
    ])
}

/// An answer whose allowlist leaves these rules of `desk.order`.
fn leaves(seq: u64, rules: &[&str]) -> Value {
    json!({"seq": seq, "agent": "Present", "floor": {
        "tools": {"desk.quote": "v1:quote"},
        "rules": {"desk.order": {"entry": "v1:order", "rules": rules}},
        "feeds": [], "providers": ["house"], "models": null}})
}

fn order(arguments: &str) -> Value {
    calls(&[("c1", "desk__order", arguments)])
}

fn offered(world: &World) -> Vec<String> {
    let request = world.model.requests().last().unwrap().json();
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_string();
    tools.iter().map(name).collect()
}

/// The codes of the results in the model's last request.
fn results(world: &World) -> Vec<String> {
    let code = |result: &Value| match result["ok"].as_bool().unwrap() {
        true => "ok".to_string(),
        false => result["error"]["code"].as_str().unwrap().to_string(),
    };
    world
        .results()
        .iter()
        .map(|(_, result)| code(result))
        .collect()
}

#[tokio::test]
async fn a_rule_that_the_link_takes_away_allows_no_further_call() {
    let operator = Fake::start().await;
    operator.will(Answer::json(leaves(5, &["r1:small", "r1:otr"])));
    let change = Arc::new(Notify::new());
    operator.will(Answer::json(leaves(6, &["r1:otr"])).gated(&change));
    let (world, _token) = linked_by(&operator, |files| gives(files, &small_or_otr())).await;
    operator.asked(2).await;
    let replied = Arc::new(Notify::new());
    world
        .model
        .will(Answer::json(order(r#"{"symbol":"AAA","quantity":5}"#)));
    world.desk.will(Answer::json(json!({})));
    let again = calls(&[
        ("c2", "desk__order", r#"{"symbol":"AAA","quantity":6}"#),
        ("c3", "desk__order", r#"{"symbol":"OTR","quantity":600}"#),
    ]);
    world.model.will(Answer::json(again).gated(&replied));
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(says("done")));
    let running = tokio::spawn(world.request(&chat()).send());
    world.model.asked(2).await;
    change.notify_one();
    world.until(|now| now.seen == 6).await;
    replied.notify_one();
    let response = within("the turn", running).await.unwrap().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(results(&world), ["ok", "condition_failed", "ok"]);
    assert_eq!(world.desk.requests().len(), 2);
    world.stdout_has("\"kind\":\"turn\"").await;
    let lines = world.lines();
    let intents: Vec<(&Value, &Value)> = lines
        .iter()
        .filter(|line| line["kind"] == "intent")
        .map(|line| (&line["rule"], &line["grant"]["name"]))
        .collect();
    let named = [json!("r1:small"), json!("r1:otr")];
    assert_eq!(intents, named.iter().map(|it| (it, it)).collect::<Vec<_>>());
    let turn = lines.iter().find(|line| line["kind"] == "turn").unwrap();
    let trace = |round: usize, call: usize| &turn["tool_trace"][round]["tool_calls"][call]["rule"];
    assert_eq!(trace(0, 0), "r1:small");
    assert_eq!(trace(1, 0), &Value::Null);
    assert_eq!(trace(1, 1), "r1:otr");
    let metrics = world.metrics().await;
    let denied = |line: &&str| line.contains("desk.order") && line.contains("condition_failed");
    assert!(metrics.lines().any(|line| denied(&line)), "{metrics}");
}

#[tokio::test]
async fn an_allowlist_of_an_older_operator_leaves_no_rule_with_conditions() {
    let operator = Fake::start().await;
    operator.will(Answer::json(
        json!({"seq": 5, "agent": "Present", "floor": {
        "tools": {"desk.quote": "v1:quote", "desk.order": "v1:order"},
        "feeds": [], "providers": ["house"], "models": null}}),
    ));
    let (world, _token) = linked_by(&operator, |files| gives(files, &small_or_otr())).await;
    world.until(|now| now.seen == 5).await;
    world.model.will(Answer::json(order(r#"{"symbol":"OTR"}"#)));
    world.model.will(Answer::json(says("no")));
    world.chat().await;
    assert_eq!(offered(&world), ["desk__quote"]);
    assert_eq!(results(&world), ["permission_denied"]);
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_grant_that_expires_in_mid_turn_allows_no_further_call_without_the_operator() {
    let operator = Fake::start().await;
    operator.will(Answer::json(leaves(5, &["r1:brief"])));
    let (mut world, _token) = linked_by(&operator, |_| {}).await;
    world.until(|now| now.seen == 5).await;
    drop(operator);
    let end = Timestamp::now() + SignedDuration::from_secs(6);
    let brief = rule("r1:brief", &json!({"not_after": end.to_string()}));
    gives(&mut world.files, &json!([brief]));
    world.publish().await;
    let replied = Arc::new(Notify::new());
    world
        .model
        .will(Answer::json(order(r#"{"symbol":"OTR","quantity":1}"#)));
    world.desk.will(Answer::json(json!({})));
    let again = order(r#"{"symbol":"OTR","quantity":2}"#);
    world.model.will(Answer::json(again).gated(&replied));
    world.model.will(Answer::json(says("once")));
    let running = tokio::spawn(world.request(&chat()).send());
    world.model.asked(2).await;
    until("the end of the window", || {
        (Timestamp::now() >= end).then_some(())
    })
    .await;
    replied.notify_one();
    let response = within("the turn", running).await.unwrap().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(results(&world), ["ok", "permission_denied"]);
    assert_eq!(world.desk.requests().len(), 1);
    world.model.will(Answer::json(says("gone")));
    world.chat().await;
    assert_eq!(offered(&world), ["desk__quote"]);
}

#[tokio::test]
async fn a_tool_with_a_later_kind_of_rules_stays_withheld() {
    let edit = |files: &mut Files| {
        gives(files, &small_or_otr());
        files.tools["tools"][1]["x-toolcrib"]["requires"] = json!(["rules/2"]);
    };
    let world = World::start_with(edit, |_| {}, &[]).await;
    let withheld = world.server.app.current.now().version().unwrap().withheld();
    assert_eq!(withheld.len(), 1);
    assert_eq!(withheld[0].tool, "desk.order");
    assert_eq!(withheld[0].reason, "unsupported_requirement");
}

#[tokio::test]
async fn a_native_client_sees_and_calls_a_tool_by_its_rule() {
    let edit = |files: &mut Files| {
        files.agent["native"] = json!(true);
        let conditions = json!({"pin": {"symbol": "OTR"},
            "arguments": {"properties": {"quantity": {"maximum": 100}}}});
        gives(files, &json!([rule("r1:some", &conditions)]));
    };
    let world = World::start_with(edit, |_| {}, &[]).await;
    let session = world.greeted().await;
    let (_, listed) = session.ask("tools/list", json!({})).await;
    let schema = json!({"type": "object",
        "properties": {"quantity": {"type": "number", "maximum": 100}}});
    assert_eq!(listed["result"]["tools"][1]["inputSchema"], schema);
    world.desk.will(Answer::json(json!({})));
    let (_, is_error) = session.call("desk__order", json!({"quantity": 5})).await;
    assert!(!is_error);
    let sent = world.desk.requests()[0].json();
    assert_eq!(
        (&sent["symbol"], &sent["quantity"]),
        (&json!("OTR"), &json!(5))
    );
    for arguments in [
        json!({"quantity": 500}),
        json!({"quantity": 5, "symbol": "AAA"}),
    ] {
        let (result, is_error) = session.call("desk__order", arguments).await;
        assert!(is_error);
        assert_eq!(result["error"]["code"], "condition_failed");
    }
    assert_eq!(world.desk.requests().len(), 1);
}

#[tokio::test]
async fn a_native_client_hears_that_a_window_has_opened() {
    let edit = |files: &mut Files| {
        files.agent["native"] = json!(true);
        let from = Timestamp::now() + SignedDuration::from_secs(3);
        let later = rule("r1:later", &json!({"not_before": from.to_string()}));
        gives(files, &json!([later]));
    };
    let world = World::start_with(edit, |_| {}, &[]).await;
    let session = world.greeted().await;
    assert_eq!(session.names().await, ["desk__quote"]);
    let mut events = session.listen().await;
    let told = events.next().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(session.names().await, ["desk__quote", "desk__order"]);
}

/// Three orders in one minute are allowed, whichever path calls them.
fn thrice() -> Value {
    json!([rule(
        "r1:thrice",
        &json!({"rate": [{"calls": 3, "per_ms": 60_000}]})
    )])
}

fn limited(files: &mut Files) {
    gives(files, &thrice());
    files.tools["tools"][1]["x-toolcrib"]["requires"] = json!(["rules/1", "rates/1"]);
}

#[tokio::test]
async fn a_rate_holds_over_a_restart_and_new_files() {
    let mut world = World::start_with(limited, |_| {}, &[]).await;
    world.model.will(Answer::json(order(r#"{"symbol":"AAA"}"#)));
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    assert_eq!(results(&world), ["ok"]);

    // A second rule beside it changes the files: the count of the first goes on.
    let mut rules = thrice();
    let other = json!({"pin": {"symbol": "OTR"}});
    rules.as_array_mut().unwrap().push(rule("r1:otr", &other));
    world.files.tools["tools"][1]["x-toolcrib"]["rules"] = rules;
    world.publish().await;
    let mut world = world.restart().await;
    // A call that fails counts too.
    let again = calls(&[
        ("c2", "desk__order", r#"{"symbol":"BBB"}"#),
        ("c3", "desk__order", r#"{"symbol":"CCC"}"#),
        ("c4", "desk__order", r#"{"symbol":"DDD"}"#),
        // The rule without a rate allows it, and it counts against the other.
        ("c5", "desk__order", r#"{"symbol":"OTR"}"#),
    ]);
    world.model.will(Answer::json(again));
    world.desk.will(Answer::text(500, ""));
    world.desk.will(Answer::json(json!({})));
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    assert_eq!(results(&world), ["http_500", "ok", "rate_limited", "ok"]);
    let refused = world.results()[2].1["error"]["details"].clone();
    assert_eq!(refused["retryable"], true);
    let wait = refused["retry_after_s"].as_u64().unwrap();
    assert!((1..=61).contains(&wait), "{refused}");
    assert_eq!(world.desk.requests().len(), 4);

    // Another rate is another rule, which begins at zero.
    let more = json!({"rate": [{"calls": 4, "per_ms": 60_000}]});
    world.files.tools["tools"][1]["x-toolcrib"]["rules"] = json!([rule("r1:more", &more)]);
    world.publish().await;
    world.model.will(Answer::json(order(r#"{"symbol":"EEE"}"#)));
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    assert_eq!(results(&world), ["ok"]);
    let denied = r#"_tool_calls_total{tool="desk.order",outcome="rate_limited"} 1"#;
    let metrics = world.metrics().await;
    assert!(metrics.contains(denied), "{metrics}");
}

/// The link carries the calls of this pod, and those of the other pods.
#[tokio::test]
async fn a_rate_counts_the_calls_of_other_pods() {
    let hour = json!([rule(
        "r1:hour",
        &json!({"rate": [{"calls": 3, "per_ms": 3_600_000}]})
    )]);
    let operator = Fake::start().await;
    // Slots are minutes.
    let minute = Timestamp::now().as_second() / 60;
    let used = |rule: &str, calls: Value| {
        json!({"tool": "desk.order", "rule": rule,
            "counts": [{"calls": calls, "per_ms": 3_600_000}]})
    };
    let elsewhere = |calls: u64| {
        json!([
            used("r1:hour", json!({(minute - 5).to_string(): calls})),
            used("r1:another", json!({(minute - 5).to_string(): 100})),
        ])
    };
    let answer = |seq: u64, rates: Value| {
        // An operator of a later release.
        let mut answer = leaves(seq, &["r1:hour"]);
        answer["rates"] = rates;
        answer["a later field"] = json!(7);
        Answer::json(answer)
    };
    let (gate, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    operator.will(answer(1, elsewhere(2)));
    // A leader that has just begun, or of an earlier release, does not know of these calls.
    operator.will(answer(2, json!([])));
    operator.will(answer(3, json!([])).gated(&gate));
    operator.will(answer(4, json!([])).gated(&never));
    let (world, _token) = linked_by(&operator, |files| {
        limited(files);
        files.tools["tools"][1]["x-toolcrib"]["rules"] = hour;
    })
    .await;
    world.until(|now| now.seen == 2).await;
    let two = calls(&[
        ("c1", "desk__order", r#"{"symbol":"AAA"}"#),
        ("c2", "desk__order", r#"{"symbol":"BBB"}"#),
    ]);
    world.model.will(Answer::json(two));
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    assert_eq!(results(&world), ["ok", "rate_limited"]);
    let wait = world.results()[1].1["error"]["details"]["retry_after_s"].clone();
    // The first of the other pods' calls is over five minutes before this pod's.
    assert!((3_000..=3_360).contains(&wait.as_u64().unwrap()), "{wait}");

    gate.notify_one();
    let own = until("a report of this pod's call", || {
        let report = operator.requests().last()?.json();
        report.get("rates").cloned()
    })
    .await;
    let calls = own[0]["counts"][0]["calls"].as_object().unwrap();
    assert_eq!(calls.values().collect::<Vec<_>>(), [1]);
    let calls = own[0]["counts"][0]["calls"].clone();
    assert_eq!(own, json!([used("r1:hour", calls)]));
    // More often than without rates, and nothing before the first call.
    let first = operator.requests()[0].json();
    assert_eq!(
        (&first["hold_ms"], first.get("rates")),
        (&json!(7_000), None)
    );
}

/// A call whose count cannot be kept over a restart is not sent.
#[tokio::test]
async fn a_call_that_cannot_be_counted_is_refused() {
    let world = World::start_with(limited, |_| {}, &[]).await;
    let file = world.history.path().join("rates.jsonl");
    // A folder of that name can be neither written nor replaced.
    std::fs::create_dir_all(file.join("in the way")).unwrap();
    world.model.will(Answer::json(order(r#"{"symbol":"AAA"}"#)));
    world.model.will(Answer::json(says("done")));
    world.chat().await;
    assert_eq!(results(&world), ["request_failed"]);
    assert_eq!(world.desk.connections(), 0);
    // Nor does a mediator start that cannot read what was counted.
    let limit = 1 << 20;
    assert!(RateStore::open(world.history.path(), limit).is_err());
}
