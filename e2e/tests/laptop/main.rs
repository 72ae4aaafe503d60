//! Tests the use without a cluster: `kubectl toolcrib run` with the real mediator.
//!
//! All tests are one program, so the machine's set-up is compiled once.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod approvals;
mod conformance;
mod forwarder;
mod machine;
mod mcp;
mod mediator;
mod native;
mod propose;
mod run;
mod sdk;
mod swap;
mod waiting;
