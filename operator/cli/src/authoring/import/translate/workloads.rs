//! Deployments and Services for the services of a pod file that have an image.
//!
//! A service becomes a Deployment, and a Service with its ports. An agent becomes a Deployment
//! whose pods have its label. Pods get the settings beyond Pod Security `baseline` that rarely
//! break an image: no privilege escalation, the runtime's seccomp profile, no API token. The rest
//! of `restricted` (no root) is left to the reviewer, since many images of pod files run as root.

use indexmap::IndexMap;
use serde_json::{Value, json};
use toolcrib_compile::names;

use crate::authoring::wrapped::{self, WHO_MAY_CONNECT, WrappedServer};
use crate::authoring::wrapped::{WRAPPED_PORT, WRAPPER_IMAGE};
use crate::print::Document;

use super::super::pod::{LineValue, Service};
use super::super::providers::KnownProvider;
use super::super::variables::Template;
use super::{AgentRequest, Lines, Translation};
use crate::authoring::import::names::dns_label;

/// Limit on the bytes of contracts and skills, each counted for every agent that mounts it.
pub const MAX_MOUNTED: usize = 32 << 20;

/// Folder in which Clawdapus mounts an agent's contract and skills.
const CLAW_DIR: &str = "/claw";

pub fn services(translation: &mut Translation<'_>, surfaces: &Lines) -> Vec<Document> {
    let pod = translation.pod;
    let mut documents = Vec::new();
    for service in &pod.services {
        if service.agent.is_some() || !translation.is_written(service) {
            continue;
        }
        let name = translation.name(&service.name.value);
        let is_used = surfaces.contains_key(&name);
        if translation.given.existing.services.contains_key(&name) {
            translation.found.note(
                service.name.line,
                format!("{name} is among the objects that are there already: neither Deployment nor Service is written"),
            );
            continue;
        }
        if let Some(command) = &service.mcp_stdio {
            documents.extend(wrapped_program(translation, &name, service, command));
        } else if let Some(container) = container(translation, &name, service) {
            let template = json!({
                "metadata": {"labels": {"app": name}},
                "spec": pod_spec(container),
            });
            documents.push(Document::new(deployment(
                translation,
                &name,
                1,
                json!({"app": name}),
                template,
            )));
        } else if is_used && service.image.is_none() {
            translation.found.warning(
                service.name.line,
                format!("{name} has no image: no Deployment is written"),
            );
        }
        if !service.ports.is_empty() {
            documents.push(Document::new(kubernetes_service(
                translation,
                &name,
                service,
            )));
        }
    }
    documents
}

/// Returns the objects of a program that speaks MCP over its standard streams. The image's own
/// entrypoint is ignored: only the command is run.
fn wrapped_program(
    translation: &mut Translation<'_>,
    name: &str,
    service: &Service,
    command: &LineValue<Vec<String>>,
) -> Vec<Document> {
    let env = environment(translation, name, service);
    let Some(image) = &service.image else {
        translation.found.error(
            command.line,
            format!("mcp-stdio: {name} has no image: no Deployment is written"),
        );
        return Vec::new();
    };
    let Some(image) = seen(translation, image, "image") else {
        return Vec::new();
    };
    let wrapped = WrappedServer {
        name,
        namespace: &translation.namespace,
        image: &image,
        wrapper: WRAPPER_IMAGE,
        port: service
            .ports
            .first()
            .map_or(WRAPPED_PORT, |port| port.value),
        env,
        command: &command.value,
    };
    vec![
        Document::new(wrapped.deployment()).with_comment(format!(
            "Runs `{}` with no root and a read-only file system, and serves it over HTTP.",
            command.value.join(" ")
        )),
        Document::new(wrapped.network_policy()).with_comment(WHO_MAY_CONNECT),
    ]
}

pub fn agents(translation: &mut Translation<'_>, requests: &[AgentRequest<'_>]) -> Vec<Document> {
    let mut documents = Vec::new();
    for request in requests {
        let name = &request.name;
        let files = contract_files(translation, request);
        let Some(mut container) = container(translation, name, request.service) else {
            translation.found.note(
                request.service.name.line,
                format!(
                    "{name} has no image: no pod is written; label its pods {}: {name}",
                    names::AGENT_LABEL
                ),
            );
            continue;
        };
        let mut spec = json!({});
        if !files.is_empty() {
            let config_map = format!("{name}-contract");
            let mut data = serde_json::Map::new();
            let mut items = Vec::new();
            for (key, (path, text)) in files {
                data.insert(key.clone(), text.into());
                items.push(json!({"key": key, "path": path}));
            }
            container["volumeMounts"] =
                json!([{"name": "contract", "mountPath": CLAW_DIR, "readOnly": true}]);
            spec["volumes"] =
                json!([{"name": "contract", "configMap": {"name": config_map, "items": items}}]);
            documents.push(
                Document::new(json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": config_map, "namespace": translation.namespace},
                    "data": data,
                }))
                .with_comment("The agent's contract and skills, where Clawdapus mounts them."),
            );
        }
        merge(&mut spec, pod_spec(container));
        let template = json!({
            "metadata": {"labels": {"app": name, names::AGENT_LABEL: name}},
            "spec": spec,
        });
        documents.push(Document::new(deployment(
            translation,
            name,
            request.replicas,
            json!({"app": name}),
            template,
        )));
        if !request.service.ports.is_empty() {
            documents.push(Document::new(kubernetes_service(
                translation,
                name,
                request.service,
            )));
        }
    }
    documents
}

fn deployment(
    translation: &Translation<'_>,
    name: &str,
    replicas: u16,
    selector: Value,
    template: Value,
) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": translation.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "template": template,
        },
    })
}

fn kubernetes_service(translation: &Translation<'_>, name: &str, service: &Service) -> Value {
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| json!({"name": format!("p{}", port.value), "port": port.value}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": translation.namespace},
        "spec": {"selector": {"app": name}, "ports": ports},
    })
}

fn pod_spec(container: Value) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// Returns the container; `None` if the service has no image, or one whose name is a secret.
fn container(translation: &mut Translation<'_>, name: &str, service: &Service) -> Option<Value> {
    let image = service.image.as_ref()?;
    let image = seen(translation, image, "image")?;
    let mut container = json!({
        "name": name,
        "image": image,
        "securityContext": {"allowPrivilegeEscalation": false},
    });
    for (field, words) in [("command", &service.entrypoint), ("args", &service.command)] {
        if let Some(words) = words {
            let line = service.name.line;
            let words: Option<Vec<String>> = words
                .iter()
                .map(|word| seen(translation, &LineValue::new(line, word.clone()), field))
                .collect();
            container[field] = json!(words?);
        }
    }
    if let Some(user) = &service.user {
        match user
            .value
            .split(':')
            .next()
            .unwrap_or_default()
            .parse::<u32>()
        {
            Ok(user) => container["securityContext"]["runAsUser"] = user.into(),
            Err(_) => translation.found.warning(
                user.line,
                format!(
                    "user {} is not translated: write its number, which `id -u` shows in the image",
                    user.value
                ),
            ),
        }
    }
    let env = environment(translation, name, service);
    if !env.is_empty() {
        container["env"] = env.into();
    }
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| json!({"containerPort": port.value}))
        .collect();
    if !ports.is_empty() {
        container["ports"] = ports.into();
    }
    Some(container)
}

/// Returns a public text. `$(` is escaped, since Kubernetes would expand `$(NAME)` in a command.
fn seen(
    translation: &mut Translation<'_>,
    text: &LineValue<Template>,
    what: &str,
) -> Option<String> {
    match text.value.filled(translation.values()) {
        Ok(value) => Some(value.expose().replace("$(", "$$(")),
        Err(variable) => {
            translation.found.error(
                text.line,
                format!("{what}: {variable} has no value: put it into the .env file"),
            );
            None
        }
    }
}

/// Returns `env` of a container; values of variables become keys of Secrets.
fn environment(translation: &mut Translation<'_>, name: &str, service: &Service) -> Vec<Value> {
    let is_agent = service.agent.is_some();
    let mut env = Vec::new();
    for (variable, value) in &service.environment {
        if is_agent
            && (is_mediators(variable) || translation.credential_variables.contains(variable))
        {
            translation.found.warning(
                value.line,
                format!("{name} does not get {variable}: its mediator has the credentials, an agent holds none"),
            );
            continue;
        }
        let credential = format!("{name}-credential");
        if translation.secrets.has(&credential, variable) {
            env.push(wrapped::variable(variable, &credential, variable));
            continue;
        }
        match value.value.literal(translation.values()) {
            Some(text) => env.push(json!({"name": variable, "value": text.replace("$(", "$$(")})),
            None => {
                let secret = format!("{name}-env");
                translation.secrets.environment(&secret, variable, value);
                env.push(wrapped::variable(variable, &secret, variable));
                let missing: Vec<&str> = value.value.missing(translation.values()).collect();
                if !missing.is_empty() && !translation.given.values.is_empty() {
                    translation.found.note(
                        value.line,
                        format!("{} has no value in the .env file", missing.join(", ")),
                    );
                }
            }
        }
    }
    env
}

/// True if injection sets the variable in an agent's container, or if no such container may have it.
fn is_mediators(variable: &str) -> bool {
    variable == names::ENV_OPENAI_BASE_URL
        || variable == names::ENV_ANTHROPIC_BASE_URL
        || variable.ends_with("_API_KEY")
        || KnownProvider::by_variable(variable).is_some()
}

/// Returns the contract and the skills that could be read: the key in the ConfigMap, the path
/// below `/claw`, and the text.
fn contract_files(
    translation: &mut Translation<'_>,
    request: &AgentRequest<'_>,
) -> IndexMap<String, (String, String)> {
    let contract = request.contract.map(|path| (path, "AGENTS.md".to_owned()));
    let skills = request.skills.iter().map(|path| {
        let file = path.value.rsplit('/').next().unwrap_or_default();
        (path, format!("skills/{file}"))
    });
    let mut files = IndexMap::new();
    for (path, place) in contract.into_iter().chain(skills) {
        match translation.given.files.get(&path.value) {
            Some(Ok(text)) => {
                let key = place.replace('/', ".");
                if files.contains_key(&key) {
                    translation.found.warning(
                        path.line,
                        format!("{place} is there twice: the first one stays; remove the other"),
                    );
                } else if let Some(left) = translation.mountable.checked_sub(text.len()) {
                    translation.mountable = left;
                    files.insert(key, (place, text.clone()));
                } else {
                    translation.found.error(
                        path.line,
                        format!(
                            "{place} is not mounted into {}: the files of all agents are larger than {MAX_MOUNTED} bytes together; import the agents from several pod files",
                            dns_label(&request.name)
                        ),
                    );
                }
            }
            Some(Err(reason)) => translation.found.warning(
                path.line,
                format!(
                    "{} is not mounted into {}: {reason}: put it beside the pod file, or correct its path",
                    path.value,
                    dns_label(&request.name)
                ),
            ),
            None => {}
        }
    }
    files
}
