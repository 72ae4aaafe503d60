//! Admission of connections, and their lifetime.

use std::net::IpAddr;

use tokio::net::TcpStream;

/// Decides about each new connection.
pub trait Door: Send + Sync {
    type Guest: Guest;

    /// Admits the connection of `peer`; `None` if there is no room for it.
    fn enter(&self, peer: IpAddr) -> Option<Self::Guest>;

    /// Closes a connection that was not admitted. Must not wait.
    fn refuse(&self, stream: TcpStream) {
        drop(stream);
    }
}

/// The guard of an admitted connection.
pub trait Guest: Send {
    /// Completes when the connection has to be closed at once, answered or not.
    fn expelled(&mut self) -> impl Future<Output = ()> + Send;
}
