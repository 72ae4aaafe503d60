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
    AwaitedProvider, CandidateRequest, HttpFailure, ModelClient, ModelError, ModelReply,
    ModelStream, ModelTimeouts, Operation, ProviderRequest,
};
pub use events::{EventStream, ReplyBody, StreamError, next_chunk};
pub use policy::{Candidate, PolicyError, candidates};
pub use pool::{KeyPool, Lease, Outcome};
