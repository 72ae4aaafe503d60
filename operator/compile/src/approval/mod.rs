//! Approvals of single calls by persons.
//!
//! Here: who may decide about a call ([`Requirements`]), and what the decisions on it say together
//! ([`Requirements::tally`]). Not here: whether a call needs an approval, which the mediator decides;
//! when decisions are read, and what follows from them (the operator's leader).
//!
//! Invariants: the verdict depends neither on the order of the decisions nor on how often one is read;
//! more decisions to deny never turn a denial into an approval; a person counts once.

mod requirements;
mod verdict;

#[cfg(test)]
mod tests;

pub use requirements::{MOST_GROUPS, Need, Requirements, is_about};
pub use verdict::{Ballot, Outcome, Tally};
