//! The objects of the bench: an agent with one tool from each kind of source, and a crowd of
//! agents that share one surface.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_crds::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant, definitions,
};
use toolcrib_e2e::cluster::layout::PAUSE_IMAGE;
use toolcrib_sidecar::config::EffectiveConfig;

use crate::DEADLINE;
use crate::controller::Requests;
use crate::pods::{LOOK, has, has_provider};

pub const SYSTEM: &str = "link-system";

#[derive(Clone, Copy)]
pub enum GrantPath {
    Grant,
    Defaults,
    Surface,
    Consent,
    Secret,
    Provider,
    Agent,
}

impl GrantPath {
    pub fn all() -> [GrantPath; 7] {
        [
            GrantPath::Grant,
            GrantPath::Defaults,
            GrantPath::Surface,
            GrantPath::Consent,
            GrantPath::Secret,
            GrantPath::Provider,
            GrantPath::Agent,
        ]
    }

    pub fn name(self) -> &'static str {
        match self {
            GrantPath::Grant => "grant",
            GrantPath::Defaults => "defaults",
            GrantPath::Surface => "surface",
            GrantPath::Consent => "consent",
            GrantPath::Secret => "Secret",
            GrantPath::Provider => "provider",
            GrantPath::Agent => "Agent",
        }
    }

    pub fn is_gone(self, now: &EffectiveConfig) -> bool {
        match self {
            GrantPath::Grant => !has(now, "granted.read"),
            GrantPath::Defaults => !has(now, "default.read"),
            GrantPath::Surface => !has(now, "gone.read"),
            GrantPath::Consent => !has(now, "news.read"),
            GrantPath::Secret => !has(now, "keyed.read"),
            GrantPath::Provider => !has_provider(now, "reef"),
            GrantPath::Agent => now.version().is_err(),
        }
    }
}

/// Namespaces of one agent: its own, and that of a surface whose consent it needs.
pub struct NamespacePair {
    pub pond: String,
    pub lake: String,
}

pub struct Objects {
    client: Client,
    made: Mutex<Vec<String>>,
}

impl Objects {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            made: Mutex::default(),
        }
    }

    pub async fn define(&self) -> Result<()> {
        let definitions_api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for definition in definitions() {
            let params = PatchParams::apply("toolcrib-link").force();
            definitions_api
                .patch(&definition.name_any(), &params, &Patch::Apply(&definition))
                .await?;
        }
        self.namespace(SYSTEM).await?;
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "controller", "namespace": SYSTEM}});
        let certificates = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "certificates", "namespace": SYSTEM}});
        self.apply(&lease).await?;
        self.apply(&certificates).await?;
        // Waits until every definition is served.
        let deadline = Instant::now() + DEADLINE;
        while self.served().await.is_err() {
            ensure!(Instant::now() < deadline, "the definitions are not served");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn served(&self) -> Result<()> {
        let params = kube::api::ListParams::default().limit(1);
        Api::<ToolGrant>::all(self.client.clone())
            .list(&params)
            .await?;
        Api::<ToolDefaults>::all(self.client.clone())
            .list(&params)
            .await?;
        Api::<ModelProvider>::all(self.client.clone())
            .list(&params)
            .await?;
        Ok(())
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({"metadata": {"name": name}});
        Api::<Namespace>::all(self.client.clone())
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await
            .context("a namespace of an earlier run is left: take the cluster down first")?;
        let mut made = self.made.lock();
        made.push(name.to_owned());
        Ok(())
    }

    pub async fn clear(&self) -> Result<()> {
        let made = self.made.lock().clone();
        for name in made {
            Api::<Namespace>::all(self.client.clone())
                .delete(&name, &DeleteParams::background())
                .await?;
        }
        Ok(())
    }

    fn api(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let resource = match object["kind"].as_str().unwrap_or_default() {
            "Secret" => ApiResource::erase::<Secret>(&()),
            "Lease" => ApiResource::erase::<Lease>(&()),
            "Agent" => ApiResource::erase::<Agent>(&()),
            "Surface" => ApiResource::erase::<Surface>(&()),
            "ToolGrant" => ApiResource::erase::<ToolGrant>(&()),
            "ToolDefaults" => ApiResource::erase::<ToolDefaults>(&()),
            "ModelProvider" => ApiResource::erase::<ModelProvider>(&()),
            "ClusterToolPolicy" => ApiResource::erase::<ClusterToolPolicy>(&()),
            kind => anyhow::bail!("no such kind here: {kind}"),
        };
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let name = text("name").context("a name")?;
        let client = self.client.clone();
        let api = match text("namespace") {
            Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        Ok((api, name))
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api(object)?;
        let params = PatchParams::apply("toolcrib-link").force();
        api.patch(&name, &params, &Patch::Apply(object))
            .await
            .with_context(|| name.clone())?;
        Ok(())
    }

    async fn delete(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api(object)?;
        api.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates the objects of an agent that has everything that can be revoked.
    pub async fn place(&self, number: usize) -> Result<NamespacePair> {
        let place = NamespacePair {
            pond: format!("pond-{number}"),
            lake: format!("lake-{number}"),
        };
        self.namespace(&place.pond).await?;
        self.namespace(&place.lake).await?;
        let pond = &place.pond;
        for name in ["granted", "default", "keyed"] {
            self.apply(&surface(pond, name)).await?;
        }
        for (name, surface) in [
            ("gone", json!({"name": "gone"})),
            ("keyed", json!({"name": "keyed"})),
            ("news", json!({"name": "news", "namespace": place.lake})),
        ] {
            self.apply(&grant(pond, name, &surface, &["otter"])).await?;
        }
        for way in GrantPath::all() {
            self.give(&place, way).await?;
        }
        self.until_compiled(pond, "otter", 5).await?;
        Ok(place)
    }

    pub async fn give(&self, place: &NamespacePair, way: GrantPath) -> Result<()> {
        self.apply(&object(place, way)).await
    }

    pub async fn take(&self, place: &NamespacePair, way: GrantPath) -> Result<()> {
        let mut object = object(place, way);
        match way {
            GrantPath::Consent => {
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.remove("consumers");
                }
                self.apply(&object).await
            }
            GrantPath::Grant
            | GrantPath::Defaults
            | GrantPath::Surface
            | GrantPath::Secret
            | GrantPath::Provider
            | GrantPath::Agent => self.delete(&object).await,
        }
    }

    /// Creates agents of one namespace that all use one surface.
    pub async fn crowd(&self, agents: usize) -> Result<NamespacePair> {
        let place = NamespacePair {
            pond: "crowd".into(),
            lake: "crowd".into(),
        };
        self.namespace(&place.pond).await?;
        let tools: Vec<Value> = (0..20)
            .map(|number| tool(&format!("tool-{number}")))
            .collect();
        let mut shared = surface(&place.pond, "shared");
        shared["spec"]["descriptor"]["tools"] = json!(tools);
        self.apply(&shared).await?;
        self.apply(&provider(&place.pond)).await?;
        for number in 0..agents {
            let name = format!("agent-{number}");
            let spec = json!({"surfaces": [{"name": "shared"}]});
            self.apply(&ours("Agent", &place.pond, &name, spec)).await?;
            let surface = json!({"name": "shared"});
            self.apply(&grant(&place.pond, &name, &surface, &[&name]))
                .await?;
        }
        for number in 0..agents {
            self.until_compiled(&place.pond, &format!("agent-{number}"), 20)
                .await?;
        }
        Ok(place)
    }

    /// Suspends every agent of the cluster by a policy.
    pub async fn stop_all(&self) -> Result<()> {
        self.apply(&emergency_stop()).await
    }

    pub async fn end_stop(&self) -> Result<()> {
        self.delete(&emergency_stop()).await
    }

    pub async fn delete_crowds_surface(&self, place: &NamespacePair) -> Result<()> {
        self.delete(&surface(&place.pond, "shared")).await
    }

    async fn until_compiled(&self, namespace: &str, agent: &str, tools: usize) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Ok(data) = self.compiled(namespace, agent).await
                && let Some(file) = data.get("tools.json")
                && let Ok(file) = serde_json::from_slice::<Value>(&file.0)
                && file["tools"].as_array().is_some_and(|it| it.len() == tools)
                && let Some(file) = data.get("agent.json")
                && let Ok(file) = serde_json::from_slice::<Value>(&file.0)
                && file["link"].is_object()
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{namespace}/{agent} is not compiled"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The compiled Secret's data.
    pub async fn compiled(
        &self,
        namespace: &str,
        agent: &str,
    ) -> Result<BTreeMap<String, ByteString>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = secrets.get(&format!("toolcrib-{agent}-mediator")).await?;
        secret.data.context("no data")
    }

    /// Creates a pod that is never scheduled; returns its token for the link.
    pub async fn pod(&self, namespace: &str, agent: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let deadline = Instant::now() + DEADLINE;
        while accounts.get_opt("default").await?.is_none() {
            ensure!(Instant::now() < deadline, "no default ServiceAccount");
            tokio::time::sleep(LOOK).await;
        }
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"toolcrib.dev/agent": agent}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "runner", "image": "none"}]},
        }))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = pods.create(&PostParams::default(), &pod).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![toolcrib_compile::names::LINK_AUDIENCE.to_owned()],
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: Some(pod.name_any()),
                    uid: pod.meta().uid.clone(),
                }),
                expiration_seconds: Some(7_200),
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request("default", &PostParams::default(), &request)
            .await?;
        Ok(answer.status.context("a token")?.token)
    }

    /// Creates a pod on the node that mounts the agent's compiled Secret, as injected pods do;
    /// returns its uid.
    pub async fn mounting(&self, namespace: &str, agent: &str, volume: &str) -> Result<String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": agent, "labels": {"toolcrib.dev/agent": agent}},
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "runner", "image": PAUSE_IMAGE,
                    "imagePullPolicy": "Never",
                    "volumeMounts": [{"name": volume, "mountPath": "/config"}]}],
                "volumes": [{"name": volume, "secret": {
                    "secretName": format!("toolcrib-{agent}-mediator"), "optional": true}}],
            },
        }))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let deadline = Instant::now() + DEADLINE;
        loop {
            match pods.create(&PostParams::default(), &pod).await {
                Ok(pod) => return pod.uid().context("a uid"),
                // The namespace's ServiceAccount is created a little later than the namespace.
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Empties the lease, so the next candidate need not wait until it expires.
    pub async fn vacate(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SYSTEM);
        let nobody = json!({"spec": {"holderIdentity": ""}});
        leases
            .patch("controller", &PatchParams::default(), &Patch::Merge(nobody))
            .await?;
        Ok(())
    }

    pub async fn requests(&self) -> Result<Requests> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Requests::read(&self.client.request_text(request).await?))
    }
}

fn ours(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"},
        "http": {"method": "GET", "path": format!("/{name}")}, "annotations": {"readOnly": true}})
}

fn surface(namespace: &str, name: &str) -> Value {
    let mut spec = json!({"url": format!("https://{name}.example"),
        "descriptor": {"version": 2, "tools": [tool("read")]}});
    if name == "keyed" {
        spec["auth"] = json!({"secretKeyRef": {"name": "keyed", "key": "token"}});
    }
    ours("Surface", namespace, name, spec)
}

fn grant(namespace: &str, name: &str, surface: &Value, agents: &[&str]) -> Value {
    let tools = json!([{"surface": surface, "allow": ["*"]}]);
    ours(
        "ToolGrant",
        namespace,
        name,
        json!({"agents": agents, "tools": tools}),
    )
}

fn emergency_stop() -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ClusterToolPolicy",
        "metadata": {"name": "toolcrib-link-stop"}, "spec": {"suspend": true},
    })
}

fn provider(namespace: &str) -> Value {
    let endpoints = json!([{"dialect": "OpenAI", "url": "https://reef.example/v1"}]);
    ours(
        "ModelProvider",
        namespace,
        "reef",
        json!({"endpoints": endpoints, "auth": "None"}),
    )
}

/// The object that gives the agent something in this way.
fn object(place: &NamespacePair, way: GrantPath) -> Value {
    let NamespacePair { pond, lake } = place;
    let named = |name: &str| json!({"name": name});
    match way {
        GrantPath::Grant => grant(pond, "granted", &named("granted"), &["otter"]),
        GrantPath::Defaults => {
            let tools = json!([{"surface": named("default"), "allow": ["*"]}]);
            ours("ToolDefaults", pond, "default", json!({"tools": tools}))
        }
        GrantPath::Surface => surface(pond, "gone"),
        GrantPath::Consent => {
            let mut news = surface(lake, "news");
            news["spec"]["consumers"] = json!({"namespaces": {"from": "All"}});
            news
        }
        GrantPath::Secret => json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "keyed", "namespace": pond,
                "labels": {"toolcrib.dev/credential": "true"},
                "annotations": {"toolcrib.dev/hosts": "keyed.example"},
            },
            "stringData": {"token": "keyed-5c1d"},
        }),
        GrantPath::Provider => provider(pond),
        GrantPath::Agent => {
            let surfaces = json!([named("granted"), named("default"), named("keyed"), named("gone"),
                {"name": "news", "namespace": lake}]);
            ours("Agent", pond, "otter", json!({"surfaces": surfaces}))
        }
    }
}
