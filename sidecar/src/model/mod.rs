//! The way to a model: which ones may serve a request, with which key, over which socket.
//!
//! [`policy`] and [`pool`] are pure; [`client`] and [`listing`] are the IO; [`headers`] says what passes.

pub mod client;
pub mod events;
pub mod headers;
mod listing;
pub mod policy;
pub mod pool;

pub use client::{
    AwaitedProvider, HttpFailure, ModelClient, ModelError, ModelReply, ModelRequest, ModelStream,
    ModelTimeouts, Operation, Prepared,
};
pub use events::{Broken, EventStream, Opened, next_chunk};
pub use policy::{Candidate, PolicyError, candidates};
pub use pool::{KeyPool, Lease, Outcome};
