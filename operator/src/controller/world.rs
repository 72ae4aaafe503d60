//! What the controller's tasks share.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource};
use rustls::sign::CertifiedKey;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use toolcrib_compile::{Kind, ObjectRef, Role, names};
use toolcrib_manifest::{Dns, LinkConfig, Want};

use super::apply::Applied;
use super::dns;
use super::events::Events;
use super::noticed::Noticed;
use super::pace::Pace;
use super::queue::Queue;
use super::readers::Readers;
use super::settings::Settings;
use super::work::{Work, WorkKind};
use crate::claw::holders::Holders;
use crate::lease;
use crate::link::answers::Answers;
use crate::link::reports::Reports;
use crate::link::revocations::Revocations;
use crate::metrics::Metrics;
use crate::objects::stores::Tables;
use crate::objects::tables::{Change, Stored};

pub struct World {
    pub client: Client,
    pub settings: Settings,
    pub tables: Tables,
    pub queue: Queue<Work>,
    pub metrics: Metrics,
    pub events: Events,
    pub readers: Readers,
    /// Of compilations that run at the same time.
    pub turns: Semaphore,
    pub reports: Mutex<Reports>,
    /// What mediators hear.
    pub answers: Answers,
    revocations: Mutex<Revocations>,
    /// Whose token opens claw-api.
    pub holders: Holders,
    /// Events that a revocation is counted from.
    pub noticed: Noticed,
    /// What this leader knows that the API server does not hold.
    memory: Mutex<Memory>,
    /// Set once this replica leads and has its certificates.
    link_bundle: ArcSwapOption<String>,
    pub link_certificate: ArcSwapOption<CertifiedKey>,
    leading: AtomicBool,
    pub tenure: lease::Shared,
}

/// Per agent, and only while this replica leads.
#[derive(Debug)]
pub struct Memory {
    /// Boxed: a map keeps half as much room again as it has entries.
    pub agents: HashMap<ObjectRef, Box<AgentMemory>>,
    /// Findings that stand, as digests, by the object they were reported for.
    pub findings: HashMap<Work, BTreeSet<u64>>,
    pub usage: Pace,
    pub notices: Notices,
    /// What each status should be, as a digest.
    pub statuses: HashMap<Work, u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            agents: HashMap::new(),
            findings: HashMap::new(),
            usage: Pace::new(USAGE_APART),
            notices: Notices::default(),
            statuses: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct AgentMemory {
    /// What was last found in place, by its role's number. Of an object that is gone since it
    /// stays: the API server is asked once more before that one is made again.
    applied: [Option<Applied>; Role::ALL.len()],
    /// What is compiled and written, and since when. The mediators hear the same.
    pub want: Option<(Arc<Want>, Instant)>,
    pub usage_written: Option<Instant>,
    /// When its changed usage may be written.
    pub usage_slot: Option<Instant>,
}

/// Compilations at the same time.
const COMPILATIONS: usize = 2;

/// The rate of Normal Events of all agents: a Surface that changes for ten thousand agents is
/// no reason for ten thousand Events in the API server's store.
#[derive(Debug)]
pub struct Notices(Pace);

impl Default for Notices {
    fn default() -> Self {
        Self(Pace::new(NOTICES_APART))
    }
}

impl Notices {
    /// `false`: there were too many lately.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.0.try_take(now, NOTICES_BURST)
    }
}

const NOTICES_APART: Duration = Duration::from_millis(200);
/// 150 Events at once.
const NOTICES_BURST: Duration = Duration::from_secs(30);

/// Between two agents' usage: what ten thousand busy agents may cost the API server.
const USAGE_APART: Duration = Duration::from_millis(50);

impl World {
    pub fn new(client: Client, settings: Settings) -> Self {
        let tables = Tables::new(&settings.secrets);
        Self {
            readers: Readers::new(client.clone(), Arc::clone(&tables.budget)),
            tables,
            turns: Semaphore::new(COMPILATIONS),
            queue: Queue::default(),
            metrics: Metrics::default(),
            events: Events::new(client.clone(), &settings.pod_name),
            reports: Mutex::new(Reports::default()),
            answers: Answers::default(),
            revocations: Mutex::default(),
            holders: Holders::default(),
            noticed: Noticed::default(),
            memory: Mutex::new(Memory::default()),
            link_bundle: ArcSwapOption::empty(),
            link_certificate: ArcSwapOption::empty(),
            leading: AtomicBool::new(false),
            tenure: lease::Shared::default(),
            client,
            settings,
        }
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was last found in place of an agent's object.
    pub fn applied(&self, agent: &ObjectRef, role: Role) -> Option<Applied> {
        self.memory().agents.get(agent)?.applied[role as usize]
    }

    pub fn set_applied(&self, agent: &ObjectRef, role: Role, applied: Applied) {
        let mut memory = self.memory();
        let remembered = memory.agents.entry(agent.clone()).or_default();
        remembered.applied[role as usize] = Some(applied);
    }

    /// What was last compiled and written for an agent, and since when.
    pub fn want(&self, agent: &ObjectRef) -> Option<(Arc<Want>, Instant)> {
        self.memory().agents.get(agent)?.want.clone()
    }

    pub fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this replica may act as the leader at this very moment: it was told so, and
    /// its lease has not run out (a process that was paused has not been told yet).
    pub fn leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
            && self
                .tenure()
                .is_some_and(|tenure| tenure.until > Instant::now())
    }

    fn tenure(&self) -> Option<lease::Tenure> {
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_leading(&self, leading: bool) {
        self.leading.store(leading, Ordering::Release);
        self.metrics.leader.set(i64::from(leading));
        if !leading {
            // Another replica says these now.
            self.metrics.link_pods.set(0);
            self.metrics.revocations_open.set(0);
        }
    }

    /// Forgets what only a leader may rely on: another one may have written meanwhile.
    pub fn forget(&self) {
        *self.memory() = Memory::default();
        *self.reports() = Reports::default();
        self.revocations(|open| {
            *open = Revocations::default();
            Vec::new()
        });
        self.noticed.forget();
        self.holders.begin([]);
        // A thousand numbers for each millisecond: no tenure changes its answers that often,
        // so every answer of this one is above all of those before.
        let since = self
            .tenure()
            .map_or(0, |tenure| tenure.since.as_millisecond());
        self.answers
            .begin(u64::try_from(since).unwrap_or(0).saturating_mul(1_000));
    }

    /// Looks at the open revocations, and counts those that are over with it.
    pub fn revocations(&self, look: impl FnOnce(&mut Revocations) -> Vec<Duration>) {
        let mut revocations = self
            .revocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for took in look(&mut revocations) {
            self.metrics.revocation_seconds.observe(took.as_secs_f64());
        }
        let open = i64::try_from(revocations.open()).unwrap_or(i64::MAX);
        self.metrics.revocations_open.set(open);
    }

    /// The link as compiled files name it; `None` until there are certificates.
    pub fn link(&self) -> Option<LinkConfig> {
        let ca = self.link_bundle.load_full()?;
        Some(LinkConfig {
            url: self.settings.link_url(),
            ca: (*ca).clone(),
            audience: names::LINK_AUDIENCE.to_owned(),
        })
    }

    /// How compiled files have mediators resolve names.
    pub fn dns(&self) -> Dns {
        let settings = &self.settings;
        dns::dns(
            &settings.name_servers,
            &settings.cluster_domain,
            &self.tables,
        )
    }

    /// Takes certificates over; whether the bundle is another than before.
    pub fn use_certificates(&self, bundle: String, link: Arc<CertifiedKey>) -> bool {
        self.link_certificate.store(Some(link));
        let changed = self.link_bundle.load().as_deref() != Some(&bundle);
        self.link_bundle.store(Some(Arc::new(bundle)));
        changed
    }

    pub fn compile_settings(&self) -> toolcrib_compile::Settings {
        let settings = &self.settings;
        let refused_hosts = toolcrib_compile::refused_hosts(
            &settings.namespace,
            [&settings.link_service, &settings.webhook_service],
            &settings.cluster_domain,
            &settings.refused_hosts,
        );
        toolcrib_compile::Settings {
            link: self.link(),
            dns: Some(self.dns()),
            refused_hosts,
            network: toolcrib_compile::NetworkSettings {
                operator_namespace: self.settings.namespace.clone(),
                link_port: self.settings.link_listen.port(),
                dns: self.settings.dns_egress.clone(),
                cluster_ranges: self.settings.cluster_ranges.clone(),
            },
            claw_api_host: settings
                .claw_api
                .as_ref()
                .map(|claw_api| settings.service_host(&claw_api.service)),
        }
    }

    /// Whether a namespace is being deleted: nothing can be made in it any more.
    pub fn ending(&self, namespace: &str) -> bool {
        self.tables
            .namespaces
            .get("", namespace)
            .is_none_or(|namespace| namespace.meta().deletion_timestamp.is_some())
    }

    /// Whether a status that was watched is another than this leader wants there: a leader
    /// that was paused may still write, after this one has looked.
    pub fn is_foreign(&self, work: &Work, status: u64) -> bool {
        let memory = self.memory();
        memory
            .statuses
            .get(work)
            .is_some_and(|wanted| *wanted != status)
    }

    /// Bookkeeping that follows a change of a table.
    pub fn changed<K: Stored>(&self, change: &Change<K>) {
        let gone = change.new.is_none();
        if !gone {
            return;
        }
        let key = ObjectRef::new(change.namespace.clone(), change.name.clone());
        let kinds = [
            WorkKind::Agent,
            WorkKind::Surface,
            WorkKind::ToolGrant,
            WorkKind::ToolDefaults,
            WorkKind::ModelProvider,
        ];
        if let Some(kind) = kinds
            .into_iter()
            .find(|kind| kind.kind().name() == K::kind_name())
        {
            self.memory().statuses.remove(&kind.work(key.clone()));
        }
        match K::kind_name().as_ref() {
            kind if kind == Pod::kind(&()) => {
                if let Some(uid) = change.old.as_ref().and_then(|pod| pod.id().uid) {
                    self.reports().gone(uid);
                    self.revocations(|open| open.gone(uid, Instant::now()));
                }
            }
            "Agent" => {
                self.memory().agents.remove(&key);
                self.reports().forget_agent(&key);
            }
            "Secret" => self.readers.forget(Kind::Secret, &key),
            "ConfigMap" => self.readers.forget(Kind::ConfigMap, &key),
            _ => {}
        }
    }
}
