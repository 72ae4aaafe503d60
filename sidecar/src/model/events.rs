//! A model's answer as events, while it comes.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use reqwest::Response;
use thiserror::Error;
use toolcrib_dialect::{DialectError, MAX_REPLY, SseEvent, SseParser};
use toolcrib_mediation::ConnectionFailure;

use super::client::{ModelError, ModelStream};
use crate::outbound::error;

/// One event may be as long as the reply, since the last one of some dialects says the
/// reply again.
const MAX_EVENT: usize = MAX_REPLY;

/// How a model answered that was asked for a stream.
#[derive(Debug)]
pub enum ReplyBody {
    Events(Box<EventStream>),
    /// It does not stream, or not this.
    Whole(Vec<u8>),
}

#[derive(Debug)]
pub struct EventStream {
    parser: SseParser,
    first: Bytes,
    rest: Response,
}

/// The next bytes of an answer that has begun; `None`: it has ended. Errors: it broke off, or
/// nothing came for as long as `silence`.
pub async fn next_chunk(
    rest: &mut Response,
    silence: Duration,
) -> Result<Option<Bytes>, StreamError> {
    match tokio::time::timeout(silence, rest.chunk()).await {
        Ok(Ok(chunk)) => Ok(chunk),
        Ok(Err(error)) => Err(StreamError::Off(error::body_failure(&error, rest.url()))),
        Err(_) => Err(StreamError::Silent(error::timed_out(rest.url().as_str()))),
    }
}

/// Why a stream that had begun gives no more.
#[derive(Debug, Error)]
pub enum StreamError {
    #[error("the model's answer broke off")]
    Off(ConnectionFailure),
    #[error("the model fell silent")]
    Silent(ConnectionFailure),
    #[error("the model's answer could not be read")]
    Unreadable(#[from] DialectError),
}

impl StreamError {
    /// What became of the connection, where that is the reason.
    pub fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            StreamError::Off(connection) | StreamError::Silent(connection) => Some(connection),
            StreamError::Unreadable(_) => None,
        }
    }

    /// Logs what became of the connection to `provider`, and returns it for the record.
    pub fn logged(&self, provider: &str) -> Option<ConnectionFailure> {
        let connection = self.connection()?;
        tracing::warn!(
            provider,
            cause = connection.cause.to_string(),
            address = connection.address,
            error = self.to_string(),
            "a provider did not end its answer"
        );
        Some(connection.clone())
    }
}

impl ModelStream {
    pub async fn open(mut self) -> Result<ReplyBody, ModelError> {
        let content_type = self.headers.get(CONTENT_TYPE);
        let streamed = content_type
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with("text/event-stream"));
        if streamed {
            return Ok(ReplyBody::Events(Box::new(EventStream {
                parser: SseParser::new(MAX_EVENT),
                first: self.first,
                rest: self.rest,
            })));
        }
        let url = self.rest.url().clone();
        let mut body = self.first.to_vec();
        while let Some(chunk) = self
            .rest
            .chunk()
            .await
            .map_err(|error| ModelError::broken_off(&error, &url))?
        {
            if body.len() + chunk.len() > MAX_REPLY {
                return Err(ModelError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(ReplyBody::Whole(body))
    }
}

impl EventStream {
    /// What came next, at least one event; `None`: it has ended.
    pub async fn next(&mut self, silence: Duration) -> Result<Option<Vec<SseEvent>>, StreamError> {
        let mut chunk = std::mem::take(&mut self.first);
        loop {
            let events = self.parser.push(&chunk)?;
            if !events.is_empty() {
                return Ok(Some(events));
            }
            match next_chunk(&mut self.rest, silence).await? {
                Some(next) => chunk = next,
                None => return Ok(None),
            }
        }
    }
}
