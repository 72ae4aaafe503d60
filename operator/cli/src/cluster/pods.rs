//! The pods of agents.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::{Agent, ConditionStatus, ConditionType};

use super::ReadError;
use super::read::Scope;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    pub pod: ObjectRef,
    /// The Agent that its label names.
    pub agent: ObjectRef,
    pub phase: String,
    pub mediated: bool,
}

/// Lists the pods of agents; `None` if the user may not list pods.
pub async fn list(
    client: &Client,
    scope: &Scope,
    notes: &mut BTreeSet<String>,
) -> Result<Option<Vec<PodFacts>>, ReadError> {
    let labelled = ListParams::default().labels(names::AGENT_LABEL);
    let mut all = Vec::new();
    for namespace in scope.namespaces() {
        let api: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        match api.list(&labelled).await {
            Ok(pods) => all.extend(pods.items.iter().filter_map(PodFacts::of)),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                notes.insert(format!("pods could not be listed: {}", status.message));
                return Ok(None);
            }
            Err(error) => {
                let doing = "list pods".to_owned();
                return Err(ReadError::Api { doing, error });
            }
        }
    }
    Ok(Some(all))
}

impl PodFacts {
    /// Reads a pod; `None`: it has no agent's label.
    pub fn of(pod: &Pod) -> Option<Self> {
        let namespace = pod.namespace().unwrap_or_default();
        let agent = pod.labels().get(names::AGENT_LABEL)?;
        let spec = pod.spec.as_ref();
        let mut containers = spec
            .and_then(|spec| spec.init_containers.as_ref())
            .into_iter()
            .flatten();
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        Some(Self {
            agent: ObjectRef::new(namespace.clone(), agent.clone()),
            pod: ObjectRef::new(namespace, pod.name_any()),
            phase: phase.unwrap_or_else(|| "Unknown".to_owned()),
            mediated: containers.any(|container| container.name == names::MEDIATOR_CONTAINER),
        })
    }

    /// Describes whether the pod has loaded the compiled files, by the Agent's status.
    pub fn load_state(&self, agent: Option<&Agent>) -> String {
        if !self.mediated {
            return "no mediator".to_owned();
        }
        let status = agent.and_then(|agent| agent.status.as_ref());
        let pods = status.and_then(|status| status.pods.as_ref());
        let standing = match pods {
            None => "not known",
            Some(pods) if pods.stale.contains(&self.pod.name) => "stale",
            Some(pods) if pods.running > 0 && pods.running == pods.in_force => "in force",
            Some(_) => {
                let conditions = status.into_iter().flat_map(|status| &status.conditions);
                return self.not_in_force(conditions);
            }
        };
        standing.to_owned()
    }

    /// Describes a pod that `InForce` names, by its reason.
    fn not_in_force<'a>(&self, mut conditions: impl Iterator<Item = &'a Condition>) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let names_it = |condition: &&Condition| {
            let mut words = condition.message.split(|c| !is_name(c));
            condition.type_ == ConditionType::InForce.as_str()
                && words.any(|word| word == self.pod.name)
        };
        match conditions.find(names_it) {
            Some(named) if named.status == ConditionStatus::False.as_str() => {
                format!("not in force: {}", named.reason)
            }
            Some(named) if named.status == ConditionStatus::Unknown.as_str() => {
                format!("not known: {}", named.reason)
            }
            Some(_) | None => "not known".to_owned(),
        }
    }
}
