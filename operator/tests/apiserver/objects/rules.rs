//! Runs the cases of `crds/tests/rules` against a real API server.
//!
//! `toolcrib-crds` checks them with the evaluator of the command line. Here the server that
//! enforces the definitions must accept the same objects, and refuse the others with the same
//! words.

use std::path::Path;

use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::{Value, json};
use toolcrib_crds::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolApproval, ToolDecision, ToolDefaults,
    ToolGrant,
};

use crate::support::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_and_the_offline_evaluator_agree() {
    // One test for all cases: they share the namespace, and a dry run takes milliseconds.
    let harness = Harness::new().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/tests/rules");
    let mut differences = Vec::new();
    for case in &toolcrib_golden::cases(&folder, Some("yaml")) {
        let text = std::fs::read_to_string(case).expect("case");
        let expected = text.lines().next().expect("a first line");
        let object: Value = serde_yaml::from_str(&text).expect("YAML");
        let answer = create(&harness, object).await;
        let as_expected = match (expected.strip_prefix("# refused: "), &answer) {
            (None, Ok(())) => true,
            (Some(words), Err(said)) => said.contains(words),
            (None, Err(_)) | (Some(_), Ok(())) => false,
        };
        if !as_expected {
            differences.push(format!("{}: {expected}: {answer:?}", case.display()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    harness.end().await;
}

/// Creates the object in a dry run. `Err`: the server's message.
async fn create(harness: &Harness, mut object: Value) -> Result<(), String> {
    let resource = match object["kind"].as_str().expect("a kind") {
        "Agent" => ApiResource::erase::<Agent>(&()),
        "ModelProvider" => ApiResource::erase::<ModelProvider>(&()),
        "Surface" => ApiResource::erase::<Surface>(&()),
        "ToolApproval" => ApiResource::erase::<ToolApproval>(&()),
        "ToolDecision" => ApiResource::erase::<ToolDecision>(&()),
        "ToolDefaults" => ApiResource::erase::<ToolDefaults>(&()),
        "ToolGrant" => ApiResource::erase::<ToolGrant>(&()),
        "ClusterToolPolicy" => ApiResource::erase::<ClusterToolPolicy>(&()),
        kind => panic!("kind {kind}"),
    };
    let is_of_cluster = object["kind"] == "ClusterToolPolicy";
    if !is_of_cluster {
        object["metadata"]["namespace"] = json!(harness.pond);
    }
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let api: Api<DynamicObject> = match is_of_cluster {
        true => Api::all_with(harness.client.clone(), &resource),
        false => Api::namespaced_with(harness.client.clone(), &harness.pond, &resource),
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&dry_run, &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}
