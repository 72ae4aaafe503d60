//! The facts about an installation and the agents of some namespaces, for `doctor`.
//!
//! Here: the facts ([`Facts`]) and how they are read ([`read`]), with the user's own rights. Not here:
//! what they mean (`crate::doctor::checks`).
//!
//! Invariants: nothing is written; no value of a Secret is read; what could not be read is a [`Gap`] and
//! never an empty list.

mod documents;
mod read;
mod release;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use toolcrib_compile::{Inputs, ObjectRef};
use toolcrib_crds::Agent;

use super::Scope;
pub use documents::Documents;
pub use release::{Release, SecretScope};

/// A request that failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    /// The request: verb, plural of the resource, and a name or `in namespace …`, such as
    /// `list pods in namespace pond`.
    pub question: String,
    pub why: Cause,
}

/// The reason that a request failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The API server answered 403: the user lacks the right.
    Forbidden,
    Failed(String),
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cause::Forbidden => "forbidden",
            Cause::Failed(why) => why,
        })
    }
}

/// An answer of the API server, or the gap that it leaves.
pub type Answer<T> = Result<T, Gap>;
/// One object; `None`: it does not exist.
pub type Object<T> = Answer<Option<T>>;
pub type List<T> = Answer<Vec<T>>;

/// The objects of an installation and its agents, read at one time.
pub struct Facts {
    pub now: Timestamp,
    /// The namespaces whose agents are checked.
    pub scope: Scope,
    /// The release of the API server, such as `v1.35.2`.
    pub server: String,
    /// The chart's names and settings.
    pub release: Release,
    /// The definitions of Toolcrib's kinds by name.
    pub definitions: BTreeMap<String, Object<CustomResourceDefinition>>,
    /// The Deployments of controller and webhook.
    pub deployments: List<Deployment>,
    pub lease: Object<Lease>,
    pub mutating_webhooks: Object<MutatingWebhookConfiguration>,
    pub validating_webhooks: Object<ValidatingWebhookConfiguration>,
    /// The addresses behind the Services of the operator's namespace.
    pub endpoints: List<EndpointSlice>,
    /// The metadata of the Secret with the operator's certificates.
    pub certificates: Object<ObjectMeta>,
    pub policies: List<ValidatingAdmissionPolicy>,
    pub bindings: List<ValidatingAdmissionPolicyBinding>,
    pub agents: List<Agent>,
    /// Agents that cannot be decoded, and why.
    pub undecodable: BTreeMap<ObjectRef, String>,
    /// The pods with an agent's label.
    pub pods: List<Pod>,
    /// The namespaces that have agents or their pods, the operator, and the cluster's name servers.
    pub namespaces: BTreeMap<String, Object<Namespace>>,
    pub network_policies: List<NetworkPolicy>,
    pub role_bindings: List<RoleBinding>,
    /// The role with the controller's rights in namespaces with agents.
    pub agent_role: Object<ClusterRole>,
    /// The binding of that role for all namespaces, which `clusterWideSecrets` of the chart writes.
    pub agent_role_binding: Object<ClusterRoleBinding>,
    /// The objects as the compiler takes them, with the metadata of Secrets.
    pub objects: Answer<Inputs>,
}

impl Facts {
    /// The namespaces that have agents or their pods, as far as these could be listed.
    pub fn agent_namespaces(&self) -> BTreeSet<&str> {
        let agents = self
            .agents
            .iter()
            .flatten()
            .map(|it| &it.metadata.namespace);
        let pods = self.pods.iter().flatten().map(|it| &it.metadata.namespace);
        let broken = self.undecodable.keys().map(|key| &*key.namespace);
        let named = agents.chain(pods).flatten().map(String::as_str);
        named.chain(broken).collect()
    }

    /// The name of the controller's Deployment.
    pub fn controller(&self) -> String {
        match self.deployment(CONTROLLER) {
            Some(deployment) => deployment.name_any(),
            None => format!("{}-{CONTROLLER}", self.release.name),
        }
    }

    /// The Deployment of a component.
    pub fn deployment(&self, component: &str) -> Option<&Deployment> {
        let mut found = self.deployments.iter().flatten();
        found.find(|it| component_of(it) == Some(component))
    }
}

pub const CONTROLLER: &str = "controller";
pub const WEBHOOK: &str = "webhook";
/// Label of the chart's Deployments.
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";

fn component_of(deployment: &Deployment) -> Option<&str> {
    let labels = deployment.metadata.labels.as_ref()?;
    labels.get(COMPONENT_LABEL).map(String::as_str)
}
