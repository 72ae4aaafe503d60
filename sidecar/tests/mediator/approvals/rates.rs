//! Rates that are used up while calls wait for approvals.

use serde_json::{Value, json};

use super::{ORDER, answered, code, lines, runs, will_order};
use crate::support::{Answer, Files, Operator, Wire, World};

/// An agent whose `desk.order` these rules give.
async fn ruled(operator: &Operator, rules: Value) -> World {
    let edit = |files: &mut Files| {
        let entry = &mut files.tools["tools"][1]["x-toolcrib"];
        entry["tier"] = json!("System");
        entry["rules"] = rules;
        entry["requires"] = json!(["rules/1", "approval/1"]);
    };
    operator.world(Wire::CHAT, edit).await
}

fn rule(digest: &str, is_asking: bool, is_rated: bool) -> Value {
    let mut rule = json!({"digest": digest, "grant": {"namespace": "pond", "name": "desk"},
        "approval": is_asking});
    if is_rated {
        rule["rate"] = json!([{"calls": 1, "per_ms": 3_600_000}]);
    }
    rule
}

#[tokio::test]
async fn a_call_waits_although_a_rule_without_approval_has_no_room() {
    let operator = Operator::start().await;
    let rules = json!([rule("r1:free", false, true), rule("r1:asks", true, false)]);
    let world = ruled(&operator, rules).await;
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    assert_eq!(lines(&world, "intent")[0]["rule"], "r1:free");

    will_order(&world, ORDER);
    let running = runs(&world);
    let question = operator.asked(1).await;
    assert_eq!(question["rules"][0]["rule"], "r1:asks");
    // The answer to the question and this one wake the call.
    operator.hears(json!([{"id": question["id"]}])).await;
    operator.say(&[]);
    operator.is_heard(&world).await;
    world.desk.will(Answer::json(json!({})));
    operator.decide(&question, "Approved");
    answered(running).await;
    assert_eq!(code(&world), "ok");
    let intent = &lines(&world, "intent")[1];
    assert_eq!(intent["rule"], "r1:asks");
    assert_eq!(intent["approval"]["question"], question["id"]);
    let verdicts: Vec<Value> = lines(&world, "decision")
        .iter()
        .map(|it| it["verdict"].clone())
        .collect();
    assert_eq!(verdicts, ["approved"]);
}

#[tokio::test]
async fn an_approved_call_is_decided_by_the_rate_of_then() {
    let operator = Operator::start().await;
    let world = ruled(&operator, json!([rule("r1:rated", true, true)])).await;
    let wire = world.wire;
    let other = ORDER.replace('5', "6");
    for arguments in [ORDER, &other] {
        let call = wire.calls(&[("c1", "desk__order", arguments)]);
        world.model.will(Answer::json(call));
    }
    let first = runs(&world);
    let one = operator.asked(1).await;
    let second = runs(&world);
    let two = operator.asked(2).await;
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(wire.says("done")));
    operator.decide(&one, "Approved");
    answered(first).await;
    assert_eq!(code(&world), "ok");

    // The other one still waits, and is refused after its approval.
    operator
        .hears(json!([{"id": one["id"], "used": "Succeeded"}, {"id": two["id"]}]))
        .await;
    world.model.will(Answer::json(wire.says("done")));
    operator.decide(&two, "Approved");
    answered(second).await;
    assert_eq!(code(&world), "rate_limited");
    operator
        .hears(json!([{"id": two["id"], "used": "Refused", "code": "rate_limited"}]))
        .await;
    assert_eq!(world.desk.requests().len(), 1);
    assert_eq!(lines(&world, "intent").len(), 1);
}
