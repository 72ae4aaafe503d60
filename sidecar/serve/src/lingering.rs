//! A stream that is closed without a reset.
//!
//! A socket that is closed with unread bytes in it is reset, and a sender that is still writing a
//! body then fails before it has read its answer. So the last answer is followed by the end of
//! writing, and what still comes is read and dropped, up to a bound of bytes and of time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// More than the longest body that a listener refuses in practice.
const MOST: usize = 256 * 1024;
/// A sender that has the answer stops, or closes, within a round trip.
const LONGEST: Duration = Duration::from_secs(1);

/// Reads on for a while once its writing end is shut down.
pub(crate) struct Lingering<S> {
    stream: S,
    left: usize,
    /// Set once nothing is written any more.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            left: MOST,
            until: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.until.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        let until = this.until.get_or_insert_with(|| Box::pin(sleep(LONGEST)));
        let mut scratch = [0; 4096];
        while this.left > 0 && until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    this.left = this.left.saturating_sub(buffer.filled().len());
                }
                // The other end is done, or gone.
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use crate::{Door, Guest, Http, Plain, bind, serve};

    struct Open;

    impl Door for Open {
        type Guest = Open;

        fn enter(&self, _: std::net::IpAddr) -> Option<Open> {
            Some(Open)
        }
    }

    impl Guest for Open {
        async fn expelled(&mut self) {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a_sender_whose_body_is_refused_can_send_it_and_read_the_refusal() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let refused = || async {
            (
                StatusCode::PAYLOAD_TOO_LARGE,
                [("connection", "close")],
                "newt",
            )
        };
        let routes = Router::new().route("/", post(refused));
        let http = || Http {
            idle: std::time::Duration::from_secs(20),
            head: 8 * 1024,
            buffer: Some(8 * 1024),
            lifetime: None,
        };
        let closing = std::future::pending();
        let serving = serve(
            listener,
            Plain,
            Open,
            http,
            |_| routes.clone(),
            closing,
            None,
        );
        let serving = async {
            serving.await;
            unreachable!("nothing closes it")
        };
        let asking = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = "POST / HTTP/1.1\r\nhost: otter\r\ncontent-length: 200000\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = vec![0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, b"HTTP/1.1 413");
            // One write after the other end has closed is lost, the next one fails.
            for _ in 0..20 {
                stream.write_all(&[b'x'; 10_000]).await.unwrap();
                tokio::task::yield_now().await;
            }
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            assert!(rest.ends_with("\r\n\r\nnewt"), "{rest}");
        };
        tokio::select! {
            () = serving => {}
            () = asking => {}
        }
    }
}
