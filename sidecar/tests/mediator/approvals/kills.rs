//! The mediator's process is killed between question, decision, intent line and end of a call.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::ORDER;
use crate::process::binary::Mediator;
use crate::support::{Answer, Files, Operator, Wire, until, within};

const WIRE: Wire = Wire::CHAT;

type RunningRequest = JoinHandle<reqwest::Result<reqwest::Response>>;

async fn start(operator: &Operator) -> Mediator {
    let edit = |files: &mut Files| {
        operator.link(files);
        files.tools["tools"][1]["x-toolcrib"]["tier"] = json!("Elevated");
    };
    Mediator::start_with_files(WIRE, edit, &operator.flags()).await
}

/// The runner sends a request, and the model makes the order.
fn orders(mediator: &Mediator) -> RunningRequest {
    let call = WIRE.calls(&[("c1", "desk__order", ORDER)]);
    mediator.model.will(Answer::json(call));
    tokio::spawn(mediator.request(&WIRE.chat()).send())
}

/// Kills the process and starts it again.
async fn kill(mediator: &mut Mediator, operator: &Operator, running: RunningRequest) {
    mediator.signal(Signal::KILL);
    mediator.ended().await;
    within("the runner's error", running)
        .await
        .unwrap()
        .unwrap_err();
    mediator.again_with(&operator.flags()).await;
}

fn lines(mediator: &Mediator, kind: &str) -> Vec<Value> {
    let mut lines = mediator.lines();
    lines.retain(|line| line["kind"] == kind);
    lines
}

/// The order is made once more, and runs.
async fn runs(mediator: &Mediator) {
    mediator.desk.will(Answer::json(json!({})));
    let running = orders(mediator);
    mediator.model.will(Answer::json(WIRE.says("done")));
    let response = within("an answer", running).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn killed_while_a_call_waits() {
    let operator = Operator::start().await;
    let mut mediator = start(&operator).await;
    let running = orders(&mediator);
    let question = operator.asked(1).await;
    kill(&mut mediator, &operator, running).await;
    assert_eq!(operator.asked(2).await, question);
    operator.decide(&question, "Approved");
    runs(&mediator).await;
    assert_eq!(operator.questions().len(), 2);
    assert_eq!(mediator.desk.requests().len(), 1);
    assert_eq!(lines(&mediator, "question").len(), 1);
}

#[tokio::test]
async fn killed_before_the_operator_has_heard_the_question() {
    let operator = Operator::start().await;
    operator.fail(&[503; 100]);
    let mut mediator = start(&operator).await;
    let running = orders(&mediator);
    until("the question's line", || {
        (lines(&mediator, "question").len() == 1).then_some(())
    })
    .await;
    kill(&mut mediator, &operator, running).await;
    operator.fail(&[]);
    let question = operator.asked(1).await;
    assert_eq!(lines(&mediator, "question")[0]["question"], question["id"]);
    operator.decide(&question, "Approved");
    runs(&mediator).await;
    assert_eq!(operator.questions().len(), 1);
}

#[tokio::test]
async fn killed_after_the_answer_and_before_the_call() {
    let operator = Operator::start().await;
    let mut mediator = start(&operator).await;
    let running = orders(&mediator);
    let question = operator.asked(1).await;
    // The runner has hung up, so nobody uses the decision.
    running.abort();
    until("the line of the request", || {
        (!lines(&mediator, "turn").is_empty()).then_some(())
    })
    .await;
    operator.decide(&question, "Approved");
    until("the line of the decision", || {
        (!lines(&mediator, "decision").is_empty()).then_some(())
    })
    .await;
    mediator.signal(Signal::KILL);
    mediator.ended().await;
    assert_eq!(mediator.desk.connections(), 0);
    mediator.again_with(&operator.flags()).await;
    runs(&mediator).await;
    assert_eq!(mediator.desk.requests().len(), 1);
    assert_eq!(lines(&mediator, "question").len(), 1);
}

#[tokio::test]
async fn killed_after_the_intent_line() {
    let operator = Operator::start().await;
    let mut mediator = start(&operator).await;
    let gate = Arc::new(Notify::new());
    mediator.desk.will(Answer::json(json!({})).gated(&gate));
    let running = orders(&mediator);
    let question = operator.asked(1).await;
    operator.decide(&question, "Approved");
    // The service has the call; no answer has come.
    mediator.desk.asked(1).await;
    kill(&mut mediator, &operator, running).await;
    // The operator still lists the decision.
    operator
        .hears(json!([{"id": question["id"], "used": "Unknown"}]))
        .await;
    let running = orders(&mediator);
    let next = operator.asked(2).await;
    assert_ne!(next["id"], question["id"]);
    assert_eq!(mediator.desk.requests().len(), 1);
    drop(running);
    let intents = lines(&mediator, "intent");
    assert_eq!(intents.len(), 1);
    assert_eq!(intents[0]["approval"]["question"], question["id"]);
}
