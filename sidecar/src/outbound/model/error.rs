//! Why a call of a model failed, and what a provider's error says about its key.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use serde::Deserialize;
use thiserror::Error;
use toolcrib_dialect::MAX_REPLY;
use toolcrib_mediation::{ConnectionFailure, upstream_status};
use url::Url;

use super::pool::NoUsableKey;
use crate::outbound::outages::Sign;
use crate::outbound::transport::{BrokenBody, Response, SendError};
use crate::outbound::{body, error};

/// Most bytes of an error's body that are passed on.
const MAX_ERROR: usize = 256 * 1024;

/// A provider's HTTP error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpFailure {
    pub status: u16,
    pub content_type: Option<HeaderValue>,
    pub retry_after: Option<HeaderValue>,
    pub body: Bytes,
}

#[derive(Debug, Error)]
pub enum ModelError {
    #[error("no key of any provider can be used now{}", reasons(.0))]
    NoUsableKey(BTreeMap<String, NoUsableKey>),
    /// The answer of the last candidate.
    #[error("the provider {}", upstream_status(.0.status))]
    Http(HttpFailure),
    /// No candidate gave an HTTP answer.
    #[error("no provider answered")]
    Unreachable {
        /// The failure of the last candidate that was asked.
        connection: Option<ConnectionFailure>,
    },
    #[error("the provider did not answer in time")]
    Timeout { connection: ConnectionFailure },
    #[error("the reply is larger than {MAX_REPLY} bytes")]
    TooLarge,
}

/// No candidate could be asked; the log has the reason.
pub(super) const UNASKED: ModelError = ModelError::Unreachable { connection: None };

impl ModelError {
    pub fn unconnected(error: &SendError, url: &Url) -> Self {
        Self::unreachable(error::send_failure(error, url))
    }

    /// The error of a body from `url` that broke off.
    pub(super) fn broken_off(error: &BrokenBody, url: &Url) -> Self {
        Self::unreachable(error::body_failure(error, url))
    }

    pub(super) fn unreachable(connection: ConnectionFailure) -> Self {
        Self::Unreachable {
            connection: Some(connection),
        }
    }

    /// Time until the first key of any provider can be used again, if keys are the reason.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ModelError::NoUsableKey(exhausted) => {
                exhausted.values().filter_map(|it| it.retry_after).min()
            }
            ModelError::Http(_)
            | ModelError::Unreachable { .. }
            | ModelError::Timeout { .. }
            | ModelError::TooLarge => None,
        }
    }

    /// What the failure says about the provider. Without a usable key no request was sent.
    pub(super) fn sign(&self) -> Sign {
        match self {
            ModelError::Http(_) | ModelError::TooLarge => Sign::Answer,
            ModelError::Unreachable { .. } | ModelError::Timeout { .. } => {
                self.connection().map_or(Sign::None, Sign::no_answer)
            }
            ModelError::NoUsableKey(_) => Sign::None,
        }
    }

    /// The failure of the connection, if that is the reason.
    pub fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            ModelError::Unreachable { connection } => connection.as_ref(),
            ModelError::Timeout { connection } => Some(connection),
            ModelError::NoUsableKey(_) | ModelError::Http(_) | ModelError::TooLarge => None,
        }
    }
}

/// Lists each provider with the reason why its keys rest, after a colon.
fn reasons(exhausted: &BTreeMap<String, NoUsableKey>) -> String {
    let listed: Vec<String> = exhausted
        .iter()
        .map(|(provider, none)| format!("{provider} {none}"))
        .collect();
    match listed.is_empty() {
        true => String::new(),
        false => format!(": {}", listed.join("; ")),
    }
}

/// Returns the later failure, unless only the earlier one was an answer.
pub(super) fn prefer(before: Option<ModelError>, now: ModelError) -> ModelError {
    match (before, now) {
        (
            Some(ModelError::Http(answer)),
            ModelError::Unreachable { .. } | ModelError::Timeout { .. },
        ) => ModelError::Http(answer),
        (_, now) => now,
    }
}

pub(super) async fn http_failure(response: Response) -> Result<HttpFailure, BrokenBody> {
    let status = response.status().as_u16();
    let content_type = response.headers().get(header::CONTENT_TYPE).cloned();
    let retry_after = response.headers().get(header::RETRY_AFTER).cloned();
    let body = body::prefix(response, MAX_ERROR).await?;
    Ok(HttpFailure {
        status,
        content_type,
        retry_after,
        body: body.into(),
    })
}

/// Reads `Retry-After`: seconds, or a date.
pub(super) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()?;
    let wait = date.duration_since(jiff::Timestamp::now());
    Duration::try_from(wait).ok()
}

/// True if an error's body says that the quota of the account is used up.
pub(super) fn says_quota(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Body {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        code: Option<serde_json::Value>,
        r#type: Option<serde_json::Value>,
    }
    const WORDS: [&str; 4] = [
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
    ];
    serde_json::from_slice::<Body>(body).is_ok_and(|body| {
        [body.error.code, body.error.r#type]
            .iter()
            .flatten()
            .filter_map(|word| word.as_str())
            .any(|word| WORDS.contains(&word))
    })
}
