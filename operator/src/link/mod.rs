//! The link: mediators say what they have loaded and counted, and hear what is left of it.
//!
//! Reading order: the sender's identity ([`review`]); what was said ([`reports`]); what is
//! answered ([`answers`]) and to whom it is held ([`long_polls`]); how long taking away took
//! ([`revocations`]); all of that together ([`state`]); one message ([`serve`]). Connections are the crate's `listen`. Invariants: nothing
//! in a message's body names its sender; only the leader answers, only once everything is
//! listed, and of an agent only once it has compiled it; an answer carries no secret, URL or
//! schema; nobody waits for a mediator.

pub mod answers;
pub mod long_polls;
pub mod reports;
pub mod review;
pub mod revocations;
pub mod serve;
pub mod state;
