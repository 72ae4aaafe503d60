//! Where the operator listens, and the leader's HTTPS listeners: TLS with the operator's
//! certificate, and what a connection may cost.
//!
//! Bounded before anybody is known: connections in all and of one address, the time for a
//! handshake, for a request's head and body. And after: no connection lives for long, so that
//! one whose other end has vanished, or reads nothing, is not kept.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::controller::world::World;

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(10);
/// More than one answer takes, held or not.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// What those who connect may take of this process.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections in all.
    pub connections: usize,
    /// Of one address.
    pub of_one_address: usize,
    /// A connection is closed after its answer then, between this and half as much more.
    pub lifetime: Duration,
}

/// The certificate as it is kept at the moment of the handshake.
struct Current(Arc<World>);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.link_certificate.load_full()
    }
}

/// A listener of the operator's. `[::]` is everywhere: IPv6 takes IPv4 along, and a node without
/// IPv6 has the other one.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("TLS is not configurable")]
pub struct TlsError(#[from] rustls::Error);

/// Serves until it is dropped.
pub async fn serve(
    listener: TcpListener,
    world: Arc<World>,
    router: axum::Router,
    bounds: Bounds,
) -> Result<std::convert::Infallible, TlsError> {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_no_client_auth()
    .with_cert_resolver(Arc::new(Current(world)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(64 * 1024);
    let room = Arc::new(Semaphore::new(bounds.connections));
    let addresses = Arc::new(Addresses::of(bounds.of_one_address));
    // Dropped with this future, the set ends every connection.
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&room)
            .acquire_owned()
            .await
            .expect("never closed");
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or the peer is gone already: neither ends listening.
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let Some(place) = addresses.place(peer.ip()) else {
            tracing::debug!(peer = %peer.ip(), "too many connections of one address");
            continue;
        };
        let (acceptor, router, server) = (acceptor.clone(), router.clone(), server.clone());
        connections.spawn(async move {
            let _places = (permit, place);
            connection(stream, acceptor, router, server, bounds.lifetime).await;
        });
    }
}

/// One connection, to its end.
async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: axum::Router,
    server: auto::Builder<TokioExecutor>,
    lifetime: Duration,
) {
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let service = TowerToHyperService::new(router);
    let served = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let lifetime = lifetime + part_of(lifetime / 2);
    let ended = match tokio::time::timeout(lifetime, served.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            served.as_mut().graceful_shutdown();
            match tokio::time::timeout(LAST_ANSWER, served).await {
                Ok(ended) => ended,
                // Its other end reads nothing.
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// A random part of it. Without randomness all of it, which is right too.
pub(crate) fn part_of(whole: Duration) -> Duration {
    let mut random = [0u8; 2];
    match getrandom::fill(&mut random) {
        Ok(()) => whole.mul_f64(f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX)),
        Err(_) => whole,
    }
}

/// How many connections each address has.
#[derive(Debug)]
struct Addresses {
    counts: Mutex<HashMap<IpAddr, usize>>,
    each: usize,
}

/// One of an address' connections, until it is dropped.
#[derive(Debug)]
struct Place {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    fn of(each: usize) -> Self {
        Self {
            counts: Mutex::default(),
            each,
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: it has all that it may have.
    fn place(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut counts = self.counts();
        let count = counts.entry(address).or_insert(0);
        if *count >= self.each {
            return None;
        }
        *count += 1;
        Some(Place {
            addresses: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.counts();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everywhere_is_both_families() {
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let listener = bind(everywhere).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port))
                .await
                .unwrap();
        }
    }

    #[test]
    fn one_address_leaves_room_for_others_and_gets_its_own_back() {
        let addresses = Arc::new(Addresses::of(3));
        let of = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let mut places: Vec<Place> = (0..3)
            .map(|_| addresses.place(of(1)).expect("room"))
            .collect();
        assert!(addresses.place(of(1)).is_none());
        assert!(addresses.place(of(2)).is_some());
        places.pop();
        assert!(addresses.place(of(1)).is_some());
        drop(places);
        assert!(addresses.counts().is_empty());
    }
}
