//! Who may open a connection, and for how long.

use std::net::IpAddr;

use tokio::net::TcpStream;

/// Decides about each new connection.
pub trait Door: Send + Sync {
    type Guest: Guest;

    /// Lets the connection of `peer` in; `None`: there is no room for it.
    fn enter(&self, peer: IpAddr) -> Option<Self::Guest>;

    /// Closes a connection that was not let in. Must not wait.
    fn refuse(&self, stream: TcpStream) {
        drop(stream);
    }
}

/// A connection that was let in, until it is dropped.
pub trait Guest: Send {
    /// Ends when the connection has to end at once, answered or not.
    fn expelled(&mut self) -> impl Future<Output = ()> + Send;
}
