//! The services that offer tools and feeds: what they get, and what they can do.

mod arguments;
mod feeds;
mod hostile;
mod idempotency;
mod mcp;
mod mcp_hostile;
mod mcp_sessions;
mod names;
mod oauth;
mod outages;
mod tiers;
mod tools;
