//! The operator: `controller` compiles agents and keeps their objects, `webhook` injects
//! the mediator. One binary, two commands, because both must agree on every name; two
//! Deployments, because the webhook has no right to any Secret.
//!
//! Deciding is done elsewhere (`toolcrib-compile`) or in functions without IO; what talks
//! to the API server is thin.

pub mod certificates;
pub mod claw;
mod compressed;
pub mod controller;
#[doc(hidden)]
pub mod foreign;
mod leadership;
pub mod lease;
pub mod link;
mod listen;
pub mod metrics;
mod objects;
pub mod webhook;
