//! The state that all requests share, and the bounds for all of them together.

pub mod budgets;
pub mod connections;
pub mod continuity;
pub mod line_file;
pub mod rates;
pub mod sessions;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use toolcrib_dialect::KnownTools;

use self::budgets::BudgetStore;
use self::connections::Bounds;
use self::continuity::ContinuityStore;
use self::rates::RateStore;
use self::sessions::native::NativeClients;
use crate::approvals::Approvals;
use crate::config::CurrentConfig;
use crate::export::Pace;
use crate::history::History;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::outbound::feeds::Feeds;
use crate::outbound::link::LinkStatus;
use crate::outbound::model::ModelClient;
use crate::outbound::outages::Outages;
use crate::outbound::tools::client::Sender;
use crate::outbound::tools::mcp::Servers;
use crate::outbound::tools::oauth::Tokens;
use crate::telemetry::Telemetry;

#[derive(Debug)]
pub struct App {
    pub current: Arc<CurrentConfig>,
    pub metrics: Arc<Metrics>,
    pub link: LinkStatus,
    pub telemetry: Telemetry,
    pub outbound: Arc<Outbound>,
    /// Access tokens of services.
    pub tokens: Arc<Tokens>,
    /// The protocol and session of each MCP server.
    pub servers: Servers,
    /// The MCP clients that call tools directly.
    pub native: NativeClients,
    pub feeds: Feeds,
    pub models: Arc<ModelClient>,
    /// The services that do not answer.
    pub outages: Arc<Outages>,
    pub history: Arc<History>,
    /// The questions about calls that need an approval.
    pub approvals: Arc<Approvals>,
    pub continuity: ContinuityStore,
    /// The calls that the rates of rules have counted.
    pub rates: RateStore,
    /// The counts of the agent's budgets.
    pub budgets: Arc<BudgetStore>,
    /// The runner's tools that were checked.
    pub known_tools: Mutex<KnownTools>,
    pub settings: Settings,
    /// One permit per running request; draining takes them all.
    pub requests: Arc<Semaphore>,
    /// One permit per KiB of bodies in memory.
    pub bodies: Arc<Semaphore>,
}

impl App {
    /// The connections and credentials for the clients of tools.
    pub fn sender(&self) -> Sender<'_> {
        Sender::new(&self.outbound, &self.tokens, &self.servers, &self.current)
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub pod: String,
    /// From the link token; `None` without a link.
    pub pod_uid: Option<Arc<str>>,
    pub keepalive: Duration,
    pub limits: Limits,
}

/// Bounds that no manifest sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most running requests; more get 503. One pod's runner rarely has more than a few.
    pub requests: usize,
    /// Most bytes of one body. The limits of providers are about as high.
    pub body: usize,
    /// Most KiB of all bodies in memory.
    pub bodies_kib: usize,
    /// Longest time for a runner to send its body.
    pub body_timeout: Duration,
    /// Longest wait for a model's first byte if there is a fallback; longer if the reply is not
    /// streamed.
    pub first_byte: Duration,
    /// Longest silence of a model whose answer passes through.
    pub silence: Duration,
    /// Bounds of the runner's connections, before authentication.
    pub connections: Bounds,
    /// Bounds of the admin listener, separate so that a flood of the other one does not reach it.
    pub admin: Bounds,
    /// Time for running requests to end by themselves after SIGTERM. By default Kubernetes grants
    /// 30 s for this and `closing` together.
    pub drain: Duration,
    /// Time for everything after that: cut requests, last bytes, spans, the record on stdout.
    pub closing: Duration,
    /// Rhythm of the record's export.
    pub export: Pace,
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
            export: Pace::default(),
        }
    }
}
