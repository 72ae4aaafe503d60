//! Measures revocations, from the watch event to the acknowledgement of the last pod.
//!
//! Pure. A revocation begins when the watch delivers the event that causes it. It ends when every pod
//! of the agent that has reported to this leader has that answer, or a later one, in force. Deleted
//! pods do not count. A silent pod keeps the revocation open for [`GIVEN_UP`], and that time is
//! observed, so that a missing acknowledgement shows in the metric.
//!
//! Bounded: one number per living pod, and [`OPEN`] revocations per agent. Beyond that, the latest
//! two become one, which ends with the later of them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

/// Age at which a revocation is closed without all acknowledgements. By then the kubelet has long
/// refreshed the volume.
pub const GIVEN_UP: Duration = Duration::from_secs(300);
/// Limit of open revocations per agent.
const OPEN: usize = 64;

#[derive(Debug, Default)]
pub struct Revocations {
    agents: HashMap<ObjectRef, AgentRevocations>,
    /// The agent of each pod, by the pod's UID.
    pods: HashMap<String, ObjectRef>,
}

#[derive(Debug, Default)]
struct AgentRevocations {
    /// The number of the answer that each pod has in force.
    seen: HashMap<String, u64>,
    /// The open revocations, ordered by number.
    open: VecDeque<PendingRevocation>,
}

#[derive(Debug)]
struct PendingRevocation {
    since: Instant,
    seq: u64,
}

impl Revocations {
    /// Opens a revocation; returns the durations of the revocations that this completes.
    pub fn add(
        &mut self,
        agent: &ObjectRef,
        since: Instant,
        seq: u64,
        now: Instant,
    ) -> Vec<Duration> {
        let Some(revocations) = self.agents.get_mut(agent) else {
            // No pod of the agent has reported, so the change reaches pods through the volume
            // alone.
            return Vec::new();
        };
        let full = revocations.open.len() >= OPEN;
        match revocations.open.back_mut() {
            Some(last) if full => last.seq = seq,
            Some(_) | None => revocations.open.push_back(PendingRevocation { since, seq }),
        }
        revocations.completed(now)
    }

    /// Records the answer that a pod has in force; returns the durations of completed revocations.
    pub fn acknowledge(
        &mut self,
        agent: &ObjectRef,
        pod: &str,
        seq: u64,
        now: Instant,
    ) -> Vec<Duration> {
        let mut completed = Vec::new();
        if self.pods.get(pod).is_some_and(|other| other != agent) {
            completed = self.remove_pod(pod, now);
        }
        self.pods.insert(pod.to_owned(), agent.clone());
        let revocations = self.agents.entry(agent.clone()).or_default();
        // The latest report and not the highest number: a restarted pod has no answer in force.
        revocations.seen.insert(pod.to_owned(), seq);
        completed.extend(revocations.completed(now));
        completed
    }

    /// Drops a deleted pod; returns the durations of the revocations that waited only for it.
    pub fn remove_pod(&mut self, pod: &str, now: Instant) -> Vec<Duration> {
        let Some(agent) = self.pods.remove(pod) else {
            return Vec::new();
        };
        let Some(revocations) = self.agents.get_mut(&agent) else {
            return Vec::new();
        };
        revocations.seen.remove(pod);
        if revocations.seen.is_empty() {
            // No pod is left to acknowledge the open revocations, so they are not observed.
            self.agents.remove(&agent);
            return Vec::new();
        }
        revocations.completed(now)
    }

    /// Closes revocations that have been open for too long; returns their ages.
    pub fn give_up(&mut self, now: Instant) -> Vec<Duration> {
        let mut completed = Vec::new();
        for revocations in self.agents.values_mut() {
            while let Some(open) = revocations.open.front()
                && now.saturating_duration_since(open.since) >= GIVEN_UP
            {
                completed.push(now.saturating_duration_since(open.since));
                revocations.open.pop_front();
            }
        }
        completed
    }

    /// Counts the revocations that some pod has not acknowledged.
    pub fn open(&self) -> usize {
        self.agents.values().map(|agent| agent.open.len()).sum()
    }
}

impl AgentRevocations {
    fn completed(&mut self, now: Instant) -> Vec<Duration> {
        let Some(least) = self.seen.values().min() else {
            return Vec::new();
        };
        let mut completed = Vec::new();
        while let Some(open) = self.open.front()
            && open.seq <= *least
        {
            completed.push(now.saturating_duration_since(open.since));
            self.open.pop_front();
        }
        completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    fn seconds(durations: &[Duration]) -> Vec<u64> {
        durations.iter().map(Duration::as_secs).collect()
    }

    const NONE: [u64; 0] = [];

    struct World {
        revocations: Revocations,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            Self {
                revocations: Revocations::default(),
                start: Instant::now(),
            }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn revoke(&mut self, since: u64, seq: u64) -> Vec<u64> {
            let (since, now) = (self.at(since), self.at(since));
            seconds(&self.revocations.add(&otter(), since, seq, now))
        }

        fn acknowledge(&mut self, pod: &str, seq: u64, now: u64) -> Vec<u64> {
            let now = self.at(now);
            seconds(&self.revocations.acknowledge(&otter(), pod, seq, now))
        }

        fn remove_pod(&mut self, pod: &str, now: u64) -> Vec<u64> {
            let now = self.at(now);
            seconds(&self.revocations.remove_pod(pod, now))
        }
    }

    #[test]
    fn a_revocation_ends_when_the_last_pod_acknowledges() {
        let mut world = World::new();
        assert_eq!(world.revoke(0, 1), NONE, "no pod has reported");
        world.acknowledge("a", 1, 0);
        world.acknowledge("b", 1, 0);
        assert_eq!(world.revoke(10, 2), NONE);
        assert_eq!(world.acknowledge("a", 2, 11), NONE);
        // An earlier report that arrives late does not acknowledge.
        assert_eq!(world.acknowledge("b", 1, 12), NONE);
        assert_eq!(world.acknowledge("b", 2, 13), [3]);
        assert_eq!(world.acknowledge("b", 2, 14), NONE);
        assert_eq!(world.revocations.open(), 0);
    }

    #[test]
    fn one_acknowledgement_ends_all_earlier_revocations() {
        let mut world = World::new();
        world.acknowledge("a", 1, 0);
        world.revoke(1, 2);
        world.revoke(3, 3);
        assert_eq!(world.acknowledge("a", 3, 4), [3, 1]);
    }

    #[test]
    fn a_deleted_pod_is_not_waited_for() {
        let mut world = World::new();
        world.acknowledge("a", 1, 0);
        world.acknowledge("b", 1, 0);
        world.revoke(1, 2);
        world.acknowledge("a", 2, 2);
        assert_eq!(world.remove_pod("b", 5), [4]);
        assert_eq!(world.remove_pod("b", 5), NONE);
        world.revoke(6, 3);
        // The last pod is deleted without an acknowledgement.
        assert_eq!(world.remove_pod("a", 7), NONE);
        assert!(world.revocations.agents.is_empty() && world.revocations.pods.is_empty());
    }

    #[test]
    fn a_pod_that_moves_to_another_agent_is_not_waited_for() {
        let mut world = World::new();
        world.acknowledge("a", 1, 0);
        world.acknowledge("b", 2, 0);
        world.revoke(1, 2);
        let newt = ObjectRef::new("pond", "newt");
        let now = world.at(3);
        let completed = world.revocations.acknowledge(&newt, "a", 0, now);
        assert_eq!(seconds(&completed), [2]);
    }

    #[test]
    fn a_silent_pod_is_given_up_and_shown() {
        let mut world = World::new();
        world.acknowledge("a", 1, 0);
        world.revoke(1, 2);
        let now = world.at(300);
        assert!(world.revocations.give_up(now).is_empty());
        let now = world.at(301);
        assert_eq!(seconds(&world.revocations.give_up(now)), [300]);
        assert!(world.revocations.give_up(now).is_empty());
    }

    #[test]
    fn open_revocations_are_bounded() {
        let mut world = World::new();
        world.acknowledge("a", 0, 0);
        for seq in 1..1_000 {
            world.revoke(1, seq);
        }
        assert_eq!(world.revocations.open(), OPEN);
        assert_eq!(world.acknowledge("a", 998, 2).len(), OPEN - 1);
        assert_eq!(world.acknowledge("a", 999, 3), [2]);
    }
}
