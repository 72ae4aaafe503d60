//! MCP servers as Surfaces for review: the client part of `surface discover`.
//!
//! Reading order: [`client`] (lists a server's tools), [`http`] and [`stdio`] (the transports),
//! [`tools`] (the descriptor's form, remarks and differences; pure).
//!
//! Not here: calling tools, which only mediators do.

pub mod client;
pub mod http;
pub mod stdio;
pub mod tools;

/// Longest message of a server, in bytes.
const MESSAGE: usize = 16 * 1024 * 1024;
