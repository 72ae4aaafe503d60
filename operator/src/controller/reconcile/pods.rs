//! Gathers the state of an agent's pods from their metadata and their mediators' reports.
//!
//! Not here: the pods' part of the status.
//!
//! Invariant: a pod without a report, or without one for too long, counts as not having loaded
//! anything.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_manifest::{Digests, RunnerAccess, Want};

use crate::controller::context::Context;
use crate::controller::status::{PodState, ReportState, TokenFault};
use crate::objects::metadata::ObjectMetadata;
use crate::objects::store::StoreObject;

/// The state of the agent's pods, and the time until the next of them becomes overdue. `want`: the
/// digests that are written, and the time of the write.
pub(super) fn pods(
    context: &Context,
    agent: &ObjectRef,
    agent_created: Option<Timestamp>,
    want: Option<&(Arc<Want>, Instant)>,
) -> (Vec<PodState>, Option<Duration>) {
    let now = Timestamp::now();
    let limit = context.settings.stale_after;
    let led_since = context.leadership.since();
    let mut wait: Option<Duration> = None;
    let reports = context.link.reports();
    let states = agent_pods(context, agent)
        .iter()
        .filter(|pod| !pod.ending)
        .map(|pod| {
            let id = pod.id();
            let is_silent = id.uid.is_some_and(|uid| reports.is_silent(uid));
            let report = id.uid.and_then(|uid| reports.pod(uid));
            let report = report.filter(|_| !is_silent);
            let state = match report {
                None if is_silent => ReportState::None,
                None if !pod.annotations().contains_key(names::INJECTED_ANNOTATION) => {
                    ReportState::NoMediator
                }
                None => ReportState::None,
                Some(report) => match (&report.error, &report.loaded) {
                    (Some(error), _) => ReportState::Rejected(error.clone()),
                    (None, Some(loaded))
                        if want.is_some_and(|(want, _)| is_loaded(want, loaded)) =>
                    {
                        let older = pod
                            .created
                            .zip(agent_created)
                            .is_some_and(|(pod, agent)| pod < agent);
                        match token_fault(report.runner, older) {
                            Some(fault) => ReportState::TokenRefused(fault),
                            None => ReportState::Loaded,
                        }
                    }
                    (None, _) => ReportState::Behind,
                },
            };
            let age = pod
                .created
                .and_then(|created| Duration::try_from(now.duration_since(created)).ok())
                .unwrap_or_default();
            let waiting = want
                .map_or(Duration::ZERO, |(_, since)| since.elapsed())
                .min(age);
            let overdue = waiting >= limit || is_silent;
            if matches!(
                state,
                ReportState::None | ReportState::Behind | ReportState::Rejected(_)
            ) && !overdue
            {
                let left = limit - waiting + Duration::from_secs(1);
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
            }
            let is_older_than_leader = pod
                .created
                .zip(led_since)
                .is_some_and(|(created, since)| created < since);
            PodState {
                name: id.name.to_owned(),
                report: state,
                overdue,
                is_older_than_leader,
                withheld: report
                    .map(|report| report.withheld.clone())
                    .unwrap_or_default(),
                providers: report
                    .map(|report| report.providers.clone())
                    .unwrap_or_default(),
                outages: report
                    .map(|report| report.outages.clone())
                    .unwrap_or_default(),
                provider_outages: report
                    .map(|report| report.provider_outages.clone())
                    .unwrap_or_default(),
            }
        })
        .collect();
    (states, wait)
}

/// The fault of a runner's token. A container's environment is fixed at its start, so a pod that is
/// older than its Agent has the token of an earlier Agent, unless its runner was admitted since.
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

/// A pod to patch. The uid keeps the patch from another pod with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub name: String,
    pub uid: String,
}

/// The agent's pods that were there when its files were written at `written`, and that do not report
/// these files.
pub fn pods_behind(context: &Context, agent: &ObjectRef, written: Timestamp) -> Vec<PodName> {
    let want = context.want(agent);
    let reports = context.link.reports();
    let is_behind = |pod: &Arc<ObjectMetadata<Pod>>| {
        let report = pod.id().uid.and_then(|uid| reports.pod(uid));
        let loaded = report.and_then(|report| report.loaded.as_ref());
        match (loaded, &want) {
            (Some(loaded), Some((want, _))) => !is_loaded(want, loaded),
            (None, _) | (_, None) => true,
        }
    };
    agent_pods(context, agent)
        .iter()
        // A later pod mounts the new files.
        .filter(|pod| !pod.ending && pod.created.is_some_and(|created| created < written))
        .filter(|pod| pod.annotations().contains_key(names::INJECTED_ANNOTATION))
        .filter(|pod| is_behind(pod))
        .filter_map(|pod| {
            let id = pod.id();
            Some(PodName {
                name: id.name.to_owned(),
                uid: id.uid?.to_owned(),
            })
        })
        .collect()
}

/// The creation times of the agent's pods.
pub(super) fn creation_times(context: &Context, agent: &ObjectRef) -> Vec<Timestamp> {
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
