//! Pods that cannot run an agent, with advice for their author.
//!
//! Each of these pods would let the agent's container read or control something that is reserved
//! for the mediator. The guard policy checks the admitted pod again, without the webhook. Here
//! the author gets the reason at once.

use std::fmt;

use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, Pod, PodSpec, SELinuxOptions, Volume,
};
use toolcrib_crds::{Agent, Identity};

use super::Allowances;
use crate::names;

/// Why a pod is not injected. `Display` is the text for the pod's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pod's label names another agent than the one that was looked up.
    OtherAgent { label: String, agent: String },
    /// The agent is being deleted.
    AgentDeleted { agent: String },
    /// The pod's name is its identity, and has a dot.
    DottedIdentity { name: String },
    /// The pod has no containers, so the API server would refuse it too.
    NoSpec,
    /// Windows nodes have no mediator.
    Windows,
    /// A field that shares the node's or the other containers' namespaces.
    SharedNamespace { field: &'static str },
    /// DNS settings or hosts entries that could send the mediator's requests to another host.
    NameResolution { field: &'static str },
    /// A container that is not the mediator has its name.
    ReservedContainer { why: &'static str },
    /// A volume has the name of one of our volumes and another source.
    ReservedVolume { volume: String },
    /// A container mounts a volume that is reserved for the mediator.
    ReservedMount { container: String, volume: String },
    /// A container mounts something at the path of the agent's context.
    OccupiedPath { container: String, path: String },
    /// A container or volume refers to a compiled Secret by name.
    CompiledSecret { place: String, secret: String },
    /// A volume requests a token with the link's audience.
    LinkToken { volume: String },
    /// A container is privileged.
    Privileged { container: String },
    /// A container adds a capability that can watch or redirect the pod's traffic or processes.
    Capability {
        container: String,
        capability: String,
    },
    /// A container named like a mesh's setup container has its capability, and runs another
    /// program.
    MeshSetup {
        container: String,
        capability: String,
    },
    /// A volume is a folder of the node.
    HostPath { volume: String, path: String },
    /// A container, or the whole pod, is exempt from the node's confinement.
    Unconfined { place: String, what: String },
    /// A container sets a variable that we set.
    EnvConflict { container: String, variable: String },
    /// A container takes NO_PROXY from a source that the webhook cannot extend.
    ProxyConflict { container: String, variable: String },
    /// A container declares a port of the mediator.
    PortConflict { container: String, port: i32 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherAgent { label, agent } => write!(
                f,
                "the pod's label {} is {label:?}, and the pod is to run Agent {agent:?}: write that name there",
                names::AGENT_LABEL
            ),
            Self::AgentDeleted { agent } => write!(
                f,
                "Agent {agent:?} is being deleted: wait until it is gone and create it again, or take the label {} off the pod",
                names::AGENT_LABEL
            ),
            Self::DottedIdentity { name } => write!(
                f,
                "the pod is called {name:?}, and with identity: Pod its name is its identity: a name with a dot could be the agent of another namespace; give the pod a name without dots, or set identity: Agent"
            ),
            Self::NoSpec => write!(
                f,
                "the pod has no spec.containers: write at least one container"
            ),
            Self::Windows => write!(
                f,
                "spec.os.name is windows: the mediator runs on Linux only; take the label {} off the pod",
                names::AGENT_LABEL
            ),
            Self::SharedNamespace { field } => write!(
                f,
                "{field} is true, so the agent's container could read what only its mediator may hold; remove the field"
            ),
            Self::NameResolution { field } => write!(
                f,
                "{field} is set, which could send the mediator's credentials to another host; remove the field (dnsConfig.options may stay)"
            ),
            Self::ReservedContainer { why } => write!(
                f,
                "the container name {:?} is reserved for the mediator, and this one {why}; remove the container, since the webhook adds the mediator",
                names::MEDIATOR_CONTAINER
            ),
            Self::ReservedVolume { volume } => write!(
                f,
                "the volume name {volume:?} is reserved for the mediator; rename the volume and its mounts"
            ),
            Self::ReservedMount { container, volume } => write!(
                f,
                "container {container:?} mounts the volume {volume:?}, which only the mediator may mount; remove the mount"
            ),
            Self::OccupiedPath { container, path } => write!(
                f,
                "container {container:?} mounts something at {path}, where the agent's context goes; mount it elsewhere"
            ),
            Self::CompiledSecret { place, secret } => write!(
                f,
                "{place} uses the Secret {secret:?}, whose content only the mediator may hold; remove the reference"
            ),
            Self::LinkToken { volume } => write!(
                f,
                "volume {volume:?} asks for a token of the audience {:?}, which only the mediator may hold; remove that serviceAccountToken from its sources",
                names::LINK_AUDIENCE
            ),
            Self::Privileged { container } => write!(
                f,
                "container {container:?} has securityContext.privileged, so it could read its mediator's credentials; remove the field"
            ),
            Self::Capability {
                container,
                capability,
            } => write!(
                f,
                "container {container:?} adds the capability {capability}, so it could watch or redirect its mediator's traffic; remove it from securityContext.capabilities.add, or have an admin add it to guard.allowedCapabilities in the chart's values"
            ),
            Self::MeshSetup {
                container,
                capability,
            } => write!(
                f,
                "container {container:?} adds the capability {capability} and differs from the mesh's own container of that name in its command, arguments, variables or mounts; let the mesh inject it, or rename it and remove the capability"
            ),
            Self::HostPath { volume, path } => write!(
                f,
                "volume {volume:?} is the node's folder {path}, and such folders may hold the files of every mediator on the node; remove the volume, or have an admin add the path to guard.allowedHostPaths in the chart's values"
            ),
            Self::Unconfined { place, what } => write!(
                f,
                "{place} has {what}, which takes it out of the node's confinement; remove that, or have an admin set guard.allowUnconfined in the chart's values"
            ),
            Self::EnvConflict {
                container,
                variable,
            } => write!(
                f,
                "container {container:?} sets {variable} itself, and would go round the mediator; remove the variable, or have it replaced by the pod's annotation {}: {}",
                names::ENV_ANNOTATION,
                names::ENV_OVERRIDE
            ),
            Self::ProxyConflict {
                container,
                variable,
            } => write!(
                f,
                "container {container:?} has a proxy and takes {variable} from elsewhere, where the mediator's address cannot be added to it; write {variable} under env, with a plain value"
            ),
            Self::PortConflict { container, port } => write!(
                f,
                "container {container:?} declares port {port}, on which the mediator listens; let its program listen on another port, and declare that"
            ),
        }
    }
}

/// Makes all checks that need no patch.
pub(super) fn check<'a>(
    pod: &'a Pod,
    agent: &Agent,
    allowances: &Allowances,
) -> Result<&'a PodSpec, Refusal> {
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let label = super::agent_of(pod).unwrap_or_default();
    if label != name {
        return Err(Refusal::OtherAgent {
            label: label.to_string(),
            agent: name.to_string(),
        });
    }
    if agent.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::AgentDeleted {
            agent: name.to_string(),
        });
    }
    let metadata = &pod.metadata;
    let called = metadata.name.as_ref().or(metadata.generate_name.as_ref());
    if let (Some(Identity::Pod), Some(name)) = (agent.spec.identity, called)
        && name.contains('.')
    {
        return Err(Refusal::DottedIdentity { name: name.clone() });
    }
    let spec = pod.spec.as_ref().ok_or(Refusal::NoSpec)?;
    if spec.containers.is_empty() {
        return Err(Refusal::NoSpec);
    }
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return Err(Refusal::Windows);
    }
    check_namespaces(spec)?;
    check_resolution(spec)?;
    for volume in spec.volumes.iter().flatten() {
        check_volume(volume, allowances)?;
    }
    for secret in spec.image_pull_secrets.iter().flatten() {
        check_secret(Some(&secret.name), || "spec.imagePullSecrets".to_string())?;
    }
    for (container, place) in containers(spec) {
        check_container(container, place, allowances)?;
    }
    if !allowances.unconfined {
        check_confinement(pod, spec)?;
    }
    Ok(spec)
}

/// The list of the pod that a container is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerList {
    Init,
    App,
}

pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = (&Container, ContainerList)> {
    let init = spec.init_containers.iter().flatten();
    init.map(|container| (container, ContainerList::Init))
        .chain(
            spec.containers
                .iter()
                .map(|container| (container, ContainerList::App)),
        )
}

/// Whether a container is a mesh's or another injector's, by a closed list of names.
pub(super) fn is_known(container: &Container, list: ContainerList) -> bool {
    let known: &[&str] = match list {
        ContainerList::Init => &names::MESH_INIT_CONTAINERS,
        ContainerList::App => &names::SIDECAR_CONTAINERS,
    };
    known.contains(&container.name.as_str())
}

/// Whether a container is a mesh's setup container, which redirects the pod's traffic and needs
/// network capabilities for it. A container of that name that runs another program than the
/// mesh's injector writes is treated as any other init container.
pub(super) fn redirects(container: &Container, list: ContainerList) -> bool {
    let mut setups = names::MESH_SETUPS.iter();
    match setups.find(|setup| setup.name == container.name) {
        Some(setup) if list == ContainerList::Init => runs(container, setup),
        Some(_) | None => false,
    }
}

fn runs(container: &Container, setup: &names::MeshSetup) -> bool {
    let command = container.command.as_deref().unwrap_or_default();
    let mut arguments = container.args.iter().flatten();
    let loads_other_code = |name: &str| {
        name.starts_with(names::LOADER_VARIABLE_PREFIX)
            || names::MESH_SETUP_REFUSED_VARIABLES.contains(&name)
    };
    let is_scratch = |path: &str| {
        names::MESH_SETUP_MOUNTS.contains(&path)
            || names::FOREIGN_MOUNT_PREFIXES
                .iter()
                .any(|prefix| path.starts_with(prefix))
    };
    let mut variables = container.env.iter().flatten();
    let mut mounts = container.volume_mounts.iter().flatten();
    setup.commands.contains(&command_words(command).as_slice())
        && arguments
            .next()
            .is_some_and(|first| first.starts_with(setup.first_argument))
        && container.restart_policy.is_none()
        && container.env_from.iter().flatten().next().is_none()
        && !variables.any(|variable| loads_other_code(&variable.name))
        && mounts.all(|mount| is_scratch(&mount.mount_path))
}

fn command_words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

fn check_namespaces(spec: &PodSpec) -> Result<(), Refusal> {
    let shared = [
        ("spec.hostNetwork", spec.host_network),
        ("spec.hostPID", spec.host_pid),
        ("spec.hostIPC", spec.host_ipc),
        ("spec.shareProcessNamespace", spec.share_process_namespace),
    ];
    match shared.into_iter().find(|(_, value)| *value == Some(true)) {
        Some((field, _)) => Err(Refusal::SharedNamespace { field }),
        None => Ok(()),
    }
}

fn check_resolution(spec: &PodSpec) -> Result<(), Refusal> {
    let given = |list: Option<usize>| list.is_some_and(|length| length > 0);
    let dns = spec.dns_config.as_ref();
    let found = [
        (
            "spec.hostAliases",
            given(spec.host_aliases.as_ref().map(Vec::len)),
        ),
        (
            "spec.dnsPolicy: None",
            spec.dns_policy.as_deref() == Some("None"),
        ),
        (
            "spec.dnsConfig.nameservers",
            given(dns.and_then(|dns| dns.nameservers.as_ref()).map(Vec::len)),
        ),
        (
            "spec.dnsConfig.searches",
            given(dns.and_then(|dns| dns.searches.as_ref()).map(Vec::len)),
        ),
    ];
    match found.into_iter().find(|(_, set)| *set) {
        Some((field, _)) => Err(Refusal::NameResolution { field }),
        None => Ok(()),
    }
}

fn check_volume(volume: &Volume, allowances: &Allowances) -> Result<(), Refusal> {
    if names::VOLUMES.contains(&volume.name.as_str()) {
        // One of our volumes, or a reserved name: the module `mediator` compares it.
        return Ok(());
    }
    if let Some(host) = &volume.host_path
        && !allowances.allows_host_path(&host.path)
    {
        return Err(Refusal::HostPath {
            volume: volume.name.clone(),
            path: host.path.clone(),
        });
    }
    let place = || format!("volume {:?}", volume.name);
    check_secret(
        volume
            .secret
            .as_ref()
            .and_then(|secret| secret.secret_name.as_deref()),
        place,
    )?;
    for source in volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten())
    {
        check_secret(
            source.secret.as_ref().map(|secret| secret.name.as_str()),
            place,
        )?;
        let audience = source
            .service_account_token
            .as_ref()
            .and_then(|token| token.audience.as_deref());
        if audience == Some(names::LINK_AUDIENCE) {
            return Err(Refusal::LinkToken {
                volume: volume.name.clone(),
            });
        }
    }
    let local =
        |secret: &Option<LocalObjectReference>| secret.as_ref().map(|secret| secret.name.clone());
    // Most drivers inside Kubernetes were removed; their fields remain in the API.
    let by_driver = [
        volume
            .csi
            .as_ref()
            .and_then(|csi| local(&csi.node_publish_secret_ref)),
        volume
            .flex_volume
            .as_ref()
            .and_then(|flex| local(&flex.secret_ref)),
        volume
            .cephfs
            .as_ref()
            .and_then(|ceph| local(&ceph.secret_ref)),
        volume
            .cinder
            .as_ref()
            .and_then(|cinder| local(&cinder.secret_ref)),
        volume.rbd.as_ref().and_then(|rbd| local(&rbd.secret_ref)),
        volume
            .iscsi
            .as_ref()
            .and_then(|iscsi| local(&iscsi.secret_ref)),
        volume
            .storageos
            .as_ref()
            .and_then(|storage| local(&storage.secret_ref)),
        volume
            .scale_io
            .as_ref()
            .map(|scale| scale.secret_ref.name.clone()),
        volume
            .azure_file
            .as_ref()
            .map(|azure| azure.secret_name.clone()),
    ];
    by_driver
        .into_iter()
        .try_for_each(|secret| check_secret(secret.as_deref(), place))
}

fn check_container(
    container: &Container,
    list: ContainerList,
    allowances: &Allowances,
) -> Result<(), Refusal> {
    if container.name == names::MEDIATOR_CONTAINER {
        return match list {
            // The module `mediator` compares it.
            ContainerList::Init => Ok(()),
            ContainerList::App => Err(Refusal::ReservedContainer {
                why: "is not an init container",
            }),
        };
    }
    let place = || format!("container {:?}", container.name);
    for variable in container.env.iter().flatten() {
        let secret = variable
            .value_from
            .as_ref()
            .and_then(|from| from.secret_key_ref.as_ref());
        check_secret(secret.map(|secret| secret.name.as_str()), place)?;
    }
    for source in container.env_from.iter().flatten() {
        check_secret(
            source
                .secret_ref
                .as_ref()
                .map(|secret| secret.name.as_str()),
            place,
        )?;
    }
    for mount in container.volume_mounts.iter().flatten() {
        let reserved = names::VOLUMES.contains(&mount.name.as_str());
        if reserved && mount.name != names::CONTEXT_VOLUME {
            return Err(Refusal::ReservedMount {
                container: container.name.clone(),
                volume: mount.name.clone(),
            });
        }
    }
    for port in container.ports.iter().flatten() {
        let ours = [names::LISTEN_PORT, names::ADMIN_PORT];
        if ours
            .iter()
            .any(|ours| i32::from(*ours) == port.container_port)
        {
            return Err(Refusal::PortConflict {
                container: container.name.clone(),
                port: port.container_port,
            });
        }
    }
    let needed: &[&str] = match redirects(container, list) {
        true => &names::MESH_SETUP_CAPABILITIES,
        false => &[],
    };
    check_privilege(container, needed, allowances)
}

fn check_privilege(
    container: &Container,
    needed: &[&str],
    allowances: &Allowances,
) -> Result<(), Refusal> {
    let Some(context) = container.security_context.as_ref() else {
        return Ok(());
    };
    let name_of_container = || container.name.clone();
    if context.privileged == Some(true) {
        return Err(Refusal::Privileged {
            container: name_of_container(),
        });
    }
    let added = context
        .capabilities
        .iter()
        .flat_map(|capabilities| capabilities.add.iter().flatten());
    for capability in added {
        let name = bare_capability(capability);
        let allowed = names::ALLOWED_CAPABILITIES.contains(&name.as_str())
            || allowances.capabilities.contains(&name)
            || needed.contains(&name.as_str());
        if !allowed {
            let mut setups = names::MESH_SETUPS.iter();
            return Err(match setups.any(|setup| setup.name == container.name) {
                true => Refusal::MeshSetup {
                    container: name_of_container(),
                    capability: name,
                },
                false => Refusal::Capability {
                    container: name_of_container(),
                    capability: name,
                },
            });
        }
    }
    Ok(())
}

/// Checks AppArmor and SELinux, of the mediator's container as well: the node's confinement
/// protects its files from other processes.
fn check_confinement(pod: &Pod, spec: &PodSpec) -> Result<(), Refusal> {
    let refused = |place: String, what: &str| {
        let what = what.to_string();
        Err(Refusal::Unconfined { place, what })
    };
    let of_annotations = pod.metadata.annotations.iter().flatten();
    for (key, profile) in of_annotations {
        let container = key.strip_prefix(names::APP_ARMOR_ANNOTATION_PREFIX);
        if let Some(container) = container
            && profile.eq_ignore_ascii_case(names::UNCONFINED)
        {
            return refused(
                format!("container {container:?}"),
                "an AppArmor annotation that says unconfined",
            );
        }
    }
    let of_pod = spec.security_context.as_ref().map(|context| {
        let place = "spec.securityContext".to_string();
        (place, &context.app_armor_profile, &context.se_linux_options)
    });
    let of_containers = containers(spec).filter_map(|(container, _)| {
        let context = container.security_context.as_ref()?;
        let place = format!("container {:?}", container.name);
        Some((place, &context.app_armor_profile, &context.se_linux_options))
    });
    for (place, app_armor, se_linux) in of_pod.into_iter().chain(of_containers) {
        if app_armor
            .as_ref()
            .is_some_and(|profile| profile.type_ == names::UNCONFINED)
        {
            return refused(place, "appArmorProfile Unconfined");
        }
        if !se_linux.as_ref().is_none_or(is_confined) {
            return refused(
                place,
                "seLinuxOptions with a user, a role or a type of its own",
            );
        }
    }
    Ok(())
}

/// Whether Pod Security `baseline` accepts the options. A level is allowed, since OpenShift gives
/// each namespace its own.
fn is_confined(options: &SELinuxOptions) -> bool {
    let given = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    let kind = options.type_.as_deref().unwrap_or_default();
    !given(&options.user)
        && !given(&options.role)
        && (kind.is_empty() || names::ALLOWED_SELINUX_TYPES.contains(&kind))
}

/// Removes the prefix: runtimes accept `CAP_NET_RAW`, `net_raw` and `NET_RAW` alike.
pub(super) fn bare_capability(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    upper.strip_prefix("CAP_").unwrap_or(&upper).to_string()
}

fn check_secret(name: Option<&str>, place: impl Fn() -> String) -> Result<(), Refusal> {
    match name {
        Some(name) if is_mediator_secret(name) => Err(Refusal::CompiledSecret {
            place: place(),
            secret: name.to_string(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Whether a Secret's name is that of any agent's compiled Secret. A pod must not mount another
/// agent's Secret either.
fn is_mediator_secret(name: &str) -> bool {
    let (before, after) = name_affixes(names::mediator_secret);
    name.starts_with(&before) && name.ends_with(&after)
}

/// Splits a name pattern into the parts before and after the agent's name.
pub(super) fn name_affixes(name: fn(&str) -> String) -> (String, String) {
    let pattern = name("*");
    match pattern.split_once('*') {
        Some((before, after)) => (before.to_string(), after.to_string()),
        None => (pattern, String::new()),
    }
}
