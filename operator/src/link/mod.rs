//! The link: mediators say what they have loaded and counted, and hear what is wanted.
//!
//! Here are the sender's identity ([`review`]), what was said ([`reports`]) and the server
//! ([`serve`]). Invariants: nothing in a message's body names its sender; only the leader
//! answers, and only once everything is listed; an answer carries no secret, URL or schema.

pub mod reports;
pub mod review;
pub mod serve;
