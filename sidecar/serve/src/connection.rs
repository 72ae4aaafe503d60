//! One connection, from its first byte to its last.

use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::service::{ResponseBody, Routes};
use crate::transport::Transport;

/// Limits the last answer of a closing connection; longer than any answer takes, long polls
/// included.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// Limits of HTTP on one connection.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    /// Timeout for a request's head, and so for an idle connection.
    pub idle: Duration,
    /// Limits the bytes of a request's head; a longer one is answered with 431.
    pub head: usize,
    /// Size of a connection's buffers; `None` is hyper's default.
    pub buffer: Option<usize>,
    /// The connection is closed after the first answer past this age. `None`: only the client
    /// closes it.
    pub lifetime: Option<Duration>,
}

/// Serves one connection to its end. `leaving` ends it after the current answer.
pub(crate) async fn connection<T: Transport, S: Routes<B>, B: ResponseBody>(
    stream: TcpStream,
    transport: T,
    routes: S,
    http: Http,
    mut leaving: watch::Receiver<bool>,
) {
    // A small last chunk of a stream must not wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY failed");
    }
    let Some(stream) = transport.open(stream).await else {
        return;
    };
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(http.idle)
        .max_header_size(http.head);
    if let Some(buffer) = http.buffer {
        server.max_buf_size(buffer);
    }
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::pin!(served);
    let old = async {
        match http.lifetime {
            Some(lifetime) => tokio::time::sleep(lifetime).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = served.as_mut() => Some(ended),
        () = old => None,
        // A dropped sender also ends connections.
        _ = leaving.wait_for(|leaving| *leaving) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            served.as_mut().graceful_shutdown();
            match tokio::time::timeout(LAST_ANSWER, served).await {
                Ok(ended) => ended,
                // The client reads nothing.
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        // The client's fault: it hung up, or its head is invalid or slow.
        tracing::debug!(%error, "connection ended");
    }
}
