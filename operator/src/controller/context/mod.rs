//! The state that the controller's tasks share: client, settings, stores, queue, and the state of
//! each part.
//!
//! [`memory`] has the leader's state that is not in the API server. Not here: the tasks.

pub mod memory;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use toolcrib_compile::{Kind, ObjectRef, Role, names};
use toolcrib_manifest::{Dns, LinkAllowlist, LinkConfig, Want};

use super::dependents::Dependents;
use super::hints::Hints;
use super::queue::Queue;
use super::queue::pending_since::PendingSince;
use super::queue::work::{ApprovalWork, Work, WorkKind};
use super::selectors::Selectors;
use super::settings::Settings;
use super::snapshot::content_cache::ContentCache;
use super::snapshot::dns;
use super::write::apply::AppliedState;
use super::write::events::Events;
use crate::approvals::requirements::AgentRequirements;
use crate::approvals::state::Approvals;
use crate::certificates::leader::LeaderCertificate;
use crate::claw::tokens::Tokens;
use crate::leadership::Leadership;
use crate::link::answers::Access;
use crate::link::state::State as Link;
use crate::metrics::Metrics;
use crate::objects::store::{Change, StoreObject};
use crate::objects::stores::Stores;
use memory::Memory;

pub struct Context {
    pub client: Client,
    pub settings: Settings,
    pub stores: Stores,
    pub queue: Queue<Work>,
    /// The index of dependents, which the leader's work fills.
    pub dependents: Dependents,
    pub metrics: Metrics,
    pub events: Events,
    pub content_cache: ContentCache,
    /// Permits for compilations.
    pub turns: Semaphore,
    pub leadership: Arc<Leadership>,
    pub certificate: Arc<LeaderCertificate>,
    pub link: Arc<Link>,
    pub approvals: Arc<Approvals>,
    pub approval_queue: Queue<ApprovalWork>,
    /// The tokens for claw-api.
    pub tokens: Arc<Tokens>,
    /// The times of events, from which the duration of revocations is measured.
    pub pending_since: PendingSince,
    /// Hints to the kubelets of running pods.
    pub hints: Hints,
    /// Whether grants may select agents.
    pub selectors: Selectors,
    memory: Mutex<Memory>,
}

/// Why an agent's calls cannot be approved.
const SUSPENDED: &str = "the agent is suspended";
const DELETED: &str = "the agent is deleted";
/// Most concurrent compilations.
const COMPILATIONS: usize = 2;

impl Context {
    pub fn new(client: Client, settings: Settings) -> Self {
        let stores = Stores::new(&settings.secrets, settings.objects_budget);
        let metrics = Metrics::default();
        Self {
            content_cache: ContentCache::new(client.clone(), Arc::clone(&stores.budget)),
            stores,
            turns: Semaphore::new(COMPILATIONS),
            queue: Queue::default(),
            dependents: Dependents::default(),
            events: Events::new(client.clone(), &settings.pod_name),
            leadership: Arc::new(Leadership::new(metrics.leader.clone())),
            certificate: Arc::default(),
            link: Arc::new(Link::new(metrics.clone())),
            approvals: Arc::new(Approvals::new(metrics.approvals.clone())),
            approval_queue: Queue::default(),
            tokens: Arc::default(),
            metrics,
            pending_since: PendingSince::default(),
            hints: Hints::default(),
            selectors: Selectors::default(),
            memory: Mutex::new(Memory::default()),
            client,
            settings,
        }
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// The agent's object in this role, as last seen in the API server.
    pub fn applied(&self, agent: &ObjectRef, role: Role) -> Option<AppliedState> {
        self.memory().agents.get(agent)?.applied[role as usize]
    }

    pub fn set_applied(&self, agent: &ObjectRef, role: Role, applied: AppliedState) {
        let mut memory = self.memory();
        let agent_memory = memory.agents.entry(agent.clone()).or_default();
        agent_memory.applied[role as usize] = Some(applied);
    }

    /// The digests last compiled and written for an agent, and the time of the write.
    pub fn want(&self, agent: &ObjectRef) -> Option<(Arc<Want>, Instant)> {
        self.memory().agents.get(agent)?.want.clone()
    }

    /// Publishes the agent's access to its mediators. A suspended Agent has none, even if an
    /// earlier version of it was compiled with access.
    pub fn publish(
        &self,
        agent: &ObjectRef,
        access: Access<&LinkAllowlist>,
        since: Option<Instant>,
    ) {
        match access {
            Access::Allowed(_) => {}
            Access::Suspended => self.withdraw(agent, SUSPENDED),
            Access::Deleted => self.withdraw(agent, DELETED),
        }
        let is_suspended = || self.is_suspended(agent);
        if self.link.publish(agent, access, is_suspended, since) {
            let mut memory = self.memory();
            memory.agents.entry(agent.clone()).or_default().gives = true;
        }
    }

    /// Ends what mediators do not hear of by the allowlist: the tokens for the operator's own tools, and
    /// questions to persons.
    fn withdraw(&self, agent: &ObjectRef, why: &'static str) {
        self.tokens.forget(agent);
        self.set_requirements(agent, AgentRequirements::NoCalls(why));
    }

    /// Sets who may approve the calls of an agent, as it is compiled now.
    pub fn set_requirements(&self, agent: &ObjectRef, requirements: AgentRequirements) {
        let requirements = match self.is_suspended(agent) {
            true => AgentRequirements::NoCalls(SUSPENDED),
            false => requirements,
        };
        self.approvals.set_requirements(agent, requirements);
        self.queue_approvals(self.approvals.open_of(agent));
    }

    pub fn queue_approvals(&self, approvals: impl IntoIterator<Item = ObjectRef>) {
        let work = approvals.into_iter().map(ApprovalWork);
        self.approval_queue.add_all(work);
    }

    /// Whether the Agent is suspended, by itself or by a policy, as the watches have delivered them.
    pub fn is_suspended(&self, agent: &ObjectRef) -> bool {
        let stored = self.stores.agents.get(&agent.namespace, &agent.name);
        stored.is_some_and(|stored| {
            stored.is_suspended() || self.stores.is_suspended_by_policy(agent)
        })
    }

    /// Whether this replica is the leader and its lease still holds.
    pub fn leading(&self) -> bool {
        self.leadership.holds()
    }

    /// Ends the work as leader.
    pub fn resign(&self) {
        self.leadership.set(false);
        self.link.end();
        self.approvals.end();
        self.approval_queue.close();
        self.queue.close();
    }

    /// Drops the state of an earlier leadership: another leader may have written meanwhile.
    pub fn forget(&self) {
        *self.memory() = Memory::default();
        self.pending_since.forget();
        self.hints.forget();
        self.selectors.forget();
        self.dependents.clear();
        self.tokens.begin([]);
        self.link.begin(self.leadership.first_number());
        self.approvals.begin();
    }

    /// The link's configuration in compiled files; `None` until there are certificates.
    pub fn link(&self) -> Option<LinkConfig> {
        let ca = self.certificate.authorities()?;
        Some(LinkConfig {
            url: self.settings.link_url(),
            ca: (*ca).clone(),
            audience: names::LINK_AUDIENCE.to_owned(),
        })
    }

    /// The DNS settings of compiled files.
    pub fn dns(&self) -> Dns {
        let settings = &self.settings;
        dns::dns(
            &settings.name_servers,
            &settings.cluster_domain,
            &self.stores,
        )
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
            cluster_domain: settings.cluster_domain.clone(),
            refused_hosts,
            network: toolcrib_compile::NetworkSettings {
                operator_namespace: self.settings.namespace.clone(),
                link_port: self.settings.link_listen.port(),
                dns: self.settings.dns_egress.clone(),
                cluster_ranges: self.settings.cluster_ranges.clone(),
                collector: self.settings.collector.clone(),
            },
            claw_api_host: settings
                .claw_api
                .as_ref()
                .map(|claw_api| settings.service_host(&claw_api.service)),
            agent_selectors: self.selectors.setting(),
        }
    }

    /// Whether a namespace is deleted or being deleted, so that no object can be created in it. The
    /// empty name stands for the whole cluster.
    pub fn ending(&self, namespace: &str) -> bool {
        if namespace.is_empty() {
            return false;
        }
        self.stores
            .namespaces
            .get("", namespace)
            .is_none_or(|namespace| namespace.meta().deletion_timestamp.is_some())
    }

    /// Whether a watched status differs from the one that this leader wants. A leader that was
    /// paused may write a status after this one has.
    pub fn is_foreign(&self, work: &Work, status: u64) -> bool {
        let memory = self.memory();
        memory
            .statuses
            .get(work)
            .is_some_and(|wanted| *wanted != status)
    }

    /// Drops the shared state of an object that was deleted, even if a new object has its name now.
    pub fn changed<K: StoreObject>(&self, change: &Change<K>) {
        if !change.is_end() {
            return;
        }
        let key = ObjectRef::new(change.namespace.clone(), change.name.clone());
        let kinds = [
            WorkKind::Agent,
            WorkKind::Surface,
            WorkKind::ToolGrant,
            WorkKind::ToolDefaults,
            WorkKind::ModelProvider,
            WorkKind::ClusterToolPolicy,
        ];
        if let Some(kind) = kinds
            .into_iter()
            .find(|kind| kind.kind().name() == K::kind_name())
        {
            let mut memory = self.memory();
            let work = kind.work(key.clone());
            memory.statuses.remove(&work);
            memory.findings.remove(&work);
        }
        match K::kind_name().as_ref() {
            kind if kind == Pod::kind(&()) => {
                if let Some(uid) = change.old.as_ref().and_then(|pod| pod.id().uid) {
                    self.link.pod_gone(uid);
                    self.queue_approvals(self.approvals.pod_gone(uid));
                }
            }
            "Agent" => {
                self.memory().agents.remove(&key);
                self.link.agent_gone(&key);
                self.approvals.agent_gone(&key);
                self.queue_approvals(self.approvals.open_of(&key));
            }
            "ClusterToolPolicy" => drop(self.memory().policies_checked.remove(&key)),
            "Secret" => self.content_cache.forget(Kind::Secret, &key),
            "ConfigMap" => self.content_cache.forget(Kind::ConfigMap, &key),
            _ => {}
        }
    }
}
