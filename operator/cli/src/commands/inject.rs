//! `inject`: pods as they would be after admission, with the Agents of the same files.

use std::process::ExitCode;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use serde_json::{Value, json};
use toolcrib_compile::{
    LoadResult, ObjectRef, OtherDocument,
    inject::{
        Allowances, DEFAULT_HISTORY_BYTES, InjectConfig, Injection, agent_of, inject as inject_pod,
    },
    near, yaml,
};
use toolcrib_crds::Agent;

use crate::{
    args::{InjectArgs, PodFormat},
    failure::Failure,
    operator, print,
    sources::{self, DEFAULT_NAMESPACE},
};

/// Path of the pod template in each kind of workload.
const TEMPLATES: [(&str, &str); 6] = [
    ("Deployment", "/spec/template"),
    ("ReplicaSet", "/spec/template"),
    ("StatefulSet", "/spec/template"),
    ("DaemonSet", "/spec/template"),
    ("Job", "/spec/template"),
    ("CronJob", "/spec/jobTemplate/spec/template"),
];

pub fn inject(args: &InjectArgs) -> Result<ExitCode, Failure> {
    let settings = operator::settings(&args.files.operator);
    let loaded = sources::loaded_into(&args.files.paths, args.namespace.as_deref(), settings)?;
    // Undecodable Agents are missing below.
    print::findings(&loaded, []);
    let namespace = args.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let config = InjectConfig {
        image: args.image.clone(),
        image_pull_policy: None,
        image_pull_secrets: Vec::new(),
        resources: ResourceRequirements::default(),
        history_bytes: DEFAULT_HISTORY_BYTES,
        keepalive: None,
        record_bodies: false,
        otlp_endpoint: None,
        export: None,
        metrics_port: None,
        allowances: Allowances::default(),
    };
    let mut pods = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for document in &loaded.others {
        let place = document.origin.to_string();
        let Some(pod) = pod_of(document, namespace)
            .with_context(|| place.clone())
            .map_err(Failure::Usage)?
        else {
            continue;
        };
        match injected(&loaded, &pod, &config).with_context(|| place.clone())? {
            Answer::Pod(pod) => pods.push(pod),
            Answer::Refused(why) => {
                eprintln!("error: {place}: {why}");
                code = ExitCode::from(1);
            }
        }
    }
    if pods.is_empty() && code == ExitCode::SUCCESS {
        return Err(Failure::usage(
            "the files have no pod and no workload with a pod template: add one with -f",
        ));
    }
    let text = printed(&pods, args.output).context("a pod does not print")?;
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(code)
}

fn printed(pods: &[Value], format: PodFormat) -> anyhow::Result<String> {
    match format {
        PodFormat::Yaml => {
            let documents: Result<Vec<String>, _> = pods.iter().map(yaml::to_string).collect();
            Ok(documents?.join("---\n"))
        }
        PodFormat::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
            Ok(serde_json::to_string_pretty(&list)? + "\n")
        }
    }
}

enum Answer {
    Pod(Value),
    Refused(String),
}

/// Returns the pod that a document is, or that its workload would create.
fn pod_of(document: &OtherDocument, namespace: &str) -> anyhow::Result<Option<Value>> {
    let value = &document.value;
    let kind = value["kind"].as_str().unwrap_or_default();
    let template = TEMPLATES.iter().find(|(workload, _)| *workload == kind);
    let mut pod = match template {
        None if kind == "Pod" => value.clone(),
        None => return Ok(None),
        Some((_, pointer)) => match value.pointer(pointer) {
            Some(template) => template.clone(),
            None => return Ok(None),
        },
    };
    let members = pod
        .as_object_mut()
        .context("the pod template is not a map: write metadata and spec under it")?;
    let metadata = members.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = json!({});
    }
    let metadata = metadata
        .as_object_mut()
        .context("metadata is not a map: write labels under it")?;
    let owner = &value["metadata"];
    let written = owner["namespace"].as_str().unwrap_or(namespace);
    metadata.insert("namespace".to_owned(), written.into());
    if template.is_some() {
        let prefix = format!("{}-", owner["name"].as_str().unwrap_or_default());
        metadata.insert("generateName".to_owned(), prefix.into());
        members.insert("apiVersion".to_owned(), "v1".into());
        members.insert("kind".to_owned(), "Pod".into());
    }
    Ok(Some(pod))
}

fn injected(loaded: &LoadResult, value: &Value, config: &InjectConfig) -> anyhow::Result<Answer> {
    let pod: Pod = toolcrib_crds::decode("Pod", &value.to_string())
        .context("the pod template cannot be decoded")?;
    let Some(name) = agent_of(&pod) else {
        // The pod runs no agent, so admission leaves it unchanged.
        return Ok(Answer::Pod(value.clone()));
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let key = ObjectRef::new(namespace, name);
    let Some(agent) = agent(loaded, &key) else {
        return Ok(Answer::Refused(no_agent(loaded, &key)));
    };
    let mut value = value.clone();
    match inject_pod(&pod, agent, config) {
        Injection::Injected(patch) => {
            json_patch::patch(&mut value, &patch).context("the patch does not fit the pod")?;
            Ok(Answer::Pod(value))
        }
        Injection::AlreadyInjected => Ok(Answer::Pod(value)),
        Injection::Refused(refusal) => Ok(Answer::Refused(refusal.to_string())),
    }
}

fn no_agent(loaded: &LoadResult, key: &ObjectRef) -> String {
    let mut others = loaded.inputs.agents().map(|(other, _)| other);
    match others.find(|other| other.name == key.name) {
        Some(other) => format!(
            "there is no Agent {key} in the files, but {other}: write the pod's metadata.namespace, or give --namespace"
        ),
        None => format!(
            "there is no Agent {key} in the files{}: add its file with -f, or correct the pod's label",
            near::other(
                &key.name,
                loaded.inputs.agents().map(|(other, _)| &*other.name)
            )
        ),
    }
}

fn agent<'a>(loaded: &'a LoadResult, key: &ObjectRef) -> Option<&'a Agent> {
    loaded
        .inputs
        .agents()
        .find(|(agent, _)| *agent == key)
        .map(|(_, agent)| agent)
}
