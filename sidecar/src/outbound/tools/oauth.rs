//! OAuth 2 client credentials: fetches access tokens and caches them until shortly before their
//! end.
//!
//! The client secret goes only to the token endpoint, the access token only to the surface's
//! service. The scrubber knows both before they are used. The endpoint is reached like the
//! surface (its CA, its proxy), by the rules of every outgoing call: no redirect, no address of
//! this machine.
//!
//! A call that is answered 401 is not sent again: a service, or a gateway before it, that checks
//! the token late may have acted by then, and each attempt needs its own line in the record. The
//! token is dropped, and the result tells the model that trying again can help. A feed is the
//! mediator's own read and is fetched once more.
//!
//! Invariants: one request per credential at a time; a changed credential never uses the
//! token of the one before.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use thiserror::Error;
use tokio::time::Instant;
use toolcrib_bounds::digest::Parts;
use toolcrib_manifest::{SecretText, ServiceSettings};
use toolcrib_mediation::ConnectionFailure;
use url::form_urlencoded::Serializer;

use super::auth::AuthError;
use crate::config::CurrentConfig;
use crate::outbound::body::{self, BodyError};
use crate::outbound::single_flight::Flights;
use crate::outbound::tools::auth;
use crate::outbound::{Outbound, OutboundError, error};

/// Deadline for the token endpoint, connect and body included. A call whose own deadline is
/// earlier stops waiting; the token then serves the next call.
const DEADLINE: Duration = Duration::from_secs(10);
/// Most bytes of a token answer. Usual ones have a few KiB; group claims can make them larger.
const MAX_ANSWER: usize = 64 * 1024;
/// Lifetime of a token whose answer has no `expires_in` (RFC 6749 only recommends it).
const UNSAID_LIFETIME: Duration = Duration::from_secs(300);
/// Longest lifetime, whatever the endpoint says: a token that was revoked there should not live
/// here for days.
const LONGEST_LIFETIME: Duration = Duration::from_secs(3600);
/// A token is dropped this long before its end, since a token that expires during the call is
/// refused. A minute covers slow calls and clocks that differ.
const BEFORE_END: Duration = Duration::from_secs(60);
/// Backoff after a refusal: identity providers lock accounts that repeat a wrong secret.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// Most credentials in the cache; a manifest that has more empties it.
const HELD: usize = 64;

/// The parameters of a token request.
#[derive(Clone, Copy)]
pub struct ClientCredentials<'a> {
    pub token_url: &'a str,
    pub client_id: &'a SecretText,
    pub client_secret: &'a SecretText,
    /// The resource that the token is for (RFC 8707).
    pub resource: Option<&'a str>,
    pub scopes: &'a [String],
}

/// A token for one call.
#[derive(Clone)]
pub struct AccessToken {
    key: Key,
    text: SecretText,
    /// True if the token was fetched for an earlier call and may have expired early.
    pub reused: bool,
}

impl AccessToken {
    /// `Bearer …`, marked sensitive.
    pub fn header(&self) -> Result<HeaderValue, AuthError> {
        auth::sensitive(&format!("Bearer {}", self.text.expose()))
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// The reason why there is no token. Its texts name no host, since they reach the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    #[error("no access token could be obtained; its issuer could not be reached")]
    Unreachable(ConnectionFailure),
    #[error("no access token could be obtained; its issuer answered with status {0}")]
    Refused(u16),
    #[error("no access token could be obtained; its issuer's answer cannot be decoded")]
    Malformed,
    #[error("no access token could be obtained; its settings cannot be used")]
    Unusable,
}

impl TokenError {
    /// True if a later attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            TokenError::Unreachable(_) => true,
            TokenError::Refused(status) => matches!(status, 408 | 425 | 429 | 500..=599),
            TokenError::Malformed | TokenError::Unusable => false,
        }
    }

    /// The failure of the connection, if that is the reason.
    pub fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            TokenError::Unreachable(connection) => Some(connection),
            TokenError::Refused(_) | TokenError::Malformed | TokenError::Unusable => None,
        }
    }
}

type Key = [u8; 32];

/// A cache of access tokens by credential.
#[derive(Debug)]
pub struct Tokens {
    shared: Arc<TokensState>,
    flights: Flights<Key, Result<SecretText, TokenError>>,
}

#[derive(Debug)]
struct TokensState {
    current: Arc<CurrentConfig>,
    outbound: Arc<Outbound>,
    held: Mutex<HashMap<Key, CacheEntry>>,
}

#[derive(Debug)]
enum CacheEntry {
    Token { text: SecretText, until: Instant },
    Refusal { error: TokenError, until: Instant },
}

impl Tokens {
    pub fn new(current: Arc<CurrentConfig>, outbound: Arc<Outbound>) -> Self {
        Self {
            shared: Arc::new(TokensState {
                current,
                outbound,
                held: Mutex::default(),
            }),
            flights: Flights::default(),
        }
    }

    /// Returns the cached token, or fetches one. `settings` are those of the surface.
    pub async fn token(
        &self,
        credentials: ClientCredentials<'_>,
        settings: Option<&ServiceSettings>,
    ) -> Result<AccessToken, TokenError> {
        let key = key(credentials, settings);
        if let Some(held) = self.shared.lookup(&key, Instant::now()) {
            return held.map(|text| AccessToken {
                key,
                text,
                reused: true,
            });
        }
        let flight = self.flights.join(key, || {
            let request = self.shared.request(credentials, settings);
            let shared = self.shared.clone();
            let issuer = credentials.token_url.to_owned();
            async move { shared.obtain(key, &issuer, request).await }
        });
        // Without an answer the task panicked; the log has it.
        let answer = flight.answer().await.unwrap_or(Err(TokenError::Unusable));
        answer.map(|text| AccessToken {
            key,
            text,
            reused: false,
        })
    }

    /// Drops a token that the service refused, so that the next call gets another one. A newer
    /// token stays.
    pub fn forget(&self, token: &AccessToken) {
        let mut held = self.shared.cache();
        if matches!(held.get(&token.key), Some(CacheEntry::Token { text, .. }) if *text == token.text)
        {
            held.remove(&token.key);
        }
    }
}

impl TokensState {
    fn cache(&self) -> MutexGuard<'_, HashMap<Key, CacheEntry>> {
        // A panic under the lock leaves at worst a token that is fetched again.
        self.held.lock()
    }

    fn lookup(&self, key: &Key, now: Instant) -> Option<Result<SecretText, TokenError>> {
        match self.cache().get(key)? {
            CacheEntry::Token { text, until } => (now < *until).then(|| Ok(text.clone())),
            CacheEntry::Refusal { error, until } => (now < *until).then(|| Err(error.clone())),
        }
    }

    fn request(
        &self,
        credentials: ClientCredentials<'_>,
        settings: Option<&ServiceSettings>,
    ) -> Result<reqwest::RequestBuilder, TokenError> {
        let url = reqwest::Url::parse(credentials.token_url).map_err(|_| TokenError::Unusable)?;
        let client =
            self.outbound
                .towards_service(&url, settings)
                .map_err(|error| match error {
                    OutboundError::AddressRefused(connection) => {
                        TokenError::Unreachable(connection)
                    }
                    OutboundError::Ca(_) | OutboundError::Proxy | OutboundError::Build(_) => {
                        tracing::error!(
                            error = error.to_string(),
                            "token endpoint client not created"
                        );
                        TokenError::Unusable
                    }
                })?;
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !credentials.scopes.is_empty() {
            form.append_pair("scope", &credentials.scopes.join(" "));
        }
        if let Some(resource) = credentials.resource {
            form.append_pair("resource", resource);
        }
        let basic = basic(credentials).map_err(|_| TokenError::Unusable)?;
        Ok(client
            .post(url)
            .header(AUTHORIZATION, basic)
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.finish()))
    }

    async fn obtain(
        &self,
        key: Key,
        issuer: &str,
        request: Result<reqwest::RequestBuilder, TokenError>,
    ) -> Result<SecretText, TokenError> {
        let answer = match request {
            Ok(request) => match tokio::time::timeout(DEADLINE, ask(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(TokenError::Unreachable(error::timed_out(issuer))),
            },
            Err(error) => Err(error),
        };
        let now = Instant::now();
        let held = match &answer {
            Ok(granted) => {
                // Before the token can be used.
                self.current.learn(granted.access_token.clone());
                CacheEntry::Token {
                    text: granted.access_token.clone(),
                    until: now + granted.usable_for(),
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = error.to_string(),
                    cause = error.connection().map(|it| it.cause.with_advice()),
                    address = error::address(issuer),
                    "token request failed"
                );
                CacheEntry::Refusal {
                    error: error.clone(),
                    until: now
                        + if error.is_transient() {
                            Duration::ZERO
                        } else {
                            AFTER_REFUSAL
                        },
                }
            }
        };
        let mut all = self.cache();
        if all.len() >= HELD {
            all.clear();
        }
        all.insert(key, held);
        answer.map(|granted| granted.access_token)
    }
}

/// The Authorization header of RFC 6749 2.3.1, which every server must support: both parts are
/// form-encoded first.
fn basic(credentials: ClientCredentials<'_>) -> Result<HeaderValue, AuthError> {
    let encoded = |text: &SecretText| -> String {
        url::form_urlencoded::byte_serialize(text.expose().as_bytes()).collect()
    };
    auth::basic(
        &encoded(credentials.client_id),
        &encoded(credentials.client_secret),
    )
}

/// The answer of a token endpoint (RFC 6749 5.1).
#[derive(Deserialize)]
pub(crate) struct TokenResponse {
    access_token: SecretText,
    token_type: String,
    expires_in: Option<Lifetime>,
}

/// The lifetime in seconds; some issuers write the number as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lifetime {
    Seconds(f64),
    Text(String),
}

impl TokenResponse {
    fn usable_for(&self) -> Duration {
        let said = match &self.expires_in {
            Some(Lifetime::Seconds(seconds)) => Some(*seconds),
            Some(Lifetime::Text(text)) => text.parse().ok(),
            None => None,
        };
        let lifetime = said
            .and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok())
            .unwrap_or(UNSAID_LIFETIME)
            .min(LONGEST_LIFETIME);
        // A short-lived token is used for most of its life, too.
        lifetime.saturating_sub(BEFORE_END.min(lifetime / 5))
    }
}

async fn ask(request: reqwest::RequestBuilder) -> Result<TokenResponse, TokenError> {
    let sent = request.send().await;
    let response = sent.map_err(|error| TokenError::Unreachable(error::failure(&error)))?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err(TokenError::Refused(status.as_u16()));
    }
    let url = response.url().clone();
    let whole = body::whole(response.into(), MAX_ANSWER).await;
    let body = whole.map_err(|unread| match unread {
        BodyError::TooLarge => TokenError::Malformed,
        BodyError::Broken(error) => TokenError::Unreachable(error::body_failure(&error, &url)),
    })?;
    read(&body)
}

/// Reads the answer of a token endpoint.
pub(crate) fn read(body: &[u8]) -> Result<TokenResponse, TokenError> {
    // Serde's message could quote the token.
    let granted: TokenResponse = serde_json::from_slice(body).map_err(|_| TokenError::Malformed)?;
    let bearer = granted.token_type.eq_ignore_ascii_case("bearer");
    let sendable = auth::sensitive(granted.access_token.expose()).is_ok();
    if bearer && sendable && !granted.access_token.expose().is_empty() {
        Ok(granted)
    } else {
        Err(TokenError::Malformed)
    }
}

fn key(credentials: ClientCredentials<'_>, settings: Option<&ServiceSettings>) -> Key {
    let mut parts = Parts::default();
    let mut part = |text: &str| parts.push(text);
    part(credentials.token_url);
    part(credentials.client_id.expose());
    part(credentials.client_secret.expose());
    part(credentials.resource.unwrap_or_default());
    credentials.scopes.iter().for_each(|scope| part(scope));
    part("");
    let ca = settings.and_then(|settings| settings.tls.as_ref()?.ca.as_deref());
    part(ca.unwrap_or_default());
    part(
        settings
            .and_then(|settings| settings.proxy.as_deref())
            .unwrap_or_default(),
    );
    parts.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_until_shortly_before_its_end() {
        let check = |expires_in: &str, seconds: u64| {
            let text = format!(r#"{{"access_token":"t","token_type":"Bearer"{expires_in}}}"#);
            let granted: TokenResponse = serde_json::from_str(&text).unwrap();
            assert_eq!(granted.usable_for().as_secs(), seconds, "{expires_in}");
        };
        check(r#","expires_in":600"#, 540);
        check(r#","expires_in":"600""#, 540);
        check(r#","expires_in":10"#, 8);
        check(r#","expires_in":0"#, 0);
        check(r#","expires_in":-5"#, 0);
        check(r#","expires_in":86400"#, 3540);
        check(r#","expires_in":1e300"#, 240);
        check("", 240);
    }

    #[test]
    fn both_parts_of_the_client_are_encoded() {
        let (id, secret) = (SecretText::new("ot:ter"), SecretText::new("s p+%"));
        let header = basic(ClientCredentials {
            token_url: "",
            client_id: &id,
            client_secret: &secret,
            resource: None,
            scopes: &[],
        })
        .unwrap();
        use base64::Engine;
        let encoded = base64::engine::general_purpose::STANDARD.encode("ot%3Ater:s+p%2B%25");
        assert_eq!(header.to_str().unwrap(), format!("Basic {encoded}"));
        assert_eq!(format!("{header:?}"), "Sensitive");
    }
}
