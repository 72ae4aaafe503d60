//! The models: turns in every dialect, passthrough, failover.

mod count_tokens;
mod fidelity;
mod live;
mod matching;
mod passthrough;
mod provider_tools;
mod providers;
mod turns;
