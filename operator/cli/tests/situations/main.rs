//! Faults as users see them, in each place where they look: the columns of `kubectl get`,
//! conditions, Events, `kubectl toolcrib explain`, the program's answer, the record and metrics.
//! The test compares all of them with `docs/reference/situations.md`.
//!
//! The controller and the mediators are real and run in this process. The pods are only objects,
//! because the control plane has no node. `UPDATE_EXPECT=1` writes the page.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

#[allow(dead_code, reason = "the operator's tests use the rest")]
#[path = "../../../tests/apiserver/support/harness.rs"]
mod harness;
mod mediator;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use harness::{DEADLINE, Harness, free_port};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use mediator::{AGENT, Injection, MediatedPod, NameServer};
use page::Observation;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolcrib_crds::{Agent, ToolGrant};
use toolcrib_e2e::platform::repository;
use toolcrib_e2e::{desk, model, serving};

/// The namespace's name on the page.
const NAMESPACE: &str = "trading";
const PAGE: &str = "docs/reference/situations.md";
/// Time between two looks at all places.
const LOOK: Duration = Duration::from_millis(300);
/// Equal looks before `UPDATE_EXPECT` takes a section as final: longer than the stale time.
const EQUAL_LOOKS: u32 = 15;

/// One fault, staged in a namespace of its own.
struct Situation {
    name: &'static str,
    title: &'static str,
    /// The cause and the cure.
    text: &'static str,
    /// Changes the objects of the example before they are applied.
    edit: fn(&mut Objects),
    pod: AgentPod,
}

/// The pod that has the agent's label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentPod {
    /// The real mediator runs. The program asks its model once the situation is staged.
    Mediator,
    /// A pod whose mediator never reports.
    Silent,
    /// A pod that the webhook did not edit.
    NotInjected,
    /// A mediator that reports files which it cannot load.
    Older,
}

struct Objects(Vec<Value>);

impl Objects {
    fn get(&mut self, kind: &str, name: &str) -> &mut Value {
        let found = self.0.iter_mut();
        let mut found = found.filter(|one| one["kind"] == kind && one["metadata"]["name"] == name);
        found.next().unwrap()
    }

    fn remove(&mut self, kind: &str) {
        self.0.retain(|one| one["kind"] != kind);
    }
}

const SITUATIONS: &[Situation] = &[
    Situation {
        name: "not-served",
        title: "The operator may not read Secrets in the namespace",
        text: "The namespace is not among the chart's `secretNamespaces`. Nothing can be compiled there, so the pod waits in `Init`.",
        edit: |_| {},
        pod: AgentPod::Silent,
    },
    Situation {
        name: "no-provider",
        title: "The namespace has no ModelProvider",
        text: "Tools are compiled and in force, but no request for a model can be answered. Create a ModelProvider.",
        edit: |objects| objects.remove("ModelProvider"),
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "provider-secret",
        title: "The ModelProvider's Secret was deleted",
        text: "The agent loses its model with the provider's key. Create the Secret again.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "secret-gone",
        title: "The Surface's Secret was deleted",
        text: "The running pod loses the tool with the credential. Create the Secret again, with label and annotation.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "no-consent",
        title: "The Surface's Secret has neither the label nor the host",
        text: "The Secret's owner has not allowed any use of it. The owner runs the commands that the message shows.",
        edit: |objects| {
            let metadata = objects.get("Secret", "trading-api-reader")["metadata"].as_object_mut();
            let metadata = metadata.unwrap();
            metadata.remove("labels");
            metadata.remove("annotations");
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "tier",
        title: "Everything that is granted is above the agent's tier",
        text: "The only tool that is granted writes, and the agent's `policy.maxTier` is `ReadOnly`. Raise the tier, or grant a tool that reads.",
        edit: |objects| {
            objects.get("Agent", AGENT)["spec"]["policy"] = json!({"maxTier": "ReadOnly"});
            let grant = objects.get("ToolGrant", "analyst-reads");
            grant["spec"]["tools"][0]["allow"] = json!(["execute_trade"]);
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "undeclared",
        title: "A grant names a Surface that the Agent does not declare",
        text: "The grant gives nothing until the Agent names the Surface in `spec.surfaces`.",
        edit: |objects| objects.get("Agent", AGENT)["spec"]["surfaces"] = json!([]),
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "too-expensive",
        title: "A Surface is over a memory budget",
        text: "The Surface holds so many small values that decoding it would take too much memory. It gives nothing; all other objects go on. Make it smaller.",
        edit: |objects| {
            let surface = objects.get("Surface", "trading-api");
            let schema = json!({"type": "object", "enum": vec![json!({}); 300_000]});
            surface["spec"]["descriptor"]["tools"][0]["inputSchema"] = schema;
        },
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "conflict",
        title: "A foreign Secret has the name of the compiled one",
        text: "The operator does not overwrite an object that it did not make. Delete or rename the foreign Secret.",
        edit: |objects| {
            objects.0.insert(0, json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "toolcrib-analyst-mediator"}, "stringData": {"theirs": "x"},
            }));
        },
        pod: AgentPod::Silent,
    },
    Situation {
        name: "no-mediator",
        title: "The pod was created while the webhook was off",
        text: "The pod has the label and no mediator. Its program has no tools, and nothing governs it. Delete the pod; its Deployment or Job makes a new one.",
        edit: |_| {},
        pod: AgentPod::NotInjected,
    },
    Situation {
        name: "kubelet-late",
        title: "The kubelet has not brought the files to a new pod",
        text: "The mediator waits for its files, ends, and is started again until they are there. Look at the pod's events and at the kubelet.",
        edit: |_| {},
        pod: AgentPod::Silent,
    },
    Situation {
        name: "change-late",
        title: "The kubelet has not brought a change",
        text: "A tool was granted, and the pod still has the earlier files. A minute or two is normal; after that, look at the kubelet.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "older",
        title: "The pod's mediator is of an older release",
        text: "The files hold a restriction that the mediator does not know, so it serves nothing. Delete the pod: its replacement gets the mediator of this release.",
        edit: |objects| {
            objects.get("Agent", AGENT)["spec"]["policy"] = json!({"providerTools": "Refuse"});
        },
        pod: AgentPod::Older,
    },
    Situation {
        name: "earlier-agent",
        title: "The Agent was deleted and created again",
        text: "The pod's program holds the earlier Agent's token, which opens nothing. Delete the pod.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "service-down",
        title: "The service does not answer",
        text: "The tool is granted and in force; its service refuses connections. The record and the mediator's log have the address.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "revoked",
        title: "The last grant was deleted while the pod runs",
        text: "The model still asks for the tool. The call is denied and recorded.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
    Situation {
        name: "operator-down",
        title: "The operator is down",
        text: "Pods keep the files that they have. Status stays as it was when the operator ended, and no change is compiled.",
        edit: |_| {},
        pod: AgentPod::Mediator,
    },
];

/// A staged situation.
struct Scene {
    situation: &'static Situation,
    namespace: String,
    mediated: Option<MediatedPod>,
    answer: Option<String>,
    log: Option<String>,
}

/// Ports of the example's Services in this run.
struct Ports {
    desk: u16,
    model: u16,
    /// Nothing listens there.
    closed: u16,
}

impl Ports {
    fn service(&self, situation: &Situation) -> u16 {
        if situation.name == "service-down" {
            self.closed
        } else {
            self.desk
        }
    }
}

/// The trading desk's objects for the analyst, without workloads, in this namespace and at these
/// ports.
fn example(namespace: &str, desk: u16, model: u16) -> Objects {
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

async fn listen(router: axum::Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serving::serve_on(listener, router, std::future::pending()));
    address
}

/// The model calls the tool once, offered or not, and then repeats the result.
const SCRIPT: &str = r#"
steps:
- when: {round: 0}
  reply: {calls: [{tool: {named: trading-api__get_market_context}, arguments: {}}]}
- reply: {text: "The tool answered: {tool_result}"}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_situation_matches_the_page() {
    let keys = tempfile::tempdir().unwrap();
    fs::write(keys.path().join("model"), "sk-scripted-7c1e52f0").unwrap();
    fs::create_dir(keys.path().join("tokens")).unwrap();
    fs::write(keys.path().join("tokens/reader"), "desk-reader-41d9b7a2").unwrap();
    let script = model::Script::parse(SCRIPT).unwrap();
    let model = model::ModelState::new(keys.path().join("model"), script);
    let desk = desk::DeskState::new(keys.path().join("tokens"));
    let ports = Ports {
        desk: listen(desk::router(desk)).await.port(),
        model: listen(model::router(model)).await.port(),
        closed: free_port().port(),
    };
    let names = NameServer::start().await;
    let mut harness = Harness::new().await;
    harness.stale_after = Duration::from_secs(2);
    harness.name_servers = vec![names.address.to_string().parse().unwrap()];

    let mut staged = Vec::new();
    for situation in SITUATIONS {
        let namespace = format!("{}-{}", harness.pond, situation.name);
        harness.make_namespace(&namespace).await;
        if situation.name != "not-served" {
            harness.others.insert(namespace.clone());
        }
        let mut objects = example(&namespace, ports.service(situation), ports.model);
        (situation.edit)(&mut objects);
        for mut object in objects.0 {
            object["metadata"]["namespace"] = json!(namespace);
            harness.apply(object).await;
        }
        staged.push(Scene {
            situation,
            namespace,
            mediated: None,
            answer: None,
            log: None,
        });
    }
    harness.start("heron");
    futures::future::join_all(staged.iter_mut().map(|one| stage(&harness, one))).await;

    let mut sections = BTreeMap::new();
    let (last, others) = staged.split_last().unwrap();
    let golden = fs::read_to_string(repository().join(PAGE)).unwrap_or_default();
    settle(&harness, &ports, others, &mut sections, &golden).await;
    harness.stop().await;
    operator_goes(&harness, last).await;
    settle(
        &harness,
        &ports,
        std::slice::from_ref(last),
        &mut sections,
        &golden,
    )
    .await;

    let page = page(&sections);
    if updates() {
        fs::write(repository().join(PAGE), &page).unwrap();
    } else if page != golden {
        let sections = sections.values();
        let other: String = sections
            .filter(|section| !golden.contains(section.trim_end()))
            .cloned()
            .collect();
        panic!("{PAGE} differs (UPDATE_EXPECT=1 writes it). Its head, or these sections:\n{other}");
    }
    for one in staged {
        harness.others.insert(one.namespace);
    }
    harness.end().await;
}

fn page(sections: &BTreeMap<usize, String>) -> String {
    let mut page = String::from(
        "# Situations\n\n\
         What columns, conditions, Events, `explain`, the program's answer, the record and metrics say in\n\
         situations that go wrong. A test stages each one and compares it with this page. The namespace is\n\
         `trading`; the agent and its pod are called `analyst`. The columns CALLS and DENIED are left out.\n\
         [Troubleshooting](../troubleshooting.md) leads from a symptom to its cause.\n\n",
    );
    for situation in SITUATIONS {
        let anchor: String = situation
            .title
            .to_lowercase()
            .chars()
            .filter(|character| character.is_alphanumeric() || *character == ' ')
            .map(|character| if character == ' ' { '-' } else { character })
            .collect();
        page += &format!("- [{}](#{anchor})\n", situation.title);
    }
    page.push('\n');
    page += &sections.values().cloned().collect::<String>();
    page.trim_end().to_owned() + "\n"
}

/// Starts the agent's pod and stages the situation.
async fn stage(harness: &Harness, staged: &mut Scene) {
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
        AgentPod::Older => older(harness, namespace).await,
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

/// Sends the report of a mediator that does not know a restriction of the files.
async fn older(harness: &Harness, namespace: &str) {
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
    harness
        .eventually("the report is taken", || async {
            let sent = http.post(&url).bearer_auth(&token).body(body.to_string());
            (sent.send().await.unwrap().status() == 200).then_some(())
        })
        .await;
}

/// Waits for the link's end, and creates the installation's Deployment without pods.
async fn operator_goes(harness: &Harness, staged: &Scene) {
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

fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// Looks until the sections equal those of the page, or, with `UPDATE_EXPECT`, stop changing.
async fn settle(
    harness: &Harness,
    ports: &Ports,
    staged: &[Scene],
    sections: &mut BTreeMap<usize, String>,
    golden: &str,
) {
    let begun = tokio::time::Instant::now();
    let mut looks_at = tokio::time::interval(LOOK);
    let mut same = 0;
    loop {
        looks_at.tick().await;
        let looks = staged.iter().map(|one| section(harness, ports, one));
        let came: Vec<String> = futures::future::join_all(looks).await;
        let mut all = true;
        for (one, text) in staged.iter().zip(came) {
            let number = SITUATIONS
                .iter()
                .position(|other| other.name == one.situation.name);
            all &= if updates() {
                sections.get(&number.unwrap()) == Some(&text)
            } else {
                golden.contains(text.trim_end())
            };
            sections.insert(number.unwrap(), text);
        }
        same = if all { same + 1 } else { 0 };
        let enough = if updates() { EQUAL_LOOKS } else { 1 };
        if same >= enough {
            return;
        }
        if begun.elapsed() > DEADLINE {
            // Without it, the caller shows how the page differs.
            assert!(!updates(), "the sections still change");
            return;
        }
    }
}

async fn section(harness: &Harness, ports: &Ports, one: &Scene) -> String {
    let seen = Observation {
        title: one.situation.title,
        text: one.situation.text,
        namespace: &one.namespace,
        mediated: one.mediated.as_ref(),
        answer: one.answer.as_deref(),
        log: one.log.as_deref(),
    };
    let explained = explain(&one.namespace, &harness.system).await;
    let text = page::section(harness, &seen, &explained).await;
    let replaced = [
        (one.namespace.clone(), NAMESPACE),
        (harness.system.clone(), "toolcrib-system"),
        (ports.service(one.situation).to_string(), "4000"),
        (ports.model.to_string(), "8080"),
    ];
    page::normalized(&text, &replaced)
}

async fn explain(namespace: &str, system: &str) -> String {
    let namespace = namespace.to_owned();
    let system = system.to_owned();
    let run = move || {
        Command::new(env!("CARGO_BIN_EXE_kubectl-toolcrib"))
            .args(["explain", AGENT, "--namespace", &namespace])
            .args([
                "--operator-namespace",
                &system,
                "--cluster-domain=cluster.local",
            ])
            .env(
                "KUBECONFIG",
                std::env::var("TOOLCRIB_TEST_KUBECONFIG").unwrap(),
            )
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    text(output.stderr) + &text(output.stdout)
}
