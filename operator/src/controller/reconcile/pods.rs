//! An agent's pods: what they say they have loaded, and since when they run.
//!
//! Not here: what status makes of it.
//!
//! Invariant: a pod that says nothing has loaded nothing, as far as anybody knows.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_manifest::{Digests, Want};

use crate::controller::kept::Kept;
use crate::controller::status::{PodNews, PodState};
use crate::controller::tables::Stored;
use crate::controller::world::World;

/// What the agent's pods say, and when one of them becomes overdue. `want`: what is written
/// for them, and since when.
pub(super) fn pods(
    world: &World,
    agent: &ObjectRef,
    want: Option<&(Arc<Want>, Instant)>,
) -> (Vec<PodState>, Option<Duration>) {
    let now = Timestamp::now();
    let limit = world.settings.stale_after;
    let mut wait: Option<Duration> = None;
    let reports = world.reports();
    let states = agent_pods(world, agent)
        .iter()
        .filter(|pod| !pod.ending)
        .map(|pod| {
            let id = pod.id();
            let said = id.uid.and_then(|uid| reports.pod(uid));
            let news = match said {
                None => PodNews::None,
                Some(said) => match (&said.error, &said.loaded) {
                    (Some(error), _) => PodNews::Rejected(error.clone()),
                    (None, Some(loaded))
                        if want.is_some_and(|(want, _)| is_loaded(want, loaded)) =>
                    {
                        PodNews::Loaded
                    }
                    (None, _) => PodNews::Behind,
                },
            };
            let age = pod
                .created
                .and_then(|created| Duration::try_from(now.duration_since(created)).ok())
                .unwrap_or_default();
            let waiting = want
                .map_or(Duration::ZERO, |(_, since)| since.elapsed())
                .min(age);
            let overdue = waiting >= limit;
            if news != PodNews::Loaded && !overdue {
                let left = limit - waiting + Duration::from_secs(1);
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            }
            PodState {
                name: id.name.to_owned(),
                news,
                overdue,
                withheld: said.map(|said| said.withheld.clone()).unwrap_or_default(),
            }
        })
        .collect();
    (states, wait)
}

fn is_loaded(want: &Want, loaded: &Digests) -> bool {
    (&want.manifest, &want.credentials) == (&loaded.manifest, &loaded.credentials)
}

/// When each was created.
pub(super) fn births(world: &World, agent: &ObjectRef) -> Vec<Timestamp> {
    agent_pods(world, agent)
        .iter()
        .filter_map(|pod| pod.created)
        .collect()
}

/// Pods of the agent that have not ended.
fn agent_pods(world: &World, agent: &ObjectRef) -> Vec<Arc<Kept<Pod>>> {
    let mut pods = world.tables.pods.namespace(&agent.namespace);
    pods.retain(|pod| pod.label(names::AGENT_LABEL) == Some(&agent.name));
    pods
}
