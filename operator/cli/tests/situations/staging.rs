//! Stages a situation: the objects of the example, the agent's pod, and the change under it.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use toolcrib_crds::{Agent, ToolGrant};
use toolcrib_e2e::platform::repository;

use super::harness::Harness;
use super::mediator::{self, AGENT, Injection, MediatedPod};
use super::table::{AgentPod, Objects, Situation};

/// The interval of reports, as a mediator's.
const REPORTS: Duration = Duration::from_secs(15);

/// A staged situation.
pub struct Scene {
    pub situation: &'static Situation,
    pub namespace: String,
    pub mediated: Option<MediatedPod>,
    pub answer: Option<String>,
    pub log: Option<String>,
    /// Stands in for a mediator that only reports.
    pub reporting: JoinSet<()>,
}

/// Ports of the example's Services in this run.
pub struct Ports {
    pub desk: u16,
    pub model: u16,
    /// Nothing listens there.
    pub closed: u16,
}

impl Ports {
    pub fn service(&self, situation: &Situation) -> u16 {
        if situation.name == "service-down" {
            self.closed
        } else {
            self.desk
        }
    }

    pub fn model(&self, situation: &Situation) -> u16 {
        if situation.name == "provider-down" {
            self.closed
        } else {
            self.model
        }
    }
}

/// The trading desk's objects for the analyst, without workloads, in this namespace and at these
/// ports.
pub fn example(namespace: &str, desk: u16, model: u16) -> Objects {
    let folder = repository().join("crds/examples/trading-desk");
    let files = [
        "10-model",
        "20-service",
        "30-surface",
        "40-agents",
        "50-grants",
    ];
    let texts = files.map(|file| fs::read_to_string(folder.join(format!("{file}.yaml"))).unwrap());
    let text = texts
        .join("---\n")
        .replace(".trading.svc", &format!(".{namespace}.svc"))
        .replace("4000", &desk.to_string())
        .replace("8080", &model.to_string());
    let documents = toolcrib_compile::yaml::documents(&text).into_iter();
    let mut objects: Vec<Value> = documents.map(|it| it.value.unwrap()).collect();
    objects.retain(|one| {
        let name = one["metadata"]["name"].as_str().unwrap();
        one["kind"] != "Deployment" && !name.contains("executor")
    });
    let mut objects = Objects(objects);
    // Names the executor's Secret, which is left out.
    let auth = objects.get("Surface", "trading-api")["spec"]["auth"].as_object_mut();
    auth.unwrap().remove("perAgent");
    objects
}

/// Starts the agent's pod and stages the situation.
pub async fn stage(harness: &Harness, staged: &mut Scene) {
    let Scene {
        situation,
        namespace,
        ..
    } = staged;
    match situation.pod {
        AgentPod::Silent => {
            mediator::pod(harness, namespace, Injection::Yes, "Pending").await;
            if situation.name != "conflict" {
                staged.log = Some(mediator::without_files().await);
            }
        }
        AgentPod::NotInjected => {
            mediator::pod(harness, namespace, Injection::No, "Running").await;
        }
        AgentPod::Older => older(harness, namespace, &mut staged.reporting).await,
        AgentPod::Mediator => {
            let mut mediated = MediatedPod::start(harness, namespace).await;
            change(harness, situation.name, namespace, &mut mediated).await;
            if situation.name != "operator-down" {
                staged.answer = Some(mediated.ask().await);
            }
            staged.mediated = Some(mediated);
        }
    }
}

/// Changes the cluster while the pod runs.
async fn change(harness: &Harness, name: &str, namespace: &str, mediated: &mut MediatedPod) {
    let secrets: Api<Secret> = harness.api(namespace);
    let grants: Api<ToolGrant> = harness.api(namespace);
    let delete = DeleteParams::default();
    match name {
        "provider-secret" => {
            linked(harness, mediated).await;
            secrets.delete("scripted-model-key", &delete).await.unwrap();
            until(harness, "no provider", || {
                let now = mediated.server.app.current.now();
                now.version()
                    .is_ok_and(|version| version.providers.is_empty())
            })
            .await;
        }
        "secret-gone" => {
            linked(harness, mediated).await;
            secrets.delete("trading-api-reader", &delete).await.unwrap();
            without_tools(harness, mediated).await;
        }
        "revoked" => {
            linked(harness, mediated).await;
            // A granted call, so that the metrics show both.
            mediated.ask().await;
            grants.delete("analyst-reads", &delete).await.unwrap();
            without_tools(harness, mediated).await;
        }
        "change-late" => {
            linked(harness, mediated).await;
            mediated.kubelet_stops();
            let mut grant =
                serde_json::to_value(grants.get("analyst-reads").await.unwrap()).unwrap();
            grant["spec"]["tools"][0]["allow"] = json!(["*"]);
            grant["apiVersion"] = json!("toolcrib.dev/v1alpha1");
            grant["kind"] = json!("ToolGrant");
            grant["metadata"] = json!({"name": "analyst-reads", "namespace": namespace});
            harness.apply(grant).await;
        }
        "service-down" | "provider-down" => {
            linked(harness, mediated).await;
            // With the one that the page shows, three calls or requests in a row fail.
            for _ in 0..2 {
                mediated.ask().await;
            }
        }
        "link-lost" => {
            linked(harness, mediated).await;
            becomes(harness, namespace, ("agents", AGENT), ("Ready", "True")).await;
            mediated.link_ends();
            becomes(harness, namespace, ("agents", AGENT), ("Ready", "False")).await;
        }
        "earlier-agent" => recreate(harness, namespace, mediated).await,
        "operator-down" => {
            linked(harness, mediated).await;
            becomes(harness, namespace, ("agents", AGENT), ("Ready", "True")).await;
        }
        _ => linked(harness, mediated).await,
    }
}

async fn recreate(harness: &Harness, namespace: &str, mediated: &MediatedPod) {
    linked(harness, mediated).await;
    let agents: Api<Agent> = harness.api(namespace);
    let agent = agents.get(AGENT).await.unwrap();
    let born = agent.metadata.creation_timestamp.unwrap().0;
    agents
        .delete(AGENT, &DeleteParams::default())
        .await
        .unwrap();
    harness
        .eventually("the Secrets of the Agent are gone", || async {
            let secrets: Api<Secret> = harness.api(namespace);
            let identity = secrets.get_metadata_opt("toolcrib-analyst-identity");
            let gone =
                mediator::files(&secrets).await.is_empty() && identity.await.unwrap().is_none();
            // Creation times are whole seconds.
            let later = k8s_openapi::jiff::Timestamp::now().as_second() > born.as_second() + 1;
            (gone && later).then_some(())
        })
        .await;
    // The Event about the grant occurs in each run.
    let grant = ("toolgrants", "analyst-reads");
    becomes(harness, namespace, grant, ("Resolved", "False")).await;
    until(harness, "access is withdrawn", || {
        mediated.server.app.current.now().version().is_err()
    })
    .await;
    let agent = json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": AGENT, "namespace": namespace}, "spec": agent.spec,
    });
    harness.apply(agent).await;
    until(harness, "the new Agent's files", || {
        let now = mediated.server.app.current.now();
        now.version()
            .is_ok_and(|version| !version.catalog.tools().is_empty())
    })
    .await;
}

/// Waits until the operator has confirmed the loaded files over the link.
async fn linked(harness: &Harness, mediated: &MediatedPod) {
    until(harness, "the link", || {
        mediated.server.app.current.now().seen > 0
    })
    .await;
}

async fn without_tools(harness: &Harness, mediated: &MediatedPod) {
    until(harness, "no tools", || {
        let now = mediated.server.app.current.now();
        now.version()
            .is_ok_and(|version| version.catalog.tools().is_empty())
    })
    .await;
}

/// Waits until a condition of an object has this status.
async fn becomes(
    harness: &Harness,
    namespace: &str,
    (plural, name): (&str, &str),
    (type_, status): (&str, &str),
) {
    let url = format!("/apis/toolcrib.dev/v1alpha1/namespaces/{namespace}/{plural}/{name}");
    let look = || async {
        let request = http::Request::get(&url).body(Vec::new()).unwrap();
        let object: Value = harness.client.request(request).await.unwrap();
        let conditions = object["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|one| one["type"] == type_)?;
        (found["status"] == status).then_some(())
    };
    let what = format!("{name} {type_} {status}");
    harness.eventually(&what, look).await;
}

async fn until(harness: &Harness, what: &str, so: impl Fn() -> bool) {
    harness
        .eventually(what, || async { so().then_some(()) })
        .await;
}

/// Sends the reports of a mediator that does not know a restriction of the files.
async fn older(harness: &Harness, namespace: &str, reporting: &mut JoinSet<()>) {
    let pod = mediator::pod(harness, namespace, Injection::Yes, "Running").await;
    let files = harness
        .eventually("the compiled files", || async {
            Some(mediator::files(&harness.api(namespace)).await).filter(|files| !files.is_empty())
        })
        .await;
    let agent: Value = serde_json::from_slice(&files["agent.json"]).unwrap();
    let required = agent["requires"][0].as_str().unwrap();
    let link = &agent["link"];
    let http = harness.https("link", harness.link, &link["ca"]);
    let url = format!("{}/v1/link", link["url"].as_str().unwrap());
    let token = mediator::link_token(harness, &pod).await;
    let body = json!({
        "epoch": "e", "version": "0.0.9", "understands": [], "usage": {},
        "error": format!("agent.json: requires {required}, which this release does not enforce"),
    });
    let report = http.post(&url).bearer_auth(&token).body(body.to_string());
    let send = move || {
        let report = report.try_clone().unwrap();
        async move { report.send().await.is_ok_and(|it| it.status() == 200) }
    };
    harness
        .eventually("the report is taken", || async {
            send().await.then_some(())
        })
        .await;
    reporting.spawn(async move {
        let mut times = tokio::time::interval(REPORTS);
        // Ends with the operator.
        while send().await {
            times.tick().await;
        }
    });
}

/// Waits for the link's end, and creates the installation's Deployment without pods.
pub async fn operator_goes(harness: &Harness, staged: &Scene) {
    let mediated = staged.mediated.as_ref().unwrap();
    let metrics = || async {
        let failing = r#"toolcrib_mediator_link{state="failing"} 1"#;
        mediated.metrics().await.contains(failing).then_some(())
    };
    harness.eventually("the link is lost", metrics).await;
    let labels =
        json!({"app.kubernetes.io/name": "toolcrib", "app.kubernetes.io/component": "controller"});
    let deployment = json!({
        "metadata": {"name": "toolcrib-controller", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "controller", "image": "none"}]},
            },
        },
    });
    let deployments: Api<Deployment> = harness.api(&harness.system);
    let deployment = serde_json::from_value(deployment).unwrap();
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
}
