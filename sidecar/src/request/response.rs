//! The channel from the task that serves a request to the runner's connection. The task outlives
//! the connection, so that calls are recorded even if the runner disconnects.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use thiserror::Error;
use tokio::sync::mpsc;
use toolcrib_dialect::Dialect;
use toolcrib_mediation::{RunnerCode, RunnerError};

/// The header that keeps the official SDKs from retrying after a 429 or 5xx, if its value is `false`.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Chunks that may wait for the connection; if the queue is full, reading from the model waits.
const QUEUE: usize = 16;

/// A part of a response. The first part is `Whole` or `Head`; chunks follow a head.
#[derive(Debug)]
pub enum ResponsePart {
    Whole(Head, Bytes),
    Head(Head),
    Chunk(Bytes),
    /// The body is incomplete; the connection is broken so that the runner sees it.
    Abort,
}

#[derive(Clone, Debug)]
pub struct Head {
    pub status: u16,
    pub headers: HeaderMap,
}

impl Head {
    pub fn new(status: u16, content_type: &str) -> Self {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(content_type) {
            headers.insert(CONTENT_TYPE, value);
        }
        Self { status, headers }
    }

    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Says when the client may try again; `wait` is `None` if that is not known, or not soon. A budget
    /// that is used up for long asks the client not to try.
    pub fn retry(self, code: Option<RunnerCode>, wait: Option<Duration>) -> Self {
        match (wait, code) {
            (Some(wait), _) => self.with(RETRY_AFTER, &wait.as_secs().max(1).to_string()),
            (None, Some(RunnerCode::QuotaExhausted)) => self.with(SHOULD_RETRY, "false"),
            (None, _) => self,
        }
    }
}

#[derive(Debug, Error)]
#[error("the answer broke off")]
struct BrokenOff;

pub fn channel() -> (mpsc::Sender<ResponsePart>, mpsc::Receiver<ResponsePart>) {
    mpsc::channel(QUEUE)
}

/// Waits for the head and returns the response; its body is streamed from the channel.
pub async fn response(mut from: mpsc::Receiver<ResponsePart>, dialect: Dialect) -> Response {
    match from.recv().await {
        Some(ResponsePart::Whole(head, body)) => built(head, Body::from(body)),
        Some(ResponsePart::Head(head)) => {
            let chunks = stream::unfold(from, |mut from| async move {
                let chunk = match from.recv().await? {
                    ResponsePart::Chunk(bytes) => Ok(bytes),
                    ResponsePart::Whole(..) | ResponsePart::Head(_) | ResponsePart::Abort => {
                        Err(BrokenOff)
                    }
                };
                Some((chunk, from))
            });
            built(head, Body::from_stream(chunks))
        }
        // Only a task that panicked sends nothing; the calls it made are unknown.
        Some(ResponsePart::Chunk(_) | ResponsePart::Abort) | None => {
            let lost = RunnerError::new(
                RunnerCode::UpstreamUnreachable,
                "the request could not be served, and services may have been called for it",
            );
            let head = Head::new(lost.status(), "application/json").with(SHOULD_RETRY, "false");
            built(head, Body::from(lost.body(dialect)))
        }
    }
}

/// The response to a request that failed before its task was started.
pub fn error(dialect: Dialect, error: &RunnerError) -> Response {
    built(
        Head::new(error.status(), "application/json"),
        Body::from(error.body(dialect)),
    )
}

fn built(head: Head, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = head.headers;
    response
}
