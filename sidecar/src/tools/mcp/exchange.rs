//! One message to a server, and what comes back: JSON, or a stream of events with the answer
//! somewhere in it.
//!
//! Invariants: only an answer with the very id that was sent is one; what is read and held is
//! bounded, however it is cut into events; a server that asks for something hears that it is
//! not offered, a bounded number of times.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use tokio::sync::{Semaphore, SemaphorePermit};
use toolcrib_bounds::json::nests_within;
use toolcrib_dialect::SseParser;
use toolcrib_mcp::header::{
    self as mcp_header, METHOD_HEADER, NAME_HEADER, SESSION_HEADER, VERSION_HEADER,
};
use toolcrib_mcp::revision::STATELESS;
use toolcrib_mediation::{Certainty, ConnectionCause, ConnectionFailure, ResultCode, ToolFailure};
use url::Url;

use super::message::{Answer, Asked, Incoming};
use crate::metrics::Metrics;
use crate::outbound::error;
use crate::tools::{CLAW_ID, unanswered};

pub const SESSION: HeaderName = HeaderName::from_static(SESSION_HEADER);
const REVISION: HeaderName = HeaderName::from_static(VERSION_HEADER);
const METHOD: HeaderName = HeaderName::from_static(METHOD_HEADER);
const NAME: HeaderName = HeaderName::from_static(NAME_HEADER);

/// Of all that answers one message. The model sees some KiB of it; an image or a structured
/// result may be long before it is cut.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// Progress, log lines and keepalives before the answer.
const MAX_EVENTS: usize = 4096;
/// What a server may ask for while one call runs. An honest one asks once.
const MAX_ASKED: usize = 16;
/// Deeper is no tool's data; readers of the record stop at about as much.
const MAX_DEPTH: usize = 128;
/// An answer that is held without asking for room.
const FREE: usize = 64 * 1024;

/// A server, and as whom it is spoken to.
#[derive(Debug)]
pub struct Endpoint {
    pub client: reqwest::Client,
    pub url: Url,
    /// Marked sensitive.
    pub credential: Option<(HeaderName, HeaderValue)>,
    pub claw_id: HeaderValue,
}

/// How a server is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    Stateless,
    Handshake {
        revision: &'static str,
        session: Option<HeaderValue>,
    },
}

impl Spoken {
    pub fn has_session(&self) -> bool {
        matches!(
            self,
            Spoken::Handshake {
                session: Some(_),
                ..
            }
        )
    }

    /// What every message says of it.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Spoken::Stateless => {
                headers.insert(REVISION, HeaderValue::from_static(STATELESS));
            }
            Spoken::Handshake { revision, session } => {
                headers.insert(REVISION, HeaderValue::from_static(revision));
                headers.extend(session.clone().map(|session| (SESSION, session)));
            }
        }
        headers
    }

    /// Those of a request; `name` is the tool's, of a call.
    pub fn request_headers(&self, method: &'static str, name: Option<&str>) -> HeaderMap {
        let mut headers = self.headers();
        if *self == Spoken::Stateless {
            headers.insert(METHOD, HeaderValue::from_static(method));
            headers.extend(name.map(|name| (NAME, mcp_header::value(name))));
        }
        headers
    }
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
        // Last, and in place of what stands there: no credential is taken for one of these.
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

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub session: Option<HeaderValue>,
    pub said: Said,
}

#[derive(Debug)]
pub enum Said {
    Answer(Answer),
    /// A status, and what stands with it, but no answer.
    Http(Vec<u8>),
}

/// There is no answer that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("could not be reached")]
    NotConnected(ConnectionCause),
    #[error("broke its answer off")]
    BrokenOff,
    #[error("did not answer in time")]
    Silent,
    #[error("answered with more than is read")]
    TooLarge,
    #[error("answered while too many long answers were being read")]
    NoRoom,
    #[error("answered with what is not MCP")]
    NotMcp,
    #[error("answered another request than this")]
    OtherId,
    #[error("kept asking for what is not offered")]
    Insistent,
}

impl Lost {
    /// What became of the connection, where that is the reason.
    fn connection(self, endpoint: &Endpoint) -> Option<ConnectionFailure> {
        let cause = match self {
            Lost::NotConnected(cause) => cause,
            Lost::BrokenOff => ConnectionCause::Reset,
            Lost::Silent => ConnectionCause::TimedOut,
            Lost::TooLarge | Lost::NoRoom | Lost::NotMcp | Lost::OtherId | Lost::Insistent => {
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
            Lost::NotConnected(_) => ToolFailure::unreachable(name),
            Lost::BrokenOff => ToolFailure::broken_off(name),
            Lost::Silent => ToolFailure::timeout(name),
            Lost::TooLarge | Lost::NoRoom => failed(ResultCode::RequestFailed),
            Lost::NotMcp | Lost::OtherId | Lost::Insistent => failed(ResultCode::McpError),
        };
        self.explain(name, failure, endpoint)
    }

    /// Logs what became of the connection and adds it to `failure`, where that is the reason.
    pub fn explain(self, name: &str, failure: ToolFailure, endpoint: &Endpoint) -> ToolFailure {
        match self.connection(endpoint) {
            Some(connection) => unanswered(name, failure, connection),
            None => failure,
        }
    }
}

/// What an exchange needs beside the server.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// One permit per KiB that is held.
    pub bodies: &'a Semaphore,
    pub metrics: &'a Metrics,
}

/// Sends `body`, a request with this id, and waits for its answer. `headers` go with what the
/// server is told meanwhile, too.
pub async fn exchange(
    endpoint: &Endpoint,
    spoken: Option<&Spoken>,
    headers: HeaderMap,
    id: u64,
    body: String,
    bounds: Bounds<'_>,
) -> Result<Reply, Lost> {
    let sent = endpoint.post(headers, body).send().await;
    let response = sent.map_err(lost)?;
    let status = response.status();
    let session = response.headers().get(SESSION).cloned();
    let reply = |said| Reply {
        status: status.as_u16(),
        session,
        said,
    };
    // A redirect is not followed, and where it leads is nobody's business.
    if status.is_redirection() {
        return Ok(reply(Said::Http(Vec::new())));
    }
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(Lost::NotMcp);
    }
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or("");
    let (is_json, is_stream) = (
        content_type.starts_with("application/json"),
        content_type.starts_with("text/event-stream"),
    );
    let mut reading = Reading {
        response,
        held: Held::new(bounds.bodies),
    };
    if status.is_success() && is_stream {
        let said = answer_in_stream(endpoint, spoken, id, &mut reading, bounds).await?;
        return Ok(reply(Said::Answer(said)));
    }
    let body = reading.whole().await?;
    let answer = std::str::from_utf8(&body)
        .ok()
        .filter(|_| is_json)
        .and_then(read_message);
    match answer {
        Some(Incoming::Answer { id: to, answer }) if is_id(&to, id) => {
            Ok(reply(Said::Answer(answer)))
        }
        // A status says enough; some servers cannot say whom they answer with it.
        _ if !status.is_success() => Ok(reply(Said::Http(body))),
        Some(Incoming::Answer { .. }) => Err(Lost::OtherId),
        Some(Incoming::Request(_) | Incoming::Notification) | None => Err(Lost::NotMcp),
    }
}

async fn answer_in_stream(
    endpoint: &Endpoint,
    spoken: Option<&Spoken>,
    id: u64,
    reading: &mut Reading<'_>,
    bounds: Bounds<'_>,
) -> Result<Answer, Lost> {
    let mut parser = SseParser::new(MAX_ANSWER);
    let (mut events, mut asked) = (0, 0);
    while let Some(chunk) = reading.chunk().await? {
        for event in parser.push(&chunk).map_err(|_| Lost::NotMcp)? {
            events += 1;
            if events > MAX_EVENTS {
                return Err(Lost::TooLarge);
            }
            let is_message = event.event.as_deref().is_none_or(|it| it == "message");
            if !is_message || event.data.is_empty() {
                continue;
            }
            match read_message(&event.data).ok_or(Lost::NotMcp)? {
                Incoming::Answer { id: to, answer } if is_id(&to, id) => return Ok(answer),
                Incoming::Answer { .. } => return Err(Lost::OtherId),
                Incoming::Notification => {}
                Incoming::Request(request) => {
                    asked += 1;
                    if asked > MAX_ASKED {
                        return Err(Lost::Insistent);
                    }
                    refuse(endpoint, spoken, &request, bounds.metrics).await;
                }
            }
        }
    }
    Err(Lost::BrokenOff)
}

/// Where there is no handshake, servers must not ask, and clients must not answer.
async fn refuse(endpoint: &Endpoint, spoken: Option<&Spoken>, asked: &Asked, metrics: &Metrics) {
    if let Some(kind) = asked.refused_as() {
        metrics.mcp_refused(kind);
    }
    let Some(spoken @ Spoken::Handshake { .. }) = spoken else {
        return;
    };
    let headers = spoken.headers();
    if let Err(error) = endpoint.post(headers, asked.reply()).send().await {
        // The server waits for it until the call's deadline, at worst.
        let error = error.without_url().to_string();
        tracing::debug!(error, "a server did not take a refusal");
    }
}

fn is_id(text: &str, id: u64) -> bool {
    text == id.to_string()
}

fn read_message(text: &str) -> Option<Incoming> {
    nests_within(text, MAX_DEPTH)
        .then(|| Incoming::read(text))
        .flatten()
}

fn lost(error: reqwest::Error) -> Lost {
    match error.is_connect() || error.is_builder() {
        true => Lost::NotConnected(error::failure(&error).cause),
        false => Lost::BrokenOff,
    }
}

/// An answer that is being read.
struct Reading<'a> {
    response: Response,
    held: Held<'a>,
}

impl Reading<'_> {
    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, Lost> {
        let chunk = self.response.chunk().await.map_err(|_| Lost::BrokenOff)?;
        if let Some(chunk) = &chunk {
            self.held.take(chunk.len())?;
        }
        Ok(chunk)
    }

    async fn whole(&mut self) -> Result<Vec<u8>, Lost> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// Room for what is read.
struct Held<'a> {
    bodies: &'a Semaphore,
    permits: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

impl<'a> Held<'a> {
    fn new(bodies: &'a Semaphore) -> Self {
        Self {
            bodies,
            permits: None,
            bytes: 0,
        }
    }

    fn take(&mut self, bytes: usize) -> Result<(), Lost> {
        self.bytes += bytes;
        if self.bytes > MAX_ANSWER {
            return Err(Lost::TooLarge);
        }
        let wanted = self.bytes.saturating_sub(FREE).div_ceil(1024);
        let has = self
            .permits
            .as_ref()
            .map_or(0, SemaphorePermit::num_permits);
        let more = u32::try_from(wanted.saturating_sub(has)).unwrap_or(u32::MAX);
        if more > 0 {
            let room = self.bodies.try_acquire_many(more);
            let room = room.map_err(|_| Lost::NoRoom)?;
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
        let mut held = Held::new(&bodies);
        assert_eq!(held.take(FREE), Ok(()));
        assert_eq!(bodies.available_permits(), 1024);
        assert_eq!(held.take(1), Ok(()));
        assert_eq!(held.take(1024), Ok(()));
        assert_eq!(bodies.available_permits(), 1022);
        assert_eq!(held.take(2 * 1024 * 1024), Err(Lost::NoRoom));
        assert_eq!(held.take(MAX_ANSWER), Err(Lost::TooLarge));
        drop(held);
        assert_eq!(bodies.available_permits(), 1024);
    }
}
