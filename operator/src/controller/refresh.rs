//! Refresh hints: an annotation on a running pod, so that its kubelet reads the pod's volumes now.
//!
//! A kubelet refreshes a mounted Secret about once a minute. It looks at once when the pod's
//! annotations change. So after a write that gives an agent something, its running pods get
//! [`names::REFRESH_ANNOTATION`] with a new value. A revocation needs no hint: the link denies the
//! tool before the files arrive. A lost hint costs time and nothing else, so the plans are in
//! memory only.
//!
//! Here: the task that patches pods, and the check that a policy limits the right to the
//! annotation. Not here: the times ([`super::hints`]), and the writes that give something
//! ([`crate::link::answers`]).
//!
//! Invariant: a pod gets no hint once it reports the written files, and no hint is sent before a dry
//! run has shown that the chart's policy refuses any other change of a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;
use toolcrib_compile::names;

use super::context::Context;
use super::hints::DueHint;
use super::queue::rate_limit::RateLimit;
use super::reconcile::{PodName, pods_behind};

/// The interval between two patches: at most 50 a second.
const APART: Duration = Duration::from_millis(20);
/// The deadline of one patch.
const PATCH: Duration = Duration::from_secs(5);
/// The digits of the manifest digest in the annotation: enough to recognize it.
const SHOWN: usize = 12;
/// The beginning of the refusal by the chart's policy `…-hints`. Another policy's refusal proves nothing.
const REFUSAL: &str = "toolcrib: the controller may change nothing of a pod but";
/// An image that no pod has, for the dry run.
const NO_IMAGE: &str = "toolcrib.invalid/not-an-image";

/// Whether an admission policy limits the controller's changes of pods to the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Unknown,
    Holds,
    /// No policy refuses the change of an image: no hint is sent while this replica leads.
    Missing,
}

/// Sends the planned hints while this replica leads.
pub async fn send(context: &Context) -> anyhow::Error {
    context.metrics.refresh_hints_off.set(0);
    let mut limit = RateLimit::new(APART);
    let mut guard = Guard::Unknown;
    loop {
        let due = context.hints.next().await;
        let pods = pods_behind(context, &due.agent, due.hint.time);
        if pods.is_empty() {
            context.hints.done(&due.agent);
            continue;
        }
        let api: Api<Pod> = Api::namespaced(context.client.clone(), &due.agent.namespace);
        let value = value(context, &due);
        for pod in &pods {
            tokio::time::sleep_until(limit.reserve(Instant::now())).await;
            if guard == Guard::Unknown {
                guard = check(&api, pod).await;
                let is_off = i64::from(guard == Guard::Missing);
                context.metrics.refresh_hints_off.set(is_off);
            }
            if guard != Guard::Holds || !context.leading() {
                break;
            }
            hint(context, &api, pod, &value).await;
        }
    }
}

/// A value that no earlier hint had: the kubelet looks only when the annotation changes.
fn value(context: &Context, due: &DueHint) -> String {
    let want = context.want(&due.agent);
    let digest = want.map(|(want, _)| want.manifest.chars().take(SHOWN).collect::<String>());
    format!(
        "{}.{}.{}",
        digest.unwrap_or_default(),
        due.hint.time.as_second(),
        due.attempt + 1
    )
}

async fn hint(context: &Context, api: &Api<Pod>, pod: &PodName, value: &str) {
    let patch =
        json!({"metadata": {"uid": pod.uid, "annotations": {names::REFRESH_ANNOTATION: value}}});
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(&patch);
    let patched = api.patch_metadata(&pod.name, &params, &patch);
    match tokio::time::timeout(PATCH, patched).await {
        Ok(Ok(_)) => context.metrics.wrote("Pod", "patch"),
        // Not found, or another pod of this name: it will mount the new files.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
        Ok(Err(error)) => {
            tracing::warn!(pod = pod.name, %error, "refresh hint not sent, the kubelet takes about a minute");
        }
        Err(_) => tracing::warn!(pod = pod.name, "refresh hint timed out"),
    }
}

/// Asks the API server, without changing anything, whether the controller may change an image.
async fn check(api: &Api<Pod>, pod: &PodName) -> Guard {
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "replace", "path": "/spec/containers/0/image", "value": NO_IMAGE},
    ]);
    let patch: json_patch::Patch = match serde_json::from_value(patch) {
        Ok(patch) => patch,
        Err(error) => {
            tracing::error!(%error, "dry run of the policy for pods not sent");
            return Guard::Missing;
        }
    };
    let params = PatchParams {
        dry_run: true,
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Json::<()>(patch);
    let answer = api.patch_metadata(&pod.name, &params, &patch);
    match tokio::time::timeout(PATCH, answer).await {
        Ok(Ok(_)) => {
            tracing::error!(
                "no policy limits the controller's right to patch pods, refresh hints are off: install the chart with hints.enabled=true, or remove the right"
            );
            Guard::Missing
        }
        Ok(Err(kube::Error::Api(status))) if status.message.contains(REFUSAL) => Guard::Holds,
        // The pod was deleted, or the right is missing. The next pod is checked again.
        Ok(Err(error)) => {
            tracing::warn!(pod = pod.name, %error, "policy for pods not checked, refresh hint not sent");
            Guard::Unknown
        }
        Err(_) => {
            tracing::warn!(pod = pod.name, "dry run of the policy for pods timed out");
            Guard::Unknown
        }
    }
}
