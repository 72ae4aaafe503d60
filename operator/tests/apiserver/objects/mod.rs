//! The kinds: what the API server and the webhook accept, and what the controller writes.

mod budgets;
mod definitions;
mod egress;
mod example;
mod expressions;
#[cfg(feature = "kstatus")]
mod health;
mod hostile;
mod mistakes;
mod rules;
mod status;
mod validation;
