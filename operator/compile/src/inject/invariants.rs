//! The rules that a mediator container must keep, even after other webhooks edited the pod.
//!
//! The rules do not demand equality: meshes and identity webhooks add mounts and variables,
//! registry mirrors rewrite images. Only the arguments are compared as a whole. The rules are
//! enforced twice: by [`check`], when the API server calls the webhook again, and by the chart's
//! guard policy, which gets them as [`Invariants`] (`charts/toolcrib/guard.json`). Only the guard
//! policy knows the images, mounts and namespaces that an admin allows.

use k8s_openapi::api::core::v1::{Container, Probe, SecurityContext, VolumeMount};
use serde::Serialize;

use super::refusal::{Refusal, name_affixes};
use super::{InjectConfig, WhenBehind};
use crate::names;

/// The program in the mediator's image. Exec probes need the path; they ignore the entrypoint.
const PROGRAM: &str = "/toolcrib-sidecar";
pub(super) const READY: &str = "--ready";
pub(super) const LIVE: &str = "--live";

/// Environment variable that holds the pod's name and is the value of `--pod`. The name does not
/// begin with `TOOLCRIB_`: each such variable mirrors a flag, so none is allowed on the mediator.
pub(super) const POD_VARIABLE: &str = "POD_NAME";
pub(super) const POD_FIELD: &str = "metadata.name";

/// Flags that pass an installation's settings to the mediator.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Flags {
    history_max_bytes: &'static str,
    otlp_endpoint: &'static str,
    export_records: &'static str,
    export_arguments: &'static str,
    export_refuse: &'static str,
    metrics_port: &'static str,
    #[serde(skip)]
    keepalive: &'static str,
    record_bodies: &'static str,
}

const FLAGS: Flags = Flags {
    history_max_bytes: "--history-max-bytes=",
    otlp_endpoint: "--otlp-endpoint=",
    export_records: "--export-records",
    export_arguments: "--export-arguments",
    // Without it a mediator drops.
    export_refuse: "--export-when-behind=Refuse",
    metrics_port: "--metrics-port=",
    keepalive: "--keepalive=",
    record_bodies: "--record-bodies",
};

/// Our volumes and their mount paths in the mediator.
pub(super) const MOUNTS: [(&str, &str); 4] = [
    (names::CONFIG_VOLUME, names::CONFIG_DIR),
    (names::HISTORY_VOLUME, names::HISTORY_DIR),
    (names::LINK_VOLUME, names::LINK_TOKEN_DIR),
    (names::NO_API_TOKEN_VOLUME, names::API_TOKEN_DIR),
];

/// Arguments that every mediator gets, whatever the installation's settings are.
pub(super) fn fixed_arguments() -> [String; 6] {
    [
        format!("--config-dir={}", names::CONFIG_DIR),
        format!("--listen=127.0.0.1:{}", names::LISTEN_PORT),
        format!("--admin-listen=127.0.0.1:{}", names::ADMIN_PORT),
        format!("--history-dir={}", names::HISTORY_DIR),
        format!("--link-token-file={}", names::LINK_TOKEN_FILE),
        format!("--pod=$({POD_VARIABLE})"),
    ]
}

/// All arguments of a mediator. Every flag is set, so a variable that another webhook adds has
/// no effect.
pub(super) fn arguments(config: &InjectConfig) -> Vec<String> {
    let mut arguments = fixed_arguments().to_vec();
    // The mediator uses half of its volume; the chart's template computes the same share.
    arguments.push(format!(
        "{}{}",
        FLAGS.history_max_bytes,
        config.history_bytes / 2
    ));
    // An empty value disables spans, even if another webhook sets OTEL_EXPORTER_OTLP_ENDPOINT.
    let otlp = config.otlp_endpoint.as_deref().unwrap_or_default();
    arguments.push(format!("{}{otlp}", FLAGS.otlp_endpoint));
    if let Some(export) = config.export {
        arguments.push(FLAGS.export_records.to_string());
        if export.arguments {
            arguments.push(FLAGS.export_arguments.to_string());
        }
        match export.when_behind {
            WhenBehind::Drop => {}
            WhenBehind::Refuse => arguments.push(FLAGS.export_refuse.to_string()),
        }
    }
    if let Some(port) = config.metrics_port {
        arguments.push(format!("{}{port}", FLAGS.metrics_port));
    }
    if let Some(keepalive) = config.keepalive {
        arguments.push(format!("{}{}ms", FLAGS.keepalive, keepalive.as_millis()));
    }
    if config.record_bodies {
        arguments.push(FLAGS.record_bodies.to_string());
    }
    arguments
}

pub(super) fn probe_command(question: &str) -> [String; 4] {
    [
        PROGRAM.to_string(),
        "probe".to_string(),
        question.to_string(),
        format!("--admin-listen=127.0.0.1:{}", names::ADMIN_PORT),
    ]
}

/// The values that fill the guard policy's template.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Invariants {
    agent_label: &'static str,
    mediator: &'static str,
    link_audience: &'static str,
    /// The only parts of a pod that the controller may change.
    leader_label: &'static str,
    refresh_annotation: &'static str,
    grant_label_prefix: &'static str,
    max_grant_labels: usize,
    selector_check_agent: &'static str,
    approvals: ApprovalNames,
    /// The parts of the compiled Secret's name before and after the agent's name.
    secret: Affixes,
    context_config_map: Affixes,
    compiled: GuardNames,
    volumes: Volumes,
    /// Volumes that no other container mounts.
    reserved: Vec<&'static str>,
    mounts: Vec<Mount>,
    foreign_mount_prefixes: &'static [&'static str],
    fixed_arguments: Vec<String>,
    /// The flags that precede the chart's values.
    flags: Flags,
    probes: Probes,
    pod_variable: &'static str,
    pod_field: &'static str,
    refused_variable_prefixes: &'static [&'static str],
    refused_variables: &'static [&'static str],
    allowed_capabilities: &'static [&'static str],
    dropped_capability: &'static str,
    allowed_host_paths: &'static [&'static str],
    #[serde(rename = "allowedSELinuxTypes")]
    allowed_selinux_types: &'static [&'static str],
    unconfined: &'static str,
    mesh_setups: &'static [names::MeshSetup],
    mesh_setup_capabilities: &'static [&'static str],
    mesh_setup_refused_variables: &'static [&'static str],
    mesh_setup_mounts: &'static [&'static str],
    loader_variable_prefix: &'static str,
}

/// Names and labels by which the guard policy recognizes the objects that the controller writes
/// for an Agent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GuardNames {
    secrets: [Affixes; 2],
    config_maps: [Affixes; 2],
    label: &'static str,
    managed_by_label: &'static str,
    managed_by: &'static str,
}

/// The object and the messages by which the controller sees that the policies for approvals refuse.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalNames {
    check: &'static str,
    approval_refusal: &'static str,
    decision_refusal: &'static str,
}

#[derive(Debug, Serialize)]
struct Affixes {
    before: String,
    after: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Volumes {
    config: &'static str,
    context: &'static str,
    history: &'static str,
    link: &'static str,
    no_api_token: &'static str,
}

#[derive(Debug, Serialize)]
struct Mount {
    name: &'static str,
    path: &'static str,
}

#[derive(Debug, Serialize)]
struct Probes {
    ready: [String; 4],
    live: [String; 4],
}

pub fn invariants() -> Invariants {
    let around = |pattern: (String, String)| Affixes {
        before: pattern.0,
        after: pattern.1,
    };
    Invariants {
        agent_label: names::AGENT_LABEL,
        mediator: names::MEDIATOR_CONTAINER,
        link_audience: names::LINK_AUDIENCE,
        leader_label: names::LEADER_LABEL,
        refresh_annotation: names::REFRESH_ANNOTATION,
        grant_label_prefix: names::GRANT_LABEL_PREFIX,
        max_grant_labels: crate::MAX_GRANT_LABELS,
        selector_check_agent: names::SELECTOR_CHECK_AGENT,
        approvals: ApprovalNames {
            check: names::APPROVAL_CHECK,
            approval_refusal: names::APPROVAL_REFUSAL,
            decision_refusal: names::DECISION_REFUSAL,
        },
        secret: around(name_affixes(names::mediator_secret)),
        context_config_map: around(name_affixes(names::context_config_map)),
        compiled: GuardNames {
            secrets: [names::mediator_secret, names::identity_secret]
                .map(|name| around(name_affixes(name))),
            config_maps: [names::manifest_config_map, names::context_config_map]
                .map(|name| around(name_affixes(name))),
            label: names::COMPILED_FOR_LABEL,
            managed_by_label: names::MANAGED_BY_LABEL,
            managed_by: names::FIELD_MANAGER,
        },
        volumes: Volumes {
            config: names::CONFIG_VOLUME,
            context: names::CONTEXT_VOLUME,
            history: names::HISTORY_VOLUME,
            link: names::LINK_VOLUME,
            no_api_token: names::NO_API_TOKEN_VOLUME,
        },
        reserved: names::VOLUMES
            .into_iter()
            .filter(|volume| *volume != names::CONTEXT_VOLUME)
            .collect(),
        mounts: MOUNTS
            .into_iter()
            .map(|(name, path)| Mount { name, path })
            .collect(),
        foreign_mount_prefixes: &names::FOREIGN_MOUNT_PREFIXES,
        fixed_arguments: fixed_arguments().to_vec(),
        flags: FLAGS,
        probes: Probes {
            ready: probe_command(READY),
            live: probe_command(LIVE),
        },
        pod_variable: POD_VARIABLE,
        pod_field: POD_FIELD,
        refused_variable_prefixes: &names::REFUSED_VARIABLE_PREFIXES,
        refused_variables: &names::REFUSED_VARIABLES,
        allowed_capabilities: &names::ALLOWED_CAPABILITIES,
        dropped_capability: names::DROPPED_CAPABILITY,
        allowed_host_paths: &names::ALLOWED_HOST_PATHS,
        allowed_selinux_types: &names::ALLOWED_SELINUX_TYPES,
        unconfined: names::UNCONFINED,
        mesh_setups: &names::MESH_SETUPS,
        mesh_setup_capabilities: &names::MESH_SETUP_CAPABILITIES,
        mesh_setup_refused_variables: &names::MESH_SETUP_REFUSED_VARIABLES,
        mesh_setup_mounts: &names::MESH_SETUP_MOUNTS,
        loader_variable_prefix: names::LOADER_VARIABLE_PREFIX,
    }
}

/// Checks the rules that concern the container alone; volumes are checked elsewhere.
pub(super) fn check(found: &Container, config: &InjectConfig) -> Result<(), Refusal> {
    let broken = [
        (
            found.restart_policy.as_deref() == Some("Always"),
            "has no restartPolicy: Always",
        ),
        (
            found.command.as_ref().is_none_or(Vec::is_empty),
            "has a command",
        ),
        (
            arguments_hold(found, config),
            "has other arguments than this installation gives it",
        ),
        (
            variables_hold(found),
            "has an environment variable TOOLCRIB_*, LD_*, SSL_* or of the C library's resolver, or envFrom",
        ),
        (
            pod_name_holds(found),
            "does not take its POD_NAME from the pod",
        ),
        (mounts_hold(found), "lacks one of its volume mounts"),
        (
            message_holds(found),
            "has another terminationMessagePath, where a file is mounted",
        ),
        (
            found.security_context.as_ref().is_some_and(is_floor),
            "has a weaker securityContext",
        ),
        (commands_hold(found), "has other probes, or lifecycle hooks"),
    ]
    .into_iter()
    .find(|(holds, _)| !holds);
    match broken {
        Some((_, why)) => Err(Refusal::ReservedContainer { why }),
        None => Ok(()),
    }
}

/// Compares the arguments. Other arguments would let the author of a pod disable the record, or
/// send spans elsewhere.
fn arguments_hold(found: &Container, config: &InjectConfig) -> bool {
    let arguments = found.args.as_deref().unwrap_or_default();
    let ours = self::arguments(config);
    let once = |wanted: &String| arguments.iter().filter(|found| *found == wanted).count() == 1;
    ours.iter().all(once) && arguments.iter().all(|argument| ours.contains(argument))
}

fn variables_hold(found: &Container) -> bool {
    let from = found.env_from.iter().flatten().next();
    let steers = |name: &str| {
        names::REFUSED_VARIABLES.contains(&name)
            || names::REFUSED_VARIABLE_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    let mut variables = found.env.iter().flatten();
    from.is_none() && !variables.any(|variable| steers(&variable.name))
}

/// Checks `POD_NAME`: with `identity: Pod` the pod's name is the agent's identity.
fn pod_name_holds(found: &Container) -> bool {
    let mut named = found
        .env
        .iter()
        .flatten()
        .filter(|variable| variable.name == POD_VARIABLE);
    let field = |variable: &k8s_openapi::api::core::v1::EnvVar| {
        let from = variable.value_from.as_ref()?;
        Some(from.field_ref.as_ref()?.field_path == POD_FIELD)
    };
    named.next().and_then(field) == Some(true) && named.next().is_none()
}

fn mounts_hold(found: &Container) -> bool {
    let whole = |mount: &VolumeMount| mount.sub_path.is_none() && mount.sub_path_expr.is_none();
    let mounts = || found.volume_mounts.iter().flatten();
    MOUNTS.iter().all(|(volume, path)| {
        mounts().any(|mount| mount.mount_path == *path && mount.name == *volume && whole(mount))
            && mounts().filter(|mount| mount.name == *volume).count() == 1
    })
}

/// Checks the termination message path. The runtime mounts an empty file of the pod there, which
/// could hide the files that names are resolved with.
fn message_holds(found: &Container) -> bool {
    let path = found.termination_message_path.as_deref();
    matches!(path, None | Some("/dev/termination-log"))
}

fn is_floor(context: &SecurityContext) -> bool {
    let capabilities = context.capabilities.as_ref();
    let added = capabilities.and_then(|capabilities| capabilities.add.as_ref());
    let dropped = capabilities.and_then(|capabilities| capabilities.drop.as_ref());
    let seccomp = context.seccomp_profile.as_ref();
    context.privileged != Some(true)
        && context.allow_privilege_escalation == Some(false)
        && context.run_as_non_root == Some(true)
        && context.read_only_root_filesystem == Some(true)
        && seccomp.is_some_and(|profile| profile.type_ == "RuntimeDefault")
        && matches!(context.proc_mount.as_deref(), None | Some("Default"))
        && added.is_none_or(Vec::is_empty)
        && dropped.is_some_and(|names| names.iter().any(|name| name == "ALL"))
}

/// Checks probes and hooks. The kubelet runs their commands inside the container, with access to
/// its files: such a command could be the mediator's own program with other arguments.
fn commands_hold(found: &Container) -> bool {
    let asks = |probe: &Option<Probe>, question: &str| {
        let exec = probe.as_ref().and_then(|probe| probe.exec.as_ref());
        exec.and_then(|exec| exec.command.as_deref()) == Some(&probe_command(question)[..])
    };
    asks(&found.startup_probe, READY)
        && asks(&found.readiness_probe, READY)
        && asks(&found.liveness_probe, LIVE)
        && found.lifecycle.is_none()
}
