//! Serves plain HTTP for the test services: a listener whose connections a handler may reset, a
//! check of bearer tokens, and a shutdown with a deadline.
//!
//! These services stand in for external ones (a model provider, a trading desk). Nothing here is
//! part of the product, and nothing here uses TLS.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::connect_info::Connected,
    http::{HeaderMap, header},
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
};

/// Timeout for requests in flight after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains for at most [`DRAIN`].
///
/// Errors: the address cannot be bound, or the process cannot listen for signals.
pub async fn serve(listen: SocketAddr, router: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr()?;
    tracing::info!(%address, "listening");
    let (stopping, mut stopped) = tokio::sync::watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let until_signal = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.send_replace(true);
    };
    let server = serve_on(listener, router, until_signal);
    let deadline = async move {
        // An error means that the sender is gone, which happens only after it has sent.
        drop(stopped.wait_for(|stopped| *stopped).await);
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = server => served?,
        () = deadline => tracing::warn!("shutdown deadline exceeded, in-flight requests dropped"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Serves `router` on a listener that is already bound, until `stop` resolves.
pub async fn serve_on(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(
        ResettableListener(listener),
        router.into_make_service_with_connect_info::<ResetHandle>(),
    )
    .with_graceful_shutdown(stop)
    .await
}

/// The credential of a request: `Authorization: Bearer …`, else `x-api-key`.
pub fn credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| {
        headers
            .get("x-api-key")
            .and_then(|value| value.to_str().ok())
    })
}

/// Lets a handler reset the connection of its request: after [`ResetHandle::reset`] the client
/// sees a TCP reset and no byte of the answer.
#[derive(Clone, Debug)]
pub struct ResetHandle(Arc<AtomicBool>);

impl ResetHandle {
    pub fn reset(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Connected<IncomingStream<'_, ResettableListener>> for ResetHandle {
    fn connect_info(stream: IncomingStream<'_, ResettableListener>) -> Self {
        Self(stream.io().reset.clone())
    }
}

pub struct ResettableListener(TcpListener);

impl Listener for ResettableListener {
    type Io = ResettableStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (
            ResettableStream {
                stream,
                reset: Arc::default(),
            },
            address,
        )
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

pub struct ResettableStream {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl ResettableStream {
    fn check(&self) -> io::Result<()> {
        if !self.reset.load(Ordering::Acquire) {
            return Ok(());
        }
        // With a zero linger, closing the socket sends RST instead of FIN.
        self.stream.set_zero_linger()?;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    }
}

impl AsyncRead for ResettableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ResettableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
