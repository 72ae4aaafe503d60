//! The operator: `controller` compiles agents and maintains their objects, `webhook` injects
//! the mediator. One binary with two commands, because both must agree on every name; two
//! Deployments, because the webhook has no right to any Secret.
//!
//! Decisions are made in `toolcrib-compile` or in functions without IO; the code that talks to the
//! API server is thin.

mod approvals;
pub mod certificates;
pub mod claw;
pub mod cluster_args;
mod compressed;
pub mod controller;
#[doc(hidden)]
pub mod foreign;
pub mod leadership;
pub mod link;
mod listen;
pub mod metrics;
mod objects;
pub mod webhook;
