//! HTTP/1 listeners of every program: bind, accept, serve each connection, shut down in order.
//!
//! Reading order: [`bind`]; [`door`] (admission); [`transport`] (TLS or plain); [`serve`] (the
//! accept loop); [`connection`] (one connection); [`body`] (a body up to a bound); [`jitter`] (random
//! waits, also for clients). Not here: the number of connections per peer (each listener's [`Door`]), and the answers.
//!
//! Invariants: everything that a connection can cost before its sender is authenticated has a
//! bound; a failure or panic in one connection ends only that connection.

mod bind;
mod body;
mod connection;
mod door;
mod jitter;
mod serve;
mod service;
mod transport;

pub use bind::bind;
pub use body::{BodyError, read_body};
pub use connection::Http;
pub use door::{Door, Guest};
pub use jitter::part_of;
pub use serve::serve;
pub use service::Routes;
pub use transport::{Plain, Tls, Transport};
