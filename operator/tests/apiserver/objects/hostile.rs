//! An object that cannot be decoded does not affect others: in LIST and WATCH of a real API
//! server, without a webhook that would have refused it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use toolcrib_crds::{Agent, Surface, ToolGrant};
use toolcrib_operator::leadership::lease::Timing;

use crate::support::faults::Faults;
use crate::support::harness::Harness;
use crate::{READS, tools};

/// Go's own decoder stops at 10,000 levels, so an API server accepts this many.
const LEVELS: usize = 9_900;

/// Bound on a revocation.
const PROMISE: Duration = Duration::from_secs(1);
/// The second try is for a machine that was busy with something else.
const TRIES: usize = 2;

/// Sends the text unchanged, without building a tree of it.
async fn post<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    body: String,
) -> u16 {
    let path = K::url_path(&(), Some(namespace));
    let request = http::Request::post(format!("{path}?"))
        .header("content-type", "application/json")
        .body(kube::client::Body::from(body.into_bytes()))
        .expect("a request");
    let answer = client.send(request).await.expect("an answer");
    answer.status().as_u16()
}

fn surface(name: &str, namespace: &str, schema: &str) -> String {
    format!(
        r#"{{"apiVersion":"toolcrib.dev/v1alpha1","kind":"Surface","metadata":{{"name":"{name}","namespace":"{namespace}"}},"spec":{{"url":"http://hostile.example","descriptor":{{"version":2,"tools":[{{"name":"t","inputSchema":{schema},"http":{{"method":"GET","path":"/"}}}}]}}}}}}"#
    )
}

fn deep() -> String {
    format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS))
}

/// A schema of about a megabyte.
fn huge() -> String {
    let properties: Vec<String> = (0..16_000)
        .map(|n| format!(r#""property-number-{n}":{{"type":"string","description":"{n}"}}"#))
        .collect();
    format!(
        r#"{{"type":"object","properties":{{{}}}}}"#,
        properties.join(",")
    )
}

/// Patterns of twenty bytes, each of which compiles to megabytes.
fn patterns() -> String {
    let properties: Vec<String> = (0..400)
        .map(|n| format!(r#""p{n}":{{"type":"string","pattern":"\\p{{L}}{{60}}k{n}"}}"#))
        .collect();
    format!(
        r#"{{"type":"object","properties":{{{}}}}}"#,
        properties.join(",")
    )
}

/// The highest memory use of this process so far.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes
        .expect("a number")
        .parse::<u64>()
        .expect("a number")
        * 1024
}

/// Removes the grants' schema, so that objects of another shape can be stored, as by an older or
/// newer release.
pub async fn loosen(harness: &Harness) {
    let api: Api<CustomResourceDefinition> = Api::all(harness.client.clone());
    let name = "toolgrants.toolcrib.dev";
    let mut definition =
        serde_json::to_value(api.get(name).await.expect("definition")).expect("JSON");
    *definition
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .expect("a schema") =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = serde_json::from_value(definition).expect("a definition");
    api.replace(name, &PostParams::default(), &definition)
        .await
        .expect("loosened");
}

async fn put_all(harness: &Harness, suffix: &str) {
    let pond = &harness.pond;
    for (name, schema) in [("deep", deep()), ("huge", huge()), ("patterns", patterns())] {
        let body = surface(&format!("{name}-{suffix}"), pond, &schema);
        assert_eq!(
            post::<Surface>(&harness.client, pond, body).await,
            201,
            "{name}"
        );
    }
    put_undecodable(harness, &format!("undecodable-{suffix}")).await;
}

/// Stores a grant that cannot be decoded. The schema of grants must be loosened.
pub async fn put_undecodable(harness: &Harness, name: &str) {
    let pond = &harness.pond;
    let grant = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
        "metadata": {"name": name, "namespace": pond},
        "spec": {"agents": {"all": "of them"}, "tools": 7},
    });
    // Waits until the API server serves the loosened schema.
    harness
        .eventually("the undecodable grant is stored", || async {
            let status = post::<ToolGrant>(&harness.client, pond, grant.to_string()).await;
            (status == 201).then_some(())
        })
        .await;
}

/// Deletes undecodable grants, and restores the schema.
pub async fn remove_undecodable(harness: &Harness, names: &[&str]) {
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    for name in names {
        // The response is the object, which the client cannot decode.
        if let Err(kube::Error::Api(status)) = grants.delete(name, &DeleteParams::default()).await {
            panic!("{status}");
        }
    }
    harness.define().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_object_does_not_affect_others_in_list_and_watch() {
    let harness = Harness::new().await;
    loosen(&harness).await;
    // Objects in the first LIST.
    put_all(&harness, "listed").await;
    let faults = Faults::new(harness.client.clone());
    let controller = harness.launch(faults.client(), "heron", Timing::default(), harness.health);
    harness.apply_example().await;
    harness
        .files("analyst", "compiled past LIST", |files| {
            tools(files) == READS
        })
        .await;

    // Objects in the WATCH, and valid ones after them.
    put_all(&harness, "watched").await;
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    grants
        .delete("analyst-reads", &DeleteParams::default())
        .await
        .expect("deleted");
    harness
        .files("analyst", "revoked past WATCH", |files| {
            tools(files).is_empty()
        })
        .await;

    // Objects in a LIST after the watch's version is gone.
    let all: BTreeSet<String> = ["surfaces", "toolgrants", "agents"]
        .map(str::to_owned)
        .into();
    faults.lose_events(["surfaces", "toolgrants", "agents"]);
    harness.apply_example().await;
    faults.gone(&all);
    harness
        .files("analyst", "given again past a relist", |files| {
            tools(files) == READS
        })
        .await;
    assert!(controller.metric("undecodable_objects").await > 0.0);

    // Each object's own status says so, and repeats none of its content.
    for name in ["deep-listed", "deep-watched"] {
        says::<Surface>(&harness, name, "DescriptorInvalid").await;
    }
    for name in ["huge-listed", "huge-watched"] {
        says::<Surface>(&harness, name, "SchemaTooLarge").await;
    }
    for name in ["patterns-listed", "patterns-watched"] {
        says::<Surface>(&harness, name, "UnsupportedPattern").await;
    }
    for name in ["undecodable-listed", "undecodable-watched"] {
        says::<ToolGrant>(&harness, name, "Undecodable").await;
    }
    harness
        .condition::<Agent>("analyst", "Compiled", "True/Compiled")
        .await;
    // The process runs all tests, and still stays within the chart's limit for the controller
    // alone.
    let memory = most_memory();
    assert!(memory < 512 * 1024 * 1024, "{memory} bytes");
    controller.kill().await;
    remove_undecodable(&harness, &["undecodable-listed", "undecodable-watched"]).await;
    harness.end().await;
}

/// The largest grant beside the largest Surface, for many agents: no name of the one is in the
/// other. Each agent's compilation compares them all.
async fn put_names_beside_names(harness: &Harness, namespace: &str, attempt: usize) {
    const AGENTS: usize = 32;
    let tools: Vec<_> = (0..256)
        .map(|n| json!({"name": format!("get_the_number_{n}_of_the_pond"), "inputSchema": {}, "http": {"method": "GET", "path": "/"}}))
        .collect();
    let tiers: serde_json::Map<_, _> = (0..256)
        .map(|n| {
            (
                format!("got_the_numbers_{n}_of_pond_{attempt}"),
                json!("ReadOnly"),
            )
        })
        .collect();
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Surface",
            "metadata": {"name": "names", "namespace": namespace},
            "spec": {"url": "http://hostile.example", "tiers": tiers, "descriptor": {"version": 2, "tools": tools}},
        }))
        .await;
    let agents: Vec<String> = (0..AGENTS)
        .map(|n| format!("hostile-{attempt}-{n}"))
        .collect();
    let allow: Vec<String> = (0..256)
        .map(|n| format!("let_the_numbers_{n}_of_the_pond"))
        .collect();
    let rule = json!({"surface": {"name": "names"}, "allow": allow});
    harness
        .apply(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
            "metadata": {"name": "names", "namespace": namespace},
            "spec": {"agents": agents, "tools": vec![rule; 64]},
        }))
        .await;
    for agent in agents {
        harness
            .apply(json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
                "metadata": {"name": agent, "namespace": namespace},
                "spec": {"surfaces": [{"name": "names"}]},
            }))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_names_beside_many_names_do_not_delay_a_revocation() {
    let mut harness = Harness::new().await;
    let lake = harness.other_namespace().await;
    harness.start("heron");
    let mut attempts = Vec::new();
    for attempt in 0..TRIES {
        harness.apply_example().await;
        harness
            .files("analyst", "granted", |files| tools(files) == READS)
            .await;
        put_names_beside_names(&harness, &lake, attempt).await;
        let begun = Instant::now();
        harness
            .api::<ToolGrant>(&harness.pond)
            .delete("analyst-reads", &DeleteParams::default())
            .await
            .expect("deleted");
        harness
            .files("analyst", "revoked", |files| tools(files).is_empty())
            .await;
        attempts.push(begun.elapsed());
        if attempts[attempt] < PROMISE {
            break;
        }
    }
    assert!(
        attempts.iter().any(|taken| *taken < PROMISE),
        "the tool was lost after {attempts:?}"
    );
    // The work was done, and each object says so.
    let grants = harness.api::<ToolGrant>(&lake);
    harness
        .eventually("the grant says that it names no tool", || async {
            let grant = grants.get("names").await.expect("the object exists");
            let status = serde_json::to_value(grant.status?).expect("JSON");
            let said = status["conditions"].to_string();
            said.contains("ToolNotFound").then_some(())
        })
        .await;
    harness.end().await;
}

/// Waits until the object's `Accepted` is False for this reason. The text is searched, because it
/// cannot be parsed into a tree.
pub async fn says<K: Resource<DynamicType = ()>>(harness: &Harness, name: &str, reason: &str) {
    let path = K::url_path(&(), Some(&harness.pond));
    harness
        .eventually(&format!("{name} says {reason}"), || async {
            let request = http::Request::get(format!("{path}/{name}"))
                .body(Vec::new())
                .expect("a request");
            let text = harness.client.request_text(request).await.expect("it");
            let (_, status) = text.rsplit_once(r#""status":{"#)?;
            assert!(status.len() < 4_000, "{} bytes of status", status.len());
            status
                .contains(&format!(r#""reason":"{reason}""#))
                .then_some(())
        })
        .await;
}
