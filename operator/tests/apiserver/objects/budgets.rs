//! The memory budget for objects, on a real API server: which objects have room, the condition of
//! an object without room, and that reporting it takes no write after a restart. The same holds
//! beside an object that cannot be decoded.

use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_crds::{Agent, Surface, ToolGrant};

use super::hostile;
use crate::support::harness::Harness;

fn surface(namespace: &str, name: &str, filler: Value) -> Value {
    let descriptor = json!({"version": 2, "tools": [], "filler": filler});
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"url": "https://reed.example", "descriptor": descriptor},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_share_the_memory_and_a_restart_writes_nothing() {
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.objects_budget = 3_000_000;
    harness.resync = Duration::from_secs(1);
    let pond = harness.pond.clone();
    let large = json!("x".repeat(600_000));
    for number in 0..6 {
        let name = format!("large-{number}");
        harness.apply(surface(&pond, &name, large.clone())).await;
    }
    // Larger than one object may be, and created after the objects that fill the pond's share.
    let lists = json!(vec![json!([]); 300_000]);
    harness.apply(surface(&pond, "lists", lists)).await;
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": "zander", "namespace": pond}, "spec": {"surfaces": []},
        }))
        .await;
    harness.apply(surface(&lake, "small", large)).await;
    hostile::loosen(&harness).await;
    hostile::put_undecodable(&harness, "undecodable").await;
    harness.start("heron");

    let accepted = "True/Accepted";
    harness
        .condition::<Surface>("large-0", "Accepted", accepted)
        .await;
    let out = "False/TooExpensive";
    let message = harness
        .condition::<Surface>("large-5", "Accepted", out)
        .await;
    assert!(message.contains("over its equal share"), "{message}");
    let message = harness.condition::<Surface>("lists", "Accepted", out).await;
    assert!(message.contains("one object may take 8"), "{message}");
    let message = harness.condition::<Agent>("zander", "Accepted", out).await;
    assert!(message.contains("limits.memory"), "{message}");
    let of_lake = harness.api::<Surface>(&lake);
    harness
        .eventually("the other namespace keeps its objects", || async {
            let small = of_lake.get("small").await.expect("the object exists");
            let status = serde_json::to_value(small.status?).expect("JSON");
            (status["conditions"][0]["reason"] == "Accepted").then_some(())
        })
        .await;
    hostile::says::<ToolGrant>(&harness, "undecodable", "Undecodable").await;
    assert!(harness.metric("objects_left_out").await >= 3.0);
    assert!(harness.metric("objects_bytes").await <= 3_000_000.0);
    let before = harness.settled().await;
    harness.stop().await;

    harness.start("newt");
    harness
        .eventually("the next leader has reconciled everything", || async {
            (harness.metric("reconciles").await > 0.0).then_some(())
        })
        .await;
    assert_eq!(harness.settled().await, before);
    assert_eq!(harness.metric("writes").await, 0.0);
    harness.stop().await;
    hostile::remove_undecodable(&harness, &["undecodable"]).await;
    harness.end().await;
}
