//! Injection: what must change in a pod so that it runs an agent.
//!
//! [`inject`] is a function of the pod, the Agent and the installation's settings. It
//! reads no compilation and nothing that ToolDefaults may set, so that a webhook that
//! started a second ago gives the same answer as one that is warm.
//!
//! Invariants: a second pass over the result changes nothing ([`Injection::AlreadyInjected`]);
//! a user's containers are neither removed nor reordered, and of their fields only the
//! environment, the mounts and the dropped capabilities grow; a pod that would give the
//! agent's container the mediator's network, processes or secrets is refused with a text
//! that says what to do. Other webhooks edit pods too: what they do to our container is
//! checked for what matters, not for equality, and whatever they add is injected when the
//! API server asks again.
//!
//! In reading order: [`refusal`] (what cannot be injected), [`mediator`] (our container and
//! volumes), [`invariants`] (what must hold of it later), [`runner`] (what an app container gets), [`edits`] (the patch).

mod edits;
mod invariants;
mod mediator;
mod refusal;
mod runner;

use json_patch::Patch;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use toolcrib_crds::Agent;

pub use invariants::{Invariants, invariants};
pub use refusal::Refusal;

use crate::names;
use edits::Edits;

/// What an installation decides about every mediator.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectConfig {
    /// The mediator's image.
    pub image: String,
    /// `None`: the API server's default for the image's tag.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secrets of the agents' namespaces with which the mediator's image is pulled.
    pub image_pull_secrets: Vec<String>,
    pub resources: ResourceRequirements,
    /// Size limit of the record's volume, in bytes; the mediator keeps to half of it.
    pub history_bytes: u64,
    /// Longest silence of a stream while rounds are hidden. `None`: the mediator's default.
    pub keepalive: Option<std::time::Duration>,
    /// Whether the mediator prints bodies of requests and responses on stdout.
    pub record_bodies: bool,
    /// Base URL of an OTLP receiver for the mediator's spans. `None`: no spans.
    pub otlp_endpoint: Option<String>,
    /// Where the mediator serves its metrics to the pod's network. `None`: nowhere.
    pub metrics_port: Option<u16>,
    /// What an admin allows agents' pods besides.
    pub allowances: Allowances,
}

/// What an admin allows containers of agents' pods, which is refused otherwise. The guard policy
/// has the same from the chart's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    /// As `SYS_TIME`: capabilities besides `names::ALLOWED_CAPABILITIES`.
    pub capabilities: Vec<String>,
    /// Folders of the node, and all below them, besides `names::ALLOWED_HOST_PATHS`.
    pub host_paths: Vec<String>,
    /// AppArmor `Unconfined`, and SELinux users, roles and types of the pod's choice.
    pub unconfined: bool,
}

impl Allowances {
    fn allows_host_path(&self, path: &str) -> bool {
        let given = self.host_paths.iter().map(String::as_str);
        let mut allowed = names::ALLOWED_HOST_PATHS.into_iter().chain(given);
        !path.contains("..")
            && allowed.any(|folder| {
                let below = path.strip_prefix(folder.trim_end_matches('/'));
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Size of the record's volume when nothing else is said: the mediator's own default for
/// its cap is half of it.
pub const DEFAULT_HISTORY_BYTES: u64 = 128 * 1024 * 1024;

/// What an admission of a pod comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Injection {
    /// The pod runs the agent once this is applied.
    Injected(Patch),
    /// It does already.
    AlreadyInjected,
    /// It must not.
    Refused(Refusal),
}

/// The name of the agent that a pod runs; `None`: a pod that is none of our business.
pub fn agent_of(pod: &Pod) -> Option<&str> {
    pod.metadata
        .labels
        .as_ref()?
        .get(names::AGENT_LABEL)
        .map(String::as_str)
}

/// See the module. `pod` is as it came to admission, `agent` the Agent of its namespace
/// that its label names.
pub fn inject(pod: &Pod, agent: &Agent, config: &InjectConfig) -> Injection {
    match edits(pod, agent, config) {
        Err(refusal) => Injection::Refused(refusal),
        Ok(edits) => match edits.into_patch() {
            None => Injection::AlreadyInjected,
            Some(patch) => Injection::Injected(patch),
        },
    }
}

fn edits(pod: &Pod, agent: &Agent, config: &InjectConfig) -> Result<Edits, Refusal> {
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let spec = refusal::check(pod, agent, &config.allowances)?;
    let mut edits = Edits::default();
    edits.annotation(pod, names::INJECTED_ANNOTATION, mediator::INJECTION_VERSION);
    // The runner's containers first, while their indices are still those of the pod.
    runner::edit_containers(pod, spec, name, &mut edits)?;
    mediator::add_volumes(spec, name, config, &mut edits)?;
    mediator::add_container(spec, config, &mut edits)?;
    mediator::add_pull_secrets(spec, config, &mut edits);
    Ok(edits)
}
