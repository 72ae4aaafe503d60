//! An agent's pods: what they say they have loaded, and since when they run.
//!
//! Not here: what status makes of it.
//!
//! Invariant: a pod that says nothing has loaded nothing, as far as anybody knows.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use toolcrib_compile::{ObjectRef, names};

use crate::controller::decode::MetaOf;
use crate::controller::status::{PodNews, PodState};
use crate::controller::world::{AgentMemory, World};

/// What the agent's pods say, and when one of them becomes overdue.
pub(super) fn pods(
    world: &World,
    agent: &ObjectRef,
    memory: Option<&AgentMemory>,
) -> (Vec<PodState>, Option<Duration>) {
    let now = Timestamp::now();
    let limit = world.settings.stale_after;
    let mut wait: Option<Duration> = None;
    let reports = world.reports();
    let states = agent_pods(world, agent)
        .iter()
        .filter(|pod| pod.meta().deletion_timestamp.is_none())
        .map(|pod| {
            let meta = pod.meta();
            let said = meta.uid.as_deref().and_then(|uid| reports.pod(uid));
            let news = match said {
                None => PodNews::None,
                Some(said) => match (&said.error, &said.loaded) {
                    (Some(error), _) => PodNews::Rejected(error.clone()),
                    (None, Some(loaded)) if memory.is_some_and(|m| m.want == *loaded) => {
                        PodNews::Loaded
                    }
                    (None, _) => PodNews::Behind,
                },
            };
            let age = meta
                .creation_timestamp
                .as_ref()
                .and_then(|created| Duration::try_from(now.duration_since(created.0)).ok())
                .unwrap_or_default();
            let waiting = memory
                .map_or(Duration::ZERO, |memory| memory.since.elapsed())
                .min(age);
            let overdue = waiting >= limit;
            if news != PodNews::Loaded && !overdue {
                let left = limit - waiting + Duration::from_secs(1);
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            }
            PodState {
                name: meta.name.clone().unwrap_or_default(),
                news,
                overdue,
                withheld: said.map(|said| said.withheld.clone()).unwrap_or_default(),
            }
        })
        .collect();
    (states, wait)
}

/// When each was created.
pub(super) fn births(world: &World, agent: &ObjectRef) -> Vec<Timestamp> {
    agent_pods(world, agent)
        .iter()
        .filter_map(|pod| pod.meta().creation_timestamp.as_ref())
        .map(|time| time.0)
        .collect()
}

/// Pods of the agent that have not ended.
fn agent_pods(world: &World, agent: &ObjectRef) -> Vec<Arc<MetaOf<Pod>>> {
    let mut pods = world.tables.pods.namespace(&agent.namespace);
    pods.retain(|pod| {
        pod.meta()
            .labels
            .as_ref()
            .and_then(|labels| labels.get(names::AGENT_LABEL))
            == Some(&agent.name)
    });
    pods
}
