//! The leader's state that is not in the API server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use toolcrib_compile::{ObjectRef, Role};
use toolcrib_manifest::Want;

use crate::controller::queue::rate_limit::RateLimit;
use crate::controller::queue::work::Work;
use crate::controller::write::apply::AppliedState;

/// The leader's state, which is empty when it begins.
#[derive(Debug)]
pub struct Memory {
    /// State by agent, boxed because a map allocates room for more entries than it has.
    pub agents: HashMap<ObjectRef, Box<AgentMemory>>,
    /// The findings, by the object that they were reported for.
    pub findings: HashMap<Work, Findings>,
    pub usage: RateLimit,
    pub notices: Notices,
    /// Time of the last check of each policy.
    pub policies_checked: HashMap<ObjectRef, Instant>,
    /// Digest of each wanted status.
    pub statuses: HashMap<Work, u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            agents: HashMap::new(),
            findings: HashMap::new(),
            usage: RateLimit::new(USAGE_APART),
            notices: Notices::default(),
            policies_checked: HashMap::new(),
            statuses: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct AgentMemory {
    /// The objects last seen in the API server, by the number of their role. An entry outlives its
    /// object: the object is read again before it is created again.
    pub applied: [Option<AppliedState>; Role::ALL.len()],
    /// The digests that are compiled and written, and the time of the write. The link sends the
    /// same to mediators.
    pub want: Option<(Arc<Want>, Instant)>,
    /// For each policy that is tried out: the number of the agent's tools that it would deny.
    pub would_deny: BTreeMap<String, u32>,
    /// Whether the next write will give the agent something that its current files do not have.
    pub gives: bool,
    pub usage_written: Option<Instant>,
    /// The time from which its changed usage may be written.
    pub usage_slot: Option<Instant>,
}

/// Digests of the findings of one object.
#[derive(Debug, Default)]
pub struct Findings {
    current: BTreeSet<u64>,
    /// Findings that were reported and have ended, at most [`MAX_ENDED`].
    ended: BTreeSet<u64>,
}

/// Limits the ended findings of an object that are remembered.
const MAX_ENDED: usize = 64;

/// How a finding compares with the earlier ones of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingState {
    New,
    /// It was reported, ended, and is there again.
    Again,
    Reported,
}

impl Findings {
    /// Replaces the current findings; returns for each how it compares with the earlier ones.
    pub fn replace(&mut self, now: &[u64]) -> Vec<FindingState> {
        let states = now.iter().map(|finding| {
            match (self.current.contains(finding), self.ended.contains(finding)) {
                (true, _) => FindingState::Reported,
                (false, true) => FindingState::Again,
                (false, false) => FindingState::New,
            }
        });
        let states = states.collect();
        let now: BTreeSet<u64> = now.iter().copied().collect();
        self.ended.retain(|finding| !now.contains(finding));
        self.ended.extend(self.current.difference(&now));
        while self.ended.len() > MAX_ENDED {
            self.ended.pop_first();
        }
        self.current = now;
        states
    }

    pub fn are_empty(&self) -> bool {
        self.current.is_empty() && self.ended.is_empty()
    }
}

/// A rate limiter for the Normal Events of all agents: a Surface that changes for ten thousand
/// agents must not cause ten thousand Events.
#[derive(Debug)]
pub struct Notices(RateLimit);

impl Default for Notices {
    fn default() -> Self {
        Self(RateLimit::new(NOTICES_APART))
    }
}

impl Notices {
    /// Takes a slot for an Event. False if the rate is exceeded.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.0.try_take(now, NOTICES_BURST)
    }
}

/// Interval between two Normal Events.
const NOTICES_APART: Duration = Duration::from_millis(200);
/// Slots of this time may be taken at once: 150 Events.
const NOTICES_BURST: Duration = Duration::from_secs(30);

/// Interval between the usage of two agents, which bounds the writes of ten thousand busy agents.
const USAGE_APART: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_that_returns_is_reported_again() {
        let mut findings = Findings::default();
        use FindingState::{Again, New, Reported};
        assert_eq!(findings.replace(&[1, 2]), [New, New]);
        assert_eq!(findings.replace(&[2, 3]), [Reported, New]);
        assert_eq!(findings.replace(&[1, 3]), [Again, Reported]);
        assert_eq!(findings.replace(&[1]), [Reported]);
        assert_eq!(findings.replace(&[]), []);
        assert!(!findings.are_empty());
        for finding in 10..10 + 2 * MAX_ENDED as u64 {
            findings.replace(&[finding]);
        }
        assert_eq!(findings.ended.len(), MAX_ENDED);
    }
}
