//! What a compilation says about the network of an agent's pods.

use k8s_openapi::api::networking::v1::NetworkPolicySpec;

/// What the network of an agent's pods may be.
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    /// No policy of ours.
    Unrestricted,
    Declared(Declared),
    /// Whether there is to be a policy is not known: one that stands, stays.
    Undecided,
}

/// A policy, and what it does not narrow.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    pub policy: NetworkPolicySpec,
    /// `surface news: https://news.test`, in order.
    pub not_narrowed: Vec<String>,
}
