//! Bounds the connections of a listener of the mediator or the wrapper; further ones are refused.
//!
//! The bounds hold before authentication, so they limit every client that reaches the port. Not
//! here: the accept loop (`toolcrib_serve`).

use std::convert::Infallible;
use std::future::pending;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use toolcrib_serve::{Door, Guest, Http, Plain, Routes};

use crate::metrics::Metrics;

/// The bounds of a listener's connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most open connections; a further one gets 503 and is closed.
    pub connections: usize,
    /// Longest time for a whole head to arrive, and for the next request on an idle connection:
    /// longer than the pools of usual clients keep theirs.
    pub head: Duration,
    /// Most bytes of a head; longer ones get 431.
    pub head_bytes: usize,
}

/// An error in the form of both dialects, since the dialect of the request is not known yet.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\ncontent-length: 158\r\nretry-after: 1\r\n\
    connection: close\r\n\r\n\
    {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"code\":\"overloaded\",\"param\":null,\
    \"message\":\"too many connections are open; close some or try again later\"}}";

/// Serves until `stopped` is true, and then until the running requests are answered. Idle
/// connections are closed at once.
pub fn serve(
    listener: TcpListener,
    routes: impl Routes<Body> + Sync,
    bounds: Bounds,
    metrics: Option<Arc<Metrics>>,
    mut stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let http = Http {
        idle: bounds.head,
        head: bounds.head_bytes,
        buffer: None,
        lifetime: None,
    };
    let door = CountingDoor {
        places: Arc::new(Semaphore::new(bounds.connections)),
        metrics,
    };
    tokio::spawn(async move {
        let closing = async {
            // Err: the server was dropped, which also stops it.
            stopped.wait_for(|stopped| *stopped).await.ok();
        };
        let routes = |_: &ConnectionGuard| routes.clone();
        toolcrib_serve::serve(listener, Plain, door, || http, routes, closing, None).await;
    })
}

/// Accepts connections up to the bound.
struct CountingDoor {
    places: Arc<Semaphore>,
    metrics: Option<Arc<Metrics>>,
}

impl Door for CountingDoor {
    type Guest = ConnectionGuard;

    fn enter(&self, _: IpAddr) -> Option<ConnectionGuard> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            if let Some(metrics) = &self.metrics {
                metrics.connection_refused();
            }
            return None;
        };
        if let Some(metrics) = &self.metrics {
            metrics.connection_opened();
        }
        Some(ConnectionGuard {
            metrics: self.metrics.clone(),
            _place: place,
        })
    }

    /// Sends the refusal without waiting: it fits into the socket's empty buffer, or is not sent.
    fn refuse(&self, stream: TcpStream) {
        let sent = stream
            .into_std()
            .and_then(|mut stream| stream.write_all(REFUSAL));
        if let Err(error) = sent {
            tracing::debug!(
                error = error.to_string(),
                "connection closed without an answer"
            );
        }
    }
}

/// Counts a connection until it is dropped.
struct ConnectionGuard {
    metrics: Option<Arc<Metrics>>,
    _place: OwnedSemaphorePermit,
}

impl Guest for ConnectionGuard {
    async fn expelled(&mut self) {
        match pending::<Infallible>().await {}
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
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
