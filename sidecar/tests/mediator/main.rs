//! The mediator in process, with real sockets on loopback: a scripted model and a scripted
//! tool service on one side, a plain HTTP client as the runner on the other.

// clippy.toml allows this in test functions; helpers of tests are as much a test.
#![allow(clippy::unwrap_used)]

mod support;

mod arguments;
mod binary;
mod feeds;
mod hostile;
mod identity;
mod limits;
mod link;
mod oauth;
mod passthrough;
mod probe;
mod record;
mod security;
mod swaps;
mod telemetry;
mod tools;
mod turns;
