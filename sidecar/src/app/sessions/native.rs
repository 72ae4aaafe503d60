//! The sessions and streams of the MCP clients in one pod.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::client::Session;
use crate::app::sessions::Sessions;

/// Most sessions of one pod: its runner, and the processes that it starts.
const SESSIONS: usize = 64;
/// Most open streams. One session has at most one.
const STREAMS: usize = 64;

/// The MCP clients of one pod.
#[derive(Debug)]
pub struct NativeClients {
    pub sessions: Sessions<Arc<Session>>,
    /// One permit per open stream.
    pub streams: Arc<Semaphore>,
    pub closing: watch::Sender<bool>,
}

impl Default for NativeClients {
    fn default() -> Self {
        Self {
            sessions: Sessions::new(SESSIONS),
            streams: Arc::new(Semaphore::new(STREAMS)),
            closing: watch::Sender::new(false),
        }
    }
}

impl NativeClients {
    /// Ends all streams, which would never end otherwise. Calls end by themselves.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}
