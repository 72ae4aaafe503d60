//! A controller in this process, other users, a client that loses messages, and pods without a node.

pub mod accounts;
pub mod approvals;
pub mod faults;
pub mod harness;
pub mod outcome;
pub mod pods;
pub mod selectors;
