//! The pods that cases edit.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

/// The image that the tests' chart injects.
pub const IMAGE_REPOSITORY: &str = "example.test/toolcrib/sidecar";

/// The image in a running pod of an earlier release, from another registry.
const EARLIER_IMAGE: &str = "elsewhere.test/mediator:3";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An injected pod.
    #[default]
    Injected,
    /// Labelled, without a mediator.
    Bare,
    /// A pod without an agent.
    Plain,
    /// Injected, deleted, and held by a finalizer.
    Leaving,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Injected, Kind::Bare, Kind::Plain, Kind::Leaving];

    /// Name of the existing pod.
    pub fn name(self) -> &'static str {
        match self {
            Self::Injected => "otter-0",
            Self::Bare => "bare",
            Self::Plain => "heron",
            Self::Leaving => "leaving",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceKind {
    #[default]
    Pond,
    /// A namespace that its owner labelled for every mesh.
    Meshed,
    /// A namespace that enforces Pod Security `restricted`.
    Restricted,
}

impl NamespaceKind {
    pub const ALL: [NamespaceKind; 3] = [
        NamespaceKind::Pond,
        NamespaceKind::Meshed,
        NamespaceKind::Restricted,
    ];
}

pub fn labels(place: NamespaceKind) -> Value {
    match place {
        NamespaceKind::Pond => json!({}),
        NamespaceKind::Meshed => {
            json!({"istio-injection": "enabled", "kuma.io/sidecar-injection": "enabled"})
        }
        NamespaceKind::Restricted => json!({"pod-security.kubernetes.io/enforce": "restricted"}),
    }
}

pub fn annotations(place: NamespaceKind) -> Value {
    match place {
        NamespaceKind::Meshed => json!({"linkerd.io/inject": "enabled"}),
        NamespaceKind::Pond | NamespaceKind::Restricted => json!({}),
    }
}

/// Name of pods in dry runs.
const NEW: &str = "new";

/// Returns the pod as a user would create it.
pub fn base(kind: Kind) -> Result<Pod> {
    let text = include_str!("../../../operator/compile/tests/inject/bare-pod/expected.yaml");
    let mut pod: Value = serde_yaml::from_str(text)?;
    pod["metadata"]["name"] = json!(NEW);
    // Never scheduled: these tests have no node, and the images do not exist.
    pod["spec"]["schedulerName"] = json!("nobody");
    let spec = pod["spec"].as_object_mut().context("a spec")?;
    match kind {
        Kind::Injected => {}
        Kind::Leaving => {
            pod["metadata"]["finalizers"] = json!(["example.test/hold"]);
        }
        Kind::Bare | Kind::Plain => {
            spec.remove("initContainers");
            spec.remove("volumes");
            spec["containers"] = json!([{"name": "runner", "image": "example.test/runner:1"}]);
        }
    }
    if kind == Kind::Plain {
        pod["metadata"] = json!({"name": NEW});
    }
    Ok(serde_json::from_value(pod)?)
}

/// Returns a pod that mounts a compiled Secret: the policies refuse it.
pub fn thief() -> Result<Pod> {
    let mut pod = serde_json::to_value(base(Kind::Plain)?)?;
    pod["spec"]["volumes"] =
        json!([{"name": "loot", "secret": {"secretName": "toolcrib-otter-mediator"}}]);
    Ok(serde_json::from_value(pod)?)
}

/// Creates the pod of this kind that exists before the policies.
pub async fn stand(pods: &Api<Pod>, kind: Kind) -> Result<()> {
    let mut pod = base(kind)?;
    pod.metadata.name = Some(kind.name().to_owned());
    let init = pod
        .spec
        .as_mut()
        .and_then(|spec| spec.init_containers.as_mut());
    for container in init.into_iter().flatten() {
        container.image = Some(EARLIER_IMAGE.to_owned());
    }
    pods.create(&PostParams::default(), &pod)
        .await
        .with_context(|| format!("{kind:?}"))?;
    if kind == Kind::Leaving {
        pods.delete(kind.name(), &DeleteParams::default()).await?;
    }
    Ok(())
}
