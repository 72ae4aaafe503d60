//! Users who create agents' pods all the time, through every admission step.
//!
//! Pods are created by dry run: the API server does everything except storing. So the controller
//! has no pods to count, and every write of it is a needless one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::install::POND;

const USERS: usize = 4;
/// Pause between two pods of one user.
const PACE: Duration = Duration::from_millis(5);

pub struct Load {
    stop: Arc<AtomicBool>,
    created: Arc<AtomicUsize>,
    users: JoinSet<Tally>,
}

/// The outcome of the created pods.
#[derive(Debug, Default)]
pub struct Tally {
    pub created: usize,
    pub rejected: Vec<String>,
    pub slowest: Duration,
}

impl Load {
    pub fn start(client: &Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let created = Arc::new(AtomicUsize::new(0));
        let mut users = JoinSet::new();
        for _ in 0..USERS {
            users.spawn(create(
                client.clone(),
                Arc::clone(&stop),
                Arc::clone(&created),
            ));
        }
        Self {
            stop,
            created,
            users,
        }
    }

    pub fn created(&self) -> usize {
        self.created.load(Ordering::Relaxed)
    }

    /// Stops the load; fails if a pod was refused, or admitted without its mediator.
    pub async fn none_rejected(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for tally in self.users.join_all().await {
            all.created += tally.created;
            all.rejected.extend(tally.rejected);
            all.slowest = all.slowest.max(tally.slowest);
        }
        ensure!(
            all.rejected.is_empty(),
            "{} of {} pods rejected, the first: {}",
            all.rejected.len(),
            all.created + all.rejected.len(),
            all.rejected[0]
        );
        ensure!(all.created > 0, "no pod was created at all");
        Ok(all)
    }
}

async fn create(client: Client, stop: Arc<AtomicBool>, created: Arc<AtomicUsize>) -> Tally {
    let pods: Api<Pod> = Api::namespaced(client, POND);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "otter-", "labels": {"toolcrib.dev/agent": "otter"}},
        "spec": {"containers": [{"name": "runner", "image": "example.test/runner:1"}]},
    }))
    .expect("a pod");
    let mut tally = Tally::default();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match pods.create(&params, &pod).await {
            Ok(pod) if mediators(&pod) == 1 => {
                tally.created += 1;
                created.fetch_add(1, Ordering::Relaxed);
            }
            Ok(pod) => tally
                .rejected
                .push(format!("{} mediators", mediators(&pod))),
            Err(error) => tally.rejected.push(error.to_string()),
        }
        tally.slowest = tally.slowest.max(begun.elapsed());
        tokio::time::sleep(PACE).await;
    }
    tally
}

fn mediators(pod: &Pod) -> usize {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    containers
        .filter(|container| container.name == "toolcrib-mediator")
        .count()
}
