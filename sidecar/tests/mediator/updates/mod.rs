//! New files and answers of the link under a running mediator.

mod budgets;
mod fixtures;
mod floor;
pub mod link;
mod policies;
mod rules;
mod suspension;
mod swaps;
