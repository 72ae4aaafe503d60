//! The times of hints. Pure: the caller passes the time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

/// The times of the hints after the write. The first one comes after the kubelet's own watch has
/// delivered the Secret: a refresh before that finds the old files. The others are for kubelets
/// that were late or missed the first.
const ATTEMPTS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

/// The write after which hints are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    pub written: Instant,
    /// The same by the wall clock, for comparison with the creation times of pods.
    pub time: Timestamp,
}

/// An agent whose pods are due for a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueHint {
    pub agent: ObjectRef,
    pub hint: Hint,
    /// Counts from 0.
    pub attempt: usize,
}

/// At most one plan per agent: a later write replaces it.
#[derive(Debug, Default)]
pub struct Schedule {
    plans: HashMap<ObjectRef, Plan>,
    times: BTreeSet<(Instant, ObjectRef)>,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    hint: Hint,
    attempt: usize,
}

impl Plan {
    fn at(self) -> Option<Instant> {
        Some(self.hint.written + *ATTEMPTS.get(self.attempt)?)
    }
}

impl Schedule {
    pub fn plan(&mut self, agent: ObjectRef, hint: Hint) {
        self.done(&agent);
        self.insert(agent, Plan { hint, attempt: 0 });
    }

    /// Drops the plan of an agent: its pods have loaded the files.
    pub fn done(&mut self, agent: &ObjectRef) {
        if let Some(plan) = self.plans.remove(agent)
            && let Some(at) = plan.at()
        {
            self.times.remove(&(at, agent.clone()));
        }
    }

    /// Takes the agent that has been due for the longest time, and plans its next attempt.
    pub fn take(&mut self, now: Instant) -> Option<DueHint> {
        let (at, _) = self.times.first()?;
        if *at > now {
            return None;
        }
        let (_, agent) = self.times.pop_first()?;
        let plan = self.plans.remove(&agent)?;
        let next = Plan {
            attempt: plan.attempt + 1,
            ..plan
        };
        self.insert(agent.clone(), next);
        Some(DueHint {
            agent,
            hint: plan.hint,
            attempt: plan.attempt,
        })
    }

    /// The time at which the next agent is due.
    pub fn next(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }

    fn insert(&mut self, agent: ObjectRef, plan: Plan) {
        if let Some(at) = plan.at() {
            self.times.insert((at, agent.clone()));
            self.plans.insert(agent, plan);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    fn hint(written: Instant) -> Hint {
        Hint {
            written,
            time: Timestamp::UNIX_EPOCH,
        }
    }

    fn taken(schedule: &mut Schedule, now: Instant) -> Vec<(String, usize)> {
        std::iter::from_fn(|| schedule.take(now))
            .map(|due| (due.agent.name, due.attempt))
            .collect()
    }

    #[test]
    fn an_agent_is_due_three_times_after_a_write() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.plan(ObjectRef::new("pond", "otter"), hint(start));
        let mut check = |after: u64, attempts: &[usize]| {
            let found = taken(&mut schedule, start + MILLIS(after));
            let found: Vec<usize> = found.into_iter().map(|(_, attempt)| attempt).collect();
            assert_eq!(found, attempts, "after {after} ms");
        };
        check(499, &[]);
        check(500, &[0]);
        check(2_999, &[]);
        check(3_000, &[1]);
        check(10_000, &[2]);
        check(1_000_000, &[]);
        assert_eq!(schedule.next(), None);
        assert!(schedule.plans.is_empty());
    }

    #[test]
    fn agents_are_taken_in_the_order_of_their_times() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.plan(ObjectRef::new("pond", "newt"), hint(start + MILLIS(10)));
        schedule.plan(ObjectRef::new("pond", "otter"), hint(start));
        let found = taken(&mut schedule, start + MILLIS(600));
        assert_eq!(found, [("otter".to_owned(), 0), ("newt".to_owned(), 0)]);
    }

    #[test]
    fn a_later_write_and_loaded_files_replace_a_plan() {
        let start = Instant::now();
        let otter = ObjectRef::new("pond", "otter");
        let mut schedule = Schedule::default();
        schedule.plan(otter.clone(), hint(start));
        schedule.plan(otter.clone(), hint(start + MILLIS(400)));
        assert_eq!(taken(&mut schedule, start + MILLIS(600)), []);
        assert_eq!(
            taken(&mut schedule, start + MILLIS(900)),
            [("otter".to_owned(), 0)]
        );
        schedule.done(&otter);
        assert_eq!((schedule.next(), schedule.plans.len()), (None, 0));
        assert!(schedule.times.is_empty());
    }
}
