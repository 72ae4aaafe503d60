//! Pods without a node, and the mediators' end of their links.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use tokio::task::JoinHandle;
use tokio::time::Instant;
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

use crate::DEADLINE;
use crate::controller::Controller;
use crate::objects::{Objects, SYSTEM};

/// One record for all mediators: they write nothing, and each record has a thread.
static RECORD: LazyLock<Record> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let identity = PodIdentity {
        name: "all",
        uid: None,
    };
    let history = History::open(
        folder.path(),
        1024 * 1024,
        None,
        identity,
        StdoutBodies::WithoutBodies,
        std::io::sink(),
        Arc::default(),
    );
    Record {
        history: Arc::new(history.expect("a record")),
        folder,
    }
});

struct Record {
    history: Arc<History>,
    folder: tempfile::TempDir,
}

pub struct Mediator {
    pub current: Arc<CurrentConfig>,
    link: JoinHandle<()>,
    _token: tempfile::NamedTempFile,
}

impl Drop for Mediator {
    fn drop(&mut self) {
        self.link.abort();
    }
}

impl Mediator {
    /// Creates a pod and loads the agent's current compiled files.
    pub async fn start(
        objects: &Objects,
        controller: &Controller,
        namespace: &str,
        agent: &str,
        pod: String,
    ) -> Result<Self> {
        let token = objects.pod(namespace, agent, &pod).await?;
        let token_file = tempfile::NamedTempFile::new()?;
        std::fs::write(token_file.path(), token)?;
        let mut data: BTreeMap<String, ByteString> = objects.compiled(namespace, agent).await?;
        let mut take = |name: &str| data.remove(name).map(|it| it.0).context("four files");
        let files = Files {
            agent: take("agent.json")?,
            tools: take("tools.json")?,
            providers: take("providers.json")?,
            feeds: take("feeds.json")?,
        };
        let current = Arc::new(CurrentConfig::default());
        let version = parse(&files, &|_| None)?;
        current.observe(Observation::Loaded(Box::new(version)), "now".into());
        let outbound = Outbound::new(LocalNames::Allowed, Resolver::of_machine())
            .with_address(&format!("link.{SYSTEM}.svc"), controller.ports.link);
        let metrics = Arc::new(Metrics::default());
        let approvals = Approvals::open(
            None,
            RECORD.folder.path(),
            Arc::clone(&RECORD.history),
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
            rates: Arc::default(),
            approvals: Arc::new(approvals),
            history: Arc::clone(&RECORD.history),
            operator: OperatorClient::new(Arc::new(outbound), token_file.path().to_owned()),
            epoch: pod,
        };
        Ok(Self {
            current,
            link: tokio::spawn(link.run()),
            _token: token_file,
        })
    }

    pub fn seen(&self) -> u64 {
        self.current.now().seen
    }

    pub async fn until(&self, seen: impl Fn(&EffectiveConfig) -> bool) -> Result<()> {
        until(&self.current, seen).await
    }

    /// Waits until the pod is linked and everything that is loaded is allowed.
    pub async fn whole(&self) -> Result<()> {
        self.until(|now| now.seen > 0 && stands(now)).await
    }
}

/// Waits until `seen` holds for the state in force.
pub async fn until(current: &CurrentConfig, seen: impl Fn(&EffectiveConfig) -> bool) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let mut changes = current.subscribe();
    while !seen(&current.now()) {
        tokio::time::timeout_at(deadline, changes.changed())
            .await
            .with_context(|| format!("not in {DEADLINE:?}"))??;
    }
    Ok(())
}

/// True if everything that is loaded is allowed.
pub fn stands(now: &EffectiveConfig) -> bool {
    let Ok(version) = now.version() else {
        return false;
    };
    version
        .catalog
        .tools()
        .iter()
        .all(|tool| has(now, tool.name()))
        && version
            .providers
            .keys()
            .all(|name| now.provider_stands(name))
}

pub fn has(now: &EffectiveConfig, tool: &str) -> bool {
    let allowlist = now.allowlist.as_ref();
    now.version().is_ok_and(|version| {
        version.catalog.tools().iter().any(|it| it.name() == tool)
            && allowlist.is_none_or(|allowlist| allowlist.tools.contains_key(tool))
    })
}

pub fn has_provider(now: &EffectiveConfig, name: &str) -> bool {
    let loaded = now
        .version()
        .is_ok_and(|version| version.providers.contains_key(name));
    loaded && now.provider_stands(name)
}

/// Polling interval for conditions that no event announces.
pub const LOOK: Duration = Duration::from_millis(50);
