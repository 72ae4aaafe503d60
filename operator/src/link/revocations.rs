//! How long what was taken away could still be used: from the event to the last pod's word.
//!
//! Pure. A revocation begins when the watch brings the event that leads to an answer which
//! takes something away, and ends when every pod of the agent that has spoken to this leader
//! has said that it has that answer, or a later one, in force. A pod that is gone counts out.
//! A pod that says nothing any more keeps it open for [`GIVEN_UP`], and is counted with that
//! time: what nobody acknowledged must show. Bounded: one number per living pod, and
//! [`OPEN`] revocations per agent; beyond, the latest two become one that ends with the later.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

/// Long after the volume has brought it.
pub const GIVEN_UP: Duration = Duration::from_secs(300);
const OPEN: usize = 64;

#[derive(Debug, Default)]
pub struct Revocations {
    agents: HashMap<ObjectRef, AgentRevocations>,
    /// Whose a pod is.
    pods: HashMap<String, ObjectRef>,
}

#[derive(Debug, Default)]
struct AgentRevocations {
    /// The answer that each pod has in force.
    seen: HashMap<String, u64>,
    /// By number.
    open: VecDeque<PendingRevocation>,
}

#[derive(Debug)]
struct PendingRevocation {
    since: Instant,
    seq: u64,
}

impl Revocations {
    /// An answer takes something away. How long revocations took that are over with this.
    pub fn took_away(
        &mut self,
        agent: &ObjectRef,
        since: Instant,
        seq: u64,
        now: Instant,
    ) -> Vec<Duration> {
        let Some(of_agent) = self.agents.get_mut(agent) else {
            // No pod of it has spoken: nobody has anything to lose but by the volume.
            return Vec::new();
        };
        let full = of_agent.open.len() >= OPEN;
        match of_agent.open.back_mut() {
            Some(last) if full => last.seq = seq,
            Some(_) | None => of_agent.open.push_back(PendingRevocation { since, seq }),
        }
        of_agent.over(now)
    }

    /// A pod says which answer it has in force.
    pub fn seen(&mut self, agent: &ObjectRef, pod: &str, seq: u64, now: Instant) -> Vec<Duration> {
        let mut over = Vec::new();
        if self.pods.get(pod).is_some_and(|other| other != agent) {
            over = self.gone(pod, now);
        }
        self.pods.insert(pod.to_owned(), agent.clone());
        let of_agent = self.agents.entry(agent.clone()).or_default();
        // Not the highest: one that began anew has none in force.
        of_agent.seen.insert(pod.to_owned(), seq);
        over.extend(of_agent.over(now));
        over
    }

    pub fn gone(&mut self, pod: &str, now: Instant) -> Vec<Duration> {
        let Some(agent) = self.pods.remove(pod) else {
            return Vec::new();
        };
        let Some(of_agent) = self.agents.get_mut(&agent) else {
            return Vec::new();
        };
        of_agent.seen.remove(pod);
        if of_agent.seen.is_empty() {
            // Nobody has it any more, and nobody has said so.
            self.agents.remove(&agent);
            return Vec::new();
        }
        of_agent.over(now)
    }

    /// What has been open for too long.
    pub fn give_up(&mut self, now: Instant) -> Vec<Duration> {
        let mut over = Vec::new();
        for of_agent in self.agents.values_mut() {
            while let Some(open) = of_agent.open.front()
                && now.saturating_duration_since(open.since) >= GIVEN_UP
            {
                over.push(now.saturating_duration_since(open.since));
                of_agent.open.pop_front();
            }
        }
        over
    }

    /// Revocations that some pod has not acknowledged.
    pub fn open(&self) -> usize {
        self.agents.values().map(|agent| agent.open.len()).sum()
    }
}

impl AgentRevocations {
    fn over(&mut self, now: Instant) -> Vec<Duration> {
        let Some(least) = self.seen.values().min() else {
            return Vec::new();
        };
        let mut over = Vec::new();
        while let Some(open) = self.open.front()
            && open.seq <= *least
        {
            over.push(now.saturating_duration_since(open.since));
            self.open.pop_front();
        }
        over
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

        fn took(&mut self, since: u64, seq: u64) -> Vec<u64> {
            let (since, now) = (self.at(since), self.at(since));
            seconds(&self.revocations.took_away(&otter(), since, seq, now))
        }

        fn seen(&mut self, pod: &str, seq: u64, now: u64) -> Vec<u64> {
            let now = self.at(now);
            seconds(&self.revocations.seen(&otter(), pod, seq, now))
        }

        fn gone(&mut self, pod: &str, now: u64) -> Vec<u64> {
            let now = self.at(now);
            seconds(&self.revocations.gone(pod, now))
        }
    }

    #[test]
    fn it_is_over_with_the_last_pods_word() {
        let mut world = World::new();
        assert_eq!(world.took(0, 1), NONE, "nobody is linked");
        world.seen("a", 1, 0);
        world.seen("b", 1, 0);
        assert_eq!(world.took(10, 2), NONE);
        assert_eq!(world.seen("a", 2, 11), NONE);
        // An earlier word that comes late takes nothing back for long.
        assert_eq!(world.seen("b", 1, 12), NONE);
        assert_eq!(world.seen("b", 2, 13), [3]);
        assert_eq!(world.seen("b", 2, 14), NONE);
        assert_eq!(world.revocations.open(), 0);
    }

    #[test]
    fn one_word_ends_all_before_it_each_with_its_own_time() {
        let mut world = World::new();
        world.seen("a", 1, 0);
        world.took(1, 2);
        world.took(3, 3);
        assert_eq!(world.seen("a", 3, 4), [3, 1]);
    }

    #[test]
    fn who_is_gone_counts_out() {
        let mut world = World::new();
        world.seen("a", 1, 0);
        world.seen("b", 1, 0);
        world.took(1, 2);
        world.seen("a", 2, 2);
        assert_eq!(world.gone("b", 5), [4]);
        assert_eq!(world.gone("b", 5), NONE);
        world.took(6, 3);
        // The last one goes: nobody has said anything.
        assert_eq!(world.gone("a", 7), NONE);
        assert!(world.revocations.agents.is_empty() && world.revocations.pods.is_empty());
    }

    #[test]
    fn a_pod_that_moves_to_another_agent_owes_the_first_nothing() {
        let mut world = World::new();
        world.seen("a", 1, 0);
        world.seen("b", 2, 0);
        world.took(1, 2);
        let newt = ObjectRef::new("pond", "newt");
        let now = world.at(3);
        let over = world.revocations.seen(&newt, "a", 0, now);
        assert_eq!(seconds(&over), [2]);
    }

    #[test]
    fn a_silent_pod_is_given_up_and_shown() {
        let mut world = World::new();
        world.seen("a", 1, 0);
        world.took(1, 2);
        let now = world.at(300);
        assert!(world.revocations.give_up(now).is_empty());
        let now = world.at(301);
        assert_eq!(seconds(&world.revocations.give_up(now)), [300]);
        assert!(world.revocations.give_up(now).is_empty());
    }

    #[test]
    fn there_are_never_many() {
        let mut world = World::new();
        world.seen("a", 0, 0);
        for seq in 1..1_000 {
            world.took(1, seq);
        }
        assert_eq!(world.revocations.open(), OPEN);
        assert_eq!(world.seen("a", 998, 2).len(), OPEN - 1);
        assert_eq!(world.seen("a", 999, 3), [2]);
    }
}
