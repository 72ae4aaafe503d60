//! The pods that cases edit.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

/// What the chart of the tests injects.
pub const IMAGE_REPOSITORY: &str = "example.test/toolcrib/sidecar";

/// What a running pod has from a release before, when mediators came from elsewhere.
const EARLIER_IMAGE: &str = "elsewhere.test/mediator:3";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// As injection makes it.
    #[default]
    Injected,
    /// Labelled, without a mediator.
    Bare,
    /// Nobody's business.
    Plain,
    /// Injected, deleted, and held by a finalizer.
    Leaving,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Injected, Kind::Bare, Kind::Plain, Kind::Leaving];

    /// Of the one that was there before.
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
pub enum Place {
    #[default]
    Pond,
    /// Its owner gave it to every mesh there is.
    Meshed,
    /// It enforces Pod Security `restricted`.
    Restricted,
}

impl Place {
    pub const ALL: [Place; 3] = [Place::Pond, Place::Meshed, Place::Restricted];
}

pub fn labels(place: Place) -> Value {
    match place {
        Place::Pond => json!({}),
        Place::Meshed => {
            json!({"istio-injection": "enabled", "kuma.io/sidecar-injection": "enabled"})
        }
        Place::Restricted => json!({"pod-security.kubernetes.io/enforce": "restricted"}),
    }
}

pub fn annotations(place: Place) -> Value {
    match place {
        Place::Meshed => json!({"linkerd.io/inject": "enabled"}),
        Place::Pond | Place::Restricted => json!({}),
    }
}

/// Pods that are only asked about.
const NEW: &str = "new";

/// The pod as it would be created.
pub fn base(kind: Kind) -> Result<Pod> {
    let text = include_str!("../../../operator/compile/tests/inject/bare-pod/expected.yaml");
    let mut pod: Value = serde_yaml::from_str(text)?;
    pod["metadata"]["name"] = json!(NEW);
    // Nowhere: these tests want an API server, and images that nobody has.
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

/// Takes a compiled Secret: not to be had once the policies are in force.
pub fn thief() -> Result<Pod> {
    let mut pod = serde_json::to_value(base(Kind::Plain)?)?;
    pod["spec"]["volumes"] =
        json!([{"name": "loot", "secret": {"secretName": "toolcrib-otter-mediator"}}]);
    Ok(serde_json::from_value(pod)?)
}

/// Creates the pod that was there before the policies were.
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
