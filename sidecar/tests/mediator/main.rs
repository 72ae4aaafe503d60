//! The mediator in process, with real sockets on loopback: a scripted model and a scripted tool
//! service on one side, a plain HTTP client as the runner on the other.

// clippy.toml allows unwrap in test functions, but not in their helpers. Spawning processes and
// dialling are banned in the mediator, but its tests need them.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]
#![expect(clippy::disallowed_methods, reason = "tests dial by themselves")]

mod support;

mod arguments;
mod binary;
mod count_tokens;
mod feeds;
mod fidelity;
mod fixtures;
mod floor;
mod hostile;
mod identity;
mod limits;
mod link;
mod live;
mod mcp;
mod mcp_hostile;
mod mcp_sessions;
mod names;
mod native;
mod native_sessions;
mod oauth;
mod outages;
mod passthrough;
mod probe;
mod provider_tools;
mod providers;
mod record;
mod security;
mod suspension;
mod swaps;
mod telemetry;
mod tiers;
mod tools;
mod turns;
