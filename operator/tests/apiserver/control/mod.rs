//! The controller over time: faults at every write, its lease, the link, approvals, budgets,
//! claw-api, other namespaces.

mod approvals;
mod budgets;
mod claw;
mod crash_points;
mod credentials;
mod lease;
mod link;
mod neighbours;
mod reports;
