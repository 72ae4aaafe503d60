//! Our webhook among other mutating webhooks, and in namespaces that enforce Pod Security.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use toolcrib_compile::names;

use crate::pods::{self, Kind, NamespaceKind};
use crate::webhooks::{Mutator, ORDERS, THEIRS, WHEN, Webhooks, all_mutators};

/// The image that the mirror of `registry-mirror.yaml` substitutes for the mediator's.
const MIRROR: &str = "guard.allowedImages={mirror.test/proxy/toolcrib/sidecar:}";

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_before_and_after_ours_give_a_pod_that_runs() -> Result<()> {
    let webhooks = Webhooks::start("neighbours", &[MIRROR]).await?;
    for order in ORDERS {
        let probe = bare(&[(THEIRS, "aws-irsa"), (WHEN, order)])?;
        let sign = |pod: &Pod| {
            let text = json!(pod.spec).to_string();
            text.contains(names::MEDIATOR_CONTAINER) && text.contains("AWS_ROLE_ARN")
        };
        webhooks.asked(&probe, sign).await?;
    }
    for mutator in all_mutators() {
        for order in ORDERS {
            let who = format!("{} {order}", mutator.name);
            let pod = bare(&[(THEIRS, &mutator.name), (WHEN, order)])?;
            let first = webhooks.admit(NamespaceKind::Meshed, &pod).await?;
            let first = first.map_err(anyhow::Error::msg).context(who.clone())?;
            check(&mutator, &first).context(who.clone())?;

            // Calls our webhook alone on the admitted pod, as the API server does on reinvocation:
            // its patch is empty.
            let mut copy = json!({
                "metadata": {
                    "name": "copy",
                    "labels": first.metadata.labels,
                    "annotations": first.metadata.annotations,
                },
                "spec": first.spec,
            });
            copy["metadata"]["labels"][THEIRS] = json!("nobody");
            let second = webhooks.admit(NamespaceKind::Meshed, &copy).await?;
            let second = second.map_err(anyhow::Error::msg).context(who.clone())?;
            let [first, second] = [&first.spec, &second.spec].map(|spec| json!(spec));
            let change = json_patch::diff(&first, &second);
            ensure!(change.is_empty(), "{who}: asked again it changes: {change}");
        }
    }
    webhooks.close().await
}

fn check(mutator: &Mutator, pod: &Pod) -> Result<()> {
    let spec = pod.spec.as_ref().context("a spec")?;
    let named = |containers: &[k8s_openapi::api::core::v1::Container]| -> Vec<String> {
        containers
            .iter()
            .map(|container| container.name.clone())
            .collect()
    };
    let init = named(spec.init_containers.as_deref().unwrap_or_default());
    let app = named(&spec.containers);
    let added = |added: &[Value]| -> Vec<String> {
        added
            .iter()
            .filter_map(|container| container["name"].as_str().map(str::to_owned))
            .collect()
    };
    for (found, theirs) in [
        (&init, &mutator.init_containers),
        (&app, &mutator.containers),
    ] {
        for name in added(&theirs.first).iter().chain(&added(&theirs.last)) {
            ensure!(found.contains(name), "{name} is not in {found:?}");
        }
    }
    let at = |name: &str| init.iter().position(|found| found == name);
    let mediator = at(names::MEDIATOR_CONTAINER).context("the mediator")?;
    let mesh = names::MESH_INIT_CONTAINERS.into_iter().filter_map(at).max();
    let wanted = mesh.map_or(mediator, |last| last + 1);
    ensure!(mediator == wanted, "not behind the mesh: {init:?}");
    Ok(())
}

/// Tests users that Pod Security `restricted` allows, set on the pod or on the container.
#[tokio::test(flavor = "multi_thread")]
async fn restricted_namespaces_admit_injected_pods_of_any_user() -> Result<()> {
    let webhooks = Webhooks::start("restricted", &[]).await?;
    let users = [
        json!({}),
        json!({"runAsUser": 1000}),
        json!({"runAsUser": 65532, "runAsGroup": 65532}),
        // A user of OpenShift's range, and the largest possible one.
        json!({"runAsUser": 1_000_650_000, "fsGroup": 1_000_650_000}),
        json!({"runAsUser": 2_147_483_647, "supplementalGroups": [7]}),
    ];
    let runner = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let mut probe = strict(&users[0], &runner)?;
    probe["metadata"]["labels"] = json!({names::AGENT_LABEL: "otter"});
    webhooks
        .asked(&probe, |pod| {
            json!(pod.spec)
                .to_string()
                .contains(names::MEDIATOR_CONTAINER)
        })
        .await?;
    for user in &users {
        for in_container in [false, true] {
            let (of_pod, of_runner) = if in_container {
                (
                    json!({}),
                    merged(&runner, &json!({"runAsUser": user["runAsUser"]})),
                )
            } else {
                (user.clone(), runner.clone())
            };
            let pod = strict(&of_pod, &of_runner)?;
            let admitted = webhooks.admit(NamespaceKind::Restricted, &pod).await?;
            let admitted = admitted
                .map_err(anyhow::Error::msg)
                .context(user.to_string())?;
            let spec = admitted.spec.context("a spec")?;
            let init = spec.init_containers.unwrap_or_default();
            let context = init[0].security_context.as_ref().context("a context")?;
            ensure!(init[0].name == names::MEDIATOR_CONTAINER);
            ensure!(
                context.run_as_user.is_none(),
                "the pod's user or the image's is ours"
            );
        }
    }
    // Pods whose containers other webhooks edit are admitted, too.
    for name in ["openshift", "aws-irsa", "azure-workload-identity", "vault"] {
        for order in ORDERS {
            let mut pod = strict(&json!({}), &runner)?;
            pod["metadata"]["labels"][THEIRS] = json!(name);
            pod["metadata"]["labels"][WHEN] = json!(order);
            let admitted = webhooks.admit(NamespaceKind::Restricted, &pod).await?;
            admitted
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("{name} {order}"))?;
        }
    }
    // Pod Security is enforced: it refuses a runner with more rights, and names only the runner.
    let refused = webhooks
        .admit(NamespaceKind::Restricted, &strict(&json!({}), &json!({}))?)
        .await?;
    let said = refused.err().context("it is enforced")?;
    ensure!(
        said.contains("restricted") && said.contains("runner"),
        "{said}"
    );
    ensure!(!said.contains(names::MEDIATOR_CONTAINER), "{said}");
    webhooks.close().await
}

fn bare(labels: &[(&str, &str)]) -> Result<Value> {
    let mut pod = serde_json::to_value(pods::base(Kind::Bare)?)?;
    for (key, value) in labels {
        pod["metadata"]["labels"][key] = json!(value);
    }
    Ok(pod)
}

fn strict(of_pod: &Value, of_runner: &Value) -> Result<Value> {
    let mut pod = bare(&[])?;
    let needed = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    pod["spec"]["securityContext"] = merged(&needed, of_pod);
    pod["spec"]["containers"][0]["securityContext"] = of_runner.clone();
    Ok(pod)
}

fn merged(one: &Value, other: &Value) -> Value {
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut all = fields(one);
    all.extend(
        fields(other)
            .into_iter()
            .filter(|(_, value)| !value.is_null()),
    );
    json!(all)
}
