//! What all requests share, and the bounds that hold for them together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::config::Current;
use crate::connections::Bounds;
use crate::continuity::ContinuityStore;
use crate::feeds::Feeds;
use crate::history::History;
use crate::link::LinkStatus;
use crate::metrics::Metrics;
use crate::model::ModelClient;
use crate::outbound::Outbound;
use crate::sessions::native::NativeClients;
use crate::telemetry::Telemetry;
use crate::tools::client::Sender;
use crate::tools::mcp::Servers;
use crate::tools::oauth::Tokens;

#[derive(Debug)]
pub struct App {
    pub current: Arc<Current>,
    pub metrics: Arc<Metrics>,
    pub link: LinkStatus,
    pub telemetry: Telemetry,
    pub outbound: Arc<Outbound>,
    /// Access tokens of services.
    pub tokens: Arc<Tokens>,
    /// How MCP servers are spoken to.
    pub servers: Servers,
    /// Clients of the tools themselves.
    pub native: NativeClients,
    pub feeds: Feeds,
    pub models: ModelClient,
    pub history: History,
    pub continuity: ContinuityStore,
    pub settings: Settings,
    /// One permit per running request; draining takes them all.
    pub requests: Arc<Semaphore>,
    /// One permit per KiB of a body that is held.
    pub bodies: Arc<Semaphore>,
}

impl App {
    /// What the clients of tools send with.
    pub fn sender(&self) -> Sender<'_> {
        Sender::new(&self.outbound, &self.tokens, &self.servers, &self.current)
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub pod: String,
    pub keepalive: Duration,
    pub limits: Limits,
}

/// Bounds that no manifest sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests at once; more are 503. One pod's runner rarely has more than a few.
    pub requests: usize,
    /// One body. Providers' own limits are about as high.
    pub body: usize,
    /// All bodies that are held at once, in KiB.
    pub bodies_kib: usize,
    /// For a runner to send its body.
    pub body_timeout: Duration,
    /// For a model to begin its answer, where there is a fallback; longer where its first byte
    /// is its last.
    pub first_byte: Duration,
    /// Longest silence of a model whose answer passes through.
    pub silence: Duration,
    /// Connections of the runner, before anybody is authenticated.
    pub connections: Bounds,
    /// Those of the admin listener, so that no flood of the other one reaches it.
    pub admin: Bounds,
    /// For running requests to end by themselves after SIGTERM. Kubernetes grants 30 s by
    /// default for this …
    pub drain: Duration,
    /// … and for all that follows: cut requests, last bytes, spans, the record on stdout.
    pub closing: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 256,
            body: 32 * 1024 * 1024,
            bodies_kib: 128 * 1024,
            body_timeout: Duration::from_secs(30),
            first_byte: Duration::from_secs(60),
            silence: Duration::from_secs(300),
            connections: Bounds {
                connections: 512,
                head: Duration::from_secs(75),
                head_bytes: 64 * 1024,
            },
            admin: Bounds {
                connections: 32,
                head: Duration::from_secs(10),
                head_bytes: 16 * 1024,
            },
            drain: Duration::from_secs(20),
            closing: Duration::from_secs(8),
        }
    }
}
