//! The link: mediators report their loaded digests and counters, and are answered with the allowlist
//! of the tools that may still run.
//!
//! Reading order: the sender's identity ([`review`]); the reports ([`reports`]), and what they say of
//! budgets ([`budgets`]), rates ([`rates`]), records ([`heads`]) and calls ([`calls`]); the answers
//! ([`answers`]) and the requests that wait for them ([`long_polls`]); the duration of revocations
//! ([`revocations`]); the stores together ([`state`]); what requests have in common ([`request`]);
//! questions to persons ([`questions`]); one message ([`serve`]). The crate's `listen` handles
//! connections.
//!
//! Invariants: a message's body does not name its sender. Only the leader answers, once all objects
//! are listed and the agent is compiled. An answer carries no secret, URL, schema or argument. No part of the
//! operator waits for a mediator.

pub mod answers;
pub mod budgets;
pub mod calls;
pub mod heads;
pub mod long_polls;
pub mod questions;
pub mod rates;
pub mod reports;
pub mod request;
pub mod review;
pub mod revocations;
pub mod serve;
pub mod state;
