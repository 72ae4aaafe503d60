//! The mediator in process, with real sockets on loopback: a scripted model and a scripted
//! tool service on one side, a plain HTTP client as the runner on the other.

mod support;

mod identity;
mod link;
mod passthrough;
mod probe;
mod record;
mod swaps;
mod tools;
mod turns;
