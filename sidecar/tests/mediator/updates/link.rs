//! The link: reports, and answers, which can only restrict.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Answer, Fake, Files, World, calls, chat, says, until, within};

const TOKEN: &str = "link-token-1";

/// An agent whose link is `operator`, which will answer with `answers`.
async fn linked(operator: &Fake, answers: Vec<Value>) -> (World, tempfile::NamedTempFile) {
    for answer in answers {
        operator.will(Answer::json(answer));
    }
    linked_to(operator).await
}

async fn linked_to(operator: &Fake) -> (World, tempfile::NamedTempFile) {
    linked_by(operator, |_| {}).await
}

/// An agent with these files, whose link is `operator`.
pub(crate) async fn linked_by(
    operator: &Fake,
    edit: impl FnOnce(&mut Files),
) -> (World, tempfile::NamedTempFile) {
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
            edit(files);
        },
        |_| {},
        &["--link-token-file", &path],
    )
    .await;
    (world, token)
}

#[tokio::test]
async fn the_report_has_the_loaded_version_and_follows_a_change() {
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
    until("the report of the second manifest", || {
        let reports = operator.requests();
        let mut manifests = reports
            .iter()
            .map(|it| it.json()["loaded"]["manifest"].clone());
        manifests
            .any(|manifest| manifest == "manifest-2")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_report_tells_if_the_runners_token_is_valid() {
    let operator = Fake::start().await;
    let present = |seq: u64| json!({"seq": seq, "agent": "Present"});
    let (mut world, _token) = linked(&operator, vec![present(1)]).await;
    world.until(|now| now.seen == 1).await;
    let runner = || {
        operator
            .requests()
            .last()
            .map(|it| it.json()["runner"].clone())
    };
    assert_eq!(runner(), Some(Value::Null), "no request has come");

    // The Agent was deleted and created again: its token is another, and the runner has the old
    // one.
    let tokens = world.files.agent["tokens"].clone();
    world.files.agent["tokens"][0]["sha256"] = json!("0".repeat(64));
    operator.will(Answer::json(present(2)));
    world.publish().await;
    let (status, body) = world.ask(chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (401, &json!("unauthorized"))
    );
    operator.will(Answer::json(present(3)));
    until("the report of a refused token", || {
        (runner()? == json!("Refused")).then_some(())
    })
    .await;

    // A wrong token beside a valid one is no fault of the runner.
    world.files.agent["tokens"] = tokens;
    operator.will(Answer::json(present(4)));
    world.publish().await;
    world.model.will(Answer::json(says("fine")));
    world.chat().await;
    let wrong = world.runner.post(world.url("/v1/chat/completions"));
    let wrong = wrong.bearer_auth("wrong").body(chat().to_string()).send();
    assert_eq!(wrong.await.unwrap().status().as_u16(), 401);
    operator.will(Answer::json(present(5)));
    until("the report of an admitted runner", || {
        (runner()? == json!("Admitted")).then_some(())
    })
    .await;
}

/// A wrong key in a ModelProvider's Secret: the operator hears of it at once, and again when the
/// Secret was corrected.
#[tokio::test]
async fn a_refused_provider_key_is_reported_until_it_is_another() {
    let operator = Fake::start().await;
    let present = |seq: u64| json!({"seq": seq, "agent": "Present"});
    let never = Arc::new(Notify::new());
    let (mut world, _token) = linked(&operator, vec![present(1)]).await;
    world.until(|now| now.seen == 1).await;
    let providers = || {
        let reports = operator.requests();
        reports.last().map(|it| it.json()["providers"].clone())
    };
    assert_eq!(providers(), Some(Value::Null), "no key was used");

    // The operator holds its answers, as it does while nothing changes.
    for seq in [2, 3, 4] {
        operator.will(Answer::json(present(seq)).gated(&never));
    }
    world.model.will(Answer::text(401, "who?"));
    assert_eq!(world.ask(chat()).await.0, 401);
    let refusal = json!([{"provider": "house", "reason": "refused its key with status 401"}]);
    until("the report of the refused key", || {
        (providers()? == refusal).then_some(())
    })
    .await;

    world.files.providers["providers"]["house"]["keys"][0]["secret"] = json!("sk-house-key-2");
    world.publish().await;
    until("the report of another key", || {
        (providers()? == Value::Null).then_some(())
    })
    .await;
    assert_eq!(operator.requests().last().unwrap().json()["seen"], 1);
}

/// An agent whose service is down, after the report of the outage. The operator holds its answer to
/// that report until `release`; the answer takes every tool away.
struct Outage {
    operator: Fake,
    world: World,
    release: Arc<Notify>,
    _token: tempfile::NamedTempFile,
}

impl Outage {
    async fn reported() -> Self {
        let operator = Fake::start().await;
        let present = |seq: u64| json!({"seq": seq, "agent": "Present"});
        let (release, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        operator.will(Answer::json(present(1)));
        operator.will(Answer::json(present(2)).gated(&never));
        let mut without_tools = present(3);
        without_tools["floor"] =
            json!({"tools": {}, "feeds": [], "providers": ["house"], "models": null});
        operator.will(Answer::json(without_tools).gated(&release));
        operator.will(Answer::json(present(4)).gated(&never));
        let nowhere = |files: &mut Files| {
            for tool in files.tools["tools"].as_array_mut().unwrap() {
                tool["execution"]["base_url"] = json!("http://127.0.0.1:1");
            }
        };
        let (world, token) = linked_by(&operator, nowhere).await;
        let outage = Self {
            operator,
            world,
            release,
            _token: token,
        };
        // This report is held while the calls are made.
        outage.operator.asked(2).await;
        for symbol in ["OTR", "EEL", "CRAB"] {
            assert_eq!(outage.outages(), Value::Null, "{symbol}");
            let arguments = json!({"symbol": symbol}).to_string();
            let call = calls(&[("c1", "desk__quote", &arguments)]);
            outage.world.model.will(Answer::json(call));
            outage.world.model.will(Answer::json(says("It is down.")));
            assert_eq!(outage.world.ask(chat()).await.0, 200);
            assert_eq!(outage.world.result()["error"]["code"], "request_failed");
        }
        outage
            .until(json!([{"service": "desk", "reason": "connection refused: check that the server runs and listens at this port"}]))
            .await;
        outage
    }

    /// The outages of the last report.
    fn outages(&self) -> Value {
        self.operator.requests().last().unwrap().json()["outages"].clone()
    }

    async fn until(&self, outages: Value) {
        let what = format!("a report with {outages}");
        until(&what, || (self.outages() == outages).then_some(())).await;
    }
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_reported_until_its_address_is_another() {
    let mut outage = Outage::reported().await;
    let world = &mut outage.world;
    let desk = world.desk.url();
    for tool in world.files.tools["tools"].as_array_mut().unwrap() {
        tool["execution"]["base_url"] = json!(desk);
    }
    world.publish().await;
    outage.until(Value::Null).await;
}

#[tokio::test]
async fn the_service_of_tools_that_were_taken_away_is_not_reported() {
    let outage = Outage::reported().await;
    outage.release.notify_one();
    outage.until(Value::Null).await;
    assert_eq!(outage.operator.requests().last().unwrap().json()["seen"], 3);
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_reported_until_its_address_is_another() {
    let operator = Fake::start().await;
    let present = |seq: u64| json!({"seq": seq, "agent": "Present"});
    let never = Arc::new(Notify::new());
    operator.will(Answer::json(present(1)));
    operator.will(Answer::json(present(2)).gated(&never));
    operator.will(Answer::json(present(3)).gated(&never));
    let (mut world, _token) = linked_by(&operator, |files| {
        files.providers["providers"]["house"]["endpoints"][0]["base_url"] =
            json!("http://127.0.0.1:1/v1");
    })
    .await;
    // This report is held while the requests are made.
    operator.asked(2).await;
    let outages = || operator.requests().last().unwrap().json()["provider_outages"].clone();
    for _ in 0..3 {
        assert_eq!(outages(), Value::Null);
        let (status, body) = world.ask(chat()).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (502, &json!("upstream_unreachable"))
        );
    }
    let reason = "connection refused: check that the server runs and listens at this port";
    let expected = json!([{"provider": "house", "reason": reason}]);
    until("a report of the provider", || {
        (outages() == expected).then_some(())
    })
    .await;
    world.files.providers["providers"]["house"]["endpoints"][0]["base_url"] =
        json!(format!("{}/v1", world.model.url()));
    world.publish().await;
    until("a report without it", || {
        (outages() == Value::Null).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_refused_version_is_reported() {
    let operator = Fake::start().await;
    let present = |seq: u64| json!({"seq": seq, "agent": "Present"});
    let (mut world, _token) = linked(&operator, vec![present(1)]).await;
    world.until(|now| now.seen == 1).await;
    operator.will(Answer::json(present(2)));
    operator.will(Answer::json(present(3)));
    world.files.agent["requires"] = json!(["quarantine"]);
    world.files.publish();
    world.until(|now| now.version().is_err()).await;
    // If two reports were in flight, one may still describe the version before.
    let last = || operator.requests().last().map(|it| it.json());
    until("its report", || {
        last().filter(|report| report["error"].is_string())
    })
    .await;
    let report = last().unwrap();
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("quarantine"), "{error}");
    assert_eq!(report["loaded"], Value::Null);
    let (status, body) = world.ask(chat()).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("manifest_broken"))
    );
}

#[tokio::test]
async fn an_allowlist_revokes_a_tool_and_grants_none() {
    let operator = Fake::start().await;
    let allowlist = json!({"seq": 7, "agent": "Present", "floor": {
        "tools": {"desk.order": "v1:order", "desk.quote": "v1:another", "desk.more": "v1:more"},
        "feeds": [], "providers": ["house"], "models": null}});
    let (world, _token) = linked(&operator, vec![allowlist]).await;
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
    let (status, body) = world.ask(chat()).await;
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

/// An answer that allows only these tools, and everything else.
fn leaves(seq: u64, tools: &[&str]) -> Value {
    let digests: serde_json::Map<String, Value> = tools
        .iter()
        .map(|tool| (format!("desk.{tool}"), json!(format!("v1:{tool}"))))
        .collect();
    json!({"seq": seq, "agent": "Present", "floor": {
        "tools": digests, "feeds": [], "providers": ["house"], "models": null}})
}

fn offered(world: &World) -> Vec<String> {
    let request = world.model.requests().last().unwrap().json();
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    tools
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap().to_string())
        .collect()
}

#[tokio::test]
async fn the_long_poll_acknowledges_an_answer_once_in_force() {
    let operator = Fake::start().await;
    operator.will(Answer::json(leaves(5, &["quote", "order"])));
    let change = Arc::new(Notify::new());
    operator.will(Answer::json(leaves(6, &["order"])).gated(&change));
    // No further answer arrives during the test.
    operator.will(Answer::json(json!(0)).gated(&Arc::new(Notify::new())));
    let (world, _token) = linked_to(&operator).await;
    operator.asked(2).await;
    let said = operator.requests()[1].json();
    assert_eq!(said["seen"], 5);
    assert!(said["hold_ms"].as_u64().unwrap() >= 1_000);
    assert_eq!(world.server.app.current.now().seen, 5);
    change.notify_one();
    operator.asked(3).await;
    // It was in force before it was acknowledged.
    assert_eq!(operator.requests()[2].json()["seen"], 6);
    world.model.will(Answer::json(says("fine")));
    world.chat().await;
    assert_eq!(offered(&world), ["desk__order"]);
    assert_eq!(operator.connections(), 1, "one connection for all of it");
}

#[tokio::test]
async fn a_new_version_is_reported_at_once_and_the_allowlist_stays() {
    let operator = Fake::start().await;
    operator.will(Answer::json(leaves(5, &["order"])));
    let never = Arc::new(Notify::new());
    operator.will(Answer::json(json!(0)).gated(&never));
    operator.will(Answer::json(json!(0)).gated(&never));
    let (mut world, _token) = linked_to(&operator).await;
    operator.asked(2).await;
    world.publish().await;
    operator.asked(3).await;
    let said = operator.requests()[2].json();
    assert_eq!(
        (&said["loaded"]["manifest"], &said["seen"]),
        (&json!("manifest-2"), &json!(5))
    );
    world.model.will(Answer::json(says("fine")));
    world.chat().await;
    assert_eq!(offered(&world), ["desk__order"]);
}

#[tokio::test]
async fn the_allowlist_stays_while_the_operator_fails() {
    let operator = Fake::start().await;
    operator.will(Answer::json(leaves(5, &["order"])));
    // An answer of an earlier leader, and an invalid one.
    operator.will(Answer::json(leaves(4, &["order", "quote"])));
    operator.will(Answer::text(503, "not_leading"));
    operator.will(Answer::text(200, "nonsense"));
    let (world, _token) = linked_to(&operator).await;
    operator.asked(4).await;
    let now = world.server.app.current.now();
    assert_eq!(now.seen, 5);
    assert!(
        operator.connections() >= 3,
        "a failure is not repeated on its connection"
    );
    drop(operator);
    world.model.will(Answer::json(says("fine")));
    world.chat().await;
    assert_eq!(offered(&world), ["desk__order"]);
}

#[tokio::test]
async fn a_running_turn_loses_a_tool_that_the_link_revokes() {
    let all = leaves(5, &["quote", "order"]);
    let mut no_provider = all.clone();
    no_provider["floor"]["providers"] = json!([]);
    let mut no_model = all.clone();
    no_model["floor"]["models"] = json!([]);
    let deleted = json!({"agent": "Deleted"});
    let cases = [
        (leaves(0, &["order"]), 200, Value::Null, "permission_denied"),
        (no_provider, 403, json!("model_not_allowed"), ""),
        (no_model, 403, json!("model_not_allowed"), ""),
        (deleted, 403, json!("access_withdrawn"), ""),
    ];
    for (mut answer, status, code, result) in cases {
        answer["seq"] = json!(6);
        let operator = Fake::start().await;
        operator.will(Answer::json(all.clone()));
        let change = Arc::new(Notify::new());
        operator.will(Answer::json(answer.clone()).gated(&change));
        let (world, _token) = linked_to(&operator).await;
        operator.asked(2).await;
        let replied = Arc::new(Notify::new());
        let call = calls(&[("c1", "desk__quote", r#"{"symbol":"OTR"}"#)]);
        world.model.will(Answer::json(call).gated(&replied));
        world.desk.will(Answer::json(json!(1)));
        world.model.will(Answer::json(says("denied")));
        let running = tokio::spawn(world.request(&chat()).send());
        world.model.asked(1).await;
        change.notify_one();
        world.until(|now| now.seen == 6).await;
        replied.notify_one();
        let response = within("the turn", running).await.unwrap().unwrap();
        assert_eq!(response.status().as_u16(), status, "{answer}");
        let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(body["error"]["code"], code, "{answer}");
        if result.is_empty() {
            assert_eq!(world.model.requests().len(), 1, "{answer}");
        } else {
            assert_eq!(world.result()["error"]["code"], result);
            assert_eq!(world.desk.connections(), 0);
        }
    }
}
