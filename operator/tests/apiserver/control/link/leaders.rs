//! Mediators find the controller that leads, and changes arrive from it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use toolcrib_operator::leadership::lease::Timing;

use super::{Mediator, delete, has, ours, stands};
use crate::support::harness::{Harness, free_port};
use crate::support::pods::{self, AUDIENCE};
use crate::{ALL, READS, sorted, tools};

#[tokio::test(flavor = "multi_thread")]
async fn no_mediator_loses_a_tool_while_controllers_are_replaced() {
    let mut harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;
    // Records everything in force from here on.
    let (current, mut changes) = (mediator.current.clone(), mediator.current.subscribe());
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = lost.clone();
    let watching = tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            if !stands(&current.now()) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let mut seen = mediator.current.now().seen;
    for pod in ["newt", "heron"] {
        harness.stop().await;
        harness.start(pod);
        mediator
            .until("the next leader's answer", |now| now.seen > seen)
            .await;
        seen = mediator.current.now().seen;
    }
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    watching.abort();
    // The last revocation arrives like the first.
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    harness.end().await;
}

/// A Service that does not know the leader: connections go to each replica in turn.
struct Service(JoinHandle<()>);

impl Drop for Service {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Service {
    async fn of(at: SocketAddr, behind: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        Self(tokio::spawn(async move {
            let mut turn = 0;
            let mut open = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let address = behind[turn % behind.len()];
                turn += 1;
                open.spawn(async move {
                    // Refused: this replica does not lead.
                    if let Ok(mut far) = TcpStream::connect(address).await {
                        let copied = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                        tracing::debug!(?copied, "connection over");
                    }
                });
            }
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mediator_finds_the_next_leader_behind_a_service() {
    let harness = Harness::new().await;
    let timing = Timing {
        duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(3),
        retry: Duration::from_millis(500),
    };
    let launch = |pod| harness.launch(harness.client.clone(), pod, timing, free_port());
    let (heron, newt) = (launch("heron"), launch("newt"));
    let _service = Service::of(harness.link, vec![heron.link, newt.link]).await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let mediator = Mediator::start(&harness, &pod, &files).await;
    mediator.whole().await;
    let seen = mediator.current.now().seen;
    let (leader, other) = match heron.metric("leader").await {
        1.0 => (heron, newt),
        _ => (newt, heron),
    };
    // The leader ends abruptly, so its lease has to expire.
    leader.kill().await;
    mediator
        .until("the other one's answer", |now| now.seen > seen)
        .await;
    assert!(stands(&mediator.current.now()));
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    mediator.until("revoked", |now| !has(now, READS[0])).await;
    other.kill().await;
    harness.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_long_poll_returns_changes() {
    let harness = Harness::running().await;
    harness.apply_example().await;
    let files = harness
        .files("executor", "compiled", |files| sorted(tools(files)) == ALL)
        .await;
    let pod = pods::create(&harness, "executor-1", "executor").await;
    let token = pods::token(&harness, &pod, AUDIENCE).await;
    let link = &files["agent.json"]["link"];
    let http = harness.https("link", harness.link, &link["ca"]);
    let url = format!("{}/v1/link", link["url"].as_str().unwrap());
    let send = |seen: u64, hold_ms: u64| {
        let body = json!({"epoch": "e", "version": "0", "seen": seen, "hold_ms": hold_ms});
        let request = http.post(&url).bearer_auth(&token).body(body.to_string());
        tokio::spawn(async move {
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap();
            (
                status,
                serde_json::from_str::<Value>(&text).unwrap_or(Value::String(text)),
            )
        })
    };
    let held = |count: f64| {
        let harness = &harness;
        async move {
            harness
                .eventually("held", || async {
                    (harness.metric("link_held").await == count).then_some(())
                })
                .await;
        }
    };
    // The controller knows the token once it knows the pod.
    let first = harness
        .eventually("an answer", || async {
            let (status, down) = send(0, 0).await.unwrap();
            (status == 200).then_some(down)
        })
        .await;
    let seq = first["seq"].as_u64().unwrap();
    let given = |down: &Value| down["floor"]["tools"].as_object().unwrap().len();
    assert_eq!(given(&first), 2);

    // A poll shorter than this test: the answer is the same again. The wanted manifest is
    // reported once it is written, which may happen between the two.
    let (status, again) = send(seq, 1).await.unwrap();
    assert_eq!(
        (status, &again["seq"], &again["floor"]),
        (200, &first["seq"], &first["floor"])
    );
    // Long enough that only news can end the poll.
    let long = 60_000;
    let waiting = send(seq, long);
    held(1.0).await;
    let later = send(seq, long);
    assert_eq!(waiting.await.unwrap(), (409, json!("superseded")));
    held(1.0).await;
    delete(
        &harness,
        &ours("ToolGrant", &harness.pond, "executor-all", json!({})),
    )
    .await;
    let (status, down) = later.await.unwrap();
    assert_eq!((status, given(&down)), (200, 0));
    assert!(down["seq"].as_u64().unwrap() > seq);
    held(0.0).await;

    // A pod that is deleted while it polls gets no more news of the agent.
    let waiting = send(down["seq"].as_u64().unwrap(), 8_000);
    held(1.0).await;
    pods::remove(&harness, &pod).await;
    assert_eq!(waiting.await.unwrap(), (403, json!("no_agent_pod")));
    harness.end().await;
}
