//! Questions over a restart of the mediator's container.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use toolcrib_sidecar::app::Limits;

use super::{ORDER, code, impatient, lines, pending, will_order};
use crate::support::{Answer, Operator, World, start_server};

/// Starts the mediator again on the same files and record.
async fn restart(operator: &Operator, world: World) -> World {
    let World {
        server,
        files,
        history,
        stdout,
        ..
    } = world;
    server.drain().await;
    let flags = operator.flags();
    let limits = Limits::default();
    let server = start_server(&files, &history, limits, stdout.clone(), &flags);
    World {
        server: server.await.unwrap(),
        files,
        history,
        stdout,
        ..world
    }
}

#[tokio::test]
async fn an_open_question_is_open_after_a_restart() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    let world = restart(&operator, world).await;
    // It is asked again, as the operator may not have heard it.
    let again = operator.asked(2).await;
    assert_eq!(again, question);
    operator.hears(json!([{"id": question["id"]}])).await;
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    world.desk.will(Answer::json(json!({})));
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "ok");
    assert_eq!(lines(&world, "question").len(), 1);

    // It is used, also for the next process, whatever the operator says.
    let world = restart(&operator, world).await;
    operator
        .hears(json!([{"id": question["id"], "used": "Succeeded"}]))
        .await;
    let next = pending(&operator, &world, ORDER).await;
    assert_ne!(next["id"], question["id"]);
    assert_eq!(world.desk.requests().len(), 1);
}

#[tokio::test]
async fn a_denied_call_is_denied_after_a_restart() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    operator.decide(&question, "Denied");
    operator.is_heard(&world).await;
    let world = restart(&operator, world).await;
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    will_order(&world, ORDER);
    world.chat().await;
    assert_eq!(code(&world), "approval_denied");
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(operator.questions().len(), 1);
}

/// Its time was up while the mediator did not run. The record has its end, once.
#[tokio::test]
async fn a_question_that_expired_is_recorded_and_counted() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    let path = world.history.path().join("history.jsonl");
    let record = std::fs::read_to_string(&path).unwrap();
    let expires_at = lines(&world, "question")[0]["expires_at"].clone();
    let past = (Timestamp::now() - SignedDuration::from_secs(1)).to_string();
    std::fs::write(&path, record.replace(expires_at.as_str().unwrap(), &past)).unwrap();
    let mut world = world;
    for counted in [1, 0] {
        world = restart(&operator, world).await;
        operator.decide(&question, "Approved");
        operator.is_heard(&world).await;
        will_order(&world, ORDER);
        world.chat().await;
        assert_eq!(code(&world), "approval_denied");
        let ends = lines(&world, "decision");
        let [end] = &ends[..] else { panic!("{ends:?}") };
        assert_eq!(
            (&end["verdict"], &end["question"]),
            (&json!("expired"), &question["id"])
        );
        let metrics = world.metrics().await;
        let counted =
            format!(r#"toolcrib_mediator_approvals_total{{decision="expired"}} {counted}"#);
        assert!(metrics.contains(&counted), "{metrics}");
    }
    assert_eq!(world.desk.connections(), 0);
    assert_eq!(operator.questions().len(), 1);
}

/// The record is gone, as in another pod: the approval is never used.
#[tokio::test]
async fn a_question_that_the_record_does_not_know_is_not_open() {
    let operator = Operator::start().await;
    let world = impatient(&operator).await;
    let question = pending(&operator, &world, ORDER).await;
    let World { history, .. } = &world;
    std::fs::write(history.path().join("history.jsonl"), "").unwrap();
    let world = restart(&operator, world).await;
    operator.decide(&question, "Approved");
    operator.is_heard(&world).await;
    let next = pending(&operator, &world, ORDER).await;
    assert_ne!(next["id"], question["id"]);
    assert_eq!(world.desk.connections(), 0);
}
