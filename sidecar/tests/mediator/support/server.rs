//! A server of a test on loopback.

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Serves a router until it is dropped.
pub struct TestServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl TestServer {
    /// Serves at a free port.
    pub async fn start(router: Router) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), router).await
    }

    pub async fn start_at(address: SocketAddr, router: Router) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async move { axum::serve(listener, router).await.unwrap() };
        Self {
            address,
            task: tokio::spawn(serving),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the listener, so that another server can have its address.
    pub async fn stop(mut self) {
        self.task.abort();
        assert!((&mut self.task).await.unwrap_err().is_cancelled());
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
