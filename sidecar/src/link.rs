//! The mediator's end of the link: says what is loaded and counted, and takes what the
//! operator's leader takes away. The link can only deny, so losing it changes nothing.
//!
//! The token is read again for each report, since the kubelet rotates it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use thiserror::Error;
use tokio::time::Instant;
use toolcrib_manifest::{LinkConfig, LinkDown, LinkUp, Loaded, names};

use crate::config::version::UNDERSTANDS;
use crate::config::{Current, Effective};
use crate::metrics::{LinkState, Metrics};
use crate::outbound::{Outbound, OutboundError};

/// Without a change.
const REPORT_EVERY: Duration = Duration::from_secs(15);
/// Several files of one swap, or a burst of swaps, are one report.
const AT_MOST_EVERY: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(120);
const TIMEOUT: Duration = Duration::from_secs(10);
/// A floor names every granted tool with a digest: 10,000 of them fit.
const MAX_ANSWER: usize = 2 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum LinkError {
    #[error("the link's token cannot be read")]
    Token(#[source] std::io::Error),
    #[error("the link's token cannot stand in a header")]
    TokenText,
    #[error("the link cannot be dialled")]
    Client(#[from] OutboundError),
    #[error("the operator cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the operator answered with status {0}")]
    Status(u16),
    #[error("the operator's answer is too large")]
    TooLarge,
    #[error("the operator's answer does not parse")]
    Answer(#[source] serde_json::Error),
}

/// Reports until it is dropped.
#[derive(Debug)]
pub struct Link {
    pub current: Arc<Current>,
    pub metrics: Arc<Metrics>,
    pub status: LinkStatus,
    pub outbound: Arc<Outbound>,
    pub token_file: PathBuf,
    /// Chosen at start; counters are cumulative within it.
    pub epoch: String,
}

/// How the link is, for whoever asks.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus(Arc<Mutex<LinkState>>);

impl LinkStatus {
    pub fn now(&self) -> LinkState {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, state: LinkState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Link {
    pub async fn run(self) {
        let mut changes = self.current.subscribe();
        let mut failures = 0u32;
        loop {
            changes.mark_unchanged();
            let now = self.current.now();
            let wait = match self.config(&now) {
                None => {
                    self.status.is(LinkState::Off);
                    REPORT_EVERY
                }
                Some(config) => match self.report(config, &now).await {
                    Ok(answer) => {
                        failures = 0;
                        self.status.is(LinkState::Connected);
                        self.metrics.link_report("ok");
                        self.accept(&now, answer);
                        REPORT_EVERY
                    }
                    Err(error) => {
                        failures += 1;
                        self.status.is(LinkState::Failing);
                        self.metrics.link_report("failed");
                        tracing::warn!(failures, error = chain(&error), "the link failed");
                        backoff(failures)
                    }
                },
            };
            let earliest = Instant::now() + AT_MOST_EVERY;
            // Err of either: time is up, or nobody can change anything any more.
            let changed = tokio::time::timeout(wait, changes.changed()).await;
            if let Ok(Err(_)) = changed {
                return;
            }
            tokio::time::sleep_until(earliest).await;
        }
    }

    /// Where to report; the last good version's when there is none in force.
    fn config<'a>(&self, now: &'a Effective) -> Option<&'a LinkConfig> {
        now.standing.version()?.agent.link.as_ref()
    }

    /// An answer that changes nothing must not wake every running turn, nor ourselves.
    fn accept(&self, now: &Effective, answer: LinkDown) {
        let same = now.floor == answer.floor && now.presence == answer.agent;
        // An answer to an earlier report of ours cannot overtake: there is one at a time.
        if same && now.seen == answer.seq {
            return;
        }
        self.current.apply(answer);
    }

    async fn report(&self, config: &LinkConfig, now: &Effective) -> Result<LinkDown, LinkError> {
        let token = bearer(&self.token_file).await?;
        let client = self.outbound.client(Some(&config.ca), None)?;
        let body = serde_json::to_vec(&self.up(now)).map_err(LinkError::Answer)?;
        let url = format!("{}{}", config.url.trim_end_matches('/'), names::LINK_PATH);
        let mut response = client
            .post(url)
            .header(AUTHORIZATION, token)
            .header(CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body)
            .send()
            .await
            .map_err(|error| LinkError::Unreachable(error.without_url()))?;
        if !response.status().is_success() {
            return Err(LinkError::Status(response.status().as_u16()));
        }
        let mut answer = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| LinkError::Unreachable(error.without_url()))?
        {
            if answer.len() + chunk.len() > MAX_ANSWER {
                return Err(LinkError::TooLarge);
            }
            answer.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&answer).map_err(LinkError::Answer)
    }

    fn up(&self, now: &Effective) -> LinkUp {
        let version = now.standing.version();
        let loaded = version.and_then(|version| {
            let digest = version.agent.digest.clone()?;
            Some(Loaded {
                manifest: digest.manifest,
                credentials: digest.credentials,
                at: now.loaded_at.clone().unwrap_or_default(),
            })
        });
        LinkUp {
            epoch: self.epoch.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            understands: UNDERSTANDS.iter().map(ToString::to_string).collect(),
            loaded,
            error: now.standing.error(),
            seen: now.seen,
            withheld: version
                .map(|version| version.withheld())
                .unwrap_or_default(),
            usage: self.metrics.usage.read(),
        }
    }
}

async fn bearer(file: &Path) -> Result<HeaderValue, LinkError> {
    let token = tokio::fs::read_to_string(file)
        .await
        .map_err(LinkError::Token)?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| LinkError::TokenText)?;
    value.set_sensitive(true);
    Ok(value)
}

/// 2, 4, 8 … seconds, each cut by up to half at random: many pods
/// that lost one leader must not come back as one.
fn backoff(failures: u32) -> Duration {
    let whole = Duration::from_secs(1 << failures.min(7)).min(LONGEST_BACKOFF);
    let mut random = [0u8; 1];
    // Without randomness the whole wait is right too.
    let share = match getrandom::fill(&mut random) {
        Ok(()) => f64::from(random[0]) / 510.0,
        Err(_) => 0.0,
    };
    whole.mul_f64(1.0 - share)
}

/// The error and its sources, once, for the log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
