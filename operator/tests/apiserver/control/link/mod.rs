//! The link end to end: the real controller with the mediator's real client.
//!
//! The mediators load the compiled files once and never again, as if the kubelet were down: tools
//! are lost by the link alone. Tokens are bound to pods (TokenRequest).

// clippy.toml allows unwrap in test functions, but not in their helpers.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod labels;
mod leaders;
mod rates;
mod restrictions;
mod revocations;
mod strangers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use toolcrib_crds::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};
use toolcrib_manifest::AgentPresence;
use toolcrib_mediation::RateCounts;
use toolcrib_sidecar::approvals::Approvals;
use toolcrib_sidecar::config::version::{Files, parse};
use toolcrib_sidecar::config::{CurrentConfig, EffectiveConfig, Observation};
use toolcrib_sidecar::history::{History, PodIdentity, StdoutBodies};
use toolcrib_sidecar::metrics::Metrics;
use toolcrib_sidecar::outbound::link::{Link, LinkStatus};
use toolcrib_sidecar::outbound::model::ModelClient;
use toolcrib_sidecar::outbound::operator::OperatorClient;
use toolcrib_sidecar::outbound::resolver::Resolver;
use toolcrib_sidecar::outbound::{LocalNames, Outbound};

use crate::support::harness::{DEADLINE, Harness};
use crate::support::pods::{self, AUDIENCE};

/// The mediator's end of the link, with its loaded files.
struct Mediator {
    current: Arc<CurrentConfig>,
    rates: Arc<RateCounts>,
    link: JoinHandle<()>,
    _token: tempfile::NamedTempFile,
    _record: tempfile::TempDir,
}

impl Drop for Mediator {
    fn drop(&mut self) {
        self.link.abort();
    }
}

impl Mediator {
    async fn start(harness: &Harness, pod: &Pod, files: &BTreeMap<String, Value>) -> Self {
        let token_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token_file.path(), pods::token(harness, pod, AUDIENCE).await).unwrap();
        // Bytes of the Secret: the digests in agent.json are of these bytes.
        let secrets: Api<Secret> = harness.api(&harness.pond);
        let agent = files["agent.json"]["agent"].as_str().unwrap();
        let secret = secrets
            .get(&format!("toolcrib-{agent}-mediator"))
            .await
            .unwrap();
        let mut data = secret.data.unwrap();
        let mut take = |name: &str| data.remove(name).unwrap().0;
        let files = Files {
            agent: take("agent.json"),
            tools: take("tools.json"),
            providers: take("providers.json"),
            feeds: take("feeds.json"),
        };
        let version = parse(&files, &|_| None).unwrap();
        let current = Arc::new(CurrentConfig::default());
        current.observe(Observation::Loaded(Box::new(version)), "now".into());
        let host = format!("link.{}.svc", harness.system);
        let outbound = Outbound::new(LocalNames::Allowed, Resolver::of_machine())
            .with_address(&host, harness.link);
        let metrics = Arc::new(Metrics::default());
        let rates = Arc::<RateCounts>::default();
        let record = tempfile::tempdir().unwrap();
        let identity = PodIdentity {
            name: &pod.name_any(),
            uid: None,
        };
        let history = History::open(
            record.path(),
            1024 * 1024,
            None,
            identity,
            StdoutBodies::WithoutBodies,
            std::io::sink(),
            metrics.clone(),
        )
        .unwrap();
        let history = Arc::new(history);
        // Without a pod it asks nothing: the questions of these tests have a double.
        let approvals = Approvals::open(
            None,
            record.path(),
            history.clone(),
            current.clone(),
            metrics.clone(),
        );
        let link = Link {
            current: current.clone(),
            metrics: metrics.clone(),
            status: LinkStatus::default(),
            models: Arc::new(ModelClient::new(metrics, Arc::default())),
            outages: Arc::default(),
            budgets: Arc::default(),
            rates: rates.clone(),
            approvals: Arc::new(approvals),
            history,
            operator: OperatorClient::new(Arc::new(outbound), token_file.path().to_owned()),
            epoch: pod.name_any(),
        };
        Self {
            current,
            rates,
            link: tokio::spawn(link.run()),
            _token: token_file,
            _record: record,
        }
    }

    /// Waits until `seen` holds; returns the time.
    async fn until(&self, what: &str, seen: impl Fn(&EffectiveConfig) -> bool) -> Duration {
        let begun = Instant::now();
        let mut changes = self.current.subscribe();
        while !seen(&self.current.now()) {
            tokio::time::timeout_at(begun + DEADLINE, changes.changed())
                .await
                .unwrap_or_else(|_| {
                    let allowlist = self.current.now().allowlist.clone();
                    panic!("not in time: {what}; the allowlist is {allowlist:?}")
                })
                .unwrap();
        }
        begun.elapsed()
    }

    /// Waits until the mediator is linked and everything that is loaded is allowed.
    async fn whole(&self) {
        self.until("all stands", |now| {
            now.seen > 0 && now.presence == AgentPresence::Present && stands(now)
        })
        .await;
    }
}

/// True if everything that is loaded is allowed.
fn stands(now: &EffectiveConfig) -> bool {
    let Ok(version) = now.version() else {
        return false;
    };
    let allowlist = now.allowlist.as_ref();
    version.catalog.tools().iter().all(|tool| {
        allowlist.is_none_or(|allowlist| allowlist.tools.get(tool.name()) == Some(&tool.digest))
    }) && version
        .providers
        .keys()
        .all(|name| now.provider_stands(name))
        && now.feeds().count() == version.feeds.len()
}

fn has(now: &EffectiveConfig, tool: &str) -> bool {
    let allowlist = now.allowlist.as_ref();
    now.version().is_ok() && allowlist.is_none_or(|allowlist| allowlist.tools.contains_key(tool))
}

pub async fn delete(harness: &Harness, object: &Value) {
    let resource = match object["kind"].as_str().unwrap() {
        "Secret" => kube::api::ApiResource::erase::<Secret>(&()),
        "Agent" => kube::api::ApiResource::erase::<Agent>(&()),
        "Surface" => kube::api::ApiResource::erase::<Surface>(&()),
        "ToolGrant" => kube::api::ApiResource::erase::<ToolGrant>(&()),
        "ToolDefaults" => kube::api::ApiResource::erase::<ToolDefaults>(&()),
        "ModelProvider" => kube::api::ApiResource::erase::<ModelProvider>(&()),
        kind => panic!("{kind}"),
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let api: Api<DynamicObject> =
        Api::namespaced_with(harness.client.clone(), namespace, &resource);
    api.delete(
        object["metadata"]["name"].as_str().unwrap(),
        &DeleteParams::default(),
    )
    .await
    .unwrap();
}

pub fn ours(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}
