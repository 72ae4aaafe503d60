//! The mediator's listeners, their start and shutdown.
//!
//! Reading order: [`server`], [`routes`], [`unserved`], [`admin`]. Not here: authentication
//! ([`crate::request::admission`]), a turn ([`crate::turn`]) and MCP ([`crate::native`]).

pub mod admin;
pub mod routes;
pub mod server;
pub mod unserved;
