//! Reads a model's reply as events while it arrives.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use thiserror::Error;
use toolcrib_dialect::{DialectError, MAX_REPLY, SseEvent, SseParser};
use toolcrib_mediation::ConnectionFailure;

use super::client::ModelStream;
use super::error::ModelError;
use crate::outbound::error;
use crate::outbound::transport::Response;

/// Most bytes of one event: as many as of a reply, since the last event of some dialects repeats
/// the reply.
const MAX_EVENT: usize = MAX_REPLY;

/// The body of a reply that was requested as a stream.
#[derive(Debug)]
pub enum ReplyBody {
    Events(Box<EventStream>),
    /// The server did not stream.
    Whole(Vec<u8>),
}

#[derive(Debug)]
pub struct EventStream {
    parser: SseParser,
    first: Bytes,
    rest: Response,
}

/// Returns the next bytes of a reply that has begun; `None`: it has ended. Errors: it broke off,
/// or sent nothing for as long as `silence`.
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

/// The reason why a stream ended early.
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
    /// The failure of the connection, if that is the reason.
    pub fn connection(&self) -> Option<&ConnectionFailure> {
        match self {
            StreamError::Off(connection) | StreamError::Silent(connection) => Some(connection),
            StreamError::Unreadable(_) => None,
        }
    }

    /// Logs the failure of the connection to `provider`, and returns it for the record.
    pub fn logged(&self, provider: &str) -> Option<ConnectionFailure> {
        let connection = self.connection()?;
        tracing::warn!(
            provider,
            cause = connection.cause.with_advice(),
            address = connection.address,
            error = self.to_string(),
            "provider's response interrupted"
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
    /// Returns the next events, at least one; `None`: the stream has ended.
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
