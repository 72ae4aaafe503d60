//! The layer below HTTP: plain TCP or TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::server::ResolvesServerCert;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Timeout of a TLS handshake, which takes two round trips.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Turns an accepted connection into a stream of requests.
pub trait Transport: Clone + Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Returns `None` if the handshake failed.
    fn open(&self, stream: TcpStream) -> impl Future<Output = Option<Self::Stream>> + Send;
}

/// Plain HTTP.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Transport for Plain {
    type Stream = TcpStream;

    async fn open(&self, stream: TcpStream) -> Option<TcpStream> {
        Some(stream)
    }
}

/// HTTPS.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// TLS with the certificate that `certificate` returns at each handshake. HTTP/1 alone: the
    /// header that asks a client to leave exists only there.
    pub fn new(certificate: Arc<dyn ResolvesServerCert>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl Transport for Tls {
    type Stream = TlsStream<TcpStream>;

    async fn open(&self, stream: TcpStream) -> Option<Self::Stream> {
        match tokio::time::timeout(HANDSHAKE, self.0.accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}
