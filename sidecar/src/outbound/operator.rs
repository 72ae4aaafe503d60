//! Requests to the operator's leader.
//!
//! After a failure a new connection is made: the operator's Service may point elsewhere by now. The
//! token is read again for each request, since the kubelet rotates it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use parking_lot::Mutex;
use thiserror::Error;
use toolcrib_manifest::LinkConfig;

use super::body::{self, BodyError};
use super::transport::BrokenBody;
use super::{Outbound, OutboundError};

#[derive(Debug, Error)]
pub enum OperatorError {
    #[error("the link's token cannot be read")]
    Token(#[source] std::io::Error),
    #[error("the link's token has characters that a header cannot contain")]
    TokenText,
    #[error("the HTTP client of the link cannot be created")]
    Client(#[from] OutboundError),
    #[error("the operator cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the operator's answer broke off")]
    BrokenOff(#[source] BrokenBody),
    #[error("the operator answered with status {0}")]
    Status(u16),
    #[error("the operator's answer is too large")]
    TooLarge,
}

/// A client with one connection to the leader.
#[derive(Debug)]
pub struct OperatorClient {
    outbound: Arc<Outbound>,
    token_file: PathBuf,
    /// The client, and the CA bundle that it trusts.
    client: Mutex<Option<(String, reqwest::Client)>>,
}

/// One request.
#[derive(Debug)]
pub struct OperatorRequest {
    pub path: &'static str,
    pub body: Vec<u8>,
    pub timeout: Duration,
    /// Most bytes of the answer.
    pub max_answer: usize,
}

impl OperatorClient {
    pub fn new(outbound: Arc<Outbound>, token_file: PathBuf) -> Self {
        Self {
            outbound,
            token_file,
            client: Mutex::default(),
        }
    }

    /// Sends a request and returns the body of its answer.
    pub async fn post(
        &self,
        config: &LinkConfig,
        request: OperatorRequest,
    ) -> Result<Vec<u8>, OperatorError> {
        let answer = self.send(config, request).await;
        if answer.is_err() {
            self.reconnect();
        }
        answer
    }

    /// Makes the next request on a new connection, since an answer could not be used.
    pub fn reconnect(&self) {
        *self.client.lock() = None;
    }

    async fn send(
        &self,
        config: &LinkConfig,
        request: OperatorRequest,
    ) -> Result<Vec<u8>, OperatorError> {
        let token = bearer(&self.token_file).await?;
        let url = format!("{}{}", config.url.trim_end_matches('/'), request.path);
        let response = self
            .client(config)?
            .post(url)
            .header(AUTHORIZATION, token)
            .header(CONTENT_TYPE, "application/json")
            .timeout(request.timeout)
            .body(request.body)
            .send()
            .await
            .map_err(|error| OperatorError::Unreachable(error.without_url()))?;
        if !response.status().is_success() {
            return Err(OperatorError::Status(response.status().as_u16()));
        }
        let read = body::whole(response.into(), request.max_answer).await;
        read.map_err(|unread| match unread {
            BodyError::TooLarge => OperatorError::TooLarge,
            BodyError::Broken(error) => OperatorError::BrokenOff(error),
        })
    }

    fn client(&self, config: &LinkConfig) -> Result<reqwest::Client, OperatorError> {
        let mut kept = self.client.lock();
        if let Some((ca, client)) = kept.as_ref()
            && *ca == config.ca
        {
            return Ok(client.clone());
        }
        let ca = config.url.starts_with("https:").then_some(&*config.ca);
        let client = self.outbound.fresh_client(ca, None)?;
        *kept = Some((config.ca.clone(), client.clone()));
        Ok(client)
    }
}

async fn bearer(file: &Path) -> Result<HeaderValue, OperatorError> {
    let token = tokio::fs::read_to_string(file)
        .await
        .map_err(OperatorError::Token)?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
        .map_err(|_| OperatorError::TokenText)?;
    value.set_sensitive(true);
    Ok(value)
}
