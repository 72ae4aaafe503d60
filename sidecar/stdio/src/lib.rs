//! An MCP server that speaks over its standard streams, served as Streamable HTTP: one
//! child process behind all clients.
//!
//! In reading order: [`line`] and [`revision`] (what is written to a child, and what of its
//! words each revision sees; pure), [`listed`] (what its tools want repeated), [`program`] (the
//! calls of one running child), [`child`] (its process), [`orphans`] (what it leaves behind),
//! [`supervisor`] (its lives), [`relay`], [`token`] and [`routes`] (what clients reach).
//!
//! Not here: who a client is (whoever has the token may call all), requests of the server
//! to a client (sampling, elicitation, roots: refused), and notifications of the server (there is
//! no stream for them; capabilities that would need one are not passed on).
//!
//! Invariants: a client gets the answers to its own requests and no other's, since each has
//! an id that only this process chose; a request is written to a child once at most; the
//! child does not outlive this process.

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
