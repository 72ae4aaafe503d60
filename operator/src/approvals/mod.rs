//! The leader's part of approvals: ToolApprovals, ToolDecisions, and what mediators report of them.
//!
//! Reading order: [`stored`] (what is kept of the two kinds); [`requirements`] (who may approve, by an
//! agent's compiled files); [`open`] (the limits of open questions); [`reports`] (what mediators report);
//! [`plan`] (what is to be written about one approval); [`state`] (everything together, and the decisions
//! in the link's answers). All but the last are pure. Not here: requests of mediators (`link`), and
//! writes (the controller's `approvals`).
//!
//! Invariants: the arguments of a call are in the API server alone: this process forgets them with the
//! request that brought them. A mediator gets a yes only after the yes is in the status of the
//! ToolApproval, so every later leader gives the same answer.

pub mod open;
pub mod plan;
pub mod reports;
pub mod requirements;
pub mod state;
pub mod stored;
