//! The session of a client that began with `initialize`.
//!
//! Invariant: the end of a session ends its stream and its running calls, since they wait on
//! channels that the session owns.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use toolcrib_manifest::AgentFile;

#[derive(Debug)]
pub struct Session {
    /// Namespace and name.
    agent: (String, String),
    /// The list of tools that the client knows.
    pub told: Arc<KnownList>,
    /// Running calls by id, as the client wrote it; `None`: the call was cancelled.
    calls: Mutex<HashMap<String, Option<oneshot::Sender<()>>>>,
    /// Ends the open stream.
    stream: Mutex<Option<oneshot::Sender<()>>>,
}

impl Session {
    pub fn new(agent: &AgentFile) -> Self {
        Self {
            agent: (agent.namespace.clone(), agent.agent.clone()),
            told: Arc::default(),
            calls: Mutex::default(),
            stream: Mutex::default(),
        }
    }

    pub fn is_of(&self, agent: &AgentFile) -> bool {
        self.agent.0 == agent.namespace && self.agent.1 == agent.agent
    }

    /// Registers a call. `None`: a call with this id is running.
    pub fn begin(self: &Arc<Self>, id: &RawValue) -> Option<SessionCall> {
        let (end, ended) = oneshot::channel();
        let id = id.get().to_owned();
        let mut calls = self.calls.lock();
        if calls.contains_key(&id) {
            return None;
        }
        calls.insert(id.clone(), Some(end));
        Some(SessionCall {
            ended,
            id,
            session: Arc::downgrade(self),
        })
    }

    /// Cancels a call for the client.
    pub fn cancel(&self, id: &RawValue) {
        let end = self.calls.lock().get_mut(id.get()).and_then(Option::take);
        // Err: the call has ended meanwhile.
        end.map(|end| end.send(()));
    }

    /// Resolves when the session ends, or another stream takes this one's place.
    pub fn stream(&self) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        *self.stream.lock() = Some(end);
        ended
    }
}

/// A running call of a session.
#[derive(Debug)]
pub struct SessionCall {
    ended: oneshot::Receiver<()>,
    id: String,
    session: Weak<Session>,
}

impl SessionCall {
    /// Resolves when the client cancels the call, or its session ends.
    pub async fn cancelled(&mut self) {
        (&mut self.ended).await.ok();
    }
}

impl Drop for SessionCall {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.calls.lock().remove(&self.id);
        }
    }
}

/// The digest of the list of tools that a client knows.
#[derive(Debug, Default)]
pub struct KnownList(Mutex<Option<[u8; 32]>>);

impl KnownList {
    /// Sets the list that the client knows. True if it knew another one.
    pub fn renew(&self, digest: [u8; 32]) -> bool {
        let before = self.0.lock().replace(digest);
        before.is_some_and(|before| before != digest)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;
    use toolcrib_mcp::raw;

    use super::*;

    fn session() -> Arc<Session> {
        let agent = r#"{"version":1,"agent":"otter","namespace":"pond","claw_id":"o","tokens":[]}"#;
        Arc::new(Session::new(&serde_json::from_str(agent).unwrap()))
    }

    #[test]
    fn a_call_is_cancelled_by_its_own_id_alone_and_frees_it_when_it_ends() {
        let session = session();
        let mut seven = session.begin(&raw(&json!(7))).unwrap();
        let mut text = session.begin(&raw(&json!("7"))).unwrap();
        assert!(session.begin(&raw(&json!(7))).is_none());
        session.cancel(&raw(&json!(8)));
        session.cancel(&raw(&json!(7)));
        assert!(seven.cancelled().now_or_never().is_some());
        assert!(text.cancelled().now_or_never().is_none());
        assert!(session.begin(&raw(&json!(7))).is_none());
        drop(seven);
        assert!(session.begin(&raw(&json!(7))).is_some());
    }

    #[test]
    fn the_end_of_a_session_ends_its_calls_and_its_stream() {
        let session = session();
        let mut call = session.begin(&raw(&json!(7))).unwrap();
        let mut first = session.stream();
        let mut second = session.stream();
        assert!((&mut first).now_or_never().is_some());
        assert!((&mut second).now_or_never().is_none());
        drop(session);
        assert!(call.cancelled().now_or_never().is_some());
        assert!((&mut second).now_or_never().is_some());
    }

    #[test]
    fn only_a_changed_list_is_announced() {
        let told = KnownList::default();
        assert!(!told.renew([1; 32]));
        assert!(!told.renew([1; 32]));
        assert!(told.renew([2; 32]));
        assert!(!told.renew([2; 32]));
    }
}
