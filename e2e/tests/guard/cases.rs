//! Runs the cases of every folder.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pods::{self, Kind, NamespaceKind};
use crate::policies::Guard;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    on: Operation,
    #[serde(default)]
    pod: Kind,
    #[serde(default)]
    namespace: NamespaceKind,
    edit: json_patch::Patch,
    /// Part of the refusal; `None` if the pod is admitted.
    says: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    /// Creates the edited pod.
    #[default]
    Create,
    /// Edits the existing pod.
    Update,
    /// Edits the existing pod through the subresource for ephemeral containers.
    Debug,
    /// Edits the existing pod through its status subresource, which also carries the metadata.
    Status,
    /// Edits the binding of the existing pod to a node.
    Binding,
}

/// Sends the case in a dry run; returns the API server's refusal.
async fn ask(guard: &Guard, case: &Case) -> Result<Option<String>> {
    let pods = guard.pods(&guard.namespace(case.namespace));
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let name = case.pod.name();
    let patch = Patch::Json::<()>(case.edit.clone());
    let answer = match case.on {
        Operation::Create => {
            let mut pod = serde_json::to_value(pods::base(case.pod)?)?;
            json_patch::patch(&mut pod, &case.edit).context("the edit")?;
            // Sends the pod untyped, since our types lack some newer fields.
            let pod: DynamicObject = serde_json::from_value(pod)?;
            let namespace = guard.namespace(case.namespace);
            let pods = ApiResource::erase::<Pod>(&());
            let pods: Api<DynamicObject> =
                Api::namespaced_with(guard.client.clone(), &namespace, &pods);
            let dry = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            pods.create(&dry, &pod).await.map(drop)
        }
        Operation::Update => pods.patch(name, &dry, &patch).await.map(drop),
        Operation::Debug => pods
            .patch_subresource("ephemeralcontainers", name, &dry, &patch)
            .await
            .map(drop),
        Operation::Status => pods.patch_status(name, &dry, &patch).await.map(drop),
        Operation::Binding => {
            let mut binding = json!({
                "metadata": {"name": name},
                "target": {"kind": "Node", "name": "nowhere"},
            });
            json_patch::patch(&mut binding, &case.edit).context("the edit")?;
            let dry = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            pods.create_subresource::<_, Value>("binding", name, &dry, &binding)
                .await
                .map(drop)
        }
    };
    match answer {
        Ok(()) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

/// Runs every case of a folder; reports all failures at once. The cases share policies, since the API
/// server takes seconds to compile them and a dry run takes milliseconds.
async fn run(guard: &Guard, folder: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/guard")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&path)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut failures = Vec::new();
    let mut count = 0;
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        for document in serde_yaml::Deserializer::from_str(&text) {
            let case = Case::deserialize(document).with_context(|| file.display().to_string())?;
            count += 1;
            let said = ask(guard, &case).await.with_context(|| case.name.clone())?;
            let as_wanted = match (&case.says, &said) {
                (None, None) => true,
                (Some(words), Some(said)) => {
                    said.contains("ValidatingAdmissionPolicy")
                        && said.contains("toolcrib: ")
                        && said.contains(words)
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            if !as_wanted {
                failures.push(format!(
                    "{}: {}\n    wanted: {:?}\n    got:    {said:?}",
                    file.display(),
                    case.name,
                    case.says
                ));
            }
        }
    }
    ensure!(count > 0, "no case in {}", path.display());
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_edits_of_a_pod_are_refused() -> Result<()> {
    let guard = Guard::open("refused", &[]).await?;
    run(&guard, "refused").await?;
    guard.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn harmless_edits_of_a_pod_pass() -> Result<()> {
    let settings = [
        "guard.allowedMounts={/opt/ca/}",
        "guard.allowedHostPaths={/var/log/}",
        "guard.allowedCapabilities={SYS_NICE}",
        "guard.allowedImages={mirror.test/sidecar:7}",
    ];
    let guard = Guard::open("passes", &settings).await?;
    run(&guard, "passes").await?;
    ensure!(
        guard.type_warnings().await?.is_empty(),
        "{:?}",
        guard.type_warnings().await?
    );
    guard.close().await
}

/// The guard takes the arguments and the image from the chart's values, like the webhook.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_installations_arguments_and_image_pass() -> Result<()> {
    let digest = format!("mediator.image.digest=sha256:{}", "7c".repeat(32));
    let settings = [
        "mediator.historyBytes=2097153",
        "mediator.otlpEndpoint=http://collector.observability.svc:4318",
        "mediator.export.records=true",
        "mediator.export.arguments=true",
        "mediator.export.whenBehind=Refuse",
        "mediator.metricsPort=9464",
        "mediator.recordBodies=true",
        &digest,
        "guard.allowUnconfined=true",
    ];
    let guard = Guard::open("decisions", &settings).await?;
    run(&guard, "decisions").await?;
    guard.close().await
}

/// CEL expressions have a cost budget, and a policy that exceeds it denies the request. The largest
/// pods that etcd stores (1.5 MiB), with every walked list filled, are within the budget.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_pods_are_within_the_expressions_budget() -> Result<()> {
    let guard = Guard::open("large", &[]).await?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for kind in [Kind::Plain, Kind::Injected] {
        let mut pod = serde_json::to_value(pods::base(kind)?)?;
        let variables: Vec<Value> = (0..500)
            .map(|number| json!({"name": format!("V{number}"), "value": "x".repeat(48)}))
            .collect();
        let mounts: Vec<Value> = (0..50)
            .map(|number| json!({"name": format!("volume-{number}"), "mountPath": format!("/{number}")}))
            .collect();
        let containers: Vec<Value> = (0..40)
            .map(|number| {
                json!({
                    "name": format!("runner-{number}"),
                    "image": "example.test/runner:1",
                    "env": variables,
                    "volumeMounts": mounts,
                    "securityContext": {"capabilities": {"drop": ["ALL"]}},
                })
            })
            .collect();
        pod["spec"]["containers"] = json!(containers);
        let volumes = pod["spec"]["volumes"].as_array().cloned();
        let more = (0..200).map(|number| {
            let sources: Vec<Value> = (0..10)
                .map(|source| json!({"secret": {"name": format!("secret-{number}-{source}")}}))
                .collect();
            json!({"name": format!("volume-{number}"), "projected": {"sources": sources}})
        });
        let all: Vec<Value> = volumes.into_iter().flatten().chain(more).collect();
        pod["spec"]["volumes"] = json!(all);
        ensure!(
            pod.to_string().len() > 1_500_000,
            "{}",
            pod.to_string().len()
        );
        let pods = guard.pods(&guard.namespace(NamespaceKind::Pond));
        let pod: Pod = serde_json::from_value(pod)?;
        pods.create(&dry, &pod)
            .await
            .with_context(|| format!("{kind:?}"))?;
    }
    guard.close().await
}
