//! An MCP server at a URL, or behind a Service through the API server's proxy. Redirects are not
//! followed: they would send the credential to another host.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, Url, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde_json::Value;
use toolcrib_bounds::Buffer;
use toolcrib_dialect::SseParser;
use toolcrib_mcp::header::{METHOD_HEADER, SESSION_HEADER, VERSION_HEADER};
use toolcrib_mcp::revision::STATELESS;

use super::message::{MESSAGE, answers};
use crate::print::brief;

const CONNECT: Duration = Duration::from_secs(10);
/// Limit on waiting for the server to end its session.
const FAREWELL: Duration = Duration::from_secs(5);

pub struct Http {
    transport: Transport,
    /// Headers of each request: the credential, then the session and the version.
    headers: HeaderMap,
    is_stateless: bool,
}

enum Transport {
    Url { client: Client, url: Url },
    Proxy { client: kube::Client, path: String },
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Chunks,
}

pub type Chunks = BoxStream<'static, anyhow::Result<Bytes>>;

#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
struct TruncatedAnswer;

impl Http {
    pub fn new(url: Url, headers: HeaderMap, roots: RootCertStore) -> anyhow::Result<Self> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT)
            .build()?;
        Ok(Self {
            transport: Transport::Url { client, url },
            headers,
            is_stateless: false,
        })
    }

    /// Connects through the API server, at this path of its proxy.
    pub fn proxied(client: kube::Client, path: String, headers: HeaderMap) -> Self {
        Self {
            transport: Transport::Proxy { client, path },
            headers,
            is_stateless: false,
        }
    }

    /// Sets the revision that each further request names.
    pub fn speak(&mut self, version: &str) {
        self.is_stateless = version == STATELESS;
        if let Ok(version) = HeaderValue::from_str(version) {
            self.headers.insert(VERSION_HEADER, version);
        }
    }

    pub async fn notify(&self, message: &Value) -> anyhow::Result<()> {
        let status = self.send(message, None).await?.status;
        ensure!(status.is_success(), "the server answered {status}");
        Ok(())
    }

    /// Returns the message that answers. The request changes nothing, so it is sent once more if
    /// the answer breaks off, as behind a proxy.
    pub async fn ask(&mut self, id: u64, method: &str, request: &Value) -> anyhow::Result<Value> {
        match self.ask_once(id, method, request).await {
            Err(error) if error.is::<TruncatedAnswer>() => self.ask_once(id, method, request).await,
            asked => asked,
        }
    }

    async fn ask_once(&mut self, id: u64, method: &str, request: &Value) -> anyhow::Result<Value> {
        let response = self.send(request, Some(method)).await?;
        if let Some(session) = response.headers.get(SESSION_HEADER) {
            self.headers.insert(SESSION_HEADER, session.clone());
        }
        let status = response.status;
        let is_stream = response
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let answer = match is_stream {
            true => from_stream(response.body, id).await?,
            false => from_document(response.body).await?,
        };
        // The id of an error may be null, if the server could not parse the request.
        match answer {
            Some(answer) if answers(&answer, id) || is_error(&answer) => Ok(answer),
            // An answer of the API server: the user may not use the proxy, or the Service has no
            // pod.
            Some(answer)
                if matches!(self.transport, Transport::Proxy { .. })
                    && answer["kind"] == "Status" =>
            {
                let message = answer["message"].as_str().unwrap_or_default();
                bail!("the API server answered {status}: {}", brief(message))
            }
            _ if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN => {
                bail!(
                    "the server answered {status}: give a credential with --token-file or --header-file"
                )
            }
            Some(answer) => bail!(
                "the server answered {status}, and no MCP message: {}; is it an MCP server?",
                brief(&answer.to_string())
            ),
            None => bail!(
                "the server answered {status}, and no message: is this the URL of an MCP server?"
            ),
        }
    }

    /// Ends the session, if there is one. Errors are ignored: many servers do not support it, and
    /// the API server's proxy needs a further right.
    pub async fn end(&self) {
        if let Transport::Url { client, url } = &self.transport
            && self.headers.contains_key(SESSION_HEADER)
        {
            let request = client.delete(url.clone()).headers(self.headers.clone());
            // Both errors are ignored: the session ends by itself later.
            tokio::time::timeout(FAREWELL, request.send()).await.ok();
        }
    }

    async fn send(&self, message: &Value, method: Option<&str>) -> anyhow::Result<Answer> {
        let mut headers = self.headers.clone();
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, accept);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(method) = method.filter(|_| self.is_stateless) {
            headers.insert(METHOD_HEADER, HeaderValue::from_str(method)?);
        }
        match &self.transport {
            Transport::Url { client, url } => {
                let request = client.post(url.clone()).headers(headers);
                let sent = request.body(message.to_string()).send().await;
                let response = sent
                    .map_err(reqwest::Error::without_url)
                    .with_context(|| format!("{url} cannot be asked"))?;
                Ok(Answer {
                    status: response.status(),
                    headers: response.headers().clone(),
                    body: broken_off(response.bytes_stream().map_err(Into::into)),
                })
            }
            Transport::Proxy { client, path } => {
                let body = Body::from(message.to_string().into_bytes());
                let mut request = Request::post(path).body(body)?;
                *request.headers_mut() = headers;
                let sent = client.send(request).await;
                let response = sent.context("the API server cannot be asked")?;
                let (parts, body) = response.into_parts();
                let chunks = body.into_data_stream();
                Ok(Answer {
                    status: parts.status,
                    headers: parts.headers,
                    body: broken_off(chunks.map_err(|error| anyhow::anyhow!(error))),
                })
            }
        }
    }
}

fn broken_off(chunks: impl Stream<Item = anyhow::Result<Bytes>> + Send + 'static) -> Chunks {
    chunks
        .map_err(|error| error.context(TruncatedAnswer))
        .boxed()
}

/// Reads the body as JSON; `None` if it is not JSON.
async fn from_document(mut chunks: Chunks) -> anyhow::Result<Option<Value>> {
    let mut body = Buffer::new(MESSAGE);
    while let Some(chunk) = chunks.try_next().await? {
        body.push(&chunk).context("the server's answer")?;
    }
    Ok(serde_json::from_slice(&body.into_bytes()).ok())
}

/// Whether this is a JSON-RPC error: an object with a code. Other services use `error`
/// differently.
fn is_error(answer: &Value) -> bool {
    answer["error"]["code"].is_i64()
}

/// Returns the first event that answers. Others are notifications, or requests, which are ignored.
pub async fn from_stream(mut chunks: Chunks, id: u64) -> anyhow::Result<Option<Value>> {
    let mut parser = SseParser::new(MESSAGE);
    let mut read = 0;
    while let Some(chunk) = chunks.try_next().await? {
        read += chunk.len();
        ensure!(read <= MESSAGE, "the server's answer is too long");
        let events = parser.push(&chunk);
        let events = events.context("the server's answer is no stream of events")?;
        let mut messages = events
            .iter()
            .filter_map(|event| serde_json::from_str(&event.data).ok());
        if let Some(answer) = messages.find(|it| answers(it, id)) {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn any_chunking_of_a_stream_gives_the_same_answer() {
        let text = ": hello\r\n\r\nevent: message\r\ndata: {\"id\": 6}\r\rdata: {\"id\": 7,\ndata: \"result\": \"größer\"}\n\n";
        for size in 1..=text.len() {
            let chunks = text.as_bytes().chunks(size);
            let chunks: Vec<_> = chunks
                .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                .collect();
            let answer = from_stream(stream::iter(chunks).boxed(), 7).await.unwrap();
            assert_eq!(answer, Some(json!({"id": 7, "result": "größer"})), "{size}");
        }
    }
}
