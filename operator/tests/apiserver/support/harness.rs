//! A controller in this process against a real API server, in namespaces of its own.
//!
//! Tests run one at a time: a controller watches Agents of all namespaces, so two would report on
//! the same objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams,
    PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource, ResourceExt};
use serde::de::{Deserialize as _, DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use toolcrib_compile::NetworkSettings;
use toolcrib_crds::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant, definitions,
};
use toolcrib_e2e::cluster::{Home, Progress, kube_binary};
use toolcrib_e2e::platform::repository;
use toolcrib_manifest::NameServer;
use toolcrib_operator::controller::{self, ClawApi, ClawScope, SecretScope, Settings};
use toolcrib_operator::leadership::lease::Timing;

pub const DEADLINE: Duration = Duration::from_secs(45);
const KUBECONFIG: &str = "TOOLCRIB_TEST_KUBECONFIG";

static TURN: Mutex<()> = Mutex::const_new(());
static NUMBER: AtomicU32 = AtomicU32::new(0);

pub struct Harness {
    pub client: Client,
    /// Namespace of the agents.
    pub pond: String,
    /// Namespace of the operator.
    pub system: String,
    pub health: SocketAddr,
    pub link: SocketAddr,
    pub claw: SocketAddr,
    /// `None`: claw-api is not served.
    pub claw_scope: Option<ClawScope>,
    pub resync: Duration,
    pub workers: u16,
    /// The controller's memory budget for objects, in bytes.
    pub objects_budget: usize,
    /// Namespaces besides the pond whose Secrets the operator may read.
    pub others: BTreeSet<String>,
    /// How long a pod may lack the compiled files before it counts as stale.
    pub stale_after: Duration,
    /// Name servers in the compiled files; empty: the machine that runs the mediator resolves
    /// names.
    pub name_servers: Vec<NameServer>,
    /// Whether running pods get refresh hints.
    pub refresh_hints: bool,
    /// How long a ToolApproval is kept after its end.
    pub approvals_kept: SignedDuration,
    /// The controller's client, if it is not the harness's.
    pub account: Option<Client>,
    running: Option<Controller>,
    _turn: MutexGuard<'static, ()>,
}

/// A controller that runs in this process.
pub struct Controller {
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
    pub health: SocketAddr,
    pub link: SocketAddr,
}

impl Controller {
    /// Ends the controller abruptly, without releasing its lease.
    pub async fn kill(self) {
        self.task.abort();
        match self.task.await {
            Err(error) if error.is_cancelled() => {}
            ended => panic!("the controller had already ended: {ended:?}"),
        }
    }

    /// The sum of all series of a metric.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(self.health, name).await
    }
}

impl Harness {
    /// Creates the namespaces, definitions, and the empty Lease and Secret; starts no controller.
    pub async fn new() -> Self {
        let turn = TURN.lock().await;
        // Both settings: a single test may run alone, or RUST_LOG be set for all.
        let subscriber = tracing_subscriber::fmt().with_test_writer().finish();
        if tracing::subscriber::set_global_default(subscriber).is_err() {
            tracing::debug!("logging was set up by an earlier test");
        }
        if rustls::crypto::ring::default_provider()
            .install_default()
            .is_err()
        {
            tracing::debug!("the provider was installed by an earlier test");
        }
        let client = client().await;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |part: &str| format!("{part}-{}-{number}", std::process::id());
        let harness = Self {
            client,
            pond: name("pond"),
            system: name("toolcrib"),
            health: free_port(),
            link: free_port(),
            claw: free_port(),
            claw_scope: None,
            resync: Duration::from_secs(3600),
            workers: 4,
            objects_budget: usize::MAX,
            others: BTreeSet::new(),
            stale_after: Duration::from_secs(120),
            name_servers: Vec::new(),
            refresh_hints: false,
            approvals_kept: SignedDuration::from_hours(1),
            account: None,
            running: None,
            _turn: turn,
        };
        harness.define().await;
        for namespace in [&harness.pond, &harness.system] {
            harness.make_namespace(namespace).await;
        }
        let metadata = |name: &str| ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        };
        let lease = Lease {
            metadata: metadata("controller"),
            ..Lease::default()
        };
        harness
            .api::<Lease>(&harness.system)
            .create(&PostParams::default(), &lease)
            .await
            .expect("lease");
        let secret = Secret {
            metadata: metadata("certificates"),
            ..Secret::default()
        };
        harness
            .api::<Secret>(&harness.system)
            .create(&PostParams::default(), &secret)
            .await
            .expect("secret");
        // No pod is ever created for it: only its caBundle is used.
        let webhook = serde_json::from_value(json!({
            "metadata": {"name": harness.system},
            "webhooks": [{
                "name": "inject.toolcrib.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 3,
                "objectSelector": {"matchLabels": {"toolcrib.dev/test": harness.system}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
                "clientConfig": {"service": {"name": "webhook", "namespace": harness.system, "path": "/mutate"}},
            }],
        }))
        .expect("webhook configuration");
        harness
            .webhooks()
            .create(&PostParams::default(), &webhook)
            .await
            .expect("webhook");
        harness
    }

    pub async fn make_namespace(&self, name: &str) {
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Api::<Namespace>::all(self.client.clone())
            .create(&PostParams::default(), &object)
            .await
            .expect("namespace");
    }

    /// Adds a namespace beside the pond; controllers that start later may read its Secrets.
    pub async fn other_namespace(&mut self) -> String {
        let name = self.pond.replacen("pond", "lake", 1);
        self.make_namespace(&name).await;
        self.others.insert(name.clone());
        name
    }

    /// The webhook configurations: cluster-scoped, and named like the operator's namespace.
    pub fn webhooks(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    /// Creates the harness with a running controller.
    pub async fn running() -> Self {
        let mut harness = Self::new().await;
        harness.start("heron");
        harness
    }

    pub fn start(&mut self, pod: &str) {
        let client = self.account.as_ref().unwrap_or(&self.client);
        let controller = self.launch(client.clone(), pod, Timing::default(), self.health);
        self.running = Some(controller);
    }

    /// Starts a controller of this installation with a client and an election of its own.
    pub fn launch(
        &self,
        client: Client,
        pod: &str,
        lease_timing: Timing,
        health: SocketAddr,
    ) -> Controller {
        let (stop, stopped) = oneshot::channel::<()>();
        let link = if health == self.health {
            self.link
        } else {
            free_port()
        };
        let mut namespaces = self.others.clone();
        namespaces.insert(self.pond.clone());
        let settings = Settings {
            namespace: self.system.clone(),
            pod_name: pod.to_owned(),
            lease: "controller".into(),
            lease_timing,
            webhook_config_name: Some(self.system.clone()),
            webhook_pods: "app=webhook".into(),
            webhook_service: "webhook".into(),
            link_service: "link".into(),
            link_service_port: self.link.port(),
            certificate_secret: "certificates".into(),
            secrets: SecretScope::Namespaces(namespaces),
            listen: health,
            link_listen: link,
            claw_api: self.claw_scope.map(|scope| ClawApi {
                listen: self.claw,
                service: "claw".into(),
                surface: "claw-api".into(),
                scope,
            }),
            refused_hosts: Default::default(),
            dns_egress: NetworkSettings::default().dns,
            name_servers: self.name_servers.clone(),
            cluster_domain: Default::default(),
            cluster_ranges: NetworkSettings::default().cluster_ranges,
            collector: None,
            workers: self.workers,
            objects_budget: self.objects_budget,
            usage_interval: Duration::from_secs(300),
            stale_after: self.stale_after,
            resync: self.resync,
            refresh_hints: self.refresh_hints,
            approvals_kept: self.approvals_kept,
        };
        let run = async move {
            let shutdown = async {
                // A dropped sender means that the test is over, too.
                stopped.await.unwrap_or(());
            };
            let result = controller::run(client, settings, shutdown).await;
            if let Err(error) = &result {
                eprintln!("the controller failed: {error:#}");
            }
            result
        };
        Controller {
            stop,
            task: tokio::spawn(run),
            health,
            link,
        }
    }

    /// Empties the lease, so the next candidate need not wait until it expires.
    pub async fn vacate(&self) {
        self.api::<Lease>(&self.system)
            .patch(
                "controller",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": null})),
            )
            .await
            .expect("lease");
    }

    /// Stops the controller gracefully: it releases the lease.
    pub async fn stop(&mut self) {
        if let Some(Controller { stop, task, .. }) = self.running.take() {
            stop.send(()).expect("the controller still runs");
            task.await.expect("no panic").expect("no error");
        }
    }

    /// Stops everything and removes the namespaces. Not run when the test fails: the objects that
    /// are left help to debug it.
    pub async fn end(mut self) {
        self.stop().await;
        self.webhooks()
            .delete(&self.system, &DeleteParams::default())
            .await
            .expect("webhook deleted");
        let made: Vec<&String> = [&self.pond, &self.system]
            .into_iter()
            .chain(&self.others)
            .collect();
        for namespace in &made {
            Api::<Namespace>::all(self.client.clone())
                .delete(namespace, &DeleteParams::background())
                .await
                .expect("namespace deleted");
        }
        // Gone before the next test's controller lists them.
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in made {
            self.eventually("the namespace is gone", || async {
                namespaces
                    .get_opt(name)
                    .await
                    .expect("API server")
                    .is_none()
                    .then_some(())
            })
            .await;
        }
    }

    pub async fn define(&self) {
        let api = Api::all(self.client.clone());
        let params = PatchParams::apply("toolcrib-test").force();
        for definition in definitions() {
            let name = definition.name_any();
            api.patch(&name, &params, &Patch::Apply(&definition))
                .await
                .expect("definition");
            self.eventually(&format!("{name} is served"), || async {
                let found: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
                    api.get(&name).await.ok()?;
                found
                    .status?
                    .conditions?
                    .iter()
                    .any(|condition| condition.type_ == "Established" && condition.status == "True")
                    .then_some(())
            })
            .await;
        }
    }

    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Applies the trading-desk example in the pond, without its workloads, and with grants that have no
    /// conditions.
    pub async fn apply_example(&self) {
        for file in [
            "crds/examples/trading-desk/10-model.yaml",
            "crds/examples/trading-desk/20-service.yaml",
            "crds/examples/trading-desk/30-surface.yaml",
            "crds/examples/trading-desk/40-agents.yaml",
            "operator/tests/apiserver/support/grants.yaml",
        ] {
            let path = repository().join(file);
            let text = std::fs::read_to_string(&path).expect("example file");
            // Replaced in names of objects and in hosts.
            let text = text
                .replace(
                    "namespace: trading\n",
                    &format!("namespace: {}\n", self.pond),
                )
                .replace(".trading.svc", &format!(".{}.svc", self.pond));
            self.apply_yaml(&text).await;
        }
    }

    pub async fn apply_yaml(&self, text: &str) {
        for document in serde_yaml::Deserializer::from_str(text) {
            let object = Value::deserialize(document).expect("a document");
            let kind = object["kind"].as_str().expect("a kind");
            if kind != "Deployment" && kind != "Pod" {
                self.apply(object).await;
            }
        }
    }

    pub async fn apply(&self, object: Value) {
        let resource = match object["kind"].as_str().expect("a kind") {
            "Secret" => ApiResource::erase::<Secret>(&()),
            "ConfigMap" => ApiResource::erase::<ConfigMap>(&()),
            "Service" => ApiResource::erase::<k8s_openapi::api::core::v1::Service>(&()),
            "Agent" => ApiResource::erase::<Agent>(&()),
            "Surface" => ApiResource::erase::<Surface>(&()),
            "ToolGrant" => ApiResource::erase::<ToolGrant>(&()),
            "ToolDefaults" => ApiResource::erase::<ToolDefaults>(&()),
            "ModelProvider" => ApiResource::erase::<ModelProvider>(&()),
            "ClusterToolPolicy" => ApiResource::erase::<ClusterToolPolicy>(&()),
            kind => panic!("the harness does not know {kind}"),
        };
        let name = object["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or(&self.pond);
        let api: Api<DynamicObject> = match object["kind"].as_str() {
            Some("ClusterToolPolicy") => Api::all_with(self.client.clone(), &resource),
            Some(_) | None => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        api.patch(
            &name,
            &PatchParams::apply("toolcrib-test").force(),
            &Patch::Apply(&object),
        )
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// A client of one of the operator's services, which trusts this authority alone.
    pub fn https(&self, service: &str, address: SocketAddr, authority: &Value) -> reqwest::Client {
        let authority = authority.as_str().expect("an authority");
        let authority = reqwest::Certificate::from_pem(authority.as_bytes()).expect("PEM");
        reqwest::Client::builder()
            .tls_certs_only([authority])
            .resolve(&format!("{service}.{}.svc", self.system), address)
            .no_proxy()
            .build()
            .expect("an HTTP client")
    }

    /// Polls until `look` returns something.
    pub async fn eventually<T, F>(&self, what: &str, mut look: impl FnMut() -> F) -> T
    where
        F: Future<Output = Option<T>>,
    {
        let begun = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "not in time: {what}");
            assert!(
                self.running
                    .as_ref()
                    .is_none_or(|running| !running.task.is_finished()),
                "the controller ended while waiting: {what}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until an object's condition has this `status/reason`; returns its message.
    pub async fn condition<K>(&self, name: &str, type_: &str, expected: &str) -> String
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let api: Api<K> = self.api(&self.pond);
        let last = std::cell::RefCell::new(String::new());
        let what = format!("{name} {type_} {expected}");
        let begun = Instant::now();
        loop {
            let object = serde_json::to_value(api.get(name).await.expect("object")).expect("JSON");
            let conditions = object["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let generation = &object["metadata"]["generation"];
            if let Some(found) = conditions
                .iter()
                .find(|condition| condition["type"] == type_)
            {
                let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
                let state = format!("{}/{}", text("status"), text("reason"));
                if state == expected && found["observedGeneration"] == *generation {
                    return text("message");
                }
                *last.borrow_mut() = format!("{state}: {}", text("message"));
            }
            assert!(
                begun.elapsed() < DEADLINE,
                "not in time: {what}; last: {}",
                last.borrow()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The four files of an agent, once `ready` holds for them.
    pub async fn files(
        &self,
        agent: &str,
        what: &str,
        ready: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        let api: Api<Secret> = self.api(&self.pond);
        let name = format!("toolcrib-{agent}-mediator");
        self.eventually(what, || async {
            let secret = api.get_opt(&name).await.expect("API server")?;
            let files: BTreeMap<String, Value> = secret
                .data?
                .into_iter()
                .map(|(name, bytes)| (name, serde_json::from_slice(&bytes.0).expect("JSON")))
                .collect();
            ready(&files).then_some(files)
        })
        .await
    }

    /// Kind, name and resourceVersion of everything in the pond that the controller may write,
    /// and its own count of writes.
    pub async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        async fn add<K>(harness: &Harness, versions: &mut BTreeMap<String, String>)
        where
            K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
                + Clone
                + Debug
                + DeserializeOwned,
        {
            let api: Api<K> = harness.api(&harness.pond);
            // An object of another shape is listed, too.
            let params = ListParams::default();
            let listed = api.list_metadata(&params);
            for object in listed.await.expect("list") {
                versions.insert(
                    format!("{} {}", K::kind(&()), object.name_any()),
                    object.resource_version().unwrap_or_default(),
                );
            }
        }
        add::<Secret>(self, &mut versions).await;
        add::<ConfigMap>(self, &mut versions).await;
        add::<Agent>(self, &mut versions).await;
        add::<Surface>(self, &mut versions).await;
        add::<ToolGrant>(self, &mut versions).await;
        add::<ToolDefaults>(self, &mut versions).await;
        add::<ModelProvider>(self, &mut versions).await;
        add::<k8s_openapi::api::events::v1::Event>(self, &mut versions).await;
        versions
    }

    /// Waits for an Event about an object; returns its note.
    pub async fn event(&self, object: &str, reason: &str) -> String {
        let events: Api<k8s_openapi::api::events::v1::Event> = self.api(&self.pond);
        self.eventually(reason, || async {
            let events = events.list(&ListParams::default()).await.expect("list");
            events.into_iter().find_map(|event| {
                let about = event.regarding.as_ref()?.name.as_deref();
                let same = about == Some(object) && event.reason.as_deref() == Some(reason);
                same.then_some(event.note)?
            })
        })
        .await
    }

    /// The sum of all series of a metric.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(self.health, name).await
    }

    /// Waits until everything was reconciled twice more; fails if versions keep changing.
    pub async fn settled(&self) -> BTreeMap<String, String> {
        let begun = Instant::now();
        loop {
            let before = self.versions().await;
            let reconciles = self.metric("reconciles").await;
            let objects = before.len() as f64;
            self.eventually("reconciled again", || async {
                (self.metric("reconciles").await >= reconciles + objects).then_some(())
            })
            .await;
            let after = self.versions().await;
            if before == after {
                return after;
            }
            assert!(begun.elapsed() < DEADLINE, "the objects do not settle");
        }
    }

    /// A Secret without labels and owner of the operator.
    pub fn foreign_secret(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": self.pond},
            "stringData": {"theirs": "untouched"},
        })
    }
}

/// Renders the chart's objects.
pub fn rendered(settings: &[&str]) -> Vec<Value> {
    rendered_as("toolcrib", settings)
}

/// Renders the chart's objects for a cluster, which Helm queries.
pub fn rendered_for_cluster(release: &str) -> Vec<Value> {
    let path = std::env::var(KUBECONFIG).expect("a kubeconfig");
    let kubeconfig = format!("--kubeconfig={path}");
    rendered_as(
        release,
        &["--dry-run=server", "--set=crds.install=false", &kubeconfig],
    )
}

fn rendered_as(release: &str, settings: &[&str]) -> Vec<Value> {
    let home = Home::find().expect("a home");
    let kube = kube_binary(&home, &Progress::stderr()).expect("Kubernetes' programs");
    let output = Command::new(kube)
        .args(["helm", "template", release])
        .arg(repository().join("charts/toolcrib"))
        .args(settings)
        .output()
        .expect("helm runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_yaml::Deserializer::from_slice(&output.stdout)
        .map(|document| Value::deserialize(document).expect("YAML"))
        .collect()
}

async fn metric(health: SocketAddr, name: &str) -> f64 {
    let text = reqwest::get(format!("http://{health}/metrics"))
        .await
        .expect("metrics")
        .text()
        .await
        .expect("text");
    text.lines()
        .filter(|line| line.starts_with(&format!("toolcrib_operator_{name}")))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

async fn client() -> Client {
    let path = std::env::var(KUBECONFIG).unwrap_or_else(|_| {
        panic!("{KUBECONFIG} is not set: name a kubeconfig, as e2e/run does for its cluster")
    });
    let kubeconfig = Kubeconfig::read_from(&path).expect("kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("config");
    Client::try_from(config).expect("client")
}

pub fn free_port() -> SocketAddr {
    toolcrib_ports::free().expect("a port")
}
