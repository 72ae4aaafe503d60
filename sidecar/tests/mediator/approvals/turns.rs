//! The call of a turn: approved, denied, pending, and withdrawn while it waits.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ORDER, answered, code, impatient, lines, pending, runs, will_order};
use crate::support::{
    Answer, Files, MODEL_KEY, Operator, TOOL_TOKEN, Wire, decision, until, within,
};

#[tokio::test]
async fn an_approved_call_runs_once_and_the_record_names_the_person() {
    for wire in Wire::all() {
        println!("{wire:?}");
        let operator = Operator::start().await;
        let world = operator.world(wire, |_| {}).await;
        will_order(&world, ORDER);
        world.desk.will(Answer::json(json!({"bought": 5})));
        let running = runs(&world);
        let question = operator.asked(1).await;
        assert_eq!(question["tool"], "desk.order");
        assert_eq!(question["entry"], "v1:order");
        let arguments = question["arguments"].as_str().unwrap();
        let sorted = r#"{"claw_id":"otter","quantity":5,"symbol":"OTR"}"#;
        assert_eq!(arguments, sorted);
        let id = question["id"].as_str().unwrap();
        operator.hears(json!([{"id": id}])).await;
        assert_eq!(world.desk.connections(), 0);
        // The question was on disk first.
        let asked = &lines(&world, "question")[0];
        assert_eq!(asked["question"], id);
        assert_eq!(asked["call_digest"], question["call_digest"]);

        operator.decide(&question, "Approved");
        answered(running).await;
        assert_eq!(code(&world), "ok");
        assert_eq!(world.desk.requests().len(), 1);
        let kinds = ["question", "decision", "intent", "turn"];
        let recorded: Vec<_> = world.lines().iter().map(|it| it["kind"].clone()).collect();
        assert_eq!(recorded, kinds);
        let name = format!("otter-{}", &id[..12]);
        let approval = json!({"question": id, "name": name, "uid": format!("u-{id}"),
            "decided_by": ["ada"]});
        assert_eq!(lines(&world, "intent")[0]["approval"], approval);
        assert_eq!(lines(&world, "decision")[0]["verdict"], "approved");

        // The operator hears of the use until it lists the decision no more.
        operator
            .hears(json!([{"id": id, "used": "Succeeded"}]))
            .await;
        operator.say(&[]);
        operator.hears(json!(null)).await;
    }
}

#[tokio::test]
async fn a_stream_hears_keepalives_while_its_call_waits() {
    for wire in Wire::all() {
        for streaming in ["Buffered", "Live"] {
            println!("{wire:?} {streaming}");
            let operator = Operator::start().await;
            let edit = |files: &mut Files| files.agent["streaming"] = json!(streaming);
            let flags = ["--keepalive", "20ms"];
            let world = operator.world_with(wire, edit, &flags).await;
            let call = [("c1", "desk__order", ORDER)];
            match streaming {
                "Live" => {
                    world.model.will(wire.will_stream("r1", (&[], &call)));
                    world.model.will(wire.will_stream("r2", (&["done"], &[])));
                }
                _ => will_order(&world, ORDER),
            }
            world.desk.will(Answer::json(json!({})));
            let mut request = wire.chat();
            request["stream"] = json!(true);
            let response = within("a stream", world.request(&request).send()).await;
            let mut response = response.unwrap();
            assert_eq!(response.status(), 200);
            let question = operator.asked(1).await;
            let mut heard = String::new();
            while heard.matches(": keepalive").count() < 3 && heard.matches("ping").count() < 3 {
                let chunk = within("a keepalive", response.chunk()).await.unwrap();
                heard += &String::from_utf8_lossy(&chunk.unwrap());
            }
            assert_eq!(world.desk.connections(), 0);
            operator.decide(&question, "Approved");
            while let Some(chunk) = within("the rest", response.chunk()).await.unwrap() {
                heard += &String::from_utf8_lossy(&chunk);
            }
            assert!(heard.contains("done"), "{heard}");
            assert_eq!(world.desk.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_denied_call_has_the_reason_and_is_not_asked_about_again() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, |_| {}).await;
    will_order(&world, ORDER);
    let running = runs(&world);
    let question = operator.asked(1).await;
    operator.decide(&question, "Denied");
    answered(running).await;
    assert_eq!(code(&world), "approval_denied");
    let message = world.result()["error"]["message"].to_string();
    assert!(message.contains("too many"), "{message}");
    let line = &lines(&world, "decision")[0];
    assert_eq!(
        (&line["verdict"], &line["decided_by"]),
        (&json!("denied"), &json!(["ada"]))
    );
    operator.hears(json!(null)).await;

    // Whatever the order of its arguments. An approval comes too late.
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    will_order(&world, r#"{"quantity":5,"symbol":"OTR"}"#);
    world.chat().await;
    assert_eq!(code(&world), "approval_denied");
    assert_eq!(operator.questions().len(), 1);
    assert_eq!(world.desk.connections(), 0);
    // Another call is another question.
    will_order(&world, r#"{"quantity":6,"symbol":"OTR"}"#);
    let running = runs(&world);
    let other = operator.asked(2).await;
    assert_ne!(other["call_digest"], question["call_digest"]);
    operator.decide(&other, "Expired");
    answered(running).await;
    assert_eq!(code(&world), "approval_denied");
    let metrics = world.metrics().await;
    let counted = r#"toolcrib_mediator_approvals_total{decision="denied"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_pending_call_is_made_again_and_meets_its_approval() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    let message = world.result()["error"]["message"].to_string();
    let name = format!("otter-{}", &question["id"].as_str().unwrap()[..12]);
    assert!(message.contains(&name), "{message}");
    assert_eq!(world.result()["error"]["details"]["retryable"], true);
    // It is still open, and the same.
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "approval_pending");
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    assert_eq!(operator.questions().len(), 1);
    // It is used: the next one is a question of its own.
    let next = pending(&operator, &world, ORDER).await;
    assert_ne!(next["id"], question["id"]);
    assert_eq!(world.desk.requests().len(), 1);
}

#[tokio::test]
async fn a_tool_that_goes_ends_the_wait_at_once() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, |_| {}).await;
    will_order(&world, ORDER);
    let running = runs(&world);
    let question = operator.asked(1).await;
    operator.hears(json!([{"id": question["id"]}])).await;
    operator.leave(json!({"tools": {"desk.quote": "v1:quote"}, "feeds": [],
        "providers": ["house"], "models": null}));
    answered(running).await;
    assert_eq!(code(&world), "permission_denied");
    // The operator withdraws what is not listed.
    operator.hears(json!(null)).await;
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(lines(&world, "decision")[0]["verdict"], "withdrawn");
}

#[tokio::test]
async fn the_total_timeout_stands_still_while_a_call_waits() {
    let operator = Operator::start().await;
    let edit = |files: &mut Files| files.tools["policy"]["total_timeout_ms"] = json!(1500);
    let world = operator.world(Wire::CHAT, edit).await;
    will_order(&world, ORDER);
    world.desk.will(Answer::json(json!({})));
    let began = Instant::now();
    let running = runs(&world);
    let question = operator.asked(1).await;
    until("more than the total timeout", || {
        (began.elapsed() > Duration::from_secs(2)).then_some(())
    })
    .await;
    operator.decide(&question, "Approved");
    answered(running).await;
    assert_eq!(code(&world), "ok");
    let call = &world.last_line()["tool_trace"][0]["tool_calls"][0];
    // The wait is no latency of the service.
    assert!(call["latency_ms"].as_u64().unwrap() < 1500, "{call}");
}

#[tokio::test]
async fn a_runner_that_hangs_up_leaves_the_question_open() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, |_| {}).await;
    let call = world.wire.calls(&[("c1", "desk__order", ORDER)]);
    world.model.will(Answer::json(call));
    let running = runs(&world);
    let question = operator.asked(1).await;
    running.abort();
    world.turn_is_recorded().await;
    let call = lines(&world, "turn")[0]["tool_trace"][0]["tool_calls"][0].clone();
    assert_eq!(
        (&call["executed"], &call["name"]),
        (&json!(false), &json!("desk.order"))
    );
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    assert_eq!(world.desk.connections(), 0);
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    assert_eq!(operator.questions().len(), 1);
}

#[tokio::test]
async fn two_equal_calls_share_a_question_and_only_one_uses_its_approval() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, |_| {}).await;
    let order = world.wire.calls(&[("c1", "desk__order", ORDER)]);
    world.model.will(Answer::json(order.clone()));
    world.model.will(Answer::json(order));
    let (first, second) = (runs(&world), runs(&world));
    world.model.asked(2).await;
    let question = operator.asked(1).await;
    world.desk.will(Answer::json(json!({})));
    world.desk.will(Answer::json(json!({})));
    world.model.will(Answer::json(world.wire.says("done")));
    world.model.will(Answer::json(world.wire.says("done")));
    operator.decide(&question, "Approved");
    // The other one asks anew.
    let other = operator.asked(2).await;
    assert_ne!(question["id"], other["id"]);
    world.desk.asked(1).await;
    operator.say(&[
        decision(&question, "Approved"),
        decision(&other, "Approved"),
    ]);
    answered(first).await;
    answered(second).await;
    assert_eq!(world.desk.requests().len(), 2);
    let used: Vec<_> = lines(&world, "intent")
        .iter()
        .map(|it| it["approval"]["question"].clone())
        .collect();
    assert_eq!(used, [question["id"].clone(), other["id"].clone()]);
}

#[tokio::test]
async fn secrets_are_replaced_in_a_question_and_named() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let arguments = json!({"symbol": MODEL_KEY, "quantity": 1}).to_string();
    let question = pending(&operator, &world, &arguments).await;
    assert_eq!(question["redacted"], json!(["/symbol"]));
    let text = question.to_string();
    assert!(
        !text.contains(MODEL_KEY) && !text.contains(TOOL_TOKEN),
        "{text}"
    );
    let line = &lines(&world, "question")[0];
    assert_eq!(line["arguments"]["symbol"], "[redacted]");
}

#[tokio::test]
async fn arguments_that_no_person_can_review_are_refused() {
    let operator = Operator::start().await;
    let world = operator.world(Wire::CHAT, |_| {}).await;
    for symbol in ["x".repeat(17_000), "\"".repeat(8_170)] {
        will_order(&world, &json!({ "symbol": symbol }).to_string());
        world.chat().await;
        assert_eq!(code(&world), "approval_too_large");
    }
    assert_eq!(operator.questions(), Vec::<serde_json::Value>::new());
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn open_questions_are_bounded() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    for quantity in 0..8 {
        let arguments = json!({"symbol": "OTR", "quantity": quantity}).to_string();
        pending(&operator, &world, &arguments).await;
    }
    will_order(&world, ORDER.replace('5', "99").as_str());
    world.chat().await;
    assert_eq!(code(&world), "too_many_pending");
    assert_eq!(operator.questions().len(), 8);
    until("a report of all", || {
        (operator.reported().as_array()?.len() == 8).then_some(())
    })
    .await;
    let metrics = world.metrics().await;
    assert!(
        metrics.contains("toolcrib_mediator_approvals_open 8"),
        "{metrics}"
    );
}

#[tokio::test]
async fn the_operator_refuses_a_question() {
    for (why, code_of) in [
        ("TooManyPending", "too_many_pending"),
        ("TooManyDenied", "too_many_denied"),
        ("NotGranted", "permission_denied"),
        ("NotProtected", "permission_denied"),
    ] {
        let operator = Operator::start().await;
        operator.refuse(why, "because of the bound");
        let world = operator.world(Wire::CHAT, |_| {}).await;
        will_order(&world, ORDER);
        world.chat().await;
        assert_eq!(code(&world), code_of);
        let message = world.result()["error"]["message"].to_string();
        assert!(message.contains("because of the bound"), "{message}");
        assert_eq!(lines(&world, "decision")[0]["verdict"], "refused");
        operator.hears(json!(null)).await;
        assert_eq!(world.desk.connections(), 0);
    }
}

#[tokio::test]
async fn a_question_is_repeated_until_the_operator_answers() {
    let operator = Operator::start().await;
    operator.fail(&[503, 500]);
    let world = operator.world(Wire::CHAT, |_| {}).await;
    will_order(&world, ORDER);
    world.desk.will(Answer::json(json!({})));
    let running = runs(&world);
    let question = operator.asked(1).await;
    assert_eq!(lines(&world, "question").len(), 1);
    operator.decide(&question, "Approved");
    answered(running).await;
    assert_eq!(code(&world), "ok");
}

#[tokio::test]
async fn a_question_that_the_operator_never_takes_is_over_at_once() {
    for (status, why) in [(400, "cannot read"), (404, "takes no questions")] {
        let operator = Operator::start().await;
        operator.fail(&[status]);
        let world = operator.world(Wire::CHAT, |_| {}).await;
        will_order(&world, ORDER);
        world.chat().await;
        assert_eq!(code(&world), "permission_denied");
        let message = world.result()["error"]["message"].to_string();
        assert!(message.contains(why), "{message}");
        assert_eq!(operator.questions(), Vec::<serde_json::Value>::new());
        assert_eq!(world.desk.connections(), 0);
    }
}

#[tokio::test]
async fn a_rule_asks_for_the_calls_that_meet_it() {
    let operator = Operator::start().await;
    let rules = json!([
        {"digest": "r1:small", "grant": {"namespace": "pond", "name": "desk"},
            "arguments": {"properties": {"quantity": {"maximum": 9}}}},
        {"digest": "r1:asks", "grant": {"namespace": "pond", "name": "desk"}, "approval": true},
    ]);
    let edit = |files: &mut Files| {
        let entry = &mut files.tools["tools"][1]["x-toolcrib"];
        entry["tier"] = json!("System");
        entry["rules"] = rules;
        entry["requires"] = json!(["rules/1", "approval/1"]);
    };
    let world = operator.world(Wire::CHAT, edit).await;
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    will_order(&world, r#"{"symbol":"OTR","quantity":500}"#);
    world.desk.will(Answer::json(json!({})));
    let running = runs(&world);
    let question = operator.asked(1).await;
    let asking = json!([{"grant": {"namespace": "pond", "name": "desk"}, "rule": "r1:asks"}]);
    assert_eq!(question["rules"], asking);
    operator.decide(&question, "Approved");
    answered(running).await;
    assert_eq!(code(&world), "ok");
    assert_eq!(operator.questions().len(), 1);
    assert_eq!(lines(&world, "intent")[1]["rule"], "r1:asks");
}
