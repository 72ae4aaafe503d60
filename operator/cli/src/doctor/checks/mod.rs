//! The checks: from facts to findings, without IO.
//!
//! Each file is one subject. A check says what is wrong with which object, and the exact command or field
//! that mends it. A check whose facts could not be read says so.

mod agents;
mod certificates;
mod definitions;
mod hints;
mod link;
mod network;
mod operator;
mod pods;
mod policies;
mod rights;
mod secrets;
#[cfg(test)]
pub(in crate::doctor) mod tests;
mod versions;
mod webhook;

use crate::cluster::installation::Facts;
use crate::doctor::finding::Finding;

/// Most objects that one line names.
const NAMED: usize = 5;

/// Runs all checks, in the order of [`crate::doctor::finding::Check`].
pub fn all(facts: &Facts) -> Vec<Finding> {
    let checks = [
        versions::check,
        definitions::check,
        operator::check,
        operator::leader,
        webhook::check,
        certificates::check,
        policies::check,
        rights::check,
        agents::check,
        pods::check,
        link::check,
        secrets::check,
        network::check,
        hints::check,
    ];
    checks.iter().flat_map(|check| check(facts)).collect()
}

/// Names the first of them, and the number of the others.
fn named<T: std::fmt::Display>(names: &[T]) -> String {
    toolcrib_bounds::listed(names, NAMED)
}
