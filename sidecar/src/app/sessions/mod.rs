//! Sessions of MCP clients that begin with `initialize`, by their names.
//!
//! Invariant: the number of sessions is bounded. A new session replaces the least recently used
//! one; its client gets 404 and begins anew, as the protocol says.

pub mod client;
pub mod native;

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

const ID_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(String);

impl SessionId {
    /// The name that a client sent; it may not exist.
    pub fn named(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug)]
pub struct Sessions<T> {
    most: usize,
    open: Mutex<HashMap<SessionId, SessionEntry<T>>>,
}

#[derive(Debug)]
struct SessionEntry<T> {
    used: Instant,
    value: T,
}

impl<T: Clone> Sessions<T> {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            open: Mutex::default(),
        }
    }

    /// Begins a session under a random name.
    pub fn begin(&self, value: T, now: Instant) -> Result<SessionId, getrandom::Error> {
        let mut bytes = [0; ID_BYTES];
        getrandom::fill(&mut bytes)?;
        let id = SessionId(hex::encode(bytes));
        let mut open = self.open();
        if open.len() >= self.most {
            let oldest = open.iter().min_by_key(|(_, held)| held.used);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                open.remove(&oldest);
            }
        }
        open.insert(id.clone(), SessionEntry { used: now, value });
        Ok(id)
    }

    /// Returns the session of this name, and marks it as used now.
    pub fn find(&self, name: &str, now: Instant) -> Option<(SessionId, T)> {
        let id = SessionId::named(name);
        let mut open = self.open();
        let held = open.get_mut(&id)?;
        held.used = now;
        Some((id, held.value.clone()))
    }

    /// Ends a session; true if it existed.
    pub fn end(&self, name: &str) -> bool {
        self.open().remove(&SessionId::named(name)).is_some()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, SessionEntry<T>>> {
        // Each change is one step, so a panic leaves no half-done change.
        self.open.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MOST: usize = 16;

    #[test]
    fn the_least_recently_used_session_makes_room() {
        let sessions = Sessions::new(MOST);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = sessions.begin((), at(0)).unwrap();
        let second = sessions.begin((), at(1)).unwrap();
        for _ in 2..MOST {
            sessions.begin((), at(2)).unwrap();
        }
        assert!(sessions.find(first.as_str(), at(3)).is_some());
        sessions.begin((), at(4)).unwrap();
        assert!(sessions.find(first.as_str(), at(5)).is_some());
        assert!(sessions.find(second.as_str(), at(5)).is_none());
    }

    #[test]
    fn an_ended_session_is_unknown() {
        let sessions = Sessions::new(MOST);
        let now = Instant::now();
        let id = sessions.begin((), now).unwrap();
        assert!(sessions.end(id.as_str()));
        assert!(!sessions.end(id.as_str()));
        assert!(sessions.find(id.as_str(), now).is_none());
    }
}
