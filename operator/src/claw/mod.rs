//! claw-api: the operator's read-only API for agents that are granted its verbs.
//!
//! Reading order: the verbs and their arguments ([`verbs`]); the Surface's descriptor
//! ([`descriptor`]); the owners of tokens ([`tokens`]); the answers ([`answers`]); the requests
//! ([`serve`]). Invariants: no verb changes anything; a token permits only the verbs that the
//! current manifest of its Agent grants on claw-api's own Surface; no answer contains a secret or a
//! digest of one; an agent outside the caller's scope is answered like an absent one.

pub mod answers;
pub mod descriptor;
pub mod serve;
pub mod tokens;
pub mod verbs;

/// The agents that a caller of claw-api may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClawScope {
    /// The agents of its own namespace.
    Namespace,
    /// The agents of all namespaces.
    Cluster,
}
