//! The accept loop.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::connection::{Http, connection};
use crate::door::{Door, Guest};
use crate::service::{ResponseBody, Routes};
use crate::transport::Transport;

/// Wait after a failed accept: without descriptors the loop would spin.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Serves until `closing`, then lets running requests end for up to `drain` (`None`: without a
/// limit). Dropping the future ends every connection at once. `routes` returns the service for each
/// guest.
pub async fn serve<T, D, S, B>(
    listener: TcpListener,
    transport: T,
    door: D,
    http: impl Fn() -> Http,
    routes: impl Fn(&D::Guest) -> S,
    closing: impl Future<Output = ()>,
    drain: Option<Duration>,
) where
    T: Transport + 'static,
    D: Door,
    D::Guest: 'static,
    S: Routes<B>,
    B: ResponseBody,
{
    let (leave, leaving) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(closing);
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = &mut closing => break,
            Some(ended) = connections.join_next() => {
                saw_end(ended);
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Descriptors have run out, or the peer is gone already: neither ends
                    // listening.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            },
        };
        let peer = peer.ip().to_canonical();
        let Some(mut guest) = door.enter(peer) else {
            tracing::debug!(%peer, "connection refused: no room");
            door.refuse(stream);
            continue;
        };
        let served = connection(
            stream,
            transport.clone(),
            routes(&guest),
            http(),
            leaving.clone(),
        );
        connections.spawn(async move {
            tokio::select! {
                () = served => {}
                () = guest.expelled() => tracing::debug!(%peer, "connection closed to make room"),
            }
        });
    }
    drop(listener);
    leave.send_replace(true);
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            saw_end(ended);
        }
    };
    match drain {
        None => ended.await,
        Some(drain) => {
            if tokio::time::timeout(drain, ended).await.is_err() {
                tracing::warn!("shutdown deadline exceeded, connections dropped");
            }
        }
    }
}

fn saw_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task panicked");
    }
}
