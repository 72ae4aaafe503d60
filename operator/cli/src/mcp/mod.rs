//! MCP servers as Surfaces for review: what `surface discover` asks and makes of it.
//!
//! In reading order: [`client`] (one listing of a server's tools), [`http`] and [`stdio`] (how
//! it is reached), [`tools`] (the list as a descriptor has it, what to look at, and what
//! differs; pure).
//!
//! Not here: calling tools, which only mediators do.

pub mod client;
pub mod http;
pub mod message;
pub mod stdio;
pub mod tools;
