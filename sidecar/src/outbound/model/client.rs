//! One call of a model: tries the candidates in order, each with its keys in order, until one
//! answers.
//!
//! Failover happens for: no connection, no first byte in time, a body that breaks off, 5xx, and
//! a spent key; and only before the runner has a byte. Other 4xx are about the request itself:
//! an answer, not a failure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use http_body_util::Full;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout_at;
use toolcrib_dialect::{COUNT_TOKENS, Dialect, MAX_REPLY};
use toolcrib_manifest::{MOST_PROVIDERS, Provider, ProviderAuth, ProviderRefusal};
use toolcrib_mediation::ConnectionFailure;

use super::error::{ModelError, UNASKED, http_failure, prefer, retry_after, says_quota};
use super::policy::Candidate;
use super::pool::{KeyPool, Lease, NoUsableKey, Outcome};
use crate::metrics::{KeyCounts, Metrics};
use crate::outbound::body::{self, BodyError};
use crate::outbound::error;
use crate::outbound::model::headers;
use crate::outbound::outages::{Outages, Sign};
use crate::outbound::transport::Response;
use crate::outbound::{Outbound, OutboundError};

/// The deadlines of one call.
#[derive(Clone, Copy, Debug)]
pub struct ModelTimeouts {
    /// Wait for the first byte while another candidate is left.
    pub first_byte: Duration,
    /// When the call must be over.
    pub deadline: Instant,
}

impl ModelTimeouts {
    /// Timeouts of a streamed call: a model begins the stream before it has finished thinking.
    pub fn of_stream(first_byte: Duration, deadline: Instant) -> Self {
        Self {
            first_byte,
            deadline,
        }
    }

    /// Timeouts of a call that is not streamed: the first byte comes when the model is done, so
    /// each candidate has at least its share of the time until `deadline`.
    pub fn of_whole(first_byte: Duration, deadline: Instant, candidates: usize) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(candidates.max(1)).unwrap_or(u32::MAX);
        Self::of_stream(first_byte.max(share), deadline)
    }
}

/// A reply whose first byte has arrived.
#[derive(Debug)]
struct ReplyStart {
    first: Bytes,
    rest: Response,
}

/// A whole reply with a status of 2xx.
#[derive(Debug)]
pub struct ModelReply {
    pub candidate: Candidate,
    pub key: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A reply that is passed through as it comes. Its first bytes have arrived.
#[derive(Debug)]
pub struct ModelStream {
    pub candidate: Candidate,
    pub key: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub first: Bytes,
    pub rest: Response,
}

#[derive(Debug)]
pub struct ModelClient {
    pool: Mutex<KeyPool>,
    /// Wakes the link when a key is refused, or accepted again.
    key_change: Notify,
    metrics: Arc<Metrics>,
    outages: Arc<Outages>,
}

/// A candidate and the body to send it, with the candidate's own model name.
#[derive(Clone, Debug)]
pub struct CandidateRequest {
    pub candidate: Candidate,
    pub body: Bytes,
}

/// The kind of answer that a provider is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A model's answer.
    Answer,
    /// The number of tokens of a request, which no model answers.
    CountTokens,
}

impl Operation {
    pub fn is_answer(&self) -> bool {
        *self == Self::Answer
    }

    /// The word in the record, which has none for answers.
    pub fn word(self) -> Option<Cow<'static, str>> {
        match self {
            Operation::Answer => None,
            Operation::CountTokens => Some("count_tokens".into()),
        }
    }

    /// The path that is joined to a provider's `base_url`.
    pub fn resource(self, dialect: Dialect) -> &'static str {
        match self {
            Operation::Answer => dialect.resource(),
            Operation::CountTokens => COUNT_TOKENS,
        }
    }
}

/// One call: its candidates, and the parts that all of them share.
#[derive(Clone, Copy)]
pub struct ProviderRequest<'a> {
    pub operation: Operation,
    pub dialect: Dialect,
    pub candidates: &'a [CandidateRequest],
    pub providers: &'a BTreeMap<String, Provider>,
    /// The runner's headers, already filtered.
    pub headers: &'a HeaderMap,
    pub timeouts: ModelTimeouts,
    pub awaited: &'a AwaitedProvider,
}

/// The provider whose answer a request waits for. If the caller of [`ModelClient`] gives up waiting,
/// the record names this provider.
#[derive(Debug, Default)]
pub struct AwaitedProvider(Mutex<Option<Candidate>>);

impl AwaitedProvider {
    fn begin(&self, candidate: &Candidate) {
        *self.0.lock() = Some(candidate.clone());
    }

    fn end(&self) {
        *self.0.lock() = None;
    }

    /// Logs the provider whose answer did not come in time, if one is waited for, and returns the
    /// failure for the record.
    pub fn timed_out(&self) -> Option<ConnectionFailure> {
        let candidate = self.0.lock().take()?;
        let connection = candidate.timed_out();
        tracing::warn!(
            provider = candidate.provider,
            cause = connection.cause.with_advice(),
            address = connection.address,
            "provider did not answer before the end of the turn"
        );
        Some(connection)
    }
}

impl Candidate {
    fn timed_out(&self) -> ConnectionFailure {
        error::timed_out(&self.base_url)
    }
}

fn timed_out<T>(candidate: &Candidate) -> Attempt<T> {
    Attempt::Failed(ModelError::Timeout {
        connection: candidate.timed_out(),
    })
}

enum Attempt<T> {
    Served(T),
    /// A failure that the next candidate may not have.
    Failed(ModelError),
    /// An answer; no other candidate is asked.
    Final(ModelError),
}

impl<T> Attempt<T> {
    fn failure(&self) -> Option<&ModelError> {
        match self {
            Attempt::Served(_) => None,
            Attempt::Failed(error) | Attempt::Final(error) => Some(error),
        }
    }
}

impl ModelClient {
    pub fn new(metrics: Arc<Metrics>, outages: Arc<Outages>) -> Self {
        Self {
            pool: Mutex::default(),
            key_change: Notify::new(),
            metrics,
            outages,
        }
    }

    /// Resolves after a provider has refused a key, or has accepted one that it refused before.
    pub async fn key_change(&self) {
        self.key_change.notified().await;
    }

    /// Returns those of the providers that refuse every key, with the reason.
    pub fn refusals(&self, providers: &BTreeMap<String, Provider>) -> Vec<ProviderRefusal> {
        let (pool, now) = (self.pool(), Instant::now());
        let refusal = |(name, provider): (&String, &Provider)| {
            let refusal = pool.refusal(name, provider, now)?;
            Some(ProviderRefusal {
                provider: name.clone(),
                reason: refusal.to_string(),
            })
        };
        let refusals = providers.iter().filter_map(refusal);
        refusals.take(MOST_PROVIDERS).collect()
    }

    /// The state of these providers' keys, for the metrics.
    pub fn keys(&self, providers: &BTreeMap<String, Provider>) -> Vec<(String, KeyCounts)> {
        let (pool, now) = (self.pool(), Instant::now());
        providers
            .iter()
            .map(|(name, provider)| (name.clone(), pool.counts(name, provider, now)))
            .collect()
    }

    /// Returns the whole reply of the first candidate that gives one.
    pub async fn whole(
        &self,
        outbound: &Outbound,
        request: ProviderRequest<'_>,
    ) -> Result<ModelReply, ModelError> {
        self.first(outbound, request, async |candidate, lease, mut begun| {
            let headers = begun.rest.take_headers();
            match body::whole_after(begun.first, &mut begun.rest, MAX_REPLY).await {
                Ok(body) => Attempt::Served(ModelReply {
                    candidate: candidate.clone(),
                    key: lease.id().to_string(),
                    headers,
                    body,
                }),
                Err(BodyError::TooLarge) => Attempt::Final(ModelError::TooLarge),
                Err(BodyError::Broken(error)) => {
                    Attempt::Failed(ModelError::broken_off(&error, begun.rest.url()))
                }
            }
        })
        .await
    }

    /// Returns the stream of the first candidate that gives a first byte.
    pub async fn stream(
        &self,
        outbound: &Outbound,
        request: ProviderRequest<'_>,
    ) -> Result<ModelStream, ModelError> {
        self.first(outbound, request, async |candidate, lease, mut begun| {
            Attempt::Served(ModelStream {
                candidate: candidate.clone(),
                key: lease.id().to_string(),
                status: begun.rest.status().as_u16(),
                headers: begun.rest.take_headers(),
                first: begun.first,
                rest: begun.rest,
            })
        })
        .await
    }

    async fn first<T>(
        &self,
        outbound: &Outbound,
        request: ProviderRequest<'_>,
        read: impl AsyncFn(&Candidate, &Lease, ReplyStart) -> Attempt<T>,
    ) -> Result<T, ModelError> {
        let mut last = None;
        let mut exhausted: BTreeMap<String, NoUsableKey> = BTreeMap::new();
        let last_index = request.candidates.len().saturating_sub(1);
        for (index, prepared) in request.candidates.iter().enumerate() {
            let candidate = &prepared.candidate;
            let Some(provider) = request.providers.get(&candidate.provider) else {
                continue;
            };
            let mut tried = false;
            // Each pass spends a key, so the loop ends at the latest with the last key.
            loop {
                let lease = self
                    .pool()
                    .lease(&candidate.provider, provider, Instant::now());
                let lease = match lease {
                    Ok(lease) => lease,
                    Err(none) => {
                        let provider = &candidate.provider;
                        self.metrics.model_call(provider, "no_usable_key", None);
                        // A key that this request used up was logged before.
                        if !tried {
                            tracing::warn!(
                                provider,
                                why = none.to_string(),
                                "no usable key, provider skipped"
                            );
                        }
                        exhausted.insert(provider.clone(), none);
                        break;
                    }
                };
                tried = true;
                let began = Instant::now();
                request.awaited.begin(candidate);
                let deadline = request.timeouts.deadline;
                // The last candidate may use all the time that is left.
                let patience = if index == last_index {
                    deadline
                } else {
                    deadline.min(began + request.timeouts.first_byte)
                };
                let begun = self.begin(outbound, &request, prepared, provider, &lease);
                let (attempt, outcome) = match timeout_at(patience.into(), begun).await {
                    Ok((Attempt::Served(begun), outcome)) => {
                        let read = read(candidate, &lease, begun);
                        match timeout_at(deadline.into(), read).await {
                            Ok(attempt) => (attempt, outcome),
                            Err(_) => (timed_out(candidate), outcome),
                        }
                    }
                    Ok((Attempt::Failed(error), outcome)) => (Attempt::Failed(error), outcome),
                    Ok((Attempt::Final(error), outcome)) => (Attempt::Final(error), outcome),
                    Err(_) => (timed_out(candidate), Outcome::Fine),
                };
                request.awaited.end();
                let changed =
                    self.pool()
                        .settle(&candidate.provider, &lease, outcome, Instant::now());
                if changed {
                    self.key_change.notify_one();
                }
                let failure = attempt.failure();
                self.outages.count_request(
                    &candidate.provider,
                    &candidate.base_url,
                    failure.map_or(Sign::Answer, ModelError::sign),
                    Instant::now().into(),
                );
                let (label, served) = match failure {
                    None => ("ok", Some(began.elapsed())),
                    Some(error) => (label(error, outcome), None),
                };
                self.metrics.model_call(&candidate.provider, label, served);
                match attempt {
                    Attempt::Served(served) => return Ok(served),
                    Attempt::Final(error) => {
                        tracing::warn!(
                            provider = candidate.provider,
                            key = lease.id(),
                            error = error.to_string(),
                            "provider refused the request"
                        );
                        return Err(error);
                    }
                    Attempt::Failed(error) => {
                        tracing::warn!(
                            provider = candidate.provider,
                            key = lease.id(),
                            error = error.to_string(),
                            cause = error.connection().map(|it| it.cause.with_advice()),
                            address = error.connection().map(|it| it.address.as_str()),
                            "model request failed"
                        );
                        last = Some(prefer(last, error));
                    }
                }
                if !outcome.spends_the_key() || lease == Lease::NoKey {
                    break;
                }
            }
        }
        Err(last.unwrap_or(ModelError::NoUsableKey(exhausted)))
    }

    /// Reads up to the first byte of a good answer, or the whole of any other answer.
    async fn begin(
        &self,
        outbound: &Outbound,
        request: &ProviderRequest<'_>,
        prepared: &CandidateRequest,
        provider: &Provider,
        lease: &Lease,
    ) -> (Attempt<ReplyStart>, Outcome) {
        let failed = |error| (Attempt::Failed(error), Outcome::Fine);
        let candidate = &prepared.candidate;
        let ca = provider.tls.as_ref().and_then(|tls| tls.ca.as_deref());
        let resource = request.operation.resource(request.dialect);
        let address = [candidate.base_url.as_str(), resource].concat();
        let Ok(to) = outbound.url(&address) else {
            tracing::error!(provider = candidate.provider, "provider URL invalid");
            return failed(UNASKED);
        };
        let transport = match outbound.transport(&to.url, ca, provider.proxy.as_deref()) {
            Ok(transport) => transport,
            Err(OutboundError::AddressRefused(connection)) => {
                return failed(ModelError::unreachable(connection));
            }
            Err(error) => {
                tracing::error!(
                    provider = candidate.provider,
                    error = error.to_string(),
                    "HTTP client not created, provider skipped"
                );
                return failed(UNASKED);
            }
        };
        let mut headers = headers::towards(request.headers, &provider.pass_headers);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let names = request.headers.keys().map(HeaderName::as_str);
            let dropped: Vec<&str> = names.filter(|name| !headers.contains_key(*name)).collect();
            if !dropped.is_empty() {
                tracing::debug!(
                    provider = candidate.provider,
                    headers = dropped.join(", "),
                    "configured headers not passed to the provider"
                );
            }
        }
        match credential(provider.auth, lease) {
            Ok(Some((name, value))) => {
                headers.insert(name, value);
            }
            Ok(None) => {}
            // The next key may be sound.
            Err(_) => return (Attempt::Failed(UNASKED), Outcome::Unsendable),
        }
        let mut http_request = http::Request::new(Full::new(prepared.body.clone()));
        *http_request.method_mut() = Method::POST;
        *http_request.uri_mut() = to.uri.clone();
        *http_request.headers_mut() = headers;
        let mut response = match transport.send(to.clone(), http_request).await {
            Ok(response) => response,
            Err(error) => return failed(ModelError::unconnected(&error, &to.url)),
        };
        let status = response.status();
        if status.is_success() {
            return match response.chunk().await {
                Ok(first) => {
                    let first = first.unwrap_or_default();
                    let begun = ReplyStart {
                        first,
                        rest: response,
                    };
                    (Attempt::Served(begun), Outcome::Accepted)
                }
                Err(error) => failed(ModelError::broken_off(&error, response.url())),
            };
        }
        let failure = match http_failure(response).await {
            Ok(failure) => failure,
            Err(error) => return failed(ModelError::broken_off(&error, &to.url)),
        };
        let outcome = Outcome::of(
            failure.status,
            failure.retry_after.as_ref().and_then(retry_after),
            says_quota(&failure.body),
        );
        let error = ModelError::Http(failure);
        if outcome.spends_the_key() || status.is_server_error() {
            (Attempt::Failed(error), outcome)
        } else {
            (Attempt::Final(error), outcome)
        }
    }

    pub(super) fn pool(&self) -> MutexGuard<'_, KeyPool> {
        // A panic under the lock leaves at worst one outcome unrecorded.
        self.pool.lock()
    }
}

/// The label of a failed attempt in the metrics.
fn label(error: &ModelError, outcome: Outcome) -> &'static str {
    match (outcome, error) {
        (Outcome::Rejected | Outcome::Unsendable, _) => "unauthorized",
        (Outcome::QuotaExhausted { .. }, _) => "quota_exhausted",
        (Outcome::RateLimited { .. }, _) => "rate_limited",
        (Outcome::Fine | Outcome::Accepted, ModelError::Http(failure)) if failure.status >= 500 => {
            "server_error"
        }
        (Outcome::Fine | Outcome::Accepted, ModelError::Http(_)) => "refused",
        (Outcome::Fine | Outcome::Accepted, ModelError::Unreachable { .. }) => "unreachable",
        (Outcome::Fine | Outcome::Accepted, ModelError::Timeout { .. }) => "timeout",
        (Outcome::Fine | Outcome::Accepted, ModelError::TooLarge) => "too_large",
        (Outcome::Fine | Outcome::Accepted, ModelError::NoUsableKey(_)) => "no_usable_key",
    }
}

pub(super) fn credential(
    auth: ProviderAuth,
    lease: &Lease,
) -> Result<Option<(HeaderName, HeaderValue)>, InvalidHeaderValue> {
    let Lease::Key { secret, .. } = lease else {
        return Ok(None);
    };
    let (name, text) = match auth {
        ProviderAuth::Bearer => (header::AUTHORIZATION, ["Bearer ", secret.expose()].concat()),
        ProviderAuth::XApiKey => (
            HeaderName::from_static("x-api-key"),
            secret.expose().to_string(),
        ),
        ProviderAuth::None => return Ok(None),
    };
    let mut value = HeaderValue::from_str(&text)?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}
