//! claw-api: the operator's own read verbs, for agents that are granted them.
//!
//! Reading order: the verbs and what is asked with them ([`verbs`]); how they are described to
//! agents ([`descriptor`]); the owner of each token ([`tokens`]); what is answered ([`answers`]); one
//! request ([`serve`]). Invariants: no verb changes anything; a token opens what the Agent that
//! holds it is granted of claw-api's own Surface in what is compiled now, and nothing else;
//! nothing that is answered holds a secret or a digest of one; what a caller may not hear of
//! answers like what is not there.

pub mod answers;
pub mod descriptor;
pub mod serve;
pub mod tokens;
pub mod verbs;

/// The agents that a caller of claw-api hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClawScope {
    /// Those of its own namespace.
    Namespace,
    /// Those of all namespaces.
    Cluster,
}
