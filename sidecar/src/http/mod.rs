//! The mediator's own listeners, and the process as a value.
//!
//! Reading order: [`server`], [`routes`], [`admin`]. Not here: who is let in
//! ([`crate::request::admission`]), a turn ([`crate::turn`]) and MCP ([`crate::native`]).

pub mod admin;
pub mod routes;
pub mod server;
