//! Policies of the cluster that are tried out: marks on tools in the files.

use serde_json::{Value, json};

use crate::support::{Answer, Files, Wire, World};

fn marked(files: &mut Files) {
    files.tools["tools"][0]["x-toolcrib"]["would_deny"] = json!("trial");
}

/// Returns `would_deny` of each intent line, and of each call in the lines of requests.
fn recorded(world: &World) -> (Vec<Value>, Vec<Value>) {
    let lines = world.all_lines();
    let intents = lines.iter().filter(|line| line["kind"] == "intent");
    let intents = intents.map(|line| line["would_deny"].clone()).collect();
    let traces = lines
        .iter()
        .filter_map(|line| line["tool_trace"].as_array());
    let calls = traces
        .flatten()
        .filter_map(|round| round["tool_calls"].as_array());
    let calls = calls.flatten().map(|call| call["would_deny"].clone());
    (intents, calls.collect())
}

#[tokio::test]
async fn a_call_that_a_tried_out_policy_would_deny_runs_and_is_recorded() {
    for wire in Wire::all() {
        let world = World::speaking_with(wire, marked, &[]).await;
        let quote = ("c1", "desk__quote", r#"{"symbol":"OTR"}"#);
        let refused = ("c2", "desk__quote", r#"{"symbol":7}"#);
        let order = ("c3", "desk__order", r#"{"symbol":"OTR","quantity":1}"#);
        world.model.will(wire.will_call(&[quote]));
        world.desk.will(Answer::json(json!({"price": 1})));
        world.model.will(wire.will_call(&[refused]));
        world.model.will(wire.will_call(&[order]));
        world.desk.will(Answer::json(json!({"ordered": true})));
        world.model.will(wire.will_say("done"));
        world.chat().await;
        let words = json!("permission_denied: ClusterToolPolicy trial denies desk.quote");
        let (intents, calls) = recorded(&world);
        assert_eq!(intents, [words.clone(), Value::Null]);
        assert_eq!(calls, [words, Value::Null, Value::Null]);
        let metrics = world.metrics().await;
        let count = r#"toolcrib_mediator_would_deny_total{tool="desk.quote"} 1"#;
        assert!(metrics.contains(count), "{metrics}");
    }
}
