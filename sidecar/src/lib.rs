//! The mediator: a proxy between a runner and its model that presents the agent's granted
//! tools, executes their calls with credentials the runner never holds, and keeps the record.
//!
//! Here is everything that touches a socket, a file or a clock. What a reply's calls mean,
//! who executes them and when to stop is decided in `toolcrib_mediation`; how the bytes of
//! a model API look, in `toolcrib_dialect`; both are pure.
//!
//! Invariants: nothing is served that the four files do not give at that moment
//! ([`config`]); no side effect without a line in the record before it ([`history`]).

pub mod admin;
pub mod admission;
pub mod app;
pub mod args;
pub mod asked;
pub mod body;
pub mod config;
pub mod connections;
pub mod continuity;
pub mod digest;
pub mod dispatch;
pub mod feeds;
pub mod flight;
pub mod history;
pub mod identity;
pub mod link;
pub mod log;
pub mod metrics;
pub mod model;
pub mod native;
pub mod outbound;
pub mod outgoing;
pub mod passthrough;
pub mod probe;
pub mod process;
pub mod record;
pub mod resolver;
pub mod routes;
pub mod server;
pub mod sessions;
pub mod stop;
pub mod telemetry;
pub mod tools;
pub mod turn;
mod unconnected;
