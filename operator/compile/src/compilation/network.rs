//! The network policy that a compilation gives an agent's pods.

use k8s_openapi::api::networking::v1::NetworkPolicySpec;

/// The network restriction of an agent's pods.
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    /// The operator writes no policy.
    Unrestricted,
    Declared(DeclaredEgress),
    /// It is unknown whether a policy is wanted, so an existing one stays.
    Undecided,
}

/// A policy, and the destinations that it does not narrow.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredEgress {
    pub policy: NetworkPolicySpec,
    /// `surface news: https://news.test`, in order.
    pub not_narrowed: Vec<String>,
    /// The ClusterToolPolicies that set `egress: Declared`, in name order.
    pub policies: Vec<String>,
}
