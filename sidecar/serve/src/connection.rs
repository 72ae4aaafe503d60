//! One connection, from its first byte to its last.

use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::serve::{Answer, Routes};
use crate::transport::Transport;

/// More than one answer takes, held or not.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// What HTTP may cost on one connection.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    /// How long a request's head may take, and so how long a connection may be idle.
    pub idle: Duration,
    /// The longest head of a request, in bytes; a longer one is answered with 431.
    pub head: usize,
    /// The size of a connection's buffers; `None`: hyper's.
    pub buffer: Option<usize>,
    /// The connection is closed after its answer then. `None`: only the other end closes it.
    pub lifetime: Option<Duration>,
}

/// Serves one connection to its end. `leaving` asks it to end after its running answer.
pub(crate) async fn connection<T: Transport, S: Routes<B>, B: Answer>(
    stream: TcpStream,
    transport: T,
    routes: S,
    http: Http,
    mut leaving: watch::Receiver<bool>,
) {
    // A small last chunk of a stream must not wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
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
        // A sender that is gone ends connections too.
        _ = leaving.wait_for(|leaving| *leaving) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            served.as_mut().graceful_shutdown();
            match tokio::time::timeout(LAST_ANSWER, served).await {
                Ok(ended) => ended,
                // The other end reads nothing.
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        // The other end's doing: it hung up, or its head is bad or slow.
        tracing::debug!(%error, "connection ended");
    }
}
