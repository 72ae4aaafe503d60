//! Calls that wait for a person's approval, against a double of the operator.

mod hostile;
mod kills;
mod native;
mod rates;
mod restarts;
mod turns;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Answer, Operator, Wire, World, within};

const ORDER: &str = r#"{"symbol":"OTR","quantity":5}"#;

/// The model will make this order, and then say that it is done.
fn will_order(world: &World, arguments: &str) {
    let wire = world.wire;
    let call = wire.calls(&[("c1", "desk__order", arguments)]);
    world.model.will(Answer::json(call));
    world.model.will(Answer::json(wire.says("done")));
}

/// The runner sends the usual request; returns the status and the body.
fn runs(world: &World) -> JoinHandle<(u16, String)> {
    let request = world.request(&world.wire.chat());
    tokio::spawn(async move {
        let response = within("an answer", request.send()).await.unwrap();
        let status = response.status().as_u16();
        (status, within("its body", response.text()).await.unwrap())
    })
}

async fn answered(running: JoinHandle<(u16, String)>) {
    let (status, body) = within("the turn", running).await.unwrap();
    assert_eq!(status, 200, "{body}");
}

/// The code of the one result in the model's last request, or `ok`.
fn code(world: &World) -> String {
    let result = world.result();
    match result["ok"].as_bool().unwrap() {
        true => "ok".to_owned(),
        false => result["error"]["code"].as_str().unwrap().to_owned(),
    }
}

/// The record's lines of this kind.
fn lines(world: &World, kind: &str) -> Vec<Value> {
    let mut lines = world.lines();
    lines.retain(|line| line["kind"] == kind);
    lines
}

/// An agent whose calls wait for a short time.
async fn impatient(operator: &Operator) -> World {
    let edit = |files: &mut crate::support::Files| {
        files.tools["policy"]["approval_wait_ms"] = json!(200);
    };
    operator.world(Wire::CHAT, edit).await
}

/// Makes an order that is pending in the end, and returns its question.
async fn pending(operator: &Operator, world: &World, arguments: &str) -> Value {
    let asked = operator.questions().len();
    will_order(world, arguments);
    world.chat().await;
    assert_eq!(code(world), "approval_pending");
    operator.asked(asked + 1).await
}
