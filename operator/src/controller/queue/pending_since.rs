//! The time of each agent's first event that no compilation has covered yet.
//!
//! Only measures how long a revocation took; no decision depends on it. Bounded: an entry is
//! removed when its agent is compiled.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

#[derive(Debug, Default)]
pub struct PendingSince(Mutex<HashMap<ObjectRef, Instant>>);

/// One attempt to compile an agent. If it is dropped before [`Look::done`], its events stay pending.
#[derive(Debug)]
pub struct Look<'a> {
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

    /// Begins a look. Later events belong to the next one.
    pub fn look<'a>(&'a self, agent: &'a ObjectRef) -> Look<'a> {
        Look {
            pending_since: self,
            agent,
            since: self.entries().remove(agent),
        }
    }

    pub fn forget(&self) {
        self.entries().clear();
    }
}

impl Look<'_> {
    /// Ends the look; returns the time of the first event that it covers, if there was one.
    pub fn done(mut self) -> Option<Instant> {
        self.since.take()
    }
}

impl Drop for Look<'_> {
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
    fn the_first_event_counts_until_a_look_has_covered_it() {
        let pending_since = PendingSince::default();
        let otter = ObjectRef::new("pond", "otter");
        let start = Instant::now();
        let second = Duration::from_secs(1);
        pending_since.event(&otter, start);
        pending_since.event(&otter, start + second);
        drop(pending_since.look(&otter));
        let look = pending_since.look(&otter);
        pending_since.event(&otter, start + 2 * second);
        assert_eq!(look.done(), Some(start));
        assert_eq!(pending_since.look(&otter).done(), Some(start + 2 * second));
        assert_eq!(pending_since.look(&otter).done(), None);
        assert!(pending_since.entries().is_empty());
    }
}
