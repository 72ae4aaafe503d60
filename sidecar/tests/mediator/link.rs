//! The link: what is reported, and that an answer can only take away.

use serde_json::{Value, json};

use crate::support::{Answer, Fake, World, calls, says};

const TOKEN: &str = "link-token-1";

/// An agent whose link is `operator`, which will answer with `answers`.
async fn linked(operator: &Fake, answers: Vec<Value>) -> (World, tempfile::NamedTempFile) {
    for answer in answers {
        operator.will(Answer::json(answer));
    }
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), format!("{TOKEN}\n")).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = rcgen::CertificateParams::new(vec!["operator".into()])
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem();
    let url = operator.url();
    let path = token.path().to_str().unwrap().to_string();
    let world = World::start_with(
        |files| {
            files.agent["link"] = json!({"url": url, "ca": ca, "audience": "toolcrib.dev/link"});
        },
        |_| {},
        &["--link-token-file", &path],
    )
    .await;
    (world, token)
}

#[tokio::test]
async fn the_report_says_what_is_loaded_and_follows_a_change() {
    let operator = Fake::start().await;
    let present = |seq: u64| json!({"seq": seq, "agent": "Present"});
    let (mut world, _token) = linked(&operator, vec![present(1), present(2), present(3)]).await;
    operator.asked(1).await;
    let first = &operator.requests()[0];
    assert_eq!(
        (first.method.as_str(), first.target.as_str()),
        ("POST", "/v1/link")
    );
    assert_eq!(first.header("authorization"), Some("Bearer link-token-1"));
    let report = first.json();
    assert_eq!(report["loaded"]["manifest"], "manifest-1");
    assert_eq!(report["seen"], 0);
    assert!(!report["epoch"].as_str().unwrap().is_empty());

    world.publish().await;
    world.until(|now| now.seen >= 2).await;
    let reports: Vec<Value> = operator.requests().iter().map(|it| it.json()).collect();
    let manifests: Vec<_> = reports
        .iter()
        .map(|it| it["loaded"]["manifest"].clone())
        .collect();
    assert!(manifests.contains(&json!("manifest-2")), "{manifests:?}");
}

#[tokio::test]
async fn a_floor_takes_a_tool_away_and_gives_none() {
    let operator = Fake::start().await;
    let floor = json!({"seq": 7, "agent": "Present", "floor": {
        "tools": {"desk.order": "v1:order", "desk.quote": "v1:another", "desk.more": "v1:more"},
        "feeds": [], "providers": ["house"], "models": null}});
    let (world, _token) = linked(&operator, vec![floor]).await;
    world.until(|now| now.seen == 7).await;
    world.model.will(Answer::json(calls(&[(
        "c1",
        "desk.quote",
        r#"{"symbol":"A"}"#,
    )])));
    world.model.will(Answer::json(says("no")));
    world.chat().await;
    let offered = world.model.requests()[0].json()["tools"].clone();
    assert_eq!(offered.as_array().unwrap().len(), 1);
    assert_eq!(offered[0]["function"]["name"], "desk__order");
    assert_eq!(world.result()["ok"], false);
    assert_eq!(world.desk.connections(), 0);
}

#[tokio::test]
async fn a_deleted_agent_is_denied_and_a_bad_answer_changes_nothing() {
    let operator = Fake::start().await;
    let (world, _token) = linked(&operator, vec![json!({"seq": 3, "agent": "Deleted"})]).await;
    world.until(|now| now.seen == 3).await;
    let (status, body) = world.ask(crate::support::chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (403, &json!("access_withdrawn"))
    );

    let operator = Fake::start().await;
    let (world, _token) = linked(&operator, vec![json!({"agent": "Deleted"})]).await;
    operator.asked(1).await;
    world.model.will(Answer::json(says("here")));
    world.chat().await;
}
