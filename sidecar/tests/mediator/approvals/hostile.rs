//! An operator that says what nobody decided: nothing runs.

use serde_json::{Value, json};

use super::{ORDER, answered, code, impatient, lines, pending, runs, will_order};
use crate::support::{Answer, Files, Operator, Wire, decision, until};

/// Changes a decision.
fn with(decision: &Value, changes: &Value) -> Value {
    let mut decision = decision.clone();
    for (name, value) in changes.as_object().unwrap() {
        decision[name] = value.clone();
    }
    decision
}

#[tokio::test]
async fn a_decision_on_another_question_approves_nothing() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    let other = pending(&operator, &world, &ORDER.replace('5', "6")).await;
    let yes = decision(&question, "Approved");
    let unnamed = {
        let mut unnamed = yes.clone();
        unnamed.as_object_mut().unwrap().remove("approval");
        unnamed
    };
    for said in [
        // Questions that nobody asked.
        with(&yes, &json!({"id": "0".repeat(32)})),
        with(&yes, &json!({"id": ""})),
        // The digest of another call, of no call, of another version.
        with(&yes, &json!({"call_digest": other["call_digest"]})),
        with(&yes, &json!({"call_digest": ""})),
        with(
            &yes,
            &json!({"call_digest": question["call_digest"].as_str().unwrap().replace("c1:", "c2:")}),
        ),
        // One question with the digest of the other.
        with(&yes, &json!({"id": other["id"]})),
        // The record could not name what was approved.
        unnamed,
    ] {
        operator.say(&[said.clone(), said.clone()]);
        operator.is_heard(&world).await;
        will_order(&world, ORDER);
        world.chat().await;
        assert_eq!(code(&world), "approval_pending", "{said}");
    }
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(lines(&world, "intent"), Vec::<Value>::new());
    assert_eq!(operator.questions().len(), 2);
}

#[tokio::test]
async fn a_repeated_approval_is_used_once() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    let yes = decision(&question, "Approved");
    operator.say(&[yes.clone(), yes.clone()]);
    operator.is_heard(&world).await;
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    // The same answer comes with each report.
    for _ in 0..3 {
        operator.say(std::slice::from_ref(&yes));
        operator.is_heard(&world).await;
        will_order(&world, ORDER);
        world.chat().await;
        assert_eq!(code(&world), "approval_pending");
    }
    assert_eq!(world.desk.requests().len(), 1);
}

#[tokio::test]
async fn an_approval_of_a_tool_that_is_gone_or_changed_runs_nothing() {
    let remove: fn(&mut Files) = |files| {
        files.tools["tools"].as_array_mut().unwrap().remove(1);
    };
    let change: fn(&mut Files) = |files| {
        files.tools["tools"][1]["x-toolcrib"]["entry_digest"] = json!("v1:other");
    };
    let lower: fn(&mut Files) = |files| files.agent["max_tier"] = json!("System");
    for (edit, expected) in [
        (remove, "permission_denied"),
        // The call is another one, about which nobody was asked.
        (change, "approval_pending"),
        (lower, "permission_denied"),
    ] {
        let operator = Operator::start().await;
        let mut world = impatient(&operator).await;
        let question = pending(&operator, &world, ORDER).await;
        edit(&mut world.files);
        world.publish().await;
        operator.decide(&question, "Approved");
        operator.is_heard(&world).await;
        will_order(&world, ORDER);
        world.chat().await;
        assert_eq!(code(&world), expected);
        assert_eq!(world.desk.connections(), 0);
    }
}

#[tokio::test]
async fn an_approval_does_not_overtake_a_revocation_in_the_same_answer() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, |_| {}).await;
    will_order(&world, ORDER);
    let running = runs(&world);
    let question = operator.asked(1).await;
    operator.hears(json!([{"id": question["id"]}])).await;
    operator.revoke_and_say(&[decision(&question, "Approved")]);
    answered(running).await;
    assert_eq!(code(&world), "permission_denied");
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn an_approval_is_none_of_other_rules() {
    let rule = |digest: &str| {
        json!([{"digest": digest, "grant": {"namespace": "pond", "name": "desk"},
            "approval": true}])
    };
    let operator = Operator::start().await;
    let edit = |files: &mut Files| {
        files.tools["policy"]["approval_wait_ms"] = json!(200);
        files.tools["tools"][1]["x-toolcrib"]["rules"] = rule("r1:one");
    };
    let mut world = operator.world(Wire::CHAT, edit).await;
    let question = pending(&operator, &world, ORDER).await;
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    // Its approvers may be others.
    world.files.tools["tools"][1]["x-toolcrib"]["rules"] = rule("r1:two");
    world.publish().await;
    let next = pending(&operator, &world, ORDER).await;
    assert_eq!(next["rules"][0]["rule"], "r1:two");
    assert_eq!(world.desk.connections(), 0);
    operator.hears(json!([{"id": next["id"]}])).await;
}

/// Rates hold for an approved call, which is refused then, and its approval is over.
#[tokio::test]
async fn an_approved_call_that_is_refused_has_used_its_approval() {
    let operator = Operator::start().await;
    let edit = |files: &mut Files| {
        files.tools["policy"]["approval_wait_ms"] = json!(200);
        files.tools["tools"][1]["x-toolcrib"]["rules"] = json!([{"digest": "r1:rated",
            "grant": {"namespace": "pond", "name": "desk"}, "approval": true,
            "rate": [{"calls": 1, "per_ms": 60_000}]}]);
    };
    let world = operator.world(Wire::CHAT, edit).await;
    let first = pending(&operator, &world, ORDER).await;
    let second = pending(&operator, &world, &ORDER.replace('5', "6")).await;
    operator.decide(&first, "Approved");
    operator.is_heard(&world).await;
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    operator.decide(&second, "Approved");
    operator.is_heard(&world).await;
    // Found out before the approval is taken: it stays for later.
    will_order(&world, &ORDER.replace('5', "6"));
    world.chat().await;
    assert_eq!(code(&world), "rate_limited");
    assert_eq!(world.desk.requests().len(), 1);
    assert_eq!(lines(&world, "intent").len(), 1);
}

/// Two calls wait, and their rate has one left.
#[tokio::test]
async fn the_operator_hears_why_an_approved_call_is_refused() {
    let operator = Operator::start().await;
    let edit = |files: &mut Files| {
        files.tools["tools"][1]["x-toolcrib"]["rules"] = json!([{"digest": "r1:rated",
            "grant": {"namespace": "pond", "name": "desk"}, "approval": true,
            "rate": [{"calls": 1, "per_ms": 60_000}]}]);
    };
    let world = operator.world(Wire::CHAT, edit).await;
    for arguments in [ORDER, &ORDER.replace('5', "6")] {
        let order = world.wire.calls(&[("c1", "desk__order", arguments)]);
        world.model.will(Answer::json(order));
    }
    let running = [runs(&world), runs(&world)];
    let (first, second) = (operator.asked(1).await, operator.asked(2).await);
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(world.wire.says("done")));
    world.model.will(Answer::json(world.wire.says("done")));
    operator.say(&[decision(&first, "Approved"), decision(&second, "Approved")]);
    for running in running {
        answered(running).await;
    }
    assert_eq!(world.desk.requests().len(), 1);
    let refused = [first, second]
        .map(|question| json!({"id": question["id"], "used": "Refused", "code": "rate_limited"}));
    until("a report of the refusal", || {
        let reported = operator.reported();
        let mut reported = reported.as_array().into_iter().flatten();
        reported.any(|it| refused.contains(it)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_a_link_nobody_can_be_asked() {
    let edit = |files: &mut Files| {
        files.tools["tools"][1]["x-toolcrib"]["tier"] = json!("Elevated");
    };
    let world = crate::support::World::start_with(edit, |_| {}, &[]).await;
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "permission_denied");
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(lines(&world, "question"), Vec::<Value>::new());
}
