//! Native mode: the agent's tools for a runner that is an MCP client itself, at `/mcp` beside
//! the model routes.
//!
//! In reading order: [`listing`] (the tools as a client sees them; pure), [`crate::sessions`]
//! (what is kept for a client of the older revision), [`changes`] (the stream that announces a
//! changed list), [`call`] (one call: the mediated one's reading, executor and record),
//! [`answer`] (results and refusals), [`message`] (what a message asks, and what it may not),
//! [`routes`] (HTTP).
//!
//! Not here: prompts, resources, requests to the client, and what a turn adds to a call
//! ([`toolcrib_mediation::LoneCall`]).
//!
//! Invariants: a client sees and calls what is granted at that moment and nothing else; a
//! session is its agent's; whatever is held here has a bound.

mod answer;
mod call;
mod changes;
mod listing;
mod message;
mod routes;

use toolcrib_manifest::Mode;

use crate::config::Effective;
pub use routes::method_router;

/// Whether the agent's tools are offered so.
fn is_offered(now: &Effective) -> bool {
    now.version()
        .is_ok_and(|version| version.agent.native || version.agent.mode == Mode::Native)
}
