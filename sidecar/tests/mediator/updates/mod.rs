//! New files and answers of the link under a running mediator.

mod allowlist;
mod budgets;
mod fixtures;
pub mod link;
mod policies;
mod rules;
mod suspension;
mod swaps;
