//! What is held for the runner as an MCP client: its sessions and its streams.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::Sessions;
use super::client::Session;

/// Clients of one pod: its runner, and what that starts.
const SESSIONS: usize = 64;
/// Streams that are held open. One session has one at most.
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
    /// Ends what would wait for ever. Calls end by themselves.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}
