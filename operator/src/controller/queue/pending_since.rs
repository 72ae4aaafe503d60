//! The time of each agent's first event that no compilation has covered yet.
//!
//! It only measures revocations; no decision depends on it. Bounded: an entry is removed when its
//! agent is compiled.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

#[derive(Debug, Default)]
pub struct PendingSince(Mutex<HashMap<ObjectRef, Instant>>);

/// An attempt to compile an agent. If it is dropped before [`Attempt::done`], its events stay
/// pending.
#[derive(Debug)]
pub struct Attempt<'a> {
    pending_since: &'a PendingSince,
    agent: &'a ObjectRef,
    since: Option<Instant>,
}

impl PendingSince {
    fn entries(&self) -> MutexGuard<'_, HashMap<ObjectRef, Instant>> {
        self.0.lock()
    }

    pub fn event(&self, agent: &ObjectRef, at: Instant) {
        let mut entries = self.entries();
        match entries.get_mut(agent) {
            Some(since) => *since = at.min(*since),
            None => {
                entries.insert(agent.clone(), at);
            }
        }
    }

    /// Begins an attempt. Later events belong to the next attempt.
    pub fn attempt<'a>(&'a self, agent: &'a ObjectRef) -> Attempt<'a> {
        Attempt {
            pending_since: self,
            agent,
            since: self.entries().remove(agent),
        }
    }

    pub fn forget(&self) {
        self.entries().clear();
    }
}

impl Attempt<'_> {
    /// Ends the attempt; returns the time of the first event that it covers, if there was one.
    pub fn done(mut self) -> Option<Instant> {
        self.since.take()
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.pending_since.event(self.agent, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_event_counts_until_an_attempt_has_covered_it() {
        let pending_since = PendingSince::default();
        let otter = ObjectRef::new("pond", "otter");
        let start = Instant::now();
        let second = Duration::from_secs(1);
        pending_since.event(&otter, start);
        pending_since.event(&otter, start + second);
        drop(pending_since.attempt(&otter));
        let attempt = pending_since.attempt(&otter);
        pending_since.event(&otter, start + 2 * second);
        assert_eq!(attempt.done(), Some(start));
        assert_eq!(
            pending_since.attempt(&otter).done(),
            Some(start + 2 * second)
        );
        assert_eq!(pending_since.attempt(&otter).done(), None);
        assert!(pending_since.entries().is_empty());
    }
}
