//! Reports of mediators, and the Agent status that follows from them.

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use toolcrib_crds::Agent;
use toolcrib_manifest::LONGEST_REPORT;

use crate::support::harness::Harness;
use crate::support::pods::{self, AUDIENCE};
use crate::{READS, tools};

/// Time of the last call that the pod reports: before the second of two Agents is created.
const CALLED: &str = "2026-01-01T00:00:00Z";

#[tokio::test(flavor = "multi_thread")]
async fn the_last_line_of_a_pods_record_outlives_the_pod() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let pod = pods::create(&harness, "analyst-1", "analyst").await;
    harness
        .condition::<Agent>("analyst", "InForce", "Unknown/NoReport")
        .await;
    let report = async |calls: u64, seq: u64, hash: &str| {
        let report = json!({
            "epoch": "e1", "version": "0", "usage": {"calls": calls},
            "record": {"chain": "c0ffee", "seq": seq, "hash": hash.repeat(32)},
        });
        pods::answered(&harness, &pod, "analyst", report).await;
    };
    let agents: Api<Agent> = harness.api(&harness.pond);
    let kept = async || {
        let status = agents.get("analyst").await.unwrap().status.unwrap();
        let heads = status.record.into_iter();
        Vec::from_iter(heads.map(|head| (head.pod, head.chain, head.seq, head.hash)))
    };
    let head = |seq, hash: &str| {
        let (pod, chain) = ("analyst-1".to_owned(), "c0ffee".to_owned());
        vec![(pod, chain, seq, hash.repeat(32))]
    };
    report(1, 3, "aa").await;
    harness
        .eventually("the head", || async {
            (kept().await == head(3, "aa")).then_some(())
        })
        .await;
    // Written with the counters, and so not yet; a hostile report changes nothing.
    report(2, 9, "bb").await;
    report(2, 4, "cc").await;
    report(2, 10, "no").await;
    assert_eq!(kept().await, head(3, "aa"));
    let pods: Api<Pod> = harness.api(&harness.pond);
    let now = DeleteParams::default().grace_period(0);
    pods.delete("analyst-1", &now).await.unwrap();
    harness
        .eventually("the last head of the pod", || async {
            (kept().await == head(9, "bb")).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mediators_report_the_manifest_in_force() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("analyst", "compiled", |files| tools(files) == READS)
        .await;
    let pods: Api<Pod> = harness.api(&harness.pond);
    let pod = pods::create(&harness, "analyst-1", "analyst").await;
    harness
        .condition::<Agent>("analyst", "InForce", "Unknown/NoReport")
        .await;

    let token = pods::token(&harness, &pod, AUDIENCE).await;
    let other = pods::token(&harness, &pod, "https://elsewhere.example").await;

    let link = &files["agent.json"]["link"];
    let host = format!("link.{}.svc", harness.system);
    assert_eq!(
        link["url"],
        format!("https://{host}:{}", harness.link.port())
    );
    let http = harness.https("link", harness.link, &link["ca"]);
    let url = format!("{}/v1/link", link["url"].as_str().unwrap());
    let send = |token: &str, body: Value| {
        let request = http.post(&url).bearer_auth(token).body(body.to_string());
        async move {
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            (
                status,
                serde_json::from_str::<Value>(&answer.text().await.unwrap()).unwrap_or_default(),
            )
        }
    };
    let digest = &files["agent.json"]["digest"];
    let up = |digest: &Value, calls: u64| {
        json!({
            "epoch": "e1", "version": "0", "understands": [],
            "loaded": {"manifest": digest["manifest"], "credentials": digest["credentials"], "at": "2026-01-01T00:00:00Z"},
            "usage": {"requests": 2, "calls": calls, "last_call": CALLED},
        })
    };

    // Strangers, a token of another audience, an invalid token, and too large a body.
    assert_eq!(send("nonsense", up(digest, 1)).await.0, 401);
    assert_eq!(send(&other, up(digest, 1)).await.0, 401);
    assert_eq!(send(&token, json!({"epoch": 5})).await.0, 400);
    // Small enough that the socket takes it before the answer comes.
    assert_eq!(
        send(&token, json!({"epoch": "x".repeat(LONGEST_REPORT)}))
            .await
            .0,
        413
    );

    let (status, down) = send(&token, up(digest, 3)).await;
    assert_eq!(status, 200);
    assert_eq!(down["want"], *digest);
    assert_eq!(down["agent"], "Present");
    let entry = &files["tools.json"]["tools"][0]["x-toolcrib"]["entry_digest"];
    assert_eq!(down["floor"]["tools"], json!({ READS[0]: entry }));
    assert_eq!(down["floor"]["providers"], json!(["scripted"]));
    harness
        .condition::<Agent>("analyst", "InForce", "True/InForce")
        .await;
    let agents: Api<Agent> = harness.api(&harness.pond);
    let status = harness
        .eventually("usage", || async {
            let status = agents.get("analyst").await.unwrap().status.unwrap();
            status.usage.is_some().then_some(status)
        })
        .await;
    assert_eq!(status.usage.unwrap().calls, 3);
    let shown = status.pods.unwrap();
    assert_eq!((shown.running, shown.in_force), (1, 1));

    // The mediator loads another manifest; it cannot load one; it is gone.
    let behind = json!({"manifest": "m0", "credentials": "c0"});
    assert_eq!(send(&token, up(&behind, 8)).await.0, 200);
    harness
        .condition::<Agent>("analyst", "InForce", "False/Pending")
        .await;
    // The status is written at once, its counters only after their five minutes.
    let status = agents.get("analyst").await.unwrap().status.unwrap();
    assert_eq!(status.usage.unwrap().calls, 3);
    let mut broken = up(digest, 8);
    broken["error"] = json!("tools.json: hash mismatch");
    assert_eq!(send(&token, broken).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "InForce", "False/ManifestRejected")
        .await;
    assert!(
        message.contains("analyst-1") && message.contains("hash mismatch"),
        "{message}"
    );

    // The Agent is deleted and created again: the pod's containers have the earlier token.
    let first_tokens = files["agent.json"]["tokens"].clone();
    let born = pod.creation_timestamp().unwrap().0;
    agents
        .delete("analyst", &DeleteParams::default())
        .await
        .unwrap();
    harness
        .eventually("the compiled Secret is gone", || async {
            let secrets: Api<Secret> = harness.api(&harness.pond);
            let name = "toolcrib-analyst-mediator";
            let gone = secrets.get_opt(name).await.unwrap().is_none();
            // Creation times have whole seconds.
            (gone && Timestamp::now().as_second() > born.as_second()).then_some(())
        })
        .await;
    harness.apply_example().await;
    let files = harness
        .files("analyst", "compiled again", |files| {
            tools(files) == READS && files["agent.json"]["tokens"] != first_tokens
        })
        .await;
    let digest = &files["agent.json"]["digest"];
    assert_eq!(send(&token, up(digest, 8)).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "InForce", "False/TokenReplaced")
        .await;
    assert!(
        message.contains("analyst-1") && message.contains("delete the pods"),
        "{message}"
    );
    harness
        .condition::<Agent>("analyst", "Ready", "False/TokenReplaced")
        .await;
    // The surviving pod's calls so far were the earlier Agent's.
    let status = agents.get("analyst").await.unwrap().status.unwrap();
    assert_eq!(status.usage, None);
    assert_eq!(send(&token, up(digest, 10)).await.0, 200);
    let usage = harness
        .eventually("usage of the new Agent", || async {
            let status = agents.get("analyst").await.unwrap().status.unwrap();
            status.usage
        })
        .await;
    assert_eq!((usage.calls, usage.last_call), (2, None));
    let events: Api<Event> = harness.api(&harness.pond);
    harness
        .eventually("an Event says so", || async {
            let listed = events.list(&ListParams::default()).await.unwrap();
            listed
                .iter()
                .any(|event| event.reason.as_deref() == Some("TokenReplaced"))
                .then_some(())
        })
        .await;
    // A container that was restarted since has the present token.
    let mut admitted = up(digest, 8);
    admitted["runner"] = json!("Admitted");
    assert_eq!(send(&token, admitted).await.0, 200);
    harness
        .condition::<Agent>("analyst", "InForce", "True/InForce")
        .await;
    // Its provider takes none of its keys, until the Secret is corrected.
    let mut without_key = up(digest, 8);
    without_key["runner"] = json!("Admitted");
    let reason = "refused its key with status 401";
    without_key["providers"] = json!([{"provider": "scripted", "reason": reason}]);
    assert_eq!(send(&token, without_key).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "Ready", "False/ProviderKeyRefused")
        .await;
    assert!(
        message.contains("provider scripted refused its key with status 401 (analyst-1)"),
        "{message}"
    );
    harness
        .eventually("an Event says so", || async {
            let listed = events.list(&ListParams::default()).await.unwrap();
            listed
                .iter()
                .any(|event| event.reason.as_deref() == Some("ProviderKeyRefused"))
                .then_some(())
        })
        .await;
    let mut corrected = up(digest, 8);
    corrected["runner"] = json!("Admitted");
    assert_eq!(send(&token, corrected).await.0, 200);
    harness
        .condition::<Agent>("analyst", "Ready", "True/Ready")
        .await;
    // The provider does not answer requests; the agent stays Ready.
    let mut silent = up(digest, 8);
    silent["runner"] = json!("Admitted");
    silent["provider_outages"] = json!([{"provider": "scripted", "reason": "timed out"}]);
    assert_eq!(send(&token, silent).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "Ready", "True/ProviderUnreachable")
        .await;
    assert!(
        message.contains("no answer from model provider scripted (timed out)"),
        "{message}"
    );
    // A service does not answer its calls; the agent stays Ready.
    let mut silent = up(digest, 8);
    silent["runner"] = json!("Admitted");
    silent["outages"] = json!([{"service": "trading-api", "reason": "connection refused"}]);
    assert_eq!(send(&token, silent).await.0, 200);
    let message = harness
        .condition::<Agent>("analyst", "Ready", "True/ServiceUnreachable")
        .await;
    assert!(
        message.contains("no answer from service trading-api (connection refused)"),
        "{message}"
    );
    let mut answered = up(digest, 8);
    answered["runner"] = json!("Admitted");
    assert_eq!(send(&token, answered).await.0, 200);
    harness
        .condition::<Agent>("analyst", "Ready", "True/Ready")
        .await;
    harness
        .eventually("Events say so", || async {
            let listed = events.list(&ListParams::default()).await.unwrap();
            let has = |reason: &str| {
                let mut listed = listed.iter();
                listed.any(|event| event.reason.as_deref() == Some(reason))
            };
            let all = [
                "ProviderUnreachable",
                "ServiceUnreachable",
                "ServiceReachable",
            ];
            all.into_iter().all(has).then_some(())
        })
        .await;
    let mut refused = up(digest, 8);
    refused["runner"] = json!("Refused");
    assert_eq!(send(&token, refused).await.0, 200);
    harness
        .condition::<Agent>("analyst", "Ready", "False/TokenReplaced")
        .await;

    pods.delete("analyst-1", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    harness
        .condition::<Agent>("analyst", "Ready", "True/NoPods")
        .await;
    // The token stays valid for a while, the pod does not.
    assert_eq!(send(&token, up(digest, 9)).await.0, 403);
    harness.end().await;
}
