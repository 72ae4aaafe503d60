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
use toolcrib_manifest::{Digests, RunnerAccess, Want};

use crate::controller::context::Context;
use crate::controller::status::{PodNews, PodState, TokenFault};
use crate::objects::metadata::ObjectMetadata;
use crate::objects::store::StoreObject;

/// What the agent's pods say, and when one of them becomes overdue. `want`: what is written
/// for them, and since when.
pub(super) fn pods(
    context: &Context,
    agent: &ObjectRef,
    agent_created: Option<Timestamp>,
    want: Option<&(Arc<Want>, Instant)>,
) -> (Vec<PodState>, Option<Duration>) {
    let now = Timestamp::now();
    let limit = context.settings.stale_after;
    let mut wait: Option<Duration> = None;
    let reports = context.link.reports();
    let states = agent_pods(context, agent)
        .iter()
        .filter(|pod| !pod.ending)
        .map(|pod| {
            let id = pod.id();
            let said = id.uid.and_then(|uid| reports.pod(uid));
            let news = match said {
                None if !pod.annotations().contains_key(names::INJECTED_ANNOTATION) => {
                    PodNews::NoMediator
                }
                None => PodNews::None,
                Some(said) => match (&said.error, &said.loaded) {
                    (Some(error), _) => PodNews::Rejected(error.clone()),
                    (None, Some(loaded))
                        if want.is_some_and(|(want, _)| is_loaded(want, loaded)) =>
                    {
                        let older = pod
                            .created
                            .zip(agent_created)
                            .is_some_and(|(pod, agent)| pod < agent);
                        match token_fault(said.runner, older) {
                            Some(fault) => PodNews::TokenRefused(fault),
                            None => PodNews::Loaded,
                        }
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
            if matches!(news, PodNews::None | PodNews::Behind | PodNews::Rejected(_)) && !overdue {
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

/// A container's environment is fixed when it starts. A pod that is older than its Agent was
/// started with the token of an earlier Agent of that name, unless its runner was admitted since.
fn token_fault(runner: Option<RunnerAccess>, older_than_agent: bool) -> Option<TokenFault> {
    match (runner, older_than_agent) {
        (Some(RunnerAccess::Admitted), _) | (None, false) => None,
        (Some(RunnerAccess::Refused) | None, true) => Some(TokenFault::EarlierAgent),
        (Some(RunnerAccess::Refused), false) => Some(TokenFault::Refused),
    }
}

fn is_loaded(want: &Want, loaded: &Digests) -> bool {
    (&want.manifest, &want.credentials) == (&loaded.manifest, &loaded.credentials)
}

/// When each was created.
pub(super) fn births(context: &Context, agent: &ObjectRef) -> Vec<Timestamp> {
    agent_pods(context, agent)
        .iter()
        .filter_map(|pod| pod.created)
        .collect()
}

/// Pods of the agent that have not ended.
fn agent_pods(context: &Context, agent: &ObjectRef) -> Vec<Arc<ObjectMetadata<Pod>>> {
    let mut pods = context.stores.pods.namespace(&agent.namespace);
    pods.retain(|pod| pod.label(names::AGENT_LABEL) == Some(&agent.name));
    pods
}
