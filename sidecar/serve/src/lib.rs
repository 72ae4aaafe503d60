//! HTTP/1 listeners of every program: bind, accept, serve each connection, end in order.
//!
//! Reading order: [`bind`]; [`door`] (who may come in); [`transport`] (TLS or none); [`serve`] (the
//! accept loop); [`connection`] (one connection); [`jitter`] (random waits, also of clients). Not here: how many connections there may be, of
//! whom (each listener's [`Door`]), and what is answered.
//!
//! Invariants: everything that a connection can cost before its sender is known has a bound; a
//! failure or panic in one connection ends that connection alone.

mod bind;
mod connection;
mod door;
mod jitter;
mod serve;
mod transport;

pub use bind::bind;
pub use connection::Http;
pub use door::{Door, Guest};
pub use jitter::part_of;
pub use serve::serve;
pub use transport::{Plain, Tls, Transport};
