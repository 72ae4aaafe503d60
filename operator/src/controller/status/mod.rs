//! What status says. Pure: from what was found and what it said before, to what it says now.
//!
//! Reading order: [`condition`] (shared by every kind), [`written`], [`pods`], [`usage`], [`agent`];
//! [`others`] (Surface, ToolGrant, ToolDefaults, ModelProvider). Not here: what the facts
//! are, and writing any of it.
//!
//! Invariant: a status that says the same is equal, so it is not written. Credentials never
//! get here; texts of mediators were cut where they came in.

mod agent;
mod changes;
mod condition;
mod others;
mod pods;
mod usage;
mod written;

pub use agent::{AgentFacts, agent};
pub use changes::{Notice, notices};
pub use condition::{INTERNAL_ERROR, internal_error, sentence, undecodable};
pub use others::{StatusReport, ToolDefaultsReport, ToolGrantReport};
pub use pods::{PodNews, PodState, TokenFault, pod_warnings};
pub use usage::counted;
pub use written::WriteOutcome;

/// A number as status types have it.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
