//! The words of MCP over HTTP, for all that speak it here: the mediator towards servers and
//! towards its runner, the wrapper of programs, the CLI. Pure.
//!
//! In reading order: [`message`] (JSON-RPC's envelope, whose contents stay the bytes they
//! were), [`revision`] (the two forms of the protocol, what a request must say in each, and
//! the status of an error), [`header`] (what stands in headers as well as in the body),
//! [`code`] (errors).
//!
//! Not here: sockets, sessions, tools, and what any of the programs offers.

pub mod code;
pub mod header;
pub mod message;
pub mod revision;

pub use message::{Answer, Fault, Malformed, Members, Message, Raw, Said, members, raw, reply};
