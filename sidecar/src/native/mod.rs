//! Native mode: the agent's tools for a runner that is an MCP client itself, at `/mcp` beside
//! the model routes.
//!
//! In reading order: [`listing`] (the tools as a client sees them; pure), [`crate::app::sessions`]
//! (the sessions of the older revision), [`changes`] (the stream that announces a changed list),
//! [`call`] (one call, with the parser, executor and record of mediated calls), [`answer`]
//! (results and refusals), [`message`] (reads and checks a message), [`routes`] (HTTP).
//!
//! Not here: prompts, resources, requests to the client, and the limits that a turn adds to its
//! calls ([`toolcrib_mediation::DirectCall`]).
//!
//! Invariants: a client sees and calls only the tools that are granted at that moment; a session
//! belongs to one agent; everything kept here is bounded.

mod answer;
mod call;
mod changes;
mod listing;
mod message;
mod routes;

use toolcrib_manifest::Mode;

use crate::config::EffectiveConfig;
pub use routes::method_router;

/// True if the agent's tools are offered over MCP.
fn is_offered(now: &EffectiveConfig) -> bool {
    now.version()
        .is_ok_and(|version| version.agent.native || version.agent.mode == Mode::Native)
}
