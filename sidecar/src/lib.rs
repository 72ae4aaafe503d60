//! The mediator: a proxy between a runner and its model that presents the agent's granted
//! tools, executes their calls with credentials the runner never holds, and keeps the record.
//!
//! Here is everything that touches a socket, a file or a clock. `toolcrib_mediation` decides the
//! owner of each call and when to stop; `toolcrib_dialect` knows the wire formats of model APIs;
//! both are pure.
//!
//! Reading order: [`config`] (the four files), [`app`] (state that requests share), [`http`]
//! (listeners and routes), [`request`] (authentication, bounds and the record of a request),
//! [`turn`] and [`native`] (the work on a request), [`outbound`] (all outgoing calls: to tools,
//! models, feeds, and over the link to the operator), [`approvals`] (the questions about calls),
//! [`history`] (the record), [`export`] (the record on its way to a collector).
//!
//! Invariants: only the four files of that moment grant anything ([`config`]); no side effect
//! without a line in the record before it ([`history`]).

pub mod app;
pub mod approvals;
pub mod config;
pub mod export;
#[doc(hidden)]
pub mod foreign;
pub mod history;
pub mod http;
pub mod metrics;
pub mod native;
pub mod outbound;
pub mod process;
pub mod request;
pub mod telemetry;
pub mod turn;
