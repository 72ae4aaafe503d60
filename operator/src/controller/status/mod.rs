//! Computes the status of every kind from the facts and the previous status. Pure.
//!
//! Reading order: [`condition`] (shared by every kind), [`written`], [`pods`], [`usage`], [`budgets`],
//! [`agent`];
//! [`changes`] (Events); [`others`] (the other kinds). Not here:
//! gathering the facts, and writing status.
//!
//! Invariants: unchanged facts give an equal status, so nothing is written. Credentials never reach
//! this module; the link truncates the texts of mediators.

mod agent;
pub mod budgets;
mod changes;
mod condition;
mod others;
mod pods;
mod usage;
mod written;

pub use agent::{AgentFacts, agent, blocked, was_written};
pub use changes::{Notice, notices};
pub use condition::{INTERNAL_ERROR, internal_error, sentence, undecodable};
pub use others::{Activity, StatusReport, ToolDefaultsReport, ToolGrantReport};
pub use pods::{PodState, ReportState, TokenFault, pod_warnings};
pub use usage::counted;
pub use written::WriteOutcome;

/// Converts a count to the type of status fields.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
