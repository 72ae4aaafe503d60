//! Agents that list no models, below policies of the cluster that allow models by globs.

use serde_json::{Value, json};

use crate::support::{Answer, Fake, Files, RUNNER, Wire, World, within};
use crate::updates::link::linked_by;

/// Lists no models; two policies leave it the house's otters. The barn serves none of them.
fn below_policies(files: &mut Files) {
    files.agent["models"] = json!({"allowed": [], "matching": [["house/*", "x/*"], ["*/otter-*"]]});
}

async fn ask(world: &World, wire: Wire, model: &str) -> (u16, String, String) {
    let mut request = wire.chat();
    request["model"] = json!(model);
    let (status, body) = world.ask(request).await;
    let code = match status {
        200 => String::new(),
        _ => wire.error_code(&body).to_owned(),
    };
    let message = body["error"]["message"].as_str().unwrap_or_default();
    (status, code, message.to_owned())
}

#[tokio::test]
async fn policies_leave_an_agent_without_a_list_the_models_that_match() {
    for wire in Wire::all() {
        let world = World::speaking_with(wire, below_policies, &[]).await;
        for model in ["house/heron-9", "heron-9", "barn/otter-1", "house/"] {
            let (status, code, message) = ask(&world, wire, model).await;
            assert_eq!((status, &*code), (403, "model_not_allowed"), "{model:?}");
            assert!(message.contains("house/*, x/*; and */otter-*"), "{message}");
        }
        let (status, code, _) = ask(&world, wire, "").await;
        assert_eq!((status, &*code), (400, "model_missing"));
        assert_eq!(world.model.connections(), 0);
        for (model, sent) in [("house/otter-7", "otter-7"), ("otter-8", "otter-8")] {
            world.model.will(wire.will_say("here"));
            assert_eq!(ask(&world, wire, model).await.0, 200, "{model}");
            let requests = world.model.requests();
            assert_eq!(requests.last().unwrap().json()["model"], sent);
        }
    }
}

/// An unprefixed name is unambiguous if one provider may serve it.
#[tokio::test]
async fn an_unprefixed_model_goes_to_the_only_provider_that_policies_leave() {
    let two = |files: &mut Files| {
        below_policies(files);
        let house = files.providers["providers"]["house"].clone();
        files.providers["providers"]["barn"] = house;
    };
    let mut world = World::start_with(two, |_| {}, &[]).await;
    world.model.will(Wire::CHAT.will_say("here"));
    assert_eq!(ask(&world, Wire::CHAT, "otter-7").await.0, 200);
    world.files.agent["models"]["matching"] = json!([["*/otter-*"]]);
    world.publish().await;
    let (status, code, message) = ask(&world, Wire::CHAT, "otter-7").await;
    assert_eq!((status, &*code), (400, "model_missing"));
    assert!(message.contains("barn/otter-7, house/otter-7"), "{message}");
    assert_eq!(ask(&world, Wire::CHAT, "heron-9").await.0, 403);
}

#[tokio::test]
async fn the_list_of_models_has_those_that_match() {
    let world = World::start_with(below_policies, |_| {}, &[]).await;
    let offered = json!({"data": [{"id": "otter-1"}, {"id": "heron-9"}, {"id": "x/otter-2"}]});
    world.model.will(Answer::json(offered));
    let request = world.runner.get(world.url("/v1/models"));
    let request = request.header("x-api-key", RUNNER);
    let response = within("an answer", request.send()).await.unwrap();
    let text = within("its body", response.text()).await.unwrap();
    let listed: Value = serde_json::from_str(&text).unwrap();
    let listed = listed["data"].as_array().unwrap().iter();
    let ids: Vec<&str> = listed.map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["house/otter-1"]);
}

/// The files of before allow every model.
#[tokio::test]
async fn a_policy_reaches_a_pod_over_the_link() {
    let operator = Fake::start().await;
    let answer = json!({"seq": 5, "agent": "Present", "floor": {
        "tools": {}, "feeds": [], "providers": ["house"],
        "models": [], "models_matching": [["house/otter-*"]]}});
    operator.will(Answer::json(answer));
    let (world, _token) = linked_by(&operator, |files| files.agent["models"] = Value::Null).await;
    world.until(|now| now.seen == 5).await;
    let (status, code, _) = ask(&world, Wire::CHAT, "house/heron-9").await;
    assert_eq!((status, &*code), (403, "model_not_allowed"));
    world.model.will(Wire::CHAT.will_say("here"));
    assert_eq!(ask(&world, Wire::CHAT, "house/otter-1").await.0, 200);
}
