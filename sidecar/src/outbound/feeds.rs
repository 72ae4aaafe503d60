//! Feeds: texts of services for every model request, cached for their ttl.
//!
//! A fresh copy is used as it is, and renewed in the background after three quarters of its ttl,
//! so that a working agent never waits for it. Without a fresh copy a request waits for the fetch,
//! up to a deadline. All feeds are fetched concurrently, each one once. A copy that cannot be
//! renewed is shown as stale for a while, then as unavailable: a feed never fails a request.
//!
//! Here: fetching, and the age of copies. Not here: the text for the model
//! ([`toolcrib_mediation::feeds_message`]).
//!
//! Invariants: the feeds of a request are chosen when it leaves, from the loaded files ∩ the
//! allowlist at that moment; a copy belongs to one url, one credential and one identity; destination and
//! credential come from the manifest alone; no redirect is followed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use reqwest::{Response, Url};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use toolcrib_manifest::{Auth, Feed, FeedAuth, ServiceSettings};
use toolcrib_mediation::{
    ClawId, ConnectionFailure, FeedSnapshot, FeedState, MAX_FEED, ToolBody, feed_name,
    feeds_message, fill_claw_id, target,
};

use super::single_flight::{Flight, Flights};
use super::tools::CLAW_ID;
use super::tools::answer;
use super::tools::answer::Unreadable;
use super::tools::credential::{CredentialError, credential};
use super::tools::oauth::Tokens;
use crate::config::{CurrentConfig, EffectiveConfig};
use crate::metrics::Metrics;
use crate::outbound::error;
use crate::outbound::{Outbound, OutboundError};

/// Deadline of a fetch: connect, token, headers and body. A feed delays a request by no more.
const DEADLINE: Duration = Duration::from_secs(3);
/// Time before a failed fetch is repeated: a service that is down must not delay every request.
const RETRY: Duration = Duration::from_secs(10);
/// Number of ttls for which a copy that cannot be renewed is still shown.
const STALE_TTLS: u32 = 10;
const STALE_AT_LEAST: Duration = Duration::from_secs(600);
/// Most concurrent fetches: many feeds of one service must not look like an attack on it.
const AT_ONCE: usize = 8;

#[derive(Debug)]
pub struct Feeds {
    shared: Arc<FeedsState>,
    flights: Flights<Key, ()>,
}

#[derive(Debug)]
struct FeedsState {
    current: Arc<CurrentConfig>,
    outbound: Arc<Outbound>,
    tokens: Arc<Tokens>,
    metrics: Arc<Metrics>,
    cache: Mutex<HashMap<Key, CacheEntry>>,
    at_once: Semaphore,
}

/// The digest of everything that decides the result of a fetch.
type Key = [u8; 32];

/// A feed to show in a request.
#[derive(Clone, Debug)]
struct FeedRequest {
    key: Key,
    name: String,
    ttl: Duration,
    /// `None`: the manifest's url cannot be sent exactly as it is written.
    url: Option<Url>,
    claw_id: String,
    auth: Option<Auth>,
    settings: Option<ServiceSettings>,
}

#[derive(Debug, Default)]
struct CacheEntry {
    copy: Option<Copy>,
    failed_at: Option<Instant>,
}

#[derive(Debug)]
struct Copy {
    body: ToolBody,
    at: Instant,
    /// Time of the fetch in RFC 3339, to the second.
    fetched_at: String,
}

/// The reason why a fetch failed. Its texts name no host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum FetchError {
    #[error("its address or settings cannot be used")]
    Unusable,
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error("its service could not be reached")]
    Unreachable(ConnectionFailure),
    #[error("its service answered with status {0}")]
    Status(u16),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("its service did not answer in time")]
    Timeout(ConnectionFailure),
}

impl FetchError {
    /// True if the service denies the feed to the agent: the copy must be dropped.
    fn withdraws(&self) -> bool {
        matches!(self, FetchError::Status(401 | 403 | 404 | 410))
    }

    fn name(&self) -> &'static str {
        match self {
            FetchError::Unusable => "unusable",
            FetchError::Credential(_) => "credential",
            FetchError::Unreachable(_) => "unreachable",
            FetchError::Status(_) => "status",
            FetchError::Unreadable(_) => "unreadable",
            FetchError::Timeout(_) => "timeout",
        }
    }

    /// The failure of the connection, if that is the reason.
    fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            FetchError::Unreachable(connection)
            | FetchError::Timeout(connection)
            | FetchError::Unreadable(Unreadable::BrokenOff(connection)) => Some(connection),
            FetchError::Credential(error) => error.connection(),
            FetchError::Unusable
            | FetchError::Status(_)
            | FetchError::Unreadable(Unreadable::Encoding(_)) => None,
        }
    }
}

/// The fetch that a request needs before it shows a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchNeed {
    /// No fetch.
    Not,
    /// A fetch in the background; the present copy is shown.
    Soon,
    /// A fetch that the request waits for.
    Now,
}

impl Feeds {
    pub fn new(
        current: Arc<CurrentConfig>,
        outbound: Arc<Outbound>,
        tokens: Arc<Tokens>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            shared: Arc::new(FeedsState {
                current,
                outbound,
                tokens,
                metrics,
                cache: Mutex::default(),
                at_once: Semaphore::new(AT_ONCE),
            }),
            flights: Flights::default(),
        }
    }

    /// Makes the context message of a request that leaves now. `None`: the agent has no feed.
    pub async fn message(&self, claw_id: &ClawId) -> Option<String> {
        let requests = feed_requests(&self.shared.current.now(), claw_id);
        if requests.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut waits = Vec::new();
        for feed in &requests {
            let due = due(self.shared.cache().get(&feed.key), feed.ttl, now);
            match due {
                FetchNeed::Not => {}
                FetchNeed::Soon => drop(self.fetch(feed)),
                FetchNeed::Now => waits.push(self.fetch(feed).answer()),
            }
        }
        let waited = futures::future::join_all(waits).await;
        let requests = match waited.is_empty() {
            true => requests,
            // Feeds that were revoked meanwhile are not shown.
            false => feed_requests(&self.shared.current.now(), claw_id),
        };
        feeds_message(&self.shared.shown(&requests, Instant::now()))
    }

    fn fetch(&self, feed: &FeedRequest) -> Flight<()> {
        self.flights.join(feed.key, || {
            let (shared, feed) = (self.shared.clone(), feed.clone());
            async move { shared.renew(&feed).await }
        })
    }
}

/// The feeds in force now, in the manifest's order.
fn feed_requests(now: &EffectiveConfig, claw_id: &ClawId) -> Vec<FeedRequest> {
    let Ok(version) = now.version() else {
        return Vec::new();
    };
    now.feeds()
        .map(|feed| FeedRequest::new(feed, version.services.get(&feed.source), claw_id))
        .collect()
}

impl FeedRequest {
    fn new(feed: &Feed, settings: Option<&ServiceSettings>, claw_id: &ClawId) -> Self {
        let claw_id = claw_id.towards_feed(feed);
        let identified = (feed, settings, &claw_id);
        let text = serde_json::to_vec(&identified).expect("types of the contract serialize");
        let auth = match &feed.auth {
            None => None,
            Some(FeedAuth::Full(auth)) => Some(auth.clone()),
            Some(FeedAuth::Bearer(token)) => Some(Auth::Bearer {
                token: Some(token.clone()),
                file: None,
            }),
        };
        Self {
            key: Sha256::digest(text).into(),
            name: feed_name(feed),
            ttl: Duration::from_secs(feed.ttl.max(1)),
            url: address(&feed.url, &claw_id),
            claw_id,
            auth,
            settings: settings.cloned(),
        }
    }
}

/// Fills the identity into the url; `None` if the url would not be sent exactly like that.
fn address(url: &str, claw_id: &str) -> Option<Url> {
    let filled = fill_claw_id(url, claw_id).ok()?;
    let authority = filled.find("://")? + 3;
    let path = authority + filled[authority..].find('/')?;
    target(&Url::parse(&filled).ok()?, &filled[path..])
}

fn due(cached: Option<&CacheEntry>, ttl: Duration, now: Instant) -> FetchNeed {
    let Some(cached) = cached else {
        return FetchNeed::Now;
    };
    let failed_lately = cached
        .failed_at
        .is_some_and(|at| now.duration_since(at) < RETRY);
    let age = cached.copy.as_ref().map(|copy| now.duration_since(copy.at));
    match age {
        _ if failed_lately => FetchNeed::Not,
        Some(age) if age < ttl * 3 / 4 => FetchNeed::Not,
        Some(age) if age < ttl => FetchNeed::Soon,
        Some(_) | None => FetchNeed::Now,
    }
}

fn state(cached: Option<&CacheEntry>, ttl: Duration, now: Instant) -> FeedState {
    let Some(copy) = cached.and_then(|cached| cached.copy.as_ref()) else {
        return FeedState::Unavailable;
    };
    let (body, fetched_at) = (copy.body.clone(), copy.fetched_at.clone());
    let age = now.duration_since(copy.at);
    // A copy that a request waited for is fresh, however short its ttl, unless its renewal failed.
    let is_renewed = cached.is_some_and(|cached| cached.failed_at.is_none());
    if age < ttl || (is_renewed && age < DEADLINE) {
        FeedState::Fresh { body, fetched_at }
    } else if age < (ttl * STALE_TTLS).max(STALE_AT_LEAST) {
        FeedState::Stale { body, fetched_at }
    } else {
        FeedState::Unavailable
    }
}

impl FeedsState {
    fn cache(&self) -> MutexGuard<'_, HashMap<Key, CacheEntry>> {
        // A panic under the lock leaves at worst a feed that is fetched again.
        self.cache.lock()
    }

    /// Returns the state of the requested feeds, and drops all other copies: they must not come
    /// back as stale.
    fn shown(&self, requests: &[FeedRequest], now: Instant) -> Vec<FeedSnapshot> {
        let keys: HashSet<&Key> = requests.iter().map(|feed| &feed.key).collect();
        let mut cache = self.cache();
        cache.retain(|key, _| keys.contains(key));
        requests
            .iter()
            .map(|feed| FeedSnapshot {
                name: feed.name.clone(),
                state: state(cache.get(&feed.key), feed.ttl, now),
            })
            .collect()
    }

    async fn renew(&self, feed: &FeedRequest) {
        let fetched = match tokio::time::timeout(DEADLINE, self.fetch(feed)).await {
            Ok(fetched) => fetched,
            Err(_) => {
                let url = feed.url.as_ref().map(Url::as_str).unwrap_or_default();
                Err(FetchError::Timeout(error::timed_out(url)))
            }
        };
        let outcome = fetched.as_ref().map_or_else(|error| error.name(), |_| "ok");
        self.metrics.feed_fetch(&feed.name, outcome);
        let now = Instant::now();
        let mut cache = self.cache();
        let entry = cache.entry(feed.key).or_default();
        match fetched {
            Ok(body) => {
                let at = jiff::Timestamp::now();
                *entry = CacheEntry {
                    copy: Some(Copy {
                        body,
                        at: now,
                        fetched_at: format!("{at:.0}"),
                    }),
                    failed_at: None,
                };
            }
            Err(error) => {
                tracing::warn!(
                    feed = feed.name,
                    error = error.to_string(),
                    cause = error.connection().map(|it| it.cause.with_advice()),
                    address = error.connection().map(|it| it.address.as_str()),
                    "fetching feed failed"
                );
                entry.failed_at = Some(now);
                if error.withdraws() {
                    entry.copy = None;
                }
            }
        }
    }

    async fn fetch(&self, feed: &FeedRequest) -> Result<ToolBody, FetchError> {
        // The semaphore is never closed, so this is never an error.
        let _permit = self.at_once.acquire().await;
        let mut response = self.ask(feed).await;
        // The token of an earlier fetch may have expired early; a feed may be fetched again.
        if let Ok((refused, true)) = &response
            && refused.status() == StatusCode::UNAUTHORIZED
        {
            response = self.ask(feed).await;
        }
        let (response, _) = response?;
        if !response.status().is_success() {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let scrubber = self.current.scrubber();
        Ok(answer::read(response.into(), MAX_FEED, &scrubber).await?)
    }

    /// Sends the request. Returns the answer, and true if another access token could change it.
    async fn ask(&self, feed: &FeedRequest) -> Result<(Response, bool), FetchError> {
        let settings = feed.settings.as_ref();
        let url = feed.url.clone().ok_or(FetchError::Unusable)?;
        let client =
            self.outbound
                .towards_service(&url, settings)
                .map_err(|error| match error {
                    OutboundError::AddressRefused(connection) => {
                        FetchError::Unreachable(connection)
                    }
                    OutboundError::Ca(_) | OutboundError::Proxy | OutboundError::Build(_) => {
                        FetchError::Unusable
                    }
                })?;
        let mut headers = HeaderMap::new();
        let accept = "application/json, text/*;q=0.9, */*;q=0.5";
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let claw_id = HeaderValue::from_str(&feed.claw_id).map_err(|_| FetchError::Unusable)?;
        headers.insert(CLAW_ID, claw_id);
        let mut token = None;
        if let Some(auth) = &feed.auth {
            let credential = credential(auth, settings, &self.tokens).await?;
            headers.insert(credential.name, credential.value);
            token = credential.token;
        }
        let sent = client.get(url).headers(headers).send().await;
        let response = sent.map_err(|error| FetchError::Unreachable(error::failure(&error)))?;
        let mut renewable = false;
        if let Some(token) = token.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
            renewable = token.reused;
            self.tokens.forget(&token);
        }
        Ok((response, renewable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(age: Option<u64>, failed: Option<u64>, now: Instant) -> CacheEntry {
        let before = |seconds| now - Duration::from_secs(seconds);
        CacheEntry {
            copy: age.map(|age| Copy {
                body: ToolBody::default(),
                at: before(age),
                fetched_at: "then".into(),
            }),
            failed_at: failed.map(before),
        }
    }

    /// Checks a copy with a ttl of 60 s.
    #[track_caller]
    fn check(age: Option<u64>, failed: Option<u64>, expected: (FetchNeed, &str)) {
        check_with(60, age, failed, expected);
    }

    #[track_caller]
    fn check_with(ttl: u64, age: Option<u64>, failed: Option<u64>, expected: (FetchNeed, &str)) {
        let now = Instant::now() + Duration::from_secs(100_000);
        let (entry, ttl) = (entry(age, failed, now), Duration::from_secs(ttl));
        let shown = match state(Some(&entry), ttl, now) {
            FeedState::Fresh { .. } => "fresh",
            FeedState::Stale { .. } => "stale",
            FeedState::Unavailable => "unavailable",
        };
        assert_eq!((due(Some(&entry), ttl, now), shown), expected);
    }

    #[test]
    fn a_copy_is_fresh_then_stale_then_unavailable() {
        check(Some(0), None, (FetchNeed::Not, "fresh"));
        check(Some(44), None, (FetchNeed::Not, "fresh"));
        check(Some(45), None, (FetchNeed::Soon, "fresh"));
        check(Some(50), Some(9), (FetchNeed::Not, "fresh"));
        check(Some(50), Some(10), (FetchNeed::Soon, "fresh"));
        check(Some(60), None, (FetchNeed::Now, "stale"));
        check(Some(60), Some(1), (FetchNeed::Not, "stale"));
        check(Some(599), Some(1), (FetchNeed::Not, "stale"));
        check(Some(600), Some(1), (FetchNeed::Not, "unavailable"));
        check(None, Some(1), (FetchNeed::Not, "unavailable"));
        check(None, Some(10), (FetchNeed::Now, "unavailable"));
        assert_eq!(due(None, DEADLINE, Instant::now()), FetchNeed::Now);
        // The request waited for a fetch that succeeded, and for one that failed.
        check_with(1, Some(2), None, (FetchNeed::Now, "fresh"));
        check_with(1, Some(0), Some(0), (FetchNeed::Not, "fresh"));
        check_with(1, Some(1), Some(0), (FetchNeed::Not, "stale"));
        check_with(1, Some(2), Some(1), (FetchNeed::Not, "stale"));
    }

    #[test]
    fn an_address_that_parsing_would_change_is_not_sent() {
        let check = |url: &str, claw_id: &str, expected: Option<&str>| {
            let address = address(url, claw_id).map(String::from);
            assert_eq!(address.as_deref(), expected, "{url} {claw_id}");
        };
        check(
            "http://desk.pond.svc:80/w/{claw_id}?v=1",
            "otter.pond",
            Some("http://desk.pond.svc/w/otter.pond?v=1"),
        );
        check("http://desk/{claw_id}", "..", None);
        check("http://desk/{claw_id}", "a/b", None);
        check("http://desk/{depth}", "otter", None);
        check("http://desk/a/../{claw_id}", "otter", None);
        check("http://desk", "otter", None);
        check("file:///etc/{claw_id}", "otter", None);
    }
}
