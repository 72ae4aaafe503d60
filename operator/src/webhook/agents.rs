//! The Agents of the cluster, watched.
//!
//! An admission reads one of them, so each is kept as its text, which takes a fraction of what
//! it takes as a value.

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

/// What is known of the cluster's Agents. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    kept: Arc<RwLock<BTreeMap<ObjectRef, AgentText>>>,
    /// Sent whenever something has changed; the value says whether all were ever listed.
    changed: watch::Receiver<bool>,
}

/// The side that fills [`Agents`].
pub struct Filler {
    api: Option<Api<DecodedObject<Agent>>>,
    kept: Arc<RwLock<BTreeMap<ObjectRef, AgentText>>>,
    /// Of a list that is not whole yet.
    listed: BTreeMap<ObjectRef, AgentText>,
    /// Which Agents' texts are kept: as in the controller, the oldest of a namespace first, and an
    /// equal share for each namespace.
    budget: Budget,
    /// Agents that have no room.
    lacking: BTreeSet<ObjectRef>,
    changed: watch::Sender<bool>,
}

/// An Agent as JSON; `None`: it cannot be read as one, or takes too much memory.
#[derive(Clone)]
struct AgentText(Option<Box<str>>);

/// What the texts of one namespace's Agents may take: a thousand times what a large Agent has.
const NAMESPACE_BYTES: usize = 8 * 1024 * 1024;

/// Between two lists for the sake of Agents that have room again.
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
        Some(serde_json::from_str(text).expect("it was written from this type"))
    }
}

/// What is found under a name.
#[derive(Clone, Debug)]
pub enum Lookup {
    Agent(Box<Agent>),
    /// It is there, but cannot be read as an Agent.
    Undecodable,
    Nothing,
    /// The Agents were not listed yet.
    NotSynced,
}

impl Agents {
    /// A store and the task that fills it from the API server.
    /// All texts together may take `budget` bytes.
    pub fn watch(client: Client, budget: usize) -> (Self, Filler) {
        Self::pair(Some(Api::all(pages::bounded(&client))), budget)
    }

    fn pair(api: Option<Api<DecodedObject<Agent>>>, budget: usize) -> (Self, Filler) {
        let kept = Arc::default();
        let (sender, changed) = watch::channel(false);
        let filler = Filler {
            api,
            kept: Arc::clone(&kept),
            listed: BTreeMap::new(),
            budget: Budget::new(NAMESPACE_BYTES, budget),
            lacking: BTreeSet::new(),
            changed: sender,
        };
        (Self { kept, changed }, filler)
    }

    pub fn synced(&self) -> bool {
        *self.changed.borrow()
    }

    pub fn len(&self) -> usize {
        self.kept().len()
    }

    /// One that can be read, if it is there now.
    pub fn get(&self, agent: &ObjectRef) -> Option<Agent> {
        let kept = self.kept().get(agent)?.clone();
        kept.agent()
    }

    /// Those of a namespace that can be read.
    pub fn of_namespace(&self, namespace: &str) -> BTreeSet<ObjectRef> {
        self.picked(|key, kept| key.namespace == namespace && kept.0.is_some())
    }

    /// Those that can be read and that `pick` picks. Reads all.
    pub fn select(&self, pick: impl Fn(&Agent) -> bool) -> BTreeSet<ObjectRef> {
        self.picked(|_, kept| kept.agent().is_some_and(|agent| pick(&agent)))
    }

    fn picked(&self, pick: impl Fn(&ObjectRef, &AgentText) -> bool) -> BTreeSet<ObjectRef> {
        let kept = self.kept();
        let picked = kept.iter().filter(|(key, kept)| pick(key, kept));
        picked.map(|(key, _)| key.clone()).collect()
    }

    /// Looks an agent up, and waits for it for up to `limit`: of files that are applied
    /// together, the pod's admission may be faster than the watch.
    pub async fn find(&self, namespace: &str, name: &str, limit: Duration) -> Lookup {
        let key = ObjectRef::new(namespace, name);
        let deadline = Instant::now() + limit;
        let mut changed = self.changed.clone();
        loop {
            // Marked as seen before looking, so that no change in between is missed.
            let synced = *changed.borrow_and_update();
            let kept = self.kept().get(&key).cloned();
            if synced && let Some(kept) = kept {
                return match kept.agent() {
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

    fn kept(&self) -> RwLockReadGuard<'_, BTreeMap<ObjectRef, AgentText>> {
        self.kept.read()
    }
}

impl Filler {
    /// Ends only when nothing is left to watch, which does not happen.
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
                    tracing::warn!(%error, "watch of Agents failed; it is begun again");
                }
            }
            if listed.elapsed() >= LIST_AGAIN && self.has_room_again() {
                listed = Instant::now();
                events = watch();
            }
        }
    }

    /// Whether an Agent whose text was left out has room by now: only a list brings it.
    fn has_room_again(&self) -> bool {
        let mut lacking = self.lacking.iter();
        lacking.any(|agent| self.budget.check(Kind::Agent, agent).is_ok())
    }

    /// What is kept of an Agent: nothing where its namespace has no room.
    fn admit(&mut self, agent: &DecodedObject<Agent>) -> AgentText {
        let (key, kept) = (key(agent), AgentText::of(agent));
        let created = agent.meta().creation_timestamp.as_ref();
        let created = created.map(|time| time.0);
        let entered = self.budget.enter(Kind::Agent, &key, created, kept.len());
        if entered.is_ok() {
            self.lacking.remove(&key);
            return kept;
        }
        self.lacking.insert(key);
        AgentText(None)
    }

    /// Leaves out the texts that have no room any more.
    fn put_out(&mut self) {
        for namespace in self.budget.moved(Kind::Agent) {
            let mut kept = self.kept.write();
            for (key, agent) in kept.iter_mut().chain(&mut self.listed) {
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
        let all = Arc::clone(&self.kept);
        let kept = || all.write();
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
                *kept() = listed;
                whole = true;
            }
            watcher::Event::Apply(agent) => {
                let admitted = self.admit(&agent);
                kept().insert(key(&agent), admitted);
            }
            watcher::Event::Delete(agent) => {
                let key = key(&agent);
                self.budget.remove(Kind::Agent, &key);
                self.lacking.remove(&key);
                kept().remove(&key);
            }
        }
        self.put_out();
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

    /// A store that a test fills.
    pub struct Fake(Filler);

    impl Fake {
        pub fn new() -> (Agents, Self) {
            let (agents, filler) = Agents::pair(None, usize::MAX);
            (agents, Self(filler))
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
    async fn an_agent_that_comes_within_the_wait_is_found() {
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
    async fn nothing_and_not_synced_differ() {
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
