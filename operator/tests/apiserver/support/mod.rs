//! A controller in this process, a client that loses messages, and pods without a node.

pub mod faults;
pub mod harness;
pub mod outcome;
pub mod pods;
