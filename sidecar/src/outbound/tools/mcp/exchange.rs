//! Sends one message to a server and reads the answer, from JSON or from a stream of events.
//!
//! Invariants: an answer must have exactly the id that was sent; memory is bounded, however the
//! answer is cut into events; requests of the server are refused, a bounded number of times.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use tokio::sync::{Semaphore, SemaphorePermit};
use toolcrib_bounds::json::nests_within;
use toolcrib_dialect::SseParser;
use toolcrib_mcp::MAX_DEPTH;
use toolcrib_mcp::client::{Protocol, RpcResult, ServerMessage, ServerRequest};
use toolcrib_mcp::header::SESSION_HEADER;
use toolcrib_mediation::{Certainty, ConnectionCause, ConnectionFailure, ResultCode, ToolFailure};
use url::Url;

use crate::metrics::Metrics;
use crate::outbound::error;
use crate::outbound::tools::{CLAW_ID, unanswered};

pub const SESSION: HeaderName = HeaderName::from_static(SESSION_HEADER);

/// Most bytes of everything that answers one message. The model sees some KiB; an image or a
/// structured result may be long before it is cut.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// Most events of one answer, with progress, log lines and keepalives.
const MAX_EVENTS: usize = 4096;
/// Most requests that a server may make while one call runs. An honest one makes one.
const MAX_SERVER_REQUESTS: usize = 16;
/// Bytes of an answer that need no permits.
const FREE: usize = 64 * 1024;

/// A server, with the credential and identity for it.
#[derive(Debug)]
pub struct Endpoint {
    pub client: reqwest::Client,
    pub url: Url,
    /// The credential, marked sensitive.
    pub credential: Option<(HeaderName, HeaderValue)>,
    pub claw_id: HeaderValue,
}

impl Endpoint {
    pub fn request(&self, method: Method, headers: HeaderMap) -> RequestBuilder {
        let mut request = self
            .client
            .request(method, self.url.clone())
            .header(header::ACCEPT_ENCODING, "identity")
            .header(CLAW_ID, self.claw_id.clone());
        if let Some((name, value)) = &self.credential {
            request = request.header(name, value.clone());
        }
        // Last, replacing existing values: no credential can set one of these headers.
        request.headers(headers)
    }

    pub fn post(&self, mut headers: HeaderMap, body: String) -> RequestBuilder {
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, accept);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        self.request(Method::POST, headers).body(body)
    }
}

/// A reply to a message.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub session: Option<HeaderValue>,
    pub content: ReplyContent,
}

#[derive(Debug)]
pub enum ReplyContent {
    Rpc(RpcResult),
    /// An HTTP body without a JSON-RPC response.
    Http(Vec<u8>),
}

/// The reason why there is no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    #[error("its server could not be reached")]
    NotConnected(ConnectionCause),
    #[error("its server interrupted its answer")]
    BrokenOff,
    #[error("its server did not answer in time")]
    Silent,
    #[error("its server answered with more bytes or events than are read")]
    TooLarge,
    #[error("its server answered while too many long answers were being read")]
    NoRoom,
    #[error("its server did not answer with a valid MCP message")]
    NotMcp,
    #[error("its server answered another request")]
    OtherId,
    #[error("its server sent too many requests of its own")]
    Insistent,
}

impl ExchangeError {
    /// The failure of the connection, if that is the reason.
    fn connection(self, endpoint: &Endpoint) -> Option<ConnectionFailure> {
        let cause = match self {
            ExchangeError::NotConnected(cause) => cause,
            ExchangeError::BrokenOff => ConnectionCause::Reset,
            ExchangeError::Silent => ConnectionCause::TimedOut,
            ExchangeError::TooLarge
            | ExchangeError::NoRoom
            | ExchangeError::NotMcp
            | ExchangeError::OtherId
            | ExchangeError::Insistent => {
                return None;
            }
        };
        Some(ConnectionFailure {
            cause,
            address: endpoint.url.origin().ascii_serialization(),
        })
    }

    /// The failure of a call that was sent.
    pub fn failure(self, name: &str, endpoint: &Endpoint) -> ToolFailure {
        let failed = |code| {
            let message = format!("the server of {name} {self}; the call may have run");
            ToolFailure::new(code, Certainty::Unclear, message)
        };
        let failure = match self {
            ExchangeError::NotConnected(_) => ToolFailure::unreachable(name),
            ExchangeError::BrokenOff => ToolFailure::broken_off(name),
            ExchangeError::Silent => ToolFailure::timeout(name),
            ExchangeError::TooLarge | ExchangeError::NoRoom => failed(ResultCode::RequestFailed),
            ExchangeError::NotMcp | ExchangeError::OtherId | ExchangeError::Insistent => {
                failed(ResultCode::McpError)
            }
        };
        self.explain(name, failure, endpoint)
    }

    /// Logs the failure of the connection and adds it to `failure`, if that is the reason.
    pub fn explain(self, name: &str, failure: ToolFailure, endpoint: &Endpoint) -> ToolFailure {
        match self.connection(endpoint) {
            Some(connection) => unanswered(name, failure, connection),
            None => failure,
        }
    }
}

/// The bounds and counters of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// One permit per KiB in memory.
    pub bodies: &'a Semaphore,
    pub metrics: &'a Metrics,
}

/// Sends `body`, a request with this id, and waits for its answer. `headers` are also sent with
/// refusals of the server's requests.
pub async fn exchange(
    endpoint: &Endpoint,
    protocol: Option<&Protocol>,
    headers: HeaderMap,
    id: u64,
    body: String,
    bounds: Bounds<'_>,
) -> Result<Reply, ExchangeError> {
    let sent = endpoint.post(headers, body).send().await;
    let response = sent.map_err(exchange_error)?;
    let status = response.status();
    let session = response.headers().get(SESSION).cloned();
    let reply = |content| Reply {
        status: status.as_u16(),
        session,
        content,
    };
    // A redirect is not followed, and its target is not reported.
    if status.is_redirection() {
        return Ok(reply(ReplyContent::Http(Vec::new())));
    }
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(ExchangeError::NotMcp);
    }
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or("");
    let (is_json, is_stream) = (
        content_type.starts_with("application/json"),
        content_type.starts_with("text/event-stream"),
    );
    let mut reading = AnswerReader {
        response,
        permits: ReadPermits::new(bounds.bodies),
    };
    if status.is_success() && is_stream {
        let answer = answer_in_stream(endpoint, protocol, id, &mut reading, bounds).await?;
        return Ok(reply(ReplyContent::Rpc(answer)));
    }
    let body = reading.whole().await?;
    let answer = std::str::from_utf8(&body)
        .ok()
        .filter(|_| is_json)
        .and_then(|text| read_message(text, id));
    match answer {
        Some(ServerMessage::Response(answer)) => Ok(reply(ReplyContent::Rpc(answer))),
        // The status is enough: some servers send no id with an error.
        _ if !status.is_success() => Ok(reply(ReplyContent::Http(body))),
        Some(ServerMessage::OtherResponse(_)) => Err(ExchangeError::OtherId),
        Some(ServerMessage::Request(_) | ServerMessage::Notification) | None => {
            Err(ExchangeError::NotMcp)
        }
    }
}

async fn answer_in_stream(
    endpoint: &Endpoint,
    protocol: Option<&Protocol>,
    id: u64,
    reading: &mut AnswerReader<'_>,
    bounds: Bounds<'_>,
) -> Result<RpcResult, ExchangeError> {
    let mut parser = SseParser::new(MAX_ANSWER);
    let (mut events, mut requests) = (0, 0);
    while let Some(chunk) = reading.chunk().await? {
        for event in parser.push(&chunk).map_err(|_| ExchangeError::NotMcp)? {
            events += 1;
            if events > MAX_EVENTS {
                return Err(ExchangeError::TooLarge);
            }
            let is_message = event.event.as_deref().is_none_or(|it| it == "message");
            if !is_message || event.data.is_empty() {
                continue;
            }
            match read_message(&event.data, id).ok_or(ExchangeError::NotMcp)? {
                ServerMessage::Response(answer) => return Ok(answer),
                ServerMessage::OtherResponse(_) => return Err(ExchangeError::OtherId),
                ServerMessage::Notification => {}
                ServerMessage::Request(request) => {
                    requests += 1;
                    if requests > MAX_SERVER_REQUESTS {
                        return Err(ExchangeError::Insistent);
                    }
                    refuse(endpoint, protocol, &request, bounds.metrics).await;
                }
            }
        }
    }
    Err(ExchangeError::BrokenOff)
}

/// Refuses a request of the server. Without a handshake servers must not send requests, and
/// clients must not answer.
async fn refuse(
    endpoint: &Endpoint,
    protocol: Option<&Protocol>,
    request: &ServerRequest,
    metrics: &Metrics,
) {
    if let Some(kind) = request.refused_as() {
        metrics.mcp_refused(kind);
    }
    let Some(protocol @ Protocol::Handshake { .. }) = protocol else {
        return;
    };
    let headers = protocol.headers();
    if let Err(error) = endpoint.post(headers, request.reply()).send().await {
        // At worst the server waits for the refusal until the call's deadline.
        let error = error.without_url().to_string();
        tracing::debug!(error, "refusal not delivered to MCP server");
    }
}

fn read_message(text: &str, id: u64) -> Option<ServerMessage> {
    nests_within(text, MAX_DEPTH)
        .then(|| ServerMessage::read(text, id))
        .flatten()
}

fn exchange_error(error: reqwest::Error) -> ExchangeError {
    match error.is_connect() || error.is_builder() {
        true => ExchangeError::NotConnected(error::failure(&error).cause),
        false => ExchangeError::BrokenOff,
    }
}

/// An answer that is being read.
struct AnswerReader<'a> {
    response: Response,
    permits: ReadPermits<'a>,
}

impl AnswerReader<'_> {
    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, ExchangeError> {
        let chunk = self
            .response
            .chunk()
            .await
            .map_err(|_| ExchangeError::BrokenOff)?;
        if let Some(chunk) = &chunk {
            self.permits.take(chunk.len())?;
        }
        Ok(chunk)
    }

    async fn whole(&mut self) -> Result<Vec<u8>, ExchangeError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// The permits for the bytes of one answer. Counts the bytes itself: a stream is bounded as a whole
/// and kept only in part, and a `bounds::Buffer` keeps what it counts.
struct ReadPermits<'a> {
    bodies: &'a Semaphore,
    permits: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

impl<'a> ReadPermits<'a> {
    fn new(bodies: &'a Semaphore) -> Self {
        Self {
            bodies,
            permits: None,
            bytes: 0,
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), ExchangeError> {
        self.bytes += bytes;
        if self.bytes > MAX_ANSWER {
            return Err(ExchangeError::TooLarge);
        }
        let wanted = self.bytes.saturating_sub(FREE).div_ceil(1024);
        let has = self
            .permits
            .as_ref()
            .map_or(0, SemaphorePermit::num_permits);
        let more = u32::try_from(wanted.saturating_sub(has)).unwrap_or(u32::MAX);
        if more > 0 {
            let room = self.bodies.try_acquire_many(more);
            let room = room.map_err(|_| ExchangeError::NoRoom)?;
            match &mut self.permits {
                Some(permits) => permits.merge(room),
                None => self.permits = Some(room),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        let check = |text: &str, fine: bool| assert_eq!(nests_within(text, 2), fine, "{text}");
        check(r#"{"a":[1]}"#, true);
        check(r#"{"a":[{}]}"#, false);
        check(r#"{"a":"[[[[\"[[["}"#, true);
        check("[[]][[]]", true);
    }

    #[test]
    fn a_long_answer_asks_for_room_and_gives_it_back() {
        let bodies = Semaphore::new(1024);
        let mut permits = ReadPermits::new(&bodies);
        assert_eq!(permits.take(FREE), Ok(()));
        assert_eq!(bodies.available_permits(), 1024);
        assert_eq!(permits.take(1), Ok(()));
        assert_eq!(permits.take(1024), Ok(()));
        assert_eq!(bodies.available_permits(), 1022);
        assert_eq!(permits.take(2 * 1024 * 1024), Err(ExchangeError::NoRoom));
        assert_eq!(permits.take(MAX_ANSWER), Err(ExchangeError::TooLarge));
        drop(permits);
        assert_eq!(bodies.available_permits(), 1024);
    }
}
