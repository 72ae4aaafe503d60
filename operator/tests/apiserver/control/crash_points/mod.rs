//! The three patterns in which controllers fail (Sieve, OSDI 2022), at every write: killed
//! between any two writes, lost events, a stale view.
//!
//! Each has one oracle: the final objects equal those of an undisturbed run. The fault layer
//! numbers the writes, and one worker keeps their order the same each time. A round in which the
//! fault does not happen ends the count, so no index is left out.
//!
//! Here: the world of a scenario. [`kills`] and [`views`] have the scenarios.
//!
//! `TOOLCRIB_CRASH_POINT_ROUNDS=200` continues after the last index with more rounds from the first,
//! which differ in the scheduling of threads.

mod kills;
mod views;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolGrant};
use toolcrib_operator::leadership::lease::Timing;

use crate::support::faults::Faults;
use crate::support::harness::{Controller, DEADLINE, Harness, free_port};
use crate::support::outcome::{Outcome, difference, outcome};

/// Bound on the writes of a scenario; none has nearly as many.
const MOST_WRITES: usize = 80;
const LOOK: Duration = Duration::from_millis(40);

struct World {
    harness: Harness,
}

/// A controller, and the fault layer between it and the API server.
struct Process {
    faults: Faults,
    controller: Controller,
}

impl World {
    async fn new() -> Self {
        let mut harness = Harness::new().await;
        harness.workers = 1;
        harness.apply_example().await;
        Self { harness }
    }

    async fn start(&self, pod: &str, faults: Faults) -> Process {
        self.start_with(pod, faults, Timing::default()).await
    }

    async fn start_with(&self, pod: &str, faults: Faults, timing: Timing) -> Process {
        self.harness.vacate().await;
        let controller = self
            .harness
            .launch(faults.client(), pod, timing, free_port());
        Process { faults, controller }
    }

    fn faults(&self) -> Faults {
        Faults::new(self.harness.client.clone())
    }

    /// Polls until the objects are as expected.
    async fn reach(&self, expected: &Outcome, what: &str) {
        let begun = Instant::now();
        loop {
            let found = outcome(&self.harness).await;
            if found.as_ref() == Some(expected) {
                return;
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "{what}: not the objects of an undisturbed run:\n{}",
                difference(expected, found.as_ref())
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Polls until the objects are consistent and `ready` holds for them.
    async fn when(&self, what: &str, ready: impl Fn(&Outcome) -> bool) -> Outcome {
        let begun = Instant::now();
        loop {
            let found = outcome(&self.harness).await;
            if let Some(found) = found.filter(|found| ready(found)) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "not in time: {what}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The final outcome of an undisturbed controller: its queues are empty, and it wrote nothing
    /// between two polls.
    async fn settled(&self, process: &Process, what: &str) -> Outcome {
        let begun = Instant::now();
        let mut before = None;
        loop {
            let writes = process.faults.writes();
            let controller = &process.controller;
            // A controller after a fault reports nothing any more.
            let is_idle = process.faults.struck()
                || controller.metric("leader").await == 1.0
                    && controller.metric("unsettled_objects").await == 0.0;
            let now = outcome(&self.harness).await.filter(|_| is_idle);
            let stands = now == before && writes == process.faults.writes();
            if let Some(found) = now.clone().filter(|_| stands) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "it never settles: {what}");
            before = now;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts a fresh controller and checks that it writes nothing.
    async fn nothing_to_write(&self, expected: &Outcome, what: &str) {
        let fresh = self.start("fresh", self.faults()).await;
        let begun = Instant::now();
        let objects = expected.keys().filter(|name| !name.contains("toolcrib-"));
        let objects = objects.count() as f64;
        while !(fresh.faults.log().len() > 20
            && fresh.controller.metric("reconciles").await >= objects)
        {
            assert!(begun.elapsed() < DEADLINE, "{what}: it does not work");
            tokio::time::sleep(LOOK).await;
        }
        let found = outcome(&self.harness).await;
        assert!(
            found.as_ref() == Some(expected),
            "{what}: a fresh controller changed:\n{}",
            difference(expected, found.as_ref())
        );
        let wrote: Vec<String> = fresh
            .faults
            .log()
            .into_iter()
            // It labels its own pod; an Event that exists is not created again.
            .filter(|seen| {
                let own = ["/pods/", "/events"];
                seen.write.is_some() && !own.iter().any(|own| seen.path.contains(own))
            })
            .map(|seen| format!("{} {}", seen.method, seen.path))
            .collect();
        assert!(wrote.is_empty(), "{what}: it wrote {wrote:?}");
        fresh.controller.kill().await;
    }

    async fn remove_grant(&self) {
        let grants: Api<ToolGrant> = self.harness.api(&self.harness.pond);
        grants
            .delete("analyst-reads", &DeleteParams::default())
            .await
            .expect("grant deleted");
    }

    async fn add_grant(&self) {
        self.harness
            .apply(json!({
                "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolGrant",
                "metadata": {"name": "analyst-reads", "namespace": self.harness.pond},
                "spec": {"agents": ["analyst"], "tools": [
                    {"surface": {"name": "trading-api"}, "allow": ["get_market_context"]},
                ]},
            }))
            .await;
    }

    /// Removes everything that a controller wrote.
    async fn remove_results(&self) {
        let pond = &self.harness.pond;
        let labels = ListParams::default().labels("app.kubernetes.io/managed-by=toolcrib");
        let params = DeleteParams::default();
        let secrets: Api<Secret> = self.harness.api(pond);
        secrets
            .delete_collection(&params, &labels)
            .await
            .expect("deleted");
        let config_maps: Api<ConfigMap> = self.harness.api(pond);
        config_maps
            .delete_collection(&params, &labels)
            .await
            .expect("deleted");
        self.forget_status::<Agent>().await;
        self.forget_status::<Surface>().await;
        self.forget_status::<ToolGrant>().await;
        self.forget_status::<ModelProvider>().await;
        let empty = json!({"metadata": {"annotations": null}, "data": null});
        self.harness
            .api::<Secret>(&self.harness.system)
            .patch(
                "certificates",
                &PatchParams::default(),
                &Patch::Merge(empty),
            )
            .await
            .expect("certificates");
    }

    async fn forget_status<K>(&self)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api: Api<K> = self.harness.api(&self.harness.pond);
        for object in api.list(&ListParams::default()).await.expect("list") {
            api.patch_status(
                &object.name_any(),
                &PatchParams::default(),
                &Patch::Merge(json!({"status": null})),
            )
            .await
            .expect("status");
        }
    }

    async fn end(self, last: Process) {
        last.controller.kill().await;
        self.harness.end().await;
    }
}

/// Waits until the fault has happened, or all is as expected without it.
async fn fault_happened(world: &World, process: &Process, expected: &Outcome) -> bool {
    let begun = Instant::now();
    loop {
        if process.faults.struck() {
            return true;
        }
        if outcome(&world.harness).await.as_ref() == Some(expected) {
            let last = world.settled(process, "without a fault").await;
            if last == *expected {
                return process.faults.struck();
            }
        }
        assert!(begun.elapsed() < DEADLINE, "neither a fault nor an end");
        tokio::time::sleep(LOOK / 4).await;
    }
}

/// The write indexes of a scenario, repeated for a longer run.
fn rounds() -> usize {
    std::env::var("TOOLCRIB_CRASH_POINT_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1)
}
