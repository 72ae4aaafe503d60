//! Hidden rounds are put back into the right place of the next request, and nowhere else.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod support;

use serde_json::{Value, json};
use support::*;
use toolcrib_dialect::{Dialect, Reply, Request};
use toolcrib_mediation::*;

fn presented() -> PresentedTools {
    PresentedTools::new(&authority(), &request(json!({})), support::NOW)
}

/// A turn with one hidden round, with this history and this last reply.
fn hidden(history: &Value, last: toolcrib_dialect::Reply, result: &str) -> HiddenRounds {
    let run = run(
        config(request(json!({"messages": history})), policy()),
        vec![reply(&[("pond__feed", "{}")], ""), last],
        |_| responded(200, result),
    );
    run.answer.hidden.unwrap()
}

/// Returns the insertions: the index, and the content of the first result.
fn check(store: &mut Continuity, history: Value) -> Vec<(usize, String)> {
    store
        .history_edits(&request(json!({"messages": history})), &presented())
        .unwrap()
        .inserted
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
fn hidden_rounds_are_inserted_before_their_reply() {
    let mut store = Continuity::new(1 << 20);
    store.remember(hidden(&json!([user("a")]), reply(&[], "done"), "1"));
    let next = || json!([user("a"), assistant("done"), user("b")]);
    assert_eq!(check(&mut store, next()), [(1, ok("1"))]);
    assert_eq!(
        check(&mut store, next()),
        [(1, ok("1"))],
        "a retry gets the same again"
    );
    let other_system =
        json!([{"role": "system", "content": "It is noon"}, user("a"), assistant("done")]);
    assert_eq!(check(&mut store, other_system), [(2, ok("1"))]);
    let parts = json!([
        {"content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], "role": "user"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "refusal": null},
    ]);
    assert_eq!(
        check(&mut store, parts),
        [(1, ok("1"))],
        "as runners store it"
    );
}

#[test]
fn rounds_never_cross_conversations_and_a_trimmed_history_gets_none() {
    let mut store = Continuity::new(1 << 20);
    store.remember(hidden(&json!([user("a")]), reply(&[], "done"), "1"));
    store.remember(hidden(&json!([user("b")]), reply(&[], "done"), "2"));
    assert_eq!(
        check(&mut store, json!([user("b"), assistant("done")])),
        [(1, ok("2"))]
    );
    assert_eq!(check(&mut store, json!([user("c"), assistant("done")])), []);
    assert_eq!(check(&mut store, json!([assistant("done"), user("x")])), []);
    assert_eq!(
        check(&mut store, json!([user("a"), assistant("done!")])),
        []
    );
}

#[test]
fn a_continuity_file_of_an_earlier_release_is_read() {
    let kept = hidden(&json!([user("a")]), reply(&[], "done"), "1");
    let mut line: Value = serde_json::to_value(&kept).unwrap();
    line.as_object_mut().unwrap().remove("reply").unwrap();
    let mut store = Continuity::new(1 << 20);
    store.remember(serde_json::from_value(line).unwrap());
    let next = json!([user("a"), assistant("done"), user("b")]);
    assert_eq!(check(&mut store, next), [(1, ok("1"))]);
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
    assert_eq!(check(&mut store, follow_up), [(1, ok("1"))]);
    let foreign = json!([user("a"), call("c9", r#"{"a":1,"b":2}"#), result]);
    assert_eq!(check(&mut store, foreign), []);
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
        check(&mut again, json!([user("b"), assistant("done")])),
        [(1, ok("2"))]
    );
    let mut tiny = Continuity::new(8);
    tiny.remember(again.entries().next().unwrap());
    assert!(tiny.is_empty());
}

/// The request, reply and stored reply of one dialect.
struct DialectFixture {
    dialect: Dialect,
    history: &'static str,
    first: Value,
    call: fn(&str) -> Value,
    text: Value,
    /// The part of an answer that a runner stores, and the members that it may leave out.
    stored: fn(&Value) -> Vec<Value>,
    thinking: &'static str,
}

fn written() -> [DialectFixture; 3] {
    [
        DialectFixture {
            dialect: Dialect::OpenaiChat,
            history: "messages",
            first: json!([user("a")]),
            call: |name| {
                json!({"choices": [{"message": {"role": "assistant", "content": null,
                    "tool_calls": [{"id": "c", "type": "function",
                        "function": {"name": name, "arguments": "{}"}}]}}]})
            },
            text: json!({"choices": [{"message": {"role": "assistant", "content": "done"}}]}),
            stored: |body| vec![body["choices"][0]["message"].clone()],
            thinking: "reasoning",
        },
        DialectFixture {
            dialect: Dialect::AnthropicMessages,
            history: "messages",
            first: json!([user("a")]),
            call: |name| {
                json!({"content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": name, "input": {}}]})
            },
            text: json!({"content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "done"}]}),
            stored: |body| vec![json!({"role": "assistant", "content": body["content"]})],
            thinking: "thinking",
        },
        DialectFixture {
            dialect: Dialect::OpenaiResponses,
            history: "input",
            first: json!("a"),
            call: |name| {
                json!({"id": "resp_1", "output": [{"type": "reasoning", "id": "rs", "summary": []},
                    {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"}]})
            },
            text: json!({"id": "resp_2", "output": [{"type": "reasoning", "id": "rs2", "summary": []},
                {"type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": "done"}]}]}),
            stored: |body| body["output"].as_array().unwrap().clone(),
            thinking: "reasoning",
        },
    ]
}

impl DialectFixture {
    fn request(&self, history: Value) -> Request {
        let mut body = json!({"model": "house/otter-1"});
        body[self.history] = history;
        Request::decode(self.dialect, body.to_string().into_bytes()).unwrap()
    }

    fn reply(&self, body: &Value) -> Reply {
        Reply::decode(self.dialect, body.to_string().into_bytes()).unwrap()
    }

    /// Asserts that the next request of a runner that stored this turn's answer gets its rounds,
    /// also if the runner leaves thinking out.
    fn returns(&self, tool: &str, replies: Vec<Reply>) {
        let run = run(
            config(self.request(self.first.clone()), policy()),
            replies,
            |_| responded(200, "1"),
        );
        let mut store = Continuity::new(1 << 20);
        let stored = (self.stored)(&run.body());
        store.remember(run.answer.hidden.unwrap());
        let mut without = stored.clone();
        without.retain(|item| item["type"] != self.thinking);
        for item in &mut without {
            if let Some(blocks) = item["content"].as_array_mut() {
                blocks.retain(|block| block["type"] != self.thinking);
            }
        }
        for stored in [stored, without] {
            let history = [vec![user("a")], stored, vec![user("b")]].concat();
            let next = self.request(Value::from(history));
            let found = store.history_edits(&next, &presented()).unwrap().inserted;
            assert_eq!(found.len(), 1, "{:?} {tool}", self.dialect);
            assert_eq!(found[0].before, 1, "{:?} {tool}", self.dialect);
            assert!(found[0].items.concat().contains(tool));
        }
    }
}

/// Runners that let the provider keep a conversation send the ids of its items instead of their
/// content.
#[test]
fn a_reply_referenced_by_item_id_is_recognized() {
    let [_, _, written] = written();
    let body = json!({"id": "resp_2", "output": [
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "message", "id": "msg_2", "role": "assistant",
            "content": [{"type": "output_text", "text": "done"}]}]});
    let replies = vec![
        written.reply(&(written.call)("pond__feed")),
        written.reply(&body),
    ];
    let first = config(written.request(json!([user("a")])), policy());
    let kept = run(first, replies, |_| responded(200, "1")).answer.hidden;
    let line = serde_json::to_string(&kept.unwrap()).unwrap();
    let mut store = Continuity::new(1 << 20);
    store.remember(serde_json::from_str(&line).unwrap());
    let named = |id: &str| json!({"type": "item_reference", "id": id});
    let mut found = |history: Value| {
        let next = written.request(history);
        store
            .history_edits(&next, &presented())
            .unwrap()
            .inserted
            .len()
    };
    let both = json!([user("a"), named("rs_2"), named("msg_2"), user("b")]);
    assert_eq!(found(both), 1);
    let alone = json!([user("a"), named("msg_2"), user("b")]);
    assert_eq!(found(alone), 1);
    let other = json!([user("a"), named("msg_3"), user("b")]);
    assert_eq!(found(other), 0);
    let elsewhere = json!([user("c"), named("msg_2"), user("b")]);
    assert_eq!(found(elsewhere), 0);
}

/// A runner that continues over another API sends the same history, but the rounds would be items
/// of the first API.
#[test]
fn rounds_of_one_api_are_not_inserted_into_another() {
    let all = written();
    for (at, began) in all.iter().enumerate() {
        let replies = vec![
            began.reply(&(began.call)("pond__feed")),
            began.reply(&began.text),
        ];
        let first = config(began.request(began.first.clone()), policy());
        let mut store = Continuity::new(1 << 20);
        let ended = run(first, replies, |_| responded(200, "1"));
        store.remember(ended.answer.hidden.unwrap());
        for (other, goes_on) in all.iter().enumerate() {
            let next = goes_on.request(json!([user("a"), assistant("done"), user("b")]));
            let found = store.history_edits(&next, &presented()).unwrap().inserted;
            assert_eq!(!found.is_empty(), at == other, "{:?}", goes_on.dialect);
        }
    }
}

#[test]
fn every_dialect_finds_its_rounds_again() {
    for written in written() {
        let call = |name: &str| written.reply(&(written.call)(name));
        let text = written.reply(&written.text);
        written.returns("pond__feed", vec![call("pond__feed"), text]);
        // The answer is empty, and must still be recognized.
        written.returns("pond__leave", vec![call("pond__leave")]);
    }
}
