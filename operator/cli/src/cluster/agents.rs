//! Suspends and resumes Agents of the cluster: writes two fields and no others.
//!
//! Agents are read as plain JSON, so that an Agent that cannot be decoded can be suspended too.

use std::fmt::Display;

use kube::Resource as _;
use kube::api::{GetParams, ListParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, names, near};
use toolcrib_crds::{Agent, RecordHeadStatus};

use super::{ReadError, Session};
use crate::failure::Failure;

/// The parts of an Agent that a change reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentState {
    pub key: ObjectRef,
    pub is_suspended: bool,
    pub reason: Option<String>,
    /// The files that its pods have loaded, if the operator has seen the current spec.
    pub pods: Option<PodCounts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCounts {
    pub running: u64,
    pub in_force: u64,
}

/// The new values of the two fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuspensionChange {
    /// `None` removes an earlier reason.
    Suspend(Option<String>),
    Resume,
}

impl SuspensionChange {
    /// A merge patch of these two fields.
    pub fn patch(&self) -> Value {
        let (suspend, reason) = match self {
            SuspensionChange::Suspend(reason) => (json!(true), json!(reason)),
            // Removes both fields, so that objects which others apply without them show no
            // difference.
            SuspensionChange::Resume => (Value::Null, Value::Null),
        };
        json!({
            "metadata": {"annotations": {names::SUSPEND_REASON_ANNOTATION: reason}},
            "spec": {"suspend": suspend},
        })
    }
}

impl AgentState {
    fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |member: &str| metadata[member].as_str().unwrap_or_default();
        let reason = &metadata["annotations"][names::SUSPEND_REASON_ANNOTATION];
        let status = &object["status"];
        let is_seen = status["observedGeneration"] == metadata["generation"];
        let count = |member: &str| status["pods"][member].as_u64();
        let pods = match (count("running"), count("inForce")) {
            (Some(running), Some(in_force)) if is_seen => Some(PodCounts { running, in_force }),
            _ => None,
        };
        Self {
            key: ObjectRef::new(text("namespace"), text("name")),
            is_suspended: object["spec"]["suspend"] == true,
            reason: reason.as_str().map(str::to_owned),
            pods,
        }
    }
}

impl Session {
    /// The agents of a namespace.
    pub fn agent_states(&self, namespace: &str) -> Result<Vec<AgentState>, Failure> {
        let request = requests(namespace).list(&ListParams::default());
        let list = self.agent_request(request, format!("list agents in namespace {namespace}"))?;
        let list = list.ok_or_else(|| {
            failed("the cluster has no kind Agent: install the chart, or correct --context")
        })?;
        let items = list["items"].as_array();
        Ok(items.into_iter().flatten().map(AgentState::of).collect())
    }

    pub fn agent_state(&self, key: &ObjectRef) -> Result<AgentState, Failure> {
        let request = requests(&key.namespace).get(&key.name, &GetParams::default());
        let object = self.agent_request(request, format!("get Agent {key}"))?;
        let object = object.ok_or_else(|| self.no_agent(key))?;
        Ok(AgentState::of(&object))
    }

    /// The last lines of records that the operator keeps in an Agent's status.
    pub fn record_heads(&self, key: &ObjectRef) -> Result<Vec<RecordHeadStatus>, Failure> {
        let object = self.object::<Agent>(key)?;
        let mut object = object.ok_or_else(|| self.no_agent(key))?;
        let heads: Option<Vec<RecordHeadStatus>> =
            serde_json::from_value(object["status"]["record"].take()).map_err(|error| {
                failed(format_args!(
                    "status.record of Agent {key} cannot be read: {error}: use a command line of the operator's release"
                ))
            })?;
        Ok(heads.unwrap_or_default())
    }

    /// The error about an Agent that does not exist. Suggests a name if Agents may be listed.
    fn no_agent(&self, key: &ObjectRef) -> Failure {
        let others = self.agent_states(&key.namespace).unwrap_or_default();
        let meant = near::meant_or_known(&key.name, others.iter().map(|other| &*other.key.name));
        failed(format_args!(
            "there is no Agent {key}: {meant} (`kubectl get agents -A` lists the agents)"
        ))
    }

    /// Writes the two fields.
    pub fn suspend(&self, key: &ObjectRef, change: &SuspensionChange) -> Result<(), Failure> {
        let parameters = PatchParams {
            field_manager: Some(names::SUSPEND_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(change.patch());
        let request = requests(&key.namespace).patch(&key.name, &parameters, &patch);
        let object = self.agent_request(request, format!("patch Agent {key}"))?;
        object.map(|_| ()).ok_or_else(|| self.no_agent(key))
    }

    /// Returns the answer; `None`: what is asked for does not exist.
    fn agent_request(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        doing: String,
    ) -> Result<Option<Value>, Failure> {
        let answer = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client().request::<Value>(request).await
        };
        match self.ask(answer)? {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(failed(format_args!(
                "you may not {doing}: {}: the verbs get, list and patch on agents.toolcrib.dev are needed, which the chart's ClusterRole NAME-responder has",
                status.message
            ))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(self.failure(ReadError::Api { doing, error })),
        }
    }
}

fn failed(message: impl Display) -> Failure {
    Failure::Failed(anyhow::anyhow!("{message}"))
}

fn requests(namespace: &str) -> Request {
    Request::new(Agent::url_path(&(), Some(namespace)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_the_two_fields_alone() {
        let reason = names::SUSPEND_REASON_ANNOTATION;
        assert_eq!(
            SuspensionChange::Suspend(Some("runaway loop".into())).patch(),
            json!({"metadata": {"annotations": {reason: "runaway loop"}}, "spec": {"suspend": true}})
        );
        assert_eq!(
            SuspensionChange::Resume.patch(),
            json!({"metadata": {"annotations": {reason: null}}, "spec": {"suspend": null}})
        );
    }

    #[test]
    fn pods_are_counted_once_the_operator_has_seen_the_change() {
        let object = |observed: i64| {
            json!({
                "metadata": {"name": "otter", "namespace": "pond", "generation": 3},
                "spec": {"suspend": true},
                "status": {"observedGeneration": observed, "pods": {"running": 2, "inForce": 1}},
            })
        };
        assert_eq!(AgentState::of(&object(2)).pods, None);
        let counts = PodCounts {
            running: 2,
            in_force: 1,
        };
        assert_eq!(AgentState::of(&object(3)).pods, Some(counts));
    }
}
