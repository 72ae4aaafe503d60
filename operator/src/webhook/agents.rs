//! A store of the cluster's Agents, filled by a watch.
//!
//! Each Agent is kept as JSON text, which takes a fraction of the memory of the decoded object. An
//! admission decodes only the Agent that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::{Api, Client, Resource as _, ResourceExt};
use kube_runtime::{WatchStreamExt, watcher};
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use toolcrib_compile::{Kind, ObjectRef};
use toolcrib_crds::Agent;

use super::meter::Meter;
use crate::objects::budget::Budget;
use crate::objects::decode::{DecodedObject, text};
use crate::objects::pages;

/// The cluster's Agents as the watch last delivered them. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    texts: Arc<RwLock<BTreeMap<ObjectRef, AgentText>>>,
    /// Notified of every change; the value is true once all Agents were listed.
    changed: watch::Receiver<bool>,
}

/// The task that fills [`Agents`].
pub struct StoreWriter {
    api: Option<Api<DecodedObject<Agent>>>,
    texts: Arc<RwLock<BTreeMap<ObjectRef, AgentText>>>,
    /// The Agents of a running list that have been received so far.
    listed: BTreeMap<ObjectRef, AgentText>,
    /// Decides which texts are kept. As in the controller, each namespace has an equal share, and its
    /// oldest Agents come first.
    budget: Budget,
    /// Agents whose text is left out because it does not fit into the budget.
    lacking: BTreeSet<ObjectRef>,
    changed: watch::Sender<bool>,
}

/// An Agent as JSON; `None` if it cannot be decoded, or does not fit into the budget.
#[derive(Clone)]
struct AgentText(Option<Box<str>>);

/// Limit of the texts of one namespace's Agents: a thousand times a large Agent.
const NAMESPACE_BYTES: usize = 8 * 1024 * 1024;

/// Shortest time between two lists that fetch Agents which fit into the budget again.
const LIST_AGAIN: Duration = Duration::from_secs(60);

impl AgentText {
    fn of(agent: &DecodedObject<Agent>) -> Self {
        let agent = agent.object.as_ref().ok();
        Self(agent.map(|agent| text(agent.as_ref()).into()))
    }

    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |text| text.len())
    }

    fn agent(&self) -> Option<Agent> {
        let text = self.0.as_ref()?;
        Some(serde_json::from_str(text).expect("the text was serialized from this type"))
    }
}

/// The result of looking up an Agent by name.
#[derive(Clone, Debug)]
pub enum Lookup {
    Agent(Box<Agent>),
    /// The Agent exists, but cannot be decoded or does not fit into the budget.
    Undecodable,
    Nothing,
    /// The first list of Agents is not complete yet.
    NotSynced,
}

impl Agents {
    /// Returns a store, and the task that fills it from the API server. All texts together may take
    /// `budget` bytes.
    pub fn watch(client: Client, budget: usize) -> (Self, StoreWriter) {
        Self::pair(Some(Api::all(pages::bounded(&client))), budget)
    }

    fn pair(api: Option<Api<DecodedObject<Agent>>>, budget: usize) -> (Self, StoreWriter) {
        let texts = Arc::default();
        let (sender, changed) = watch::channel(false);
        let writer = StoreWriter {
            api,
            texts: Arc::clone(&texts),
            listed: BTreeMap::new(),
            budget: Budget::new(NAMESPACE_BYTES, budget),
            lacking: BTreeSet::new(),
            changed: sender,
        };
        (Self { texts, changed }, writer)
    }

    pub fn synced(&self) -> bool {
        *self.changed.borrow()
    }

    pub fn len(&self) -> usize {
        self.texts().len()
    }

    /// Returns the Agent if it exists now and its text is kept.
    pub fn get(&self, agent: &ObjectRef) -> Option<Agent> {
        let text = self.texts().get(agent)?.clone();
        text.agent()
    }

    /// Returns the Agents of a namespace whose texts are kept.
    pub fn of_namespace(&self, namespace: &str) -> BTreeSet<ObjectRef> {
        self.picked(|key, text| key.namespace == namespace && text.0.is_some())
    }

    /// Returns the Agents for which `pick` is true. Decodes every kept text.
    pub fn select(&self, pick: impl Fn(&Agent) -> bool) -> BTreeSet<ObjectRef> {
        self.picked(|_, text| text.agent().is_some_and(|agent| pick(&agent)))
    }

    fn picked(&self, pick: impl Fn(&ObjectRef, &AgentText) -> bool) -> BTreeSet<ObjectRef> {
        let texts = self.texts();
        let picked = texts.iter().filter(|(key, text)| pick(key, text));
        picked.map(|(key, _)| key.clone()).collect()
    }

    /// Looks up an Agent and waits up to `limit` until the watch delivers it. When an Agent and its
    /// pod are applied together, the pod's admission may come first.
    pub async fn find(&self, namespace: &str, name: &str, limit: Duration) -> Lookup {
        let key = ObjectRef::new(namespace, name);
        let deadline = Instant::now() + limit;
        let mut changed = self.changed.clone();
        loop {
            // Marked as seen before the lookup, so that no change in between is missed.
            let synced = *changed.borrow_and_update();
            let text = self.texts().get(&key).cloned();
            if synced && let Some(text) = text {
                return match text.agent() {
                    Some(agent) => Lookup::Agent(Box::new(agent)),
                    None => Lookup::Undecodable,
                };
            }
            match tokio::time::timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                // The time is up, or the watch has ended.
                Ok(Err(_)) | Err(_) if synced => return Lookup::Nothing,
                Ok(Err(_)) | Err(_) => return Lookup::NotSynced,
            }
        }
    }

    fn texts(&self) -> RwLockReadGuard<'_, BTreeMap<ObjectRef, AgentText>> {
        self.texts.read()
    }
}

impl StoreWriter {
    /// Applies the events of the watch, forever. The watch restarts after an error.
    pub async fn run(mut self, meter: &Meter) {
        let Some(api) = self.api.take() else { return };
        let watch = || {
            watcher(api.clone(), watcher::Config::default())
                .default_backoff()
                .boxed()
        };
        let mut events = watch();
        let mut listed = Instant::now();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event),
                Err(error) => {
                    meter.watch_errors.inc();
                    tracing::warn!(%error, "watch of Agents failed, restarted");
                }
            }
            if listed.elapsed() >= LIST_AGAIN && self.has_room_again() {
                listed = Instant::now();
                events = watch();
            }
        }
    }

    /// Returns true if the text of an Agent was left out and fits into the budget now. Only a new
    /// list delivers the text.
    fn has_room_again(&self) -> bool {
        let mut lacking = self.lacking.iter();
        lacking.any(|agent| self.budget.check(Kind::Agent, agent).is_ok())
    }

    /// Charges an Agent to the budget; returns its text, or none if the text does not fit.
    fn admit(&mut self, agent: &DecodedObject<Agent>) -> AgentText {
        let (key, text) = (key(agent), AgentText::of(agent));
        let created = agent.meta().creation_timestamp.as_ref();
        let created = created.map(|time| time.0);
        let entered = self.budget.enter(Kind::Agent, &key, created, text.len());
        if entered.is_ok() {
            self.lacking.remove(&key);
            return text;
        }
        self.lacking.insert(key);
        AgentText(None)
    }

    /// Drops the texts that no longer fit into the budget.
    fn evict(&mut self) {
        for namespace in self.budget.moved(Kind::Agent) {
            let mut texts = self.texts.write();
            for (key, agent) in texts.iter_mut().chain(&mut self.listed) {
                if key.namespace == namespace
                    && agent.0.is_some()
                    && self.budget.check(Kind::Agent, key).is_err()
                {
                    agent.0 = None;
                    self.lacking.insert(key.clone());
                }
            }
        }
    }

    fn apply(&mut self, event: watcher::Event<DecodedObject<Agent>>) {
        let mut whole = *self.changed.borrow();
        let all = Arc::clone(&self.texts);
        let texts = || all.write();
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(agent) => {
                let admitted = self.admit(&agent);
                self.listed.insert(key(&agent), admitted);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.budget
                    .retain(Kind::Agent, |agent| listed.contains_key(agent));
                self.lacking.retain(|agent| listed.contains_key(agent));
                *texts() = listed;
                whole = true;
            }
            watcher::Event::Apply(agent) => {
                let admitted = self.admit(&agent);
                texts().insert(key(&agent), admitted);
            }
            watcher::Event::Delete(agent) => {
                let key = key(&agent);
                self.budget.remove(Kind::Agent, &key);
                self.lacking.remove(&key);
                texts().remove(&key);
            }
        }
        self.evict();
        if whole {
            self.changed.send_replace(true);
        }
    }
}

fn key(agent: &DecodedObject<Agent>) -> ObjectRef {
    ObjectRef::new(agent.namespace().unwrap_or_default(), agent.name_any())
}

#[cfg(test)]
pub(super) mod tests {
    use toolcrib_crds::AgentSpec;

    use super::*;

    /// The writer of a store, driven by a test instead of a watch.
    pub struct Fake(StoreWriter);

    impl Fake {
        pub fn new() -> (Agents, Self) {
            let (agents, writer) = Agents::pair(None, usize::MAX);
            (agents, Self(writer))
        }

        pub fn list(&mut self, agents: &[Agent]) {
            self.0.apply(watcher::Event::Init);
            for agent in agents {
                self.0
                    .apply(watcher::Event::InitApply(DecodedObject::of(agent.clone())));
            }
            self.0.apply(watcher::Event::InitDone);
        }

        pub fn add(&mut self, agent: Agent) {
            self.0
                .apply(watcher::Event::Apply(DecodedObject::of(agent)));
        }
    }

    pub fn agent(name: &str, namespace: &str) -> Agent {
        let mut agent = Agent::new(name, AgentSpec::default());
        agent.metadata.namespace = Some(namespace.to_owned());
        agent
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_created_during_the_wait_is_found() {
        let (agents, mut fake) = Fake::new();
        fake.list(&[agent("heron", "pond")]);
        let limit = Duration::from_secs(2);
        let looking = tokio::spawn({
            let agents = agents.clone();
            async move { agents.find("pond", "otter", limit).await }
        });
        tokio::time::sleep(Duration::from_millis(1500)).await;
        fake.add(agent("otter", "lake"));
        fake.add(agent("otter", "pond"));
        assert!(
            matches!(looking.await, Ok(Lookup::Agent(found)) if found.metadata.namespace.as_deref() == Some("pond"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_agent_is_told_apart_from_a_store_that_is_not_synced() {
        let (agents, mut fake) = Fake::new();
        let limit = Duration::from_secs(2);
        assert!(matches!(
            agents.find("pond", "otter", limit).await,
            Lookup::NotSynced
        ));
        fake.list(&[]);
        assert!(matches!(
            agents.find("pond", "otter", limit).await,
            Lookup::Nothing
        ));
    }
}
