//! The client for requests to models and HTTP services: hyper with pooled connections.
//!
//! Each request of a runner needs it at least once, so it does nothing besides: no layers for
//! redirects, retries and cookies. Routes over a proxy use reqwest, which knows proxies. Not here:
//! requests beside the path of a runner's request (tokens, feeds, the link, MCP servers), which use
//! reqwest.
//!
//! Invariants: those of [`super`]; a request is sent at most once.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::uri::InvalidUri;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use thiserror::Error;
use tower::Service;
use url::Url;

use super::lookup::{Addresses, GuardedLookup};
use super::{CONNECT, IDLE, IDLE_PER_HOST, keep_alive};
use crate::outbound::resolver::ResolveError;

type BoxError = Box<dyn Error + Send + Sync>;

/// A parsed URL.
#[derive(Clone, Debug)]
pub struct Destination {
    pub url: Url,
    pub uri: Uri,
}

impl TryFrom<Url> for Destination {
    type Error = InvalidUri;

    fn try_from(url: Url) -> Result<Self, InvalidUri> {
        let uri = Uri::try_from(url.as_str())?;
        Ok(Self { url, uri })
    }
}

#[cfg(test)]
impl Destination {
    /// A request to the URL.
    pub fn get(&self) -> Request<Full<Bytes>> {
        let mut request = Request::default();
        *request.uri_mut() = self.uri.clone();
        request
    }
}

type Connector = ConnectTimeout<HttpsConnector<HttpConnector<Names>>>;

/// A client with connections of its own. Clones share them.
#[derive(Clone, Debug)]
pub enum Transport {
    Direct(Arc<Client<Connector, Full<Bytes>>>),
    Proxied(reqwest::Client),
}

impl Transport {
    pub(super) fn direct(tls: ClientConfig, names: GuardedLookup) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Names(names));
        tcp.enforce_http(false);
        keep_alive(&mut tcp);
        // Not its builder, which clears the list of protocols.
        let connector = HttpsConnector::from((tcp, tls));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .build(ConnectTimeout(connector));
        Self::Direct(Arc::new(client))
    }

    /// Sends a request, whose URI is that of `to`. Returns after the head of the response.
    pub async fn send(
        &self,
        to: Arc<Destination>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response, SendError> {
        match self {
            Self::Direct(client) => {
                let sent = client.request(request).await?;
                Ok(Response {
                    to,
                    inner: sent.map(Either::Left),
                })
            }
            Self::Proxied(client) => {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map(|it| it.to_bytes());
                let body = body.unwrap_or_else(|never| match never {});
                let request = reqwest::Request::try_from(Request::from_parts(head, body))?;
                Ok(client.execute(request).await?.into())
            }
        }
    }
}

/// The reason why a request has no response.
#[derive(Debug, Error)]
pub enum SendError {
    #[error(transparent)]
    Direct(#[from] hyper_util::client::legacy::Error),
    #[error(transparent)]
    Proxied(#[from] reqwest::Error),
}

impl SendError {
    /// The client's error, whose chain shows the cause. (`source` skips it.)
    pub fn cause(&self) -> &(dyn Error + 'static) {
        match self {
            SendError::Direct(error) => error,
            SendError::Proxied(error) => error,
        }
    }

    /// True if the request was not sent.
    pub fn is_unsent(&self) -> bool {
        match self {
            SendError::Direct(error) => error.is_connect(),
            SendError::Proxied(error) => error.is_connect() || error.is_builder(),
        }
    }
}

/// A response whose body is read as it comes.
#[derive(Debug)]
pub struct Response {
    to: Arc<Destination>,
    inner: http::Response<Either<Incoming, reqwest::Body>>,
}

/// The body of a response broke off.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct BrokenBody(BoxError);

impl BrokenBody {
    /// The error, whose chain shows the cause. (`source` skips it.)
    pub fn cause(&self) -> &(dyn Error + 'static) {
        &*self.0
    }
}

impl Response {
    pub fn status(&self) -> StatusCode {
        self.inner.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// Takes the headers, for a caller that needs no others.
    pub fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(self.inner.headers_mut())
    }

    /// The URL of the request.
    pub fn url(&self) -> &Url {
        &self.to.url
    }

    /// The declared length of the body, in bytes.
    pub fn content_length(&self) -> Option<u64> {
        let declared = self.headers().get(CONTENT_LENGTH)?;
        declared.to_str().ok()?.parse().ok()
    }

    /// Returns the next bytes of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BrokenBody> {
        while let Some(frame) = self.inner.body_mut().frame().await {
            // Other frames are trailers.
            if let Ok(data) = frame.map_err(BrokenBody)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// A response of a client that is not on the path of a runner's request.
impl From<reqwest::Response> for Response {
    fn from(response: reqwest::Response) -> Self {
        let url = response.url().clone();
        Self {
            // The response has no use for the URI.
            to: Arc::new(Destination {
                url,
                uri: Uri::default(),
            }),
            inner: http::Response::<reqwest::Body>::from(response).map(Either::Right),
        }
    }
}

/// Looks names up for new connections.
#[derive(Clone)]
pub struct Names(GuardedLookup);

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

impl Service<Name> for Names {
    type Response = Addresses;
    type Error = ResolveError;
    type Future = BoxFuture<'static, Result<Addresses, ResolveError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        (self.0)(name.as_str().to_owned())
    }
}

/// Limits the time of name lookup, connect and TLS handshake together.
#[derive(Clone, Debug)]
pub struct ConnectTimeout<C>(C);

impl<C> Service<Uri> for ConnectTimeout<C>
where
    C: Service<Uri, Error = BoxError, Future: Send + 'static>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = tokio::time::timeout(CONNECT, self.0.call(uri));
        Box::pin(async move {
            let late = |_| BoxError::from(io::Error::from(io::ErrorKind::TimedOut));
            connected.await.map_err(late)?
        })
    }
}
