//! Since when an agent is to be looked at: the first event that no look has covered yet.
//!
//! For the time that a revocation took; nothing is decided by it. Bounded: an entry goes
//! when its agent's turn comes.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use toolcrib_compile::ObjectRef;

#[derive(Debug, Default)]
pub struct Noticed(Mutex<HashMap<ObjectRef, Instant>>);

/// A look at an agent. One that is dropped before [`Look::done`] has covered nothing.
#[derive(Debug)]
pub struct Look<'a> {
    noticed: &'a Noticed,
    agent: &'a ObjectRef,
    since: Option<Instant>,
}

impl Noticed {
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

    /// What happens from here on is for the next look.
    pub fn look<'a>(&'a self, agent: &'a ObjectRef) -> Look<'a> {
        Look {
            noticed: self,
            agent,
            since: self.entries().remove(agent),
        }
    }

    pub fn forget(&self) {
        self.entries().clear();
    }
}

impl Look<'_> {
    /// The time of the first event that this look covers, if an event led to it.
    pub fn done(mut self) -> Option<Instant> {
        self.since.take()
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.noticed.event(self.agent, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_event_counts_until_a_look_has_covered_it() {
        let noticed = Noticed::default();
        let otter = ObjectRef::new("pond", "otter");
        let start = Instant::now();
        let second = Duration::from_secs(1);
        noticed.event(&otter, start);
        noticed.event(&otter, start + second);
        drop(noticed.look(&otter));
        let look = noticed.look(&otter);
        noticed.event(&otter, start + 2 * second);
        assert_eq!(look.done(), Some(start));
        assert_eq!(noticed.look(&otter).done(), Some(start + 2 * second));
        assert_eq!(noticed.look(&otter).done(), None);
        assert!(noticed.entries().is_empty());
    }
}
