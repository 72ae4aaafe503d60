//! Serves an MCP server that speaks over standard streams as Streamable HTTP: one child process
//! behind all clients.
//!
//! In reading order: [`line`] and [`revision`] (the messages to a child, and the part of its
//! messages that each revision sees; pure), [`listed`] (the headers that its tools require),
//! [`program`] (the calls of one running child), [`child`] (its process), [`orphans`] (processes
//! that it leaves behind), [`supervisor`] (starts and restarts), [`relay`], [`token`] and
//! [`routes`] (the HTTP side).
//!
//! Not here: the identity of clients (every holder of the token may call everything), requests of
//! the server to a client (sampling, elicitation, roots: refused), and notifications of the server
//! (there is no stream for them; capabilities that would need one are not passed on).
//!
//! Invariants: a client gets only the answers to its own requests, because this process assigns
//! every id; a request is written to a child at most once; the child does not outlive this process.

pub mod args;
pub mod child;
pub mod line;
pub mod listed;
pub mod orphans;
pub mod program;
pub mod relay;
pub mod revision;
pub mod routes;
pub mod supervisor;
pub mod token;
