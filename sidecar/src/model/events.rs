//! A model's answer as events, while it comes.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use reqwest::Response;
use thiserror::Error;
use toolcrib_dialect::{DialectError, MAX_REPLY, SseEvent, SseParser};

use super::client::{ModelError, ModelStream};

/// One event may be as long as the reply, since the last one of some dialects says the
/// reply again.
const MAX_EVENT: usize = MAX_REPLY;

/// How a model answered that was asked for a stream.
#[derive(Debug)]
pub enum Opened {
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

/// Why a stream that had begun gives no more.
#[derive(Debug, Error)]
pub enum Broken {
    #[error("the model's answer broke off")]
    Off,
    #[error("the model fell silent")]
    Silent,
    #[error("the model's answer could not be read")]
    Unreadable(#[from] DialectError),
}

impl ModelStream {
    pub async fn open(mut self) -> Result<Opened, ModelError> {
        let content_type = self.headers.get(CONTENT_TYPE);
        let streamed = content_type
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with("text/event-stream"));
        if streamed {
            return Ok(Opened::Events(Box::new(EventStream {
                parser: SseParser::new(MAX_EVENT),
                first: self.first,
                rest: self.rest,
            })));
        }
        let mut body = self.first.to_vec();
        while let Some(chunk) = self
            .rest
            .chunk()
            .await
            .map_err(|error| ModelError::unconnected(&error))?
        {
            if body.len() + chunk.len() > MAX_REPLY {
                return Err(ModelError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Opened::Whole(body))
    }
}

impl EventStream {
    /// What came next, at least one event; `None`: it has ended.
    pub async fn next(&mut self, silence: Duration) -> Result<Option<Vec<SseEvent>>, Broken> {
        let mut chunk = std::mem::take(&mut self.first);
        loop {
            let events = self.parser.push(&chunk)?;
            if !events.is_empty() {
                return Ok(Some(events));
            }
            chunk = match tokio::time::timeout(silence, self.rest.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(_)) => return Err(Broken::Off),
                Err(_) => return Err(Broken::Silent),
            };
        }
    }
}
