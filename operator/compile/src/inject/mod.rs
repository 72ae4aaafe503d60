//! Injection: the changes that make a pod run an agent behind its mediator.
//!
//! [`inject`] is a function of the pod, the Agent and the installation's settings. It reads no
//! compilation and nothing that ToolDefaults may set, so a webhook that has just started gives
//! the same answer as one with a full cache.
//!
//! Invariants:
//!
//! - A second pass over the result changes nothing ([`Injection::AlreadyInjected`]).
//! - Users' containers are neither removed nor reordered. Of their fields only the environment,
//!   the mounts and the dropped capabilities grow.
//! - A pod that would give the agent's container the mediator's network, processes or secrets is
//!   refused with a text that says what to do.
//! - Other webhooks edit pods too. Their edits of the mediator's container are checked against
//!   the invariants, not for equality. Containers that they add are edited when the API server
//!   calls the webhook again.
//!
//! Reading order: [`refusal`] (pods that cannot be injected), [`mediator`] (its container and
//! volumes), [`invariants`] (the rules for a mediator in an admitted pod), [`runner`] (edits of
//! the user's containers), [`edits`] (the patch).

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

/// How mediators export their record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordExport {
    /// Whether arguments and results of calls are exported.
    pub arguments: bool,
    pub when_behind: WhenBehind,
}

/// What a mediator does when its record is full and the receiver has not taken the older file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBehind {
    Drop,
    Refuse,
}

/// An installation's settings for all mediators.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectConfig {
    /// The mediator's image.
    pub image: String,
    /// `None`: the API server's default for the image's tag applies.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secrets in the agents' namespaces that hold credentials for pulling the mediator's image.
    pub image_pull_secrets: Vec<String>,
    pub resources: ResourceRequirements,
    /// Size limit of the record's volume, in bytes; the mediator uses half of it.
    pub history_bytes: u64,
    /// Longest silence of a stream during hidden rounds. `None`: the mediator's default.
    pub keepalive: Option<std::time::Duration>,
    /// Whether the mediator prints bodies of requests and responses on stdout.
    pub record_bodies: bool,
    /// Base URL of an OTLP receiver for the mediator's spans. `None`: no spans.
    pub otlp_endpoint: Option<String>,
    /// The export of the record to that receiver. `None`: there is none.
    pub export: Option<RecordExport>,
    /// Port of the mediator's metrics. `None`: no metrics are served.
    pub metrics_port: Option<u16>,
    /// Exceptions that an admin allows for agents' pods.
    pub allowances: Allowances,
}

/// Exceptions for the containers of agents' pods that an admin allows. The guard policy gets the
/// same exceptions from the chart's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    /// Capabilities such as `SYS_TIME`, in addition to `names::ALLOWED_CAPABILITIES`.
    pub capabilities: Vec<String>,
    /// Folders of the node with everything below them, in addition to `names::ALLOWED_HOST_PATHS`.
    pub host_paths: Vec<String>,
    /// AppArmor `Unconfined`, and SELinux users, roles and types that the pod chooses.
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

/// Default size of the record's volume: twice the mediator's default cap, since the mediator uses
/// half of the volume.
pub const DEFAULT_HISTORY_BYTES: u64 = 128 * 1024 * 1024;

/// The outcome of a pod's admission.
#[derive(Clone, Debug, PartialEq)]
pub enum Injection {
    /// The patch that makes the pod run the agent.
    Injected(Patch),
    /// The pod is injected already.
    AlreadyInjected,
    /// The pod cannot run the agent.
    Refused(Refusal),
}

/// Returns the name of the agent that a pod runs; `None` if the pod runs no agent.
pub fn agent_of(pod: &Pod) -> Option<&str> {
    pod.metadata
        .labels
        .as_ref()?
        .get(names::AGENT_LABEL)
        .map(String::as_str)
}

/// Injects the mediator of `agent` into `pod`, as described in the module doc. `pod` is the pod
/// under admission; `agent` is the Agent of its namespace that its label names.
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
    // Runner containers come first: their indices still match the pod's.
    runner::edit_containers(pod, spec, name, &mut edits)?;
    mediator::add_volumes(spec, name, config, &mut edits)?;
    mediator::add_container(spec, config, &mut edits)?;
    mediator::add_pull_secrets(spec, config, &mut edits);
    Ok(edits)
}
