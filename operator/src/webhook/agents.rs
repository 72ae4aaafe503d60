//! The Agents of the cluster, watched.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::{Api, Client, ResourceExt};
use kube_runtime::reflector::{self, ObjectRef, Store};
use kube_runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::time::Instant;
use toolcrib_crds::Agent;

use super::meter::Meter;
use crate::controller::decode::Decoded;

/// What is known of the cluster's Agents. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    store: Store<Decoded<Agent>>,
    /// Sent whenever the store has changed; the value says whether it was ever whole.
    changed: watch::Receiver<bool>,
}

/// The side that fills [`Agents`].
pub struct Filler {
    api: Option<Api<Decoded<Agent>>>,
    writer: reflector::store::Writer<Decoded<Agent>>,
    changed: watch::Sender<bool>,
}

/// What is found under a name.
#[derive(Clone, Debug)]
pub enum Found {
    Agent(Arc<Agent>),
    /// It is there, but cannot be read as an Agent.
    Undecodable,
    Nothing,
    /// The Agents were not listed yet.
    NotSynced,
}

impl Agents {
    /// A store and the task that fills it from the API server.
    pub fn watch(client: Client) -> (Self, Filler) {
        Self::pair(Some(Api::all(client)))
    }

    fn pair(api: Option<Api<Decoded<Agent>>>) -> (Self, Filler) {
        let (store, writer) = reflector::store();
        let (sender, changed) = watch::channel(false);
        let filler = Filler {
            api,
            writer,
            changed: sender,
        };
        (Self { store, changed }, filler)
    }

    pub fn synced(&self) -> bool {
        *self.changed.borrow()
    }

    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// One that can be read, if it is there now.
    pub fn get(&self, agent: &toolcrib_compile::ObjectRef) -> Option<Arc<Agent>> {
        let key = ObjectRef::<Decoded<Agent>>::new(&agent.name).within(&agent.namespace);
        self.store.get(&key)?.object.clone().ok()
    }

    /// Those that `pick` picks.
    pub fn select(&self, pick: impl Fn(&Agent) -> bool) -> BTreeSet<toolcrib_compile::ObjectRef> {
        let agents = self.store.state();
        let readable = agents.iter().filter_map(|agent| agent.object.as_ref().ok());
        readable
            .filter(|agent| pick(agent))
            .map(|agent| {
                let namespace = agent.metadata.namespace.clone().unwrap_or_default();
                toolcrib_compile::ObjectRef::new(namespace, agent.name_any())
            })
            .collect()
    }

    /// Looks an agent up, and waits for it for up to `limit`: of files that are applied
    /// together, the pod's admission may be faster than the watch.
    pub async fn find(&self, namespace: &str, name: &str, limit: Duration) -> Found {
        let key = ObjectRef::<Decoded<Agent>>::new(name).within(namespace);
        let deadline = Instant::now() + limit;
        let mut changed = self.changed.clone();
        loop {
            // Marked as seen before looking, so that no change in between is missed.
            let synced = *changed.borrow_and_update();
            if synced && let Some(found) = self.store.get(&key) {
                return match &found.object {
                    Ok(agent) => Found::Agent(Arc::clone(agent)),
                    Err(_) => Found::Undecodable,
                };
            }
            match tokio::time::timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                // The time is up, or the watch has ended.
                Ok(Err(_)) | Err(_) if synced => return Found::Nothing,
                Ok(Err(_)) | Err(_) => return Found::NotSynced,
            }
        }
    }
}

impl Filler {
    /// Ends only when nothing is left to watch, which does not happen.
    pub async fn run(mut self, meter: &Meter) {
        let Some(api) = self.api.take() else { return };
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event),
                Err(error) => {
                    meter.watch_errors.inc();
                    tracing::warn!(%error, "watch of Agents failed; it is begun again");
                }
            }
        }
    }

    fn apply(&mut self, mut event: watcher::Event<Decoded<Agent>>) {
        match &mut event {
            watcher::Event::Apply(agent)
            | watcher::Event::InitApply(agent)
            | watcher::Event::Delete(agent) => agent.forget_status(),
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
        self.writer.apply_watcher_event(&event);
        let whole = match event {
            watcher::Event::InitDone => true,
            watcher::Event::Init
            | watcher::Event::InitApply(_)
            | watcher::Event::Apply(_)
            | watcher::Event::Delete(_) => *self.changed.borrow(),
        };
        if whole {
            self.changed.send_replace(true);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use toolcrib_crds::AgentSpec;

    use super::*;

    /// A store that a test fills.
    pub struct Fake(Filler);

    impl Fake {
        pub fn new() -> (Agents, Self) {
            let (agents, filler) = Agents::pair(None);
            (agents, Self(filler))
        }

        pub fn list(&mut self, agents: &[Agent]) {
            self.0.apply(watcher::Event::Init);
            for agent in agents {
                self.0
                    .apply(watcher::Event::InitApply(Decoded::of(agent.clone())));
            }
            self.0.apply(watcher::Event::InitDone);
        }

        pub fn add(&mut self, agent: Agent) {
            self.0.apply(watcher::Event::Apply(Decoded::of(agent)));
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
            matches!(looking.await, Ok(Found::Agent(found)) if found.metadata.namespace.as_deref() == Some("pond"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_and_not_synced_differ() {
        let (agents, mut fake) = Fake::new();
        let limit = Duration::from_secs(2);
        assert!(matches!(
            agents.find("pond", "otter", limit).await,
            Found::NotSynced
        ));
        fake.list(&[]);
        assert!(matches!(
            agents.find("pond", "otter", limit).await,
            Found::Nothing
        ));
    }
}
