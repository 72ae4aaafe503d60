//! Spreads the creation of ToolApprovals over time: one a second for each agent, twenty a second in all.
//!
//! Pure. Bounded: an agent is forgotten once its slots are used up.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

use crate::controller::queue::rate_limit::RateLimit;

const OF_AGENT: Duration = Duration::from_secs(1);
const OF_ALL: Duration = Duration::from_millis(50);
/// Limits the wait for each of the two slots. Together they are shorter than a mediator waits for its
/// answer. A mediator whose question would wait longer asks again.
const LONGEST: Duration = Duration::from_secs(4);
/// Number of agents at which those without a reserved slot are forgotten.
const FORGET_FROM: usize = 1_024;

#[derive(Debug)]
pub struct Pace {
    agents: HashMap<ObjectRef, RateLimit>,
    all: RateLimit,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            agents: HashMap::new(),
            all: RateLimit::new(OF_ALL),
        }
    }
}

impl Pace {
    /// Reserves a slot among those of the agent; `None`: the wait would be too long.
    pub fn of_agent(&mut self, agent: &ObjectRef, now: Instant) -> Option<Instant> {
        if self.agents.len() >= FORGET_FROM {
            self.agents.retain(|_, limit| limit.next(now) > now);
        }
        let limit = self.agents.entry(agent.clone());
        reserve(limit.or_insert_with(|| RateLimit::new(OF_AGENT)), now)
    }

    /// Reserves a slot among those of all agents; `None`: the wait would be too long.
    pub fn of_all(&mut self, now: Instant) -> Option<Instant> {
        reserve(&mut self.all, now)
    }
}

fn reserve(limit: &mut RateLimit, now: Instant) -> Option<Instant> {
    (limit.next(now) <= now + LONGEST).then(|| limit.reserve(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_refused_that_are_too_far_away() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let otter = ObjectRef::new("pond", "otter");
        let slots: Vec<u64> = std::iter::from_fn(|| pace.of_agent(&otter, now))
            .map(|at| (at - now).as_secs())
            .collect();
        assert_eq!(slots, [0, 1, 2, 3, 4]);
        assert_eq!(std::iter::from_fn(|| pace.of_all(now)).count(), 81);
        let newt = ObjectRef::new("pond", "newt");
        assert_eq!(pace.of_agent(&newt, now), Some(now));
    }

    #[test]
    fn agents_are_forgotten() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for number in 0..10 * FORGET_FROM as u64 {
            let agent = ObjectRef::new("pond", format!("otter-{number}"));
            let later = now + Duration::from_millis(10 * number);
            assert_eq!(pace.of_agent(&agent, later), Some(later));
            assert!(pace.agents.len() <= FORGET_FROM);
        }
    }
}
