//! Connections of a listener: how many there may be, how long a request's head may take,
//! and how they end.
//!
//! All of it holds before anybody is authenticated, so that whoever can reach the port can
//! spend no more than these bounds. A panic in one connection ends that one.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::metrics::Metrics;

/// After a failed accept, which is out of descriptors or memory: others may free some.
const BREATH: Duration = Duration::from_millis(50);

/// What a connection may cost.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// At once; a further one hears 503 and is closed.
    pub connections: usize,
    /// For a whole head to arrive, and for the next request on a connection that is kept:
    /// longer than the pools of usual clients keep theirs.
    pub head: Duration,
    /// Of a head; longer ones are 431.
    pub head_bytes: usize,
}

/// Both dialects' shapes in one, since nothing was read that says which.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\ncontent-length: 158\r\nretry-after: 1\r\n\
    connection: close\r\n\r\n\
    {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"code\":\"overloaded\",\"param\":null,\
    \"message\":\"too many connections are open; close some or try again later\"}}";

/// Serves until `stopped` says so, and then until the requests that run are answered.
/// Kept connections are closed at once.
pub fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    metrics: Option<Arc<Metrics>>,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(accept(listener, router, bounds, metrics, stopped))
}

async fn accept(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    metrics: Option<Arc<Metrics>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop(&mut stopped) => break,
            Some(ended) = connections.join_next() => {
                saw_end(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if connections.len() >= bounds.connections => {
                if let Some(metrics) = &metrics {
                    metrics.connection_refused();
                }
                refuse(stream);
            }
            Ok((stream, _)) => {
                let counted = Counted::new(metrics.clone());
                let connection = connection(stream, router.clone(), bounds, stopped.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(counted);
                });
            }
            Err(error) => {
                tracing::warn!(error = error.to_string(), "a connection was not accepted");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        saw_end(ended);
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    bounds: Bounds,
    mut stopped: watch::Receiver<bool>,
) {
    // A small last chunk of a stream must not wait for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = error.to_string(), "no TCP_NODELAY");
    }
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_header_size(bounds.head_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop(&mut stopped) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        // The other side's doing: a hang-up, a bad head, a slow one.
        tracing::debug!(error = error.to_string(), "a connection ended");
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    // Err: the server was dropped, which is an end too.
    stopped.wait_for(|stopped| *stopped).await.ok();
}

/// Never waits: what does not fit into the socket's empty buffer is not said.
fn refuse(stream: TcpStream) {
    let said = stream
        .into_std()
        .and_then(|mut stream| stream.write_all(REFUSAL));
    if let Err(error) = said {
        tracing::debug!(
            error = error.to_string(),
            "a connection was closed unanswered"
        );
    }
}

fn saw_end(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(error = error.to_string(), "a connection's task panicked");
    }
}

/// Counts a connection as long as it lives.
struct Counted(Option<Arc<Metrics>>);

impl Counted {
    fn new(metrics: Option<Arc<Metrics>>) -> Self {
        if let Some(metrics) = &metrics {
            metrics.connection_opened();
        }
        Self(metrics)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(metrics) = &self.0 {
            metrics.connection_closed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_a_whole_response() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "overloaded");
    }
}
