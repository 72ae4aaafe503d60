//! The mediator: a proxy between a runner and its model that presents the agent's granted
//! tools, executes their calls with credentials the runner never holds, and keeps the record.
//!
//! Here is everything that touches a socket, a file or a clock. What a reply's calls mean,
//! who executes them and when to stop is decided in `toolcrib_mediation`; how the bytes of
//! a model API look, in `toolcrib_dialect`; both are pure.
//!
//! Reading order: [`config`] (the four files), [`app`] (what requests share), [`http`] (listeners
//! and routes), [`request`] (who asks, and what is left of it), [`turn`] and [`native`] (what
//! happens in between), [`tools`], [`model`] and [`feeds`] (what is asked of others, all by
//! [`outbound`]), [`history`] (the record), [`link`] (what the operator takes away).
//!
//! Invariants: nothing is served that the four files do not give at that moment
//! ([`config`]); no side effect without a line in the record before it ([`history`]).

pub mod app;
pub mod config;
pub mod connections;
pub mod continuity;
pub mod feeds;
pub mod history;
pub mod http;
pub mod link;
pub mod metrics;
pub mod model;
pub mod native;
pub mod outbound;
pub mod process;
pub mod request;
pub mod sessions;
pub mod single_flight;
pub mod telemetry;
pub mod tools;
pub mod turn;
