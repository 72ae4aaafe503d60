//! The protocol and session of each MCP server, by server, credential and identity: negotiated by
//! the first call, cached for the next ones, and ended in order.
//!
//! `server/discover` comes first, since it has no side effect; a server that does not know it gets
//! `initialize`.
//!
//! Invariants: an entry of one credential is never used with another; entries are bounded in
//! number and age; a call in a session that is dropped early is cancelled at the server; no task
//! here outlives its deadline or this value.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::HeaderMap;
use http::header::HeaderValue;
use parking_lot::{Mutex, MutexGuard};
use reqwest::{Method, RequestBuilder};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use toolcrib_bounds::digest::Parts;
use toolcrib_manifest::ServiceSettings;
use toolcrib_mcp::client::{self, Client, Protocol};
use toolcrib_mcp::revision::Form;
use toolcrib_mediation::{Certainty, ResultCode, ToolFailure};

use super::exchange::{Bounds, Endpoint, ExchangeError, Reply, ReplyContent, SESSION, exchange};
use crate::metrics::Metrics;
use crate::outbound::single_flight::Flights;
use crate::outbound::tools::mcp::Call;

/// Deadline for negotiating the protocol. A call's own deadline ends its wait earlier.
const OPENING: Duration = Duration::from_secs(10);
/// Deadline for a message that a call or a session is over.
const FAREWELL: Duration = Duration::from_secs(5);
/// Most such messages at once; one more is not sent, and the session expires at the server.
const FAREWELLS: usize = 32;
/// Most entries for servers and credentials. One more replaces the least recently used one.
const MAX_SERVERS: usize = 64;
/// An entry that was unused for this long is dropped: servers forget sessions, too.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Most bytes of a session's name, which is a token of the server.
const MAX_SESSION: usize = 1024;

const CLIENT: Client = Client::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));

/// The key of an entry: server, credential, identity, and the route to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    pub(super) fn of(endpoint: &Endpoint, settings: Option<&ServiceSettings>) -> Self {
        let mut parts = Parts::default();
        let mut part = |bytes: &[u8]| parts.push(bytes);
        part(endpoint.url.as_str().as_bytes());
        part(endpoint.claw_id.as_bytes());
        if let Some((name, value)) = &endpoint.credential {
            part(name.as_str().as_bytes());
            part(value.as_bytes());
        }
        part(b"");
        let ca = settings.and_then(|settings| settings.tls.as_ref()?.ca.as_deref());
        part(ca.unwrap_or_default().as_bytes());
        let proxy = settings.and_then(|settings| settings.proxy.as_deref());
        part(proxy.unwrap_or_default().as_bytes());
        Self(parts.digest())
    }
}

#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) protocol: Protocol,
    /// True if an earlier call opened the session, so that the server may have forgotten it.
    pub(super) reused: bool,
}

/// The reason why no call was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OpenError {
    #[error("its server answered with status {0}")]
    Http(u16),
    #[error("its server answered with error {0}")]
    Rpc(i64),
    #[error("its server supports no protocol revision of this mediator")]
    Revision,
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

impl OpenError {
    pub(super) fn failure(self, name: &str, endpoint: &Endpoint) -> ToolFailure {
        let (code, certainty) = match self {
            OpenError::Http(status @ (408 | 425 | 429 | 500..=599)) => {
                (ResultCode::Http(status), Certainty::Unreached)
            }
            OpenError::Http(status) => (ResultCode::Http(status), Certainty::NeverRan),
            OpenError::Rpc(_) | OpenError::Revision => (ResultCode::McpError, Certainty::NeverRan),
            OpenError::Exchange(ExchangeError::Silent) => {
                (ResultCode::Timeout, Certainty::Unreached)
            }
            OpenError::Exchange(
                ExchangeError::NotConnected(_) | ExchangeError::BrokenOff | ExchangeError::NoRoom,
            ) => (ResultCode::RequestFailed, Certainty::Unreached),
            OpenError::Exchange(ExchangeError::TooLarge) => {
                (ResultCode::RequestFailed, Certainty::NeverRan)
            }
            OpenError::Exchange(
                ExchangeError::NotMcp | ExchangeError::OtherId | ExchangeError::Insistent,
            ) => (ResultCode::McpError, Certainty::NeverRan),
        };
        let failure = ToolFailure::new(code, certainty, format!("{name} was not called: {self}"));
        match self {
            OpenError::Exchange(error) => error.explain(name, failure, endpoint),
            OpenError::Http(_) | OpenError::Rpc(_) | OpenError::Revision => failure,
        }
    }
}

/// A cache of the servers that have been opened.
pub struct Servers {
    shared: Arc<ServersState>,
    openings: Flights<Key, Result<Protocol, OpenError>>,
}

struct ServersState {
    metrics: Arc<Metrics>,
    bodies: Arc<Semaphore>,
    servers: Mutex<HashMap<Key, ServerEntry>>,
    farewells: Mutex<JoinSet<()>>,
    /// The last JSON-RPC id; ids are unique in this process.
    last_id: AtomicU64,
}

struct ServerEntry {
    endpoint: Arc<Endpoint>,
    protocol: Protocol,
    used: Instant,
}

impl ServerEntry {
    fn is_young(&self, now: Instant) -> bool {
        self.used + IDLE > now
    }
}

/// The result of `server/discover`.
#[derive(Default)]
struct DiscoverResult {
    is_stateless: bool,
    /// A session that the server began unasked; it is ended unused.
    session: Option<HeaderValue>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Servers(…)")
    }
}

impl Servers {
    /// `bodies`: one permit per KiB of answers in memory.
    pub fn new(metrics: Arc<Metrics>, bodies: Arc<Semaphore>) -> Self {
        Self {
            shared: Arc::new(ServersState {
                metrics,
                bodies,
                servers: Mutex::default(),
                farewells: Mutex::default(),
                last_id: AtomicU64::new(0),
            }),
            openings: Flights::default(),
        }
    }

    pub(super) async fn open(
        &self,
        key: Key,
        endpoint: &Arc<Endpoint>,
    ) -> Result<OpenSession, OpenError> {
        if let Some(protocol) = self.shared.lookup(&key, Instant::now()) {
            return Ok(OpenSession {
                protocol,
                reused: true,
            });
        }
        let (shared, endpoint) = (self.shared.clone(), endpoint.clone());
        let opening = self
            .openings
            .join(key, || async move { shared.opened(key, endpoint).await });
        // Without an answer the task panicked; the log has it.
        let answer = opening.answer().await;
        let protocol = answer.unwrap_or(Err(OpenError::Exchange(ExchangeError::Silent)))?;
        Ok(OpenSession {
            protocol,
            reused: false,
        })
    }

    /// Drops a session that the server no longer accepts. A newer one stays.
    pub(super) fn forget(&self, key: &Key, protocol: &Protocol) {
        let mut servers = self.shared.servers();
        if servers.get(key).is_some_and(|it| it.protocol == *protocol) {
            servers.remove(key);
        }
    }

    /// Makes one call. If this future is dropped early, the call is cancelled at the server: by a
    /// message in a session, else by closing the connection.
    pub(super) async fn call(
        &self,
        endpoint: &Arc<Endpoint>,
        protocol: &Protocol,
        call: &Call,
    ) -> Result<Reply, ExchangeError> {
        let id = self.shared.next_id();
        let mut headers = protocol.request_headers("tools/call", Some(&call.name));
        let form = protocol.form();
        if form == Form::Stateless {
            headers.extend(call.mirrored.iter().cloned());
        }
        let body = CLIENT.call(id, &call.name, &call.arguments, form);
        let mut waiting = PendingRequest {
            shared: &self.shared,
            endpoint,
            protocol,
            id,
            ended: false,
        };
        let reply = exchange(
            endpoint,
            Some(protocol),
            headers,
            id,
            body,
            self.shared.bounds(),
        )
        .await;
        waiting.ended = true;
        reply
    }

    /// Counts a result that asked for input.
    pub(super) fn refused_input(&self) {
        self.shared.metrics.mcp_refused("input");
    }

    /// Ends every session, waiting for the servers for at most `bound`.
    pub async fn close(&self, bound: Duration) {
        let servers = std::mem::take(&mut *self.shared.servers());
        let ends = servers.into_values().filter_map(|entry| end(&entry));
        let ends = join_all(ends.map(send_farewell));
        let mut farewells = std::mem::take(&mut *self.shared.farewells());
        let rest = async { while farewells.join_next().await.is_some() {} };
        let all = async { tokio::join!(ends, rest) };
        if tokio::time::timeout(bound, all).await.is_err() {
            tracing::debug!("ending the MCP session timed out");
        }
    }
}

/// A call whose answer is pending.
struct PendingRequest<'a> {
    shared: &'a ServersState,
    endpoint: &'a Endpoint,
    protocol: &'a Protocol,
    id: u64,
    ended: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.ended && *self.protocol != Protocol::Stateless {
            let cancelled = client::cancelled(self.id);
            let headers = self.protocol.headers();
            self.shared.farewell(self.endpoint.post(headers, cancelled));
        }
    }
}

impl ServersState {
    fn servers(&self) -> MutexGuard<'_, HashMap<Key, ServerEntry>> {
        // A panic under the lock leaves at worst a session that is opened again.
        self.servers.lock()
    }

    fn farewells(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.farewells.lock()
    }

    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn bounds(&self) -> Bounds<'_> {
        Bounds {
            bodies: &self.bodies,
            metrics: &self.metrics,
        }
    }

    /// Returns the cached protocol, if it was used lately. A stale entry stays until the next
    /// opening ends its session.
    fn lookup(&self, key: &Key, now: Instant) -> Option<Protocol> {
        let mut servers = self.servers();
        let found = servers.get_mut(key).filter(|it| it.is_young(now))?;
        found.used = now;
        Some(found.protocol.clone())
    }

    async fn opened(&self, key: Key, endpoint: Arc<Endpoint>) -> Result<Protocol, OpenError> {
        // Another opening may have finished since the lookup before this task.
        if let Some(protocol) = self.lookup(&key, Instant::now()) {
            return Ok(protocol);
        }
        let protocol = tokio::time::timeout(OPENING, self.find_out(&endpoint));
        let protocol = protocol
            .await
            .unwrap_or(Err(OpenError::Exchange(ExchangeError::Silent)));
        let protocol = protocol.inspect_err(|error| {
            tracing::warn!(
                server = endpoint.url.origin().ascii_serialization(),
                path = endpoint.url.path(),
                error = error.to_string(),
                "MCP initialization failed"
            );
        })?;
        let used = Instant::now();
        let mut servers = self.servers();
        let mut left = Vec::new();
        servers.retain(|_, it| {
            let is_young = it.is_young(used);
            left.extend((!is_young).then(|| end(it)).flatten());
            is_young
        });
        if servers.len() >= MAX_SERVERS
            && let Some(oldest) = servers
                .iter()
                .min_by_key(|(_, it)| it.used)
                .map(|(key, _)| *key)
        {
            left.extend(servers.remove(&oldest).and_then(|it| end(&it)));
        }
        let entry = ServerEntry {
            endpoint,
            protocol: protocol.clone(),
            used,
        };
        servers.insert(key, entry);
        drop(servers);
        left.into_iter().for_each(|it| self.farewell(it));
        Ok(protocol)
    }

    async fn find_out(&self, endpoint: &Endpoint) -> Result<Protocol, OpenError> {
        let DiscoverResult {
            is_stateless,
            session: stray,
        } = self.discover(endpoint).await?;
        if is_stateless {
            return Ok(Protocol::Stateless);
        }
        let greeted = self.greet(endpoint).await;
        if let Some(name) = stray.and_then(|name| session(name).ok()) {
            let headers = HeaderMap::from_iter([(SESSION, name)]);
            self.farewell(endpoint.request(Method::DELETE, headers));
        }
        greeted
    }

    async fn greet(&self, endpoint: &Endpoint) -> Result<Protocol, OpenError> {
        let id = self.next_id();
        let body = CLIENT.initialize(id);
        let reply = self.ask(endpoint, None, HeaderMap::new(), id, body).await?;
        let result = match reply.content {
            ReplyContent::Rpc(Ok(result)) => result,
            ReplyContent::Rpc(Err(error)) => return Err(OpenError::Rpc(error.code)),
            ReplyContent::Http(_) => return Err(OpenError::Http(reply.status)),
        };
        let protocol = Protocol::Handshake {
            revision: client::settled(&result).ok_or(OpenError::Revision)?,
            session: reply.session.map(session).transpose()?,
        };
        let initialized = endpoint.post(protocol.headers(), client::initialized());
        let sent = initialized.send().await.map_err(|error| {
            tracing::debug!(
                error = error.without_url().to_string(),
                "MCP initialize request failed"
            );
            ExchangeError::BrokenOff
        })?;
        if !sent.status().is_success() {
            return Err(OpenError::Http(sent.status().as_u16()));
        }
        Ok(protocol)
    }

    /// Asks for the stateless revision. Every answer but a clear yes counts as no, except for an
    /// HTTP status that says that the server, or this way to it, is not usable now.
    async fn discover(&self, endpoint: &Endpoint) -> Result<DiscoverResult, OpenError> {
        let id = self.next_id();
        let protocol = Protocol::Stateless;
        let headers = protocol.request_headers("server/discover", None);
        let body = CLIENT.discover(id);
        let asked = self.ask(endpoint, Some(&protocol), headers, id, body).await;
        let reply = match asked {
            Ok(reply) => reply,
            Err(ExchangeError::NotMcp | ExchangeError::OtherId) => {
                return Ok(DiscoverResult::default());
            }
            Err(error) => return Err(error.into()),
        };
        let is_stateless = match (reply.content, reply.status) {
            (ReplyContent::Rpc(Ok(result)), _) => client::lists_stateless(&result),
            (
                ReplyContent::Http(_),
                status @ (300..=399 | 401 | 403 | 408 | 425 | 429 | 502..=504),
            ) => {
                return Err(OpenError::Http(status));
            }
            (ReplyContent::Rpc(Err(_)) | ReplyContent::Http(_), _) => false,
        };
        Ok(DiscoverResult {
            is_stateless,
            session: reply.session,
        })
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        protocol: Option<&Protocol>,
        headers: HeaderMap,
        id: u64,
        body: String,
    ) -> Result<Reply, ExchangeError> {
        exchange(endpoint, protocol, headers, id, body, self.bounds()).await
    }

    /// Sends a message in the background.
    fn farewell(&self, request: RequestBuilder) {
        let mut farewells = self.farewells();
        while farewells.try_join_next().is_some() {}
        // While the runtime shuts down, nothing can send it.
        if let Ok(runtime) = Handle::try_current()
            && farewells.len() < FAREWELLS
        {
            farewells.spawn_on(send_farewell(request), &runtime);
        }
    }
}

/// The request that ends a session; `None`: there is none.
fn end(entry: &ServerEntry) -> Option<RequestBuilder> {
    let ending = || {
        entry
            .endpoint
            .request(Method::DELETE, entry.protocol.headers())
    };
    entry.protocol.has_session().then(ending)
}

/// Sends the request and ignores its answer: many servers cannot end a session.
async fn send_farewell(request: RequestBuilder) {
    if let Ok(Err(error)) = tokio::time::timeout(FAREWELL, request.send()).await {
        tracing::debug!(
            error = error.without_url().to_string(),
            "message to MCP server not delivered"
        );
    }
}

/// Checks a session's name and marks it sensitive.
fn session(mut name: HeaderValue) -> Result<HeaderValue, OpenError> {
    let visible = name.as_bytes().iter().all(u8::is_ascii_graphic);
    if name.is_empty() || name.len() > MAX_SESSION || !visible {
        return Err(OpenError::Exchange(ExchangeError::NotMcp));
    }
    name.set_sensitive(true);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::resolver::Resolver;
    use crate::outbound::{LocalNames, Outbound};

    #[test]
    fn an_idle_entry_is_negotiated_again() {
        let servers = Servers::new(Arc::default(), Arc::new(Semaphore::new(1)));
        let outbound = Outbound::new(LocalNames::Refused, Resolver::of_machine());
        let endpoint = Arc::new(Endpoint {
            client: outbound.client(None, None).unwrap(),
            url: "http://pond.test/mcp".parse().unwrap(),
            credential: None,
            claw_id: HeaderValue::from_static("otter"),
        });
        let key = Key::of(&endpoint, None);
        let used = Instant::now();
        let entry = ServerEntry {
            endpoint,
            protocol: Protocol::Stateless,
            used,
        };
        servers.shared.servers().insert(key, entry);
        let at = |after| servers.shared.lookup(&key, used + after);
        let almost = IDLE - Duration::from_secs(1);
        assert_eq!(at(almost), Some(Protocol::Stateless));
        // The lookup above was a use.
        assert_eq!(at(almost * 2), Some(Protocol::Stateless));
        assert_eq!(at(almost * 2 + IDLE), None);
    }
}
