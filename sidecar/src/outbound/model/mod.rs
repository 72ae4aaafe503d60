//! Calls of models: the candidates of a request, their keys, and the HTTP client.
//!
//! [`policy`], [`pool`] and [`headers`] are pure; [`client`] and [`listing`] are the IO.

pub mod client;
mod error;
pub mod events;
pub mod headers;
mod listing;
pub mod policy;
pub mod pool;

pub use client::{
    AwaitedProvider, CandidateRequest, ModelClient, ModelReply, ModelStream, ModelTimeouts,
    Operation, ProviderRequest,
};
pub use error::{HttpFailure, ModelError};
pub use events::{EventStream, ReplyBody, StreamError, next_chunk};
pub use policy::{Candidate, PolicyError, candidates};
pub use pool::{KeyPool, Lease, Outcome};
