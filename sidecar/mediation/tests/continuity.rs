//! Hidden rounds come back where they belong, and nowhere else.
#![allow(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use serde_json::{Value, json};
use support::*;
use toolcrib_mediation::*;

fn presented() -> Presented {
    Presented::new(&authority(), &request(json!({})))
}

/// A turn with one hidden round, from this history to this last reply.
fn hidden(history: &Value, last: toolcrib_dialect::Reply, result: &str) -> Hidden {
    let run = run(
        config(request(json!({"messages": history})), policy()),
        vec![reply(&[("pond__feed", "{}")], ""), last],
        |_| responded(200, result),
    );
    run.answer.hidden.unwrap()
}

/// Where rounds are put in, and what the first result says.
fn check(store: &Continuity, history: Value) -> Vec<(usize, String)> {
    store
        .insertions(&request(json!({"messages": history})), &presented())
        .unwrap()
        .into_iter()
        .map(|insertion| {
            let call: Value = serde_json::from_str(&insertion.items[0]).unwrap();
            assert_eq!(call["tool_calls"][0]["function"]["name"], "pond__feed");
            let result: Value = serde_json::from_str(&insertion.items[1]).unwrap();
            (
                insertion.before,
                result["content"].as_str().unwrap().to_string(),
            )
        })
        .collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn ok(data: &str) -> String {
    format!(r#"{{"ok":true,"status_code":200,"data":{data}}}"#)
}

#[test]
fn rounds_return_before_the_reply_they_produced() {
    let mut store = Continuity::new(1 << 20);
    store.remember(hidden(&json!([user("a")]), reply(&[], "done"), "1"));
    let next = || json!([user("a"), assistant("done"), user("b")]);
    assert_eq!(check(&store, next()), [(1, ok("1"))]);
    assert_eq!(
        check(&store, next()),
        [(1, ok("1"))],
        "a retry gets the same again"
    );
    let other_system =
        json!([{"role": "system", "content": "It is noon"}, user("a"), assistant("done")]);
    assert_eq!(check(&store, other_system), [(2, ok("1"))]);
    let parts = json!([
        {"content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], "role": "user"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "refusal": null},
    ]);
    assert_eq!(check(&store, parts), [(1, ok("1"))], "as runners store it");
}

#[test]
fn conversations_stay_apart_and_a_trimmed_one_gets_nothing() {
    let mut store = Continuity::new(1 << 20);
    store.remember(hidden(&json!([user("a")]), reply(&[], "done"), "1"));
    store.remember(hidden(&json!([user("b")]), reply(&[], "done"), "2"));
    assert_eq!(
        check(&store, json!([user("b"), assistant("done")])),
        [(1, ok("2"))]
    );
    assert_eq!(check(&store, json!([user("c"), assistant("done")])), []);
    assert_eq!(check(&store, json!([assistant("done"), user("x")])), []);
    assert_eq!(check(&store, json!([user("a"), assistant("done!")])), []);
}

#[test]
fn a_handoff_to_the_runner_keeps_its_prefix() {
    let mut store = Continuity::new(1 << 20);
    let handoff = reply(&[("shell", r#"{"a":1,"b":2}"#)], "");
    store.remember(hidden(&json!([user("a")]), handoff, "1"));
    let call = |id: &str, arguments: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [{"type": "function",
            "id": id, "function": {"arguments": arguments, "name": "shell"}}]})
    };
    let result = json!({"role": "tool", "tool_call_id": "c0", "content": "x"});
    let follow_up = json!([user("a"), call("c0", r#"{ "b":2.0, "a":1 }"#), result]);
    assert_eq!(check(&store, follow_up), [(1, ok("1"))]);
    let foreign = json!([user("a"), call("c9", r#"{"a":1,"b":2}"#), result]);
    assert_eq!(check(&store, foreign), []);
}

#[test]
fn the_store_is_bounded_and_survives_a_restart() {
    let one = hidden(&json!([user("a")]), reply(&[], "done"), "1");
    let two = hidden(&json!([user("b")]), reply(&[], "done"), "2");
    let size = serde_json::to_string(&one).unwrap().len();
    let mut store = Continuity::new(size + size / 2);
    store.remember(one);
    store.remember(two.clone());
    store.remember(two.clone());
    assert_eq!(store.entries().collect::<Vec<_>>(), [two]);
    let mut again = Continuity::new(1 << 20);
    for entry in store.entries() {
        let line = serde_json::to_string(&entry).unwrap();
        again.remember(serde_json::from_str(&line).unwrap());
    }
    assert_eq!(
        check(&again, json!([user("b"), assistant("done")])),
        [(1, ok("2"))]
    );
    let mut tiny = Continuity::new(8);
    tiny.remember(again.entries().next().unwrap());
    assert!(tiny.is_empty());
}
