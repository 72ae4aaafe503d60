//! Sessions of clients that begin with `initialize`: names that were given out, and nothing
//! else.
//!
//! Invariant: bounded. When there is no room, the session that was used longest ago ends; its
//! client hears 404 and begins anew, as the protocol says.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One per mediator or so; each is a name and a time.
const SESSIONS: usize = 1024;
const ID_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(String);

impl SessionId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub fn named(name: &str) -> Self {
        Self(name.to_owned())
    }
}

#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<SessionId, Instant>>);

impl Sessions {
    /// A name that cannot be guessed.
    pub fn begin(&self, now: Instant) -> Result<SessionId, getrandom::Error> {
        let mut bytes = [0; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        let id = SessionId(hex::encode(bytes));
        let mut open = self.open();
        if open.len() >= SESSIONS {
            let oldest = open.iter().min_by_key(|(_, used)| **used);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                open.remove(&oldest);
            }
        }
        open.insert(id.clone(), now);
        Ok(id)
    }

    /// The session of this name, used now.
    pub fn find(&self, name: &str, now: Instant) -> Option<SessionId> {
        let id = SessionId(name.to_owned());
        *self.open().get_mut(&id)? = now;
        Some(id)
    }

    /// Whether there was one.
    pub fn end(&self, name: &str) -> bool {
        self.open().remove(&SessionId(name.to_owned())).is_some()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        // Each change is one step, so a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_one_that_was_used_longest_ago_makes_room() {
        let sessions = Sessions::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = sessions.begin(at(0)).unwrap();
        let second = sessions.begin(at(1)).unwrap();
        for _ in 2..SESSIONS {
            sessions.begin(at(2)).unwrap();
        }
        assert!(sessions.find(first.as_str(), at(3)).is_some());
        sessions.begin(at(4)).unwrap();
        assert!(sessions.find(first.as_str(), at(5)).is_some());
        assert!(sessions.find(second.as_str(), at(5)).is_none());
    }

    #[test]
    fn an_ended_session_is_unknown() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let id = sessions.begin(now).unwrap();
        assert!(sessions.end(id.as_str()));
        assert!(!sessions.end(id.as_str()));
        assert!(sessions.find(id.as_str(), now).is_none());
    }
}
