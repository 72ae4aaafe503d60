//! A Service's address: new connections go to a ready replica, open ones stay.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub struct Balancer {
    pub address: SocketAddr,
    endpoints: Arc<Mutex<Vec<SocketAddr>>>,
    serving: JoinHandle<()>,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Balancer {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let endpoints = Arc::default();
        Ok(Self {
            address,
            serving: tokio::spawn(serve(listener, Arc::clone(&endpoints))),
            endpoints,
        })
    }

    pub fn add(&self, endpoint: SocketAddr) {
        self.endpoints().push(endpoint);
    }

    pub fn remove(&self, endpoint: SocketAddr) {
        self.endpoints().retain(|other| *other != endpoint);
    }

    fn endpoints(&self) -> parking_lot::MutexGuard<'_, Vec<SocketAddr>> {
        self.endpoints.lock()
    }
}

async fn serve(listener: TcpListener, endpoints: Arc<Mutex<Vec<SocketAddr>>>) {
    let next = AtomicUsize::new(0);
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let Ok((mut from, _)) = listener.accept().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let to = {
            let endpoints = endpoints.lock();
            let number = next.fetch_add(1, Ordering::Relaxed);
            endpoints.get(number % endpoints.len().max(1)).copied()
        };
        // No replica is ready: the connection is refused, as by kube-proxy.
        let Some(to) = to else { continue };
        connections.spawn(async move {
            if let Ok(mut to) = TcpStream::connect(to).await
                && let Err(error) = copy_bidirectional(&mut from, &mut to).await
            {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
}
