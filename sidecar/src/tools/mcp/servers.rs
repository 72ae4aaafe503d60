//! How each MCP server is spoken to, by server, credential and identity: found out by the
//! first call, remembered for the next ones, and ended in order.
//!
//! `server/discover` is asked first, since it can run nothing; a server that does not know it
//! is greeted with `initialize`.
//!
//! Invariants: what is remembered under one credential is never used with another; it is
//! bounded in number and age; whoever stops waiting for a call in a session has the server
//! told so; no task here outlives its deadline or this value.

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
use toolcrib_mediation::{Certainty, ResultCode, ToolFailure};

use super::exchange::{Bounds, Endpoint, Lost, Reply, SESSION, Said, Spoken, exchange};
use super::{Call, message};
use crate::metrics::Metrics;
use crate::single_flight::Flights;

/// To find out how a server is spoken to. A call's own deadline ends its wait earlier.
const OPENING: Duration = Duration::from_secs(10);
/// For a server to hear that a call or a session is over.
const FAREWELL: Duration = Duration::from_secs(5);
/// Of these at once; one more is left out, and the server finds out by itself.
const FAREWELLS: usize = 32;
/// Servers and credentials of one manifest. One more takes the place of the one that was not
/// used for longest.
const HELD: usize = 64;
/// Servers forget sessions, too.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// A session's name is a token of the server's.
const MAX_SESSION: usize = 1024;

/// Server, credential, identity and the way there.
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
pub(super) struct Opened {
    pub(super) spoken: Spoken,
    /// By an earlier call: the server may have forgotten it.
    pub(super) reused: bool,
}

/// Why no call was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotOpened {
    #[error("its server answered with status {0}")]
    Http(u16),
    #[error("its server answered with error {0}")]
    Rpc(i64),
    #[error("its server speaks no revision that is spoken here")]
    Revision,
    #[error("its server {0}")]
    Lost(#[from] Lost),
}

impl NotOpened {
    pub(super) fn failure(self, name: &str, endpoint: &Endpoint) -> ToolFailure {
        let (code, certainty) = match self {
            NotOpened::Http(status @ (408 | 425 | 429 | 500..=599)) => {
                (ResultCode::Http(status), Certainty::Unreached)
            }
            NotOpened::Http(status) => (ResultCode::Http(status), Certainty::NeverRan),
            NotOpened::Rpc(_) | NotOpened::Revision => (ResultCode::McpError, Certainty::NeverRan),
            NotOpened::Lost(Lost::Silent) => (ResultCode::Timeout, Certainty::Unreached),
            NotOpened::Lost(Lost::NotConnected(_) | Lost::BrokenOff | Lost::NoRoom) => {
                (ResultCode::RequestFailed, Certainty::Unreached)
            }
            NotOpened::Lost(Lost::TooLarge) => (ResultCode::RequestFailed, Certainty::NeverRan),
            NotOpened::Lost(Lost::NotMcp | Lost::OtherId | Lost::Insistent) => {
                (ResultCode::McpError, Certainty::NeverRan)
            }
        };
        let failure = ToolFailure::new(code, certainty, format!("{name} was not called: {self}"));
        match self {
            NotOpened::Lost(lost) => lost.explain(name, failure, endpoint),
            NotOpened::Http(_) | NotOpened::Rpc(_) | NotOpened::Revision => failure,
        }
    }
}

/// Servers that have been spoken to.
pub struct Servers {
    shared: Arc<Shared>,
    openings: Flights<Key, Result<Spoken, NotOpened>>,
}

struct Shared {
    metrics: Arc<Metrics>,
    bodies: Arc<Semaphore>,
    held: Mutex<HashMap<Key, Held>>,
    farewells: Mutex<JoinSet<()>>,
    /// No two requests of this process have the same.
    last_id: AtomicU64,
}

struct Held {
    endpoint: Arc<Endpoint>,
    spoken: Spoken,
    used: Instant,
}

impl Held {
    fn is_young(&self, now: Instant) -> bool {
        self.used + IDLE > now
    }
}

/// What a server made of `server/discover`.
#[derive(Default)]
struct Discovered {
    is_stateless: bool,
    /// Some begin a session with whatever comes first. Nobody is to be in it.
    session: Option<HeaderValue>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Servers(…)")
    }
}

impl Servers {
    /// `bodies`: one permit per KiB that may be held.
    pub fn new(metrics: Arc<Metrics>, bodies: Arc<Semaphore>) -> Self {
        Self {
            shared: Arc::new(Shared {
                metrics,
                bodies,
                held: Mutex::default(),
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
    ) -> Result<Opened, NotOpened> {
        if let Some(spoken) = self.shared.lookup(&key, Instant::now()) {
            return Ok(Opened {
                spoken,
                reused: true,
            });
        }
        let (shared, endpoint) = (self.shared.clone(), endpoint.clone());
        let opening = self
            .openings
            .join(key, || async move { shared.opened(key, endpoint).await });
        // Without an answer the task panicked, which is on the log.
        let answer = opening.answer().await;
        let spoken = answer.unwrap_or(Err(NotOpened::Lost(Lost::Silent)))?;
        Ok(Opened {
            spoken,
            reused: false,
        })
    }

    /// The server does not take it any more. A newer one stays.
    pub(super) fn forget(&self, key: &Key, spoken: &Spoken) {
        let mut held = self.shared.held();
        if held.get(key).is_some_and(|it| it.spoken == *spoken) {
            held.remove(key);
        }
    }

    /// One call. Dropped before its answer is there, the server is told that it is cancelled:
    /// by a message in a session, else by the connection that closes.
    pub(super) async fn call(
        &self,
        endpoint: &Arc<Endpoint>,
        spoken: &Spoken,
        call: &Call,
    ) -> Result<Reply, Lost> {
        let id = self.shared.next_id();
        let mut headers = spoken.request_headers("tools/call", Some(&call.name));
        let is_stateless = *spoken == Spoken::Stateless;
        if is_stateless {
            headers.extend(call.mirrored.iter().cloned());
        }
        let body = message::call(id, &call.name, &call.arguments, is_stateless);
        let mut waiting = Waiting {
            shared: &self.shared,
            endpoint,
            spoken,
            id,
            ended: false,
        };
        let reply = exchange(
            endpoint,
            Some(spoken),
            headers,
            id,
            body,
            self.shared.bounds(),
        )
        .await;
        waiting.ended = true;
        reply
    }

    /// A result asked for something to be given first.
    pub(super) fn refused_input(&self) {
        self.shared.metrics.mcp_refused("input");
    }

    /// Ends every session, as far as servers take it within `bound`.
    pub async fn close(&self, bound: Duration) {
        let held = std::mem::take(&mut *self.shared.held());
        let ends = held.into_values().filter_map(|held| end(&held));
        let ends = join_all(ends.map(tell));
        let mut farewells = std::mem::take(&mut *self.shared.farewells());
        let rest = async { while farewells.join_next().await.is_some() {} };
        let all = async { tokio::join!(ends, rest) };
        if tokio::time::timeout(bound, all).await.is_err() {
            tracing::debug!("an MCP server did not take the end of its session in time");
        }
    }
}

/// A call whose answer is waited for.
struct Waiting<'a> {
    shared: &'a Shared,
    endpoint: &'a Endpoint,
    spoken: &'a Spoken,
    id: u64,
    ended: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.ended && *self.spoken != Spoken::Stateless {
            let cancelled = message::cancelled(self.id);
            let headers = self.spoken.headers();
            self.shared.farewell(self.endpoint.post(headers, cancelled));
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<Key, Held>> {
        // A panic under it leaves at worst a session that is opened again.
        self.held.lock()
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

    /// One that was not used for long stays until another opening ends it.
    fn lookup(&self, key: &Key, now: Instant) -> Option<Spoken> {
        let mut held = self.held();
        let found = held.get_mut(key).filter(|it| it.is_young(now))?;
        found.used = now;
        Some(found.spoken.clone())
    }

    async fn opened(&self, key: Key, endpoint: Arc<Endpoint>) -> Result<Spoken, NotOpened> {
        // Another opening may have ended between the look and this task.
        if let Some(spoken) = self.lookup(&key, Instant::now()) {
            return Ok(spoken);
        }
        let spoken = tokio::time::timeout(OPENING, self.find_out(&endpoint));
        let spoken = spoken.await.unwrap_or(Err(NotOpened::Lost(Lost::Silent)));
        let spoken = spoken.inspect_err(|error| {
            tracing::warn!(error = error.to_string(), "an MCP server is not spoken to");
        })?;
        let used = Instant::now();
        let mut held = self.held();
        let mut left = Vec::new();
        held.retain(|_, it| {
            let is_young = it.is_young(used);
            left.extend((!is_young).then(|| end(it)).flatten());
            is_young
        });
        if held.len() >= HELD
            && let Some(oldest) = held
                .iter()
                .min_by_key(|(_, it)| it.used)
                .map(|(key, _)| *key)
        {
            left.extend(held.remove(&oldest).and_then(|it| end(&it)));
        }
        let now_held = Held {
            endpoint,
            spoken: spoken.clone(),
            used,
        };
        held.insert(key, now_held);
        drop(held);
        left.into_iter().for_each(|it| self.farewell(it));
        Ok(spoken)
    }

    async fn find_out(&self, endpoint: &Endpoint) -> Result<Spoken, NotOpened> {
        let Discovered {
            is_stateless,
            session: stray,
        } = self.discover(endpoint).await?;
        if is_stateless {
            return Ok(Spoken::Stateless);
        }
        let greeted = self.greet(endpoint).await;
        if let Some(name) = stray.and_then(|name| session(name).ok()) {
            let headers = HeaderMap::from_iter([(SESSION, name)]);
            self.farewell(endpoint.request(Method::DELETE, headers));
        }
        greeted
    }

    async fn greet(&self, endpoint: &Endpoint) -> Result<Spoken, NotOpened> {
        let id = self.next_id();
        let body = message::initialize(id);
        let reply = self.ask(endpoint, None, HeaderMap::new(), id, body).await?;
        let result = match reply.said {
            Said::Answer(Ok(result)) => result,
            Said::Answer(Err(error)) => return Err(NotOpened::Rpc(error.code)),
            Said::Http(_) => return Err(NotOpened::Http(reply.status)),
        };
        let spoken = Spoken::Handshake {
            revision: message::settled(&result).ok_or(NotOpened::Revision)?,
            session: reply.session.map(session).transpose()?,
        };
        let initialized = endpoint.post(spoken.headers(), message::initialized());
        let sent = initialized.send().await.map_err(|error| {
            tracing::debug!(error = error.without_url().to_string(), "not initialized");
            Lost::BrokenOff
        })?;
        if !sent.status().is_success() {
            return Err(NotOpened::Http(sent.status().as_u16()));
        }
        Ok(spoken)
    }

    /// Anything but a clear word for it counts against it, unless it says that nobody is
    /// served just now, or not so.
    async fn discover(&self, endpoint: &Endpoint) -> Result<Discovered, NotOpened> {
        let id = self.next_id();
        let spoken = Spoken::Stateless;
        let headers = spoken.request_headers("server/discover", None);
        let body = message::discover(id);
        let asked = self.ask(endpoint, Some(&spoken), headers, id, body).await;
        let reply = match asked {
            Ok(reply) => reply,
            Err(Lost::NotMcp | Lost::OtherId) => return Ok(Discovered::default()),
            Err(lost) => return Err(lost.into()),
        };
        let is_stateless = match (reply.said, reply.status) {
            (Said::Answer(Ok(result)), _) => message::speaks_stateless(&result),
            (Said::Http(_), status @ (300..=399 | 401 | 403 | 408 | 425 | 429 | 502..=504)) => {
                return Err(NotOpened::Http(status));
            }
            (Said::Answer(Err(_)) | Said::Http(_), _) => false,
        };
        Ok(Discovered {
            is_stateless,
            session: reply.session,
        })
    }

    async fn ask(
        &self,
        endpoint: &Endpoint,
        spoken: Option<&Spoken>,
        headers: HeaderMap,
        id: u64,
        body: String,
    ) -> Result<Reply, Lost> {
        exchange(endpoint, spoken, headers, id, body, self.bounds()).await
    }

    /// Sends what nobody waits for.
    fn farewell(&self, request: RequestBuilder) {
        let mut farewells = self.farewells();
        while farewells.try_join_next().is_some() {}
        // While the runtime ends there is nobody left to send it.
        if let Ok(runtime) = Handle::try_current()
            && farewells.len() < FAREWELLS
        {
            farewells.spawn_on(tell(request), &runtime);
        }
    }
}

/// `None`: there is no session to end.
fn end(held: &Held) -> Option<RequestBuilder> {
    let ending = || held.endpoint.request(Method::DELETE, held.spoken.headers());
    held.spoken.has_session().then(ending)
}

/// The answer does not matter: many servers know no end of a session.
async fn tell(request: RequestBuilder) {
    if let Ok(Err(error)) = tokio::time::timeout(FAREWELL, request.send()).await {
        tracing::debug!(error = error.without_url().to_string(), "not told");
    }
}

/// A session's name, if it is one.
fn session(mut name: HeaderValue) -> Result<HeaderValue, NotOpened> {
    let visible = name.as_bytes().iter().all(u8::is_ascii_graphic);
    if name.is_empty() || name.len() > MAX_SESSION || !visible {
        return Err(NotOpened::Lost(Lost::NotMcp));
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
    fn what_was_not_used_for_long_is_found_out_anew() {
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
        let held = Held {
            endpoint,
            spoken: Spoken::Stateless,
            used,
        };
        servers.shared.held().insert(key, held);
        let at = |after| servers.shared.lookup(&key, used + after);
        let almost = IDLE - Duration::from_secs(1);
        assert_eq!(at(almost), Some(Spoken::Stateless));
        // That was a use.
        assert_eq!(at(almost * 2), Some(Spoken::Stateless));
        assert_eq!(at(almost * 2 + IDLE), None);
    }
}
