//! The mediator's container and volumes.

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, ExecAction, LocalObjectReference, ObjectFieldSelector, PodSpec, Probe,
    ProjectedVolumeSource, SeccompProfile, SecretVolumeSource, SecurityContext,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::edits::{Edits, at};
use super::refusal::{ContainerList, Refusal, is_known};
use super::{InjectConfig, invariants};
use crate::names;

/// Value of the annotation on injected pods. It increases when the shape of injected pods changes.
pub(super) const INJECTION_VERSION: &str = "2";

/// Lifetime of a link token; the kubelet renews the token after four fifths of it.
const LINK_TOKEN_SECONDS: i64 = 3600;

/// File mode of the volumes. The files are readable by every user, since the mediator may run as
/// any user and no other container mounts them.
const READABLE: i32 = 0o444;

/// The image's user, set if the pod would otherwise run the mediator as root.
const USER: i64 = 65532;

pub(super) fn add_volumes(
    spec: &PodSpec,
    agent: &str,
    config: &InjectConfig,
    edits: &mut Edits,
) -> Result<(), Refusal> {
    let existing = spec.volumes.as_deref().unwrap_or_default();
    for volume in volumes(agent, config) {
        match existing.iter().find(|other| other.name == volume.name) {
            None => edits.append(at!["spec", "volumes"], spec.volumes.is_some(), volume),
            Some(other) if same_source(other, &volume) => {}
            Some(_) => {
                return Err(Refusal::ReservedVolume {
                    volume: volume.name,
                });
            }
        }
    }
    Ok(())
}

/// Inserts the mediator after the last init container of a mesh, or else as the first one. An
/// existing mediator is checked, and moved if a mesh was injected after it.
pub(super) fn add_container(
    spec: &PodSpec,
    config: &InjectConfig,
    edits: &mut Edits,
) -> Result<(), Refusal> {
    let place = at!["spec", "initContainers"];
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let after_mesh = init
        .iter()
        .rposition(|container| is_known(container, ContainerList::Init))
        .map_or(0, |last| last + 1);
    let wanted = container(spec, config);
    match init
        .iter()
        .position(|container| container.name == names::MEDIATOR_CONTAINER)
    {
        None => edits.insert(place, spec.init_containers.is_some(), after_mesh, wanted),
        Some(index) => {
            invariants::check(&init[index], config)?;
            if index < after_mesh {
                // Removing the mediator shifts the mesh's last container down by one.
                edits.shift(place, index, after_mesh - 1);
            }
        }
    }
    Ok(())
}

/// Adds the pull secrets of the installation. The pod's own stay: they pull the pod's images.
pub(super) fn add_pull_secrets(spec: &PodSpec, config: &InjectConfig, edits: &mut Edits) {
    let existing = spec.image_pull_secrets.as_deref().unwrap_or_default();
    for name in &config.image_pull_secrets {
        if !existing.iter().any(|secret| secret.name == *name) {
            edits.append(
                at!["spec", "imagePullSecrets"],
                spec.image_pull_secrets.is_some(),
                LocalObjectReference { name: name.clone() },
            );
        }
    }
}

fn volumes(agent: &str, config: &InjectConfig) -> [Volume; 5] {
    let named = |name: &str| Volume {
        name: name.to_string(),
        ..Volume::default()
    };
    [
        Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(names::mediator_secret(agent)),
                default_mode: Some(READABLE),
                // If the Secret is deleted, the kubelet removes the files of an optional
                // volume, which withdraws access. It would keep the files of any other
                // volume for as long as the pod runs.
                optional: Some(true),
                ..SecretVolumeSource::default()
            }),
            ..named(names::CONFIG_VOLUME)
        },
        Volume {
            config_map: Some(ConfigMapVolumeSource {
                name: names::context_config_map(agent),
                optional: Some(true),
                ..ConfigMapVolumeSource::default()
            }),
            ..named(names::CONTEXT_VOLUME)
        },
        Volume {
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity(config.history_bytes.to_string())),
                ..EmptyDirVolumeSource::default()
            }),
            ..named(names::HISTORY_VOLUME)
        },
        Volume {
            projected: Some(ProjectedVolumeSource {
                default_mode: Some(READABLE),
                sources: Some(vec![VolumeProjection {
                    service_account_token: Some(ServiceAccountTokenProjection {
                        audience: Some(names::LINK_AUDIENCE.to_string()),
                        expiration_seconds: Some(LINK_TOKEN_SECONDS),
                        path: names::LINK_TOKEN_FILE_NAME.to_string(),
                    }),
                    ..VolumeProjection::default()
                }]),
            }),
            ..named(names::LINK_VOLUME)
        },
        Volume {
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..named(names::NO_API_TOKEN_VOLUME)
        },
    ]
}

/// Whether a volume has the source that we would write. Defaults that the API server fills in and
/// another installation's size limit are ignored.
fn same_source(found: &Volume, ours: &Volume) -> bool {
    let secret = |volume: &Volume| {
        volume.secret.as_ref().map(|secret| {
            (
                secret.secret_name.clone(),
                secret.optional,
                secret.items.clone(),
            )
        })
    };
    let config_map = |volume: &Volume| {
        volume
            .config_map
            .as_ref()
            .map(|map| (map.name.clone(), map.optional, map.items.clone()))
    };
    let token = |volume: &Volume| {
        volume.projected.as_ref().map(|projected| {
            projected
                .sources
                .iter()
                .flatten()
                .map(|source| {
                    (
                        source
                            .service_account_token
                            .as_ref()
                            .map(|token| (token.audience.clone(), token.path.clone())),
                        source.secret.is_some()
                            || source.config_map.is_some()
                            || source.downward_api.is_some()
                            || source.cluster_trust_bundle.is_some(),
                    )
                })
                .collect::<Vec<_>>()
        })
    };
    secret(found) == secret(ours)
        && config_map(found) == config_map(ours)
        && token(found) == token(ours)
        && found.empty_dir.is_some() == ours.empty_dir.is_some()
        && found.host_path.is_none()
        && found.persistent_volume_claim.is_none()
        && found.csi.is_none()
}

fn container(spec: &PodSpec, config: &InjectConfig) -> Container {
    Container {
        name: names::MEDIATOR_CONTAINER.to_string(),
        image: Some(config.image.clone()),
        image_pull_policy: config
            .image_pull_policy
            .map(|policy| policy.as_str().to_string()),
        // `Always` makes an init container a native sidecar: it starts before the runner,
        // outlives it, and does not keep a Job from completing.
        restart_policy: Some("Always".to_string()),
        args: Some(invariants::arguments(config)),
        env: Some(vec![EnvVar {
            name: invariants::POD_VARIABLE.to_string(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    api_version: Some("v1".to_string()),
                    field_path: invariants::POD_FIELD.to_string(),
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        }]),
        ports: config.metrics_port.map(|port| {
            vec![ContainerPort {
                name: Some("tc-metrics".to_string()),
                container_port: i32::from(port),
                ..ContainerPort::default()
            }]
        }),
        resources: (config.resources != Default::default()).then(|| config.resources.clone()),
        volume_mounts: Some(
            invariants::MOUNTS
                .into_iter()
                .map(|(volume, path)| VolumeMount {
                    name: volume.to_string(),
                    mount_path: path.to_string(),
                    read_only: Some(volume != names::HISTORY_VOLUME),
                    ..VolumeMount::default()
                })
                .collect(),
        ),
        // The kubelet starts the runner's containers when this probe succeeds. A mediator that
        // finds no files exits; the restart makes the kubelet look for the files again.
        startup_probe: Some(Probe {
            period_seconds: Some(1),
            timeout_seconds: Some(3),
            failure_threshold: Some(60),
            ..probe(invariants::READY)
        }),
        // An exec probe starts a process in the node's runtime, which takes about 0.1 s of CPU.
        // The period is long, since readiness and liveness change seldom.
        readiness_probe: Some(Probe {
            period_seconds: Some(10),
            timeout_seconds: Some(3),
            failure_threshold: Some(2),
            ..probe(invariants::READY)
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(30),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..probe(invariants::LIVE)
        }),
        security_context: Some(security_context(spec)),
        // After a failure `kubectl describe` shows the end of the log: one clear line.
        termination_message_policy: Some("FallbackToLogsOnError".to_string()),
        ..Container::default()
    }
}

fn probe(question: &str) -> Probe {
    Probe {
        exec: Some(ExecAction {
            command: Some(invariants::probe_command(question).to_vec()),
        }),
        ..Probe::default()
    }
}

/// A security context that passes Pod Security `restricted`. The user is left unset if the pod
/// sets one or the namespace's policy may set one: the image's own user is 65532.
fn security_context(spec: &PodSpec) -> SecurityContext {
    let pod_user = spec
        .security_context
        .as_ref()
        .and_then(|context| context.run_as_user);
    SecurityContext {
        run_as_non_root: Some(true),
        run_as_user: (pod_user == Some(0)).then_some(USER),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_string()]),
            ..Capabilities::default()
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_string(),
            ..SeccompProfile::default()
        }),
        ..SecurityContext::default()
    }
}
