//! Calls over MCP that wait for an approval.

use serde_json::{Value, json};

use super::lines;
use crate::support::native::{Events, read};
use crate::support::{Answer, Files, Operator, Wire, within};

fn native(files: &mut Files) {
    files.agent["native"] = json!(true);
}

#[tokio::test]
async fn a_call_waits_and_answers_with_a_document() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, native).await;
    world.desk.will(Answer::json(json!({"bought": 5})));
    let session = world.greeted().await;
    let arguments = json!({"symbol": "OTR", "quantity": 5});
    let call = tokio::spawn(session.calling("desk__order", arguments).send());
    let question = operator.asked(1).await;
    assert_eq!(world.desk.connections(), 0);
    operator.decide(&question, "Approved");
    let response = within("the call", call).await.unwrap().unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert!(!read(&answer["result"]).1, "{answer}");
    assert_eq!(world.desk.requests().len(), 1);
    assert_eq!(lines(&world, "question")[0]["path"], "native");
}

#[tokio::test]
async fn a_client_that_asks_for_progress_hears_that_its_call_waits() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, native).await;
    world.desk.will(Answer::json(json!({})));
    let session = world.greeted().await;
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "desk__order", "arguments": {"symbol": "OTR"}, "_meta": {"progressToken": "p-1"}}});
    let mut events = Events::of(session.with(&message)).await;
    let progress = events.next().await.unwrap();
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p-1");
    assert_eq!(progress["params"]["progress"], 1);
    let question = operator.asked(1).await;
    operator.decide(&question, "Denied");
    let answer = events.next().await.unwrap();
    assert_eq!(answer["id"], 7);
    let (result, is_error) = read(&answer["result"]);
    assert!(is_error);
    assert_eq!(result["error"]["code"], "approval_denied");
    assert_eq!(events.next().await, None);
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_cancelled_call_leaves_its_question_open_and_did_not_run() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, native).await;
    let session = world.greeted().await;
    let call = tokio::spawn(
        session
            .calling("desk__order", json!({"symbol": "OTR"}))
            .send(),
    );
    let question = operator.asked(1).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 7}});
    within("the cancel", session.with(&cancel).send())
        .await
        .unwrap();
    let response = within("the call", call).await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let data = json!({"code": "canceled", "mayHaveRun": false});
    assert_eq!(answer["error"]["data"], data, "{answer}");
    world.turn_is_recorded().await;
    let turn = &lines(&world, "turn")[0];
    let call = &turn["tool_trace"][0]["tool_calls"][0];
    assert_eq!(call["executed"], false);
    operator.hears(json!([{"id": question["id"]}])).await;
}
