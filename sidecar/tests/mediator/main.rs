//! The mediator in process, with real sockets on loopback: a scripted model and a scripted tool
//! service on one side, a plain HTTP client as the runner on the other.

// clippy.toml allows unwrap in test functions, but not in their helpers. Spawning processes and
// dialling are banned in the mediator, but its tests need them.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]
#![expect(clippy::disallowed_methods, reason = "tests dial by themselves")]

mod support;

mod approvals;
mod export;
mod models;
mod process;
mod runner;
mod services;
mod updates;
