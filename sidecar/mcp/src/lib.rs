//! MCP over HTTP, for every program that speaks it: the mediator as client and as server, the stdio
//! wrapper, the CLI. Pure.
//!
//! In reading order: [`message`] (JSON-RPC's envelope; contents stay unparsed bytes), [`revision`]
//! (the two forms of the protocol, the required fields of a request in each, and the status of an
//! error), [`header`] (values that are both in headers and in the body), [`code`] (errors),
//! [`client`] (a client's requests, and the meaning of a server's messages).
//!
//! Not here: sockets, sessions, and the tools that the programs offer.

pub mod client;
pub mod code;
pub mod header;
pub mod message;
pub mod revision;

/// Limits the nesting of a message, in either direction. No tool's data is deeper, and JSON parsers
/// that read the record stop at about the same depth. Arguments have a smaller bound.
pub const MAX_DEPTH: usize = 128;

pub use message::{
    Fault, Members, Message, MessageError, Raw, ReplyBody, RpcResponse, members, raw, reply,
};
