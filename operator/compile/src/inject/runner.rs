//! Edits of the user's containers: variables that point to the mediator, the context mount, and
//! one capability less.

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, Pod, PodSpec, SecretKeySelector, VolumeMount,
};

use super::edits::{Edits, JsonPath, at};
use super::refusal::{ContainerList, Refusal, bare_capability, is_known, redirects};
use crate::names;

pub(super) fn edit_containers(
    pod: &Pod,
    spec: &PodSpec,
    agent: &str,
    edits: &mut Edits,
) -> Result<(), Refusal> {
    let on_conflict = match pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::ENV_ANNOTATION))
        .map(String::as_str)
    {
        Some(names::ENV_OVERRIDE) => OnConflict::Override,
        Some(names::ENV_KEEP) => OnConflict::Keep,
        Some(_) | None => OnConflict::Refuse,
    };
    for (index, container) in spec.containers.iter().enumerate() {
        let place = at!["spec", "containers", index];
        drop_net_raw(container, &place, edits);
        if is_known(container, ContainerList::App) {
            continue;
        }
        add_environment(container, &place, agent, on_conflict, edits)?;
        extend_no_proxy(container, &place, edits)?;
        add_context(container, &place, edits)?;
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        if !redirects(container, ContainerList::Init) && container.name != names::MEDIATOR_CONTAINER
        {
            drop_net_raw(container, &at!["spec", "initContainers", index], edits);
        }
    }
    Ok(())
}

/// What to do if the container sets one of our variables itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnConflict {
    Refuse,
    Override,
    /// Keeps the container's variable of a model API; any other variable is refused.
    Keep,
}

fn add_environment(
    container: &Container,
    place: &JsonPath,
    agent: &str,
    on_conflict: OnConflict,
    edits: &mut Edits,
) -> Result<(), Refusal> {
    let existing = container.env.as_deref().unwrap_or_default();
    for variable in variables(existing, agent, on_conflict) {
        match existing
            .iter()
            // The kubelet uses the last of several variables with one name.
            .rposition(|other| other.name == variable.name)
        {
            None => edits.append(within(place, &["env"]), container.env.is_some(), variable),
            Some(index) if same_variable(&existing[index], &variable) => {}
            Some(index) => match on_conflict {
                OnConflict::Override => {
                    edits.replace(within(place, &["env", &index.to_string()]), variable);
                }
                OnConflict::Refuse | OnConflict::Keep => {
                    return Err(Refusal::EnvConflict {
                        container: container.name.clone(),
                        variable: variable.name,
                    });
                }
            },
        }
    }
    Ok(())
}

/// The variables that the container must have. A model API that the container may keep is kept
/// with both of its variables: our token must not go to its address, nor its key to ours.
fn variables(existing: &[EnvVar], agent: &str, on_conflict: OnConflict) -> Vec<EnvVar> {
    let sets = |ours: &EnvVar| {
        existing
            .iter()
            .any(|other| other.name == ours.name && !same_variable(other, ours))
    };
    let kept = |api: &[EnvVar; 2]| match on_conflict {
        OnConflict::Keep => api.iter().any(sets),
        OnConflict::Refuse | OnConflict::Override => false,
    };
    let Variables { apis, own } = Variables::of(agent);
    apis.into_iter()
        .filter(|api| !kept(api))
        .flatten()
        .chain(own)
        .collect()
}

/// The variables for an agent's containers. The key is the runner's bearer token, by reference to
/// the Secret: the webhook that writes this holds no secret.
struct Variables {
    /// The variables that the official SDKs read: each API's base URL and key.
    apis: [[EnvVar; 2]; 2],
    /// Toolcrib's own variables, for programs written for it and for `mcp.json`.
    own: [EnvVar; 2],
}

impl Variables {
    fn of(agent: &str) -> Self {
        let plain = |name: &str, value: String| EnvVar {
            name: name.to_string(),
            value: Some(value),
            ..EnvVar::default()
        };
        let token = |name: &str| EnvVar {
            name: name.to_string(),
            value_from: Some(EnvVarSource {
                secret_key_ref: Some(SecretKeySelector {
                    name: names::identity_secret(agent),
                    key: names::TOKEN_KEY.to_string(),
                    optional: None,
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        };
        Self {
            apis: [
                [
                    plain(names::ENV_OPENAI_BASE_URL, names::openai_base_url()),
                    token(names::ENV_OPENAI_API_KEY),
                ],
                [
                    plain(names::ENV_ANTHROPIC_BASE_URL, names::anthropic_base_url()),
                    token(names::ENV_ANTHROPIC_API_KEY),
                ],
            ],
            own: [
                token(names::ENV_TOKEN),
                plain(names::ENV_CONTEXT, names::CONTEXT_DIR.to_string()),
            ],
        }
    }
}

fn same_variable(found: &EnvVar, ours: &EnvVar) -> bool {
    let secret = |variable: &EnvVar| {
        variable
            .value_from
            .as_ref()
            .and_then(|from| from.secret_key_ref.as_ref())
            .map(|secret| (secret.name.clone(), secret.key.clone()))
    };
    let value = |variable: &EnvVar| variable.value.clone().filter(|value| !value.is_empty());
    value(found) == value(ours) && secret(found) == secret(ours)
}

const LOOPBACK: [&str; 2] = ["127.0.0.1", "localhost"];

/// Adds loopback to NO_PROXY, so that calls to the mediator do not go through a proxy.
fn extend_no_proxy(
    container: &Container,
    place: &JsonPath,
    edits: &mut Edits,
) -> Result<(), Refusal> {
    let existing = container.env.as_deref().unwrap_or_default();
    let proxied = |names: [&str; 3]| {
        existing
            .iter()
            .any(|variable| names.contains(&variable.name.as_str()))
    };
    let upper = proxied(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]);
    let lower = proxied(["http_proxy", "https_proxy", "all_proxy"]);
    if !upper && !lower {
        return Ok(());
    }
    // Libraries differ in which of the two names they read first, so an existing variable is
    // extended whichever proxy variable is set.
    for (name, needed) in [(names::ENV_NO_PROXY, true), ("no_proxy", lower)] {
        let Some(index) = existing.iter().rposition(|variable| variable.name == name) else {
            if needed {
                let variable = EnvVar {
                    name: name.to_string(),
                    value: Some(LOOPBACK.join(",")),
                    ..EnvVar::default()
                };
                edits.append(within(place, &["env"]), container.env.is_some(), variable);
            }
            continue;
        };
        if existing[index].value_from.is_some() {
            return Err(Refusal::ProxyConflict {
                container: container.name.clone(),
                variable: name.to_string(),
            });
        }
        let value = existing[index].value.as_deref().unwrap_or_default();
        if let Some(extended) = extended(value) {
            edits.set(
                within(place, &["env", &index.to_string()]),
                true,
                "value",
                extended,
            );
        }
    }
    Ok(())
}

/// Returns the extended value; `None` if it already has both hosts.
fn extended(value: &str) -> Option<String> {
    let mut hosts: Vec<&str> = value
        .split(',')
        .map(str::trim)
        .filter(|host| !host.is_empty())
        .collect();
    let missing: Vec<&str> = LOOPBACK
        .into_iter()
        .filter(|host| !hosts.contains(host) && !hosts.contains(&"*"))
        .collect();
    if missing.is_empty() {
        return None;
    }
    hosts.extend(missing);
    Some(hosts.join(","))
}

fn add_context(container: &Container, place: &JsonPath, edits: &mut Edits) -> Result<(), Refusal> {
    let existing = container.volume_mounts.as_deref().unwrap_or_default();
    let at_path = existing
        .iter()
        .find(|mount| mount.mount_path.trim_end_matches('/') == names::CONTEXT_DIR);
    match at_path {
        Some(mount) if mount.name == names::CONTEXT_VOLUME => Ok(()),
        Some(_) => Err(Refusal::OccupiedPath {
            container: container.name.clone(),
            path: names::CONTEXT_DIR.to_string(),
        }),
        None => {
            let mount = VolumeMount {
                name: names::CONTEXT_VOLUME.to_string(),
                mount_path: names::CONTEXT_DIR.to_string(),
                read_only: Some(true),
                ..VolumeMount::default()
            };
            edits.append(
                within(place, &["volumeMounts"]),
                container.volume_mounts.is_some(),
                mount,
            );
            Ok(())
        }
    }
}

/// Drops NET_RAW. The pod's containers share a network namespace: with a raw socket, a runner that
/// is root could read the mediator's traffic.
fn drop_net_raw(container: &Container, place: &JsonPath, edits: &mut Edits) {
    const NET_RAW: &str = "NET_RAW";
    let context = container.security_context.as_ref();
    let capabilities = context.and_then(|context| context.capabilities.as_ref());
    let dropped = capabilities.and_then(|capabilities| capabilities.drop.as_ref());
    let has = |wanted: &str| {
        dropped
            .iter()
            .flat_map(|names| names.iter())
            .any(|name| bare_capability(name) == wanted)
    };
    if has("ALL") || has(NET_RAW) {
        return;
    }
    let drop = serde_json::json!([NET_RAW]);
    match (context, capabilities, dropped) {
        (None, _, _) => edits.set(
            place.clone(),
            true,
            "securityContext",
            serde_json::json!({ "capabilities": { "drop": drop } }),
        ),
        (Some(_), None, _) => edits.set(
            within(place, &["securityContext"]),
            true,
            "capabilities",
            serde_json::json!({ "drop": drop }),
        ),
        (Some(_), Some(_), None) => edits.set(
            within(place, &["securityContext", "capabilities"]),
            true,
            "drop",
            drop,
        ),
        (Some(_), Some(_), Some(_)) => edits.append(
            within(place, &["securityContext", "capabilities", "drop"]),
            true,
            NET_RAW,
        ),
    }
}

fn within(place: &JsonPath, parts: &[&str]) -> JsonPath {
    let mut there = place.clone();
    there.extend(parts.iter().map(|part| part.to_string()));
    there
}
