//! An MCP server at a URL, or behind a Service through the API server's proxy. Redirects are not
//! followed: they would send the credential to another host.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
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
use toolcrib_mcp::client::{Protocol, RpcResult, ServerMessage};
use toolcrib_mcp::header::SESSION_HEADER;

use super::MESSAGE;
use crate::authoring::connection::{MachineNames, Verb, no_answer};
use crate::print::brief;

const CONNECT: Duration = Duration::from_secs(10);
/// Limit on waiting for the server to end its session.
const FAREWELL: Duration = Duration::from_secs(5);

pub struct Http {
    transport: Transport,
    /// The headers with the credential.
    headers: HeaderMap,
    /// `None` before the handshake.
    protocol: Option<Protocol>,
    /// The session that the server began with its answer to the handshake.
    session: Option<HeaderValue>,
}

enum Transport {
    Url { client: Client, url: Url },
    Proxy { client: kube::Client, path: String },
}

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Chunks,
}

/// Says how a user can give the server a credential. The API server keeps `Authorization` for itself.
fn credential_advice(transport: &Transport) -> &'static str {
    match transport {
        Transport::Url { .. } => "give a credential with --token-file or --header-file",
        Transport::Proxy { .. } => PROXIED_ADVICE,
    }
}

/// The advice on the credential of a server behind the API server's proxy.
pub const PROXIED_ADVICE: &str = "give its credential in another header than Authorization, as a line `X-API-Key: VALUE` of --header-file; \
     if it takes a bearer token alone, use `kubectl port-forward`, and --url http://127.0.0.1:PORT/PATH --token-file FILE instead of --in-cluster";

pub type Chunks = BoxStream<'static, anyhow::Result<Bytes>>;

#[derive(Debug, thiserror::Error)]
#[error("the answer broke off: see the log of the server, which closed the connection")]
struct TruncatedAnswer;

impl Http {
    pub fn new(url: Url, headers: HeaderMap, roots: RootCertStore) -> anyhow::Result<Self> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(MachineNames))
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT)
            .build()?;
        Ok(Self {
            transport: Transport::Url { client, url },
            headers,
            protocol: None,
            session: None,
        })
    }

    /// Connects through the API server, at this path of its proxy.
    pub fn proxied(client: kube::Client, path: String, headers: HeaderMap) -> Self {
        Self {
            transport: Transport::Proxy { client, path },
            headers,
            protocol: None,
            session: None,
        }
    }

    /// Sets the protocol of each further request.
    pub fn speak(&mut self, protocol: Protocol) {
        self.protocol = Some(protocol);
    }

    /// Takes the session that the last answer began.
    pub fn take_session(&mut self) -> Option<HeaderValue> {
        self.session.take()
    }

    pub async fn notify(&self, message: &str) -> anyhow::Result<()> {
        let status = self.send(message, None).await?.status;
        ensure!(
            status.is_success(),
            "the server answered {status} to a notification: see its log"
        );
        Ok(())
    }

    /// Returns the answer to a request. The request changes nothing, so it is sent once more if
    /// the answer breaks off, as behind a proxy.
    pub async fn ask(
        &mut self,
        id: u64,
        method: &'static str,
        request: &str,
    ) -> anyhow::Result<RpcResult> {
        match self.ask_once(id, method, request).await {
            Err(error) if error.is::<TruncatedAnswer>() => self.ask_once(id, method, request).await,
            asked => asked,
        }
    }

    async fn ask_once(
        &mut self,
        id: u64,
        method: &'static str,
        request: &str,
    ) -> anyhow::Result<RpcResult> {
        let response = self.send(request, Some(method)).await?;
        self.session = response.headers.get(SESSION_HEADER).cloned();
        let status = response.status;
        let is_stream = response
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let text = match is_stream {
            true => match from_stream(response.body, id).await? {
                Some(answer) => return Ok(answer),
                None => String::new(),
            },
            false => text(response.body).await?,
        };
        match ServerMessage::read(&text, id) {
            Some(ServerMessage::Response(answer)) => Ok(answer),
            // Its id is null, if the server could not parse the request.
            Some(ServerMessage::OtherResponse(Err(error))) => Ok(Err(error)),
            Some(
                ServerMessage::OtherResponse(Ok(_))
                | ServerMessage::Request(_)
                | ServerMessage::Notification,
            )
            | None => Err(self.no_message(status, &text)),
        }
    }

    /// The error for an answer that is not an MCP message.
    fn no_message(&self, status: StatusCode, text: &str) -> anyhow::Error {
        if let Transport::Proxy { .. } = self.transport
            && let Ok(document) = serde_json::from_str::<Value>(text)
            && document["kind"] == "Status"
        {
            // An answer of the API server: the user may not use the proxy, or the Service has no
            // pod.
            let message = document["message"].as_str().unwrap_or_default();
            let advice = match status {
                StatusCode::SERVICE_UNAVAILABLE => {
                    ": wait until a pod of the Service is ready; `kubectl get pods` shows them"
                }
                _ => "",
            };
            return anyhow!(
                "the API server answered {status}: {}{advice}",
                brief(message)
            );
        }
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let advice = match self.headers.is_empty() {
                true => credential_advice(&self.transport),
                false => "it refuses the credential of the file that you named: correct it there",
            };
            return anyhow!("the server answered {status}: {advice}");
        }
        match brief(text.trim()) {
            text if text.is_empty() => anyhow!(
                "the server answered {status}, and no message: is this the URL of an MCP server?"
            ),
            text => anyhow!(
                "the server answered {status}, and no MCP message: {text}; is it an MCP server?"
            ),
        }
    }

    /// Ends the session, if there is one. Errors are ignored: many servers do not support it, and
    /// the API server's proxy needs a further right.
    pub async fn end(&self) {
        if let Transport::Url { client, url } = &self.transport
            && let Some(protocol) = &self.protocol
            && protocol.has_session()
        {
            let headers = self.headers.clone();
            let request = client.delete(url.clone()).headers(headers);
            let request = request.headers(protocol.headers());
            // Both errors are ignored: the session ends by itself later.
            tokio::time::timeout(FAREWELL, request.send()).await.ok();
        }
    }

    async fn send(&self, message: &str, method: Option<&'static str>) -> anyhow::Result<Response> {
        let mut headers = self.headers.clone();
        if let Some(protocol) = &self.protocol {
            let of_protocol = match method {
                Some(method) => protocol.request_headers(method, None),
                None => protocol.headers(),
            };
            headers.extend(of_protocol);
        }
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, accept);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match &self.transport {
            Transport::Url { client, url } => {
                let request = client.post(url.clone()).headers(headers);
                let sent = request.body(message.to_owned()).send().await;
                let response = sent.map_err(|error| no_answer(error, url, Verb::Discover))?;
                Ok(Response {
                    status: response.status(),
                    headers: response.headers().clone(),
                    body: broken_off(response.bytes_stream().map_err(Into::into)),
                })
            }
            Transport::Proxy { client, path } => {
                let body = Body::from(message.to_owned().into_bytes());
                let mut request = Request::post(path).body(body)?;
                *request.headers_mut() = headers;
                let sent = client.send(request).await;
                let response = sent.context(
                    "the API server cannot be asked: is the cluster up, and is it the right one \
                     (kubectl config current-context)?",
                )?;
                let (parts, body) = response.into_parts();
                let chunks = body.into_data_stream();
                Ok(Response {
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

/// Reads the body as text; bytes that are not UTF-8 are replaced.
async fn text(mut chunks: Chunks) -> anyhow::Result<String> {
    let mut body = Buffer::new(MESSAGE);
    while let Some(chunk) = chunks.try_next().await? {
        body.push(&chunk).context("the server's answer")?;
    }
    Ok(String::from_utf8_lossy(&body.into_bytes()).into_owned())
}

/// Returns the first event that answers. Others are notifications, or requests, which are ignored.
pub async fn from_stream(mut chunks: Chunks, id: u64) -> anyhow::Result<Option<RpcResult>> {
    let mut parser = SseParser::new(MESSAGE);
    // Counts by itself: the bytes are bounded together, and none of them is kept.
    let mut read = 0;
    while let Some(chunk) = chunks.try_next().await? {
        read += chunk.len();
        ensure!(
            read <= MESSAGE,
            "the server's answer is longer than {MESSAGE} bytes: write a descriptor with the tools \
             that agents need"
        );
        let events = parser.push(&chunk);
        let events = events.context(
            "the server's answer is not a stream of events: is this the URL of an MCP server?",
        )?;
        for event in events {
            if let Some(ServerMessage::Response(answer)) = ServerMessage::read(&event.data, id) {
                return Ok(Some(answer));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use futures::stream;

    use super::*;

    #[test]
    fn the_advice_behind_the_api_server_can_be_followed() {
        let parses = |flags: &str| {
            let line = format!("kubectl-toolcrib surface discover fish {flags}");
            crate::args::Args::try_parse_from(line.split(' ')).is_ok()
        };
        assert!(parses("--in-cluster --header-file headers"));
        assert!(parses("--url http://127.0.0.1:8080/mcp --token-file token"));
        for flag in [
            "--header-file",
            "--url",
            "--token-file FILE instead of --in-cluster",
        ] {
            assert!(PROXIED_ADVICE.contains(flag), "{flag}");
        }
    }

    #[tokio::test]
    async fn any_chunking_of_a_stream_gives_the_same_answer() {
        let text = ": hello\r\n\r\nevent: message\r\ndata: {\"id\": 6}\r\rdata: {\"jsonrpc\": \"2.0\", \"id\": 7,\ndata: \"result\": \"größer\"}\n\n";
        for size in 1..=text.len() {
            let chunks = text.as_bytes().chunks(size);
            let chunks: Vec<_> = chunks
                .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                .collect();
            let answer = from_stream(stream::iter(chunks).boxed(), 7).await.unwrap();
            let result = answer.unwrap().unwrap();
            assert_eq!(result.get(), r#""größer""#, "{size}");
        }
    }
}
