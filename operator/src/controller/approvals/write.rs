//! The writes of approvals: each of one object, behind a fence.
//!
//! Invariant: a write is sent only while this replica leads, and the API server takes it only for the
//! watched version. So a leader that was paused overwrites nothing that the next one has written.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::{
    ConditionStatus, ConditionType, StateReason, ToolApproval, ToolApprovalStatus, ToolDecision,
};

use crate::approvals::plan::CountedCondition;
use crate::approvals::stored::{StoredApproval, StoredDecision};
use crate::objects::store::StoreObject;
use crate::objects::stores::Version;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The watch has not delivered the current version yet, or the object is gone.
    #[error("{0} is not the watched version")]
    Stale(ObjectRef),
    #[error("this replica is no longer the leader")]
    NotLeading,
    #[error("{0} exists already")]
    Exists(ObjectRef),
    #[error("cannot {operation} {kind} {key}")]
    Api {
        operation: &'static str,
        kind: &'static str,
        key: ObjectRef,
        source: Box<kube::Error>,
    },
}

/// The API server, as far as approvals are written.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub client: &'a Client,
    /// Whether this replica still leads; asked right before each write.
    pub leads: &'a (dyn Fn() -> bool + Sync),
}

impl Writer<'_> {
    /// Creates a ToolApproval.
    pub async fn create(
        &self,
        key: &ObjectRef,
        approval: &ToolApproval,
    ) -> Result<StoredApproval, WriteError> {
        if !(self.leads)() {
            return Err(WriteError::NotLeading);
        }
        let api: Api<StoredApproval> = Api::namespaced(self.client.clone(), &key.namespace);
        let create = async {
            let bytes = serde_json::to_vec(approval).map_err(kube::Error::SerdeError)?;
            let request = kube::core::Request::new(api.resource_url());
            let request = request.create(&PostParams::default(), bytes);
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request(request).await
        };
        let created = create.await;
        created.map_err(|error| failed("create", "ToolApproval", key, error))
    }

    /// Reads a ToolApproval; `None` if it does not exist. Lists a single object, which needs no further
    /// right.
    pub async fn read(&self, key: &ObjectRef) -> Result<Option<StoredApproval>, WriteError> {
        let api: Api<StoredApproval> = Api::namespaced(self.client.clone(), &key.namespace);
        let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
        match api.list(&one).await {
            Ok(found) => Ok(found.items.into_iter().next()),
            Err(error) => Err(failed("read", "ToolApproval", key, error)),
        }
    }

    /// Writes the status of the watched version.
    pub async fn status(
        &self,
        approval: &StoredApproval,
        status: &ToolApprovalStatus,
    ) -> Result<(), WriteError> {
        let key = approval.key();
        let patch = json!({"metadata": fence(approval)?, "status": status});
        self.patch::<StoredApproval>(&key, "ToolApproval", true, patch)
            .await
    }

    /// Writes whether the watched version of a decision counts.
    pub async fn counted(
        &self,
        decision: &StoredDecision,
        condition: &CountedCondition,
        now: jiff::Timestamp,
    ) -> Result<(), WriteError> {
        let key = decision.key();
        let status = if condition.reason == StateReason::Counted {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        let condition = json!({
            "type": ConditionType::Counted.as_str(), "status": status.as_str(),
            "reason": condition.reason.as_str(), "message": condition.message,
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let patch = json!({
            "metadata": fence(decision)?, "status": {"conditions": [condition]},
        });
        self.patch::<StoredDecision>(&key, "ToolDecision", true, patch)
            .await
    }

    /// Makes the watched version of a decision a part of its ToolApproval, so that it is deleted with it.
    pub async fn adopt(
        &self,
        decision: &StoredDecision,
        approval: &StoredApproval,
    ) -> Result<(), WriteError> {
        let key = decision.key();
        let owner = json!({
            "apiVersion": ToolApproval::api_version(&()), "kind": ToolApproval::kind(&()),
            "name": approval.key().name, "uid": approval.uid(),
        });
        let mut metadata = fence(decision)?;
        metadata["ownerReferences"] = json!([owner]);
        let patch = json!({"metadata": metadata});
        self.patch::<StoredDecision>(&key, "ToolDecision", false, patch)
            .await
    }

    /// Deletes the watched version of a ToolApproval.
    pub async fn delete_approval(&self, approval: &StoredApproval) -> Result<(), WriteError> {
        let key = approval.key();
        self.delete::<ToolApproval>(&key, "ToolApproval", watched(approval)?)
            .await
    }

    /// Deletes the watched version of a ToolDecision.
    pub async fn delete_decision(&self, decision: &StoredDecision) -> Result<(), WriteError> {
        let key = decision.key();
        self.delete::<ToolDecision>(&key, "ToolDecision", watched(decision)?)
            .await
    }

    async fn patch<K>(
        &self,
        key: &ObjectRef,
        kind: &'static str,
        status: bool,
        patch: Value,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        if !(self.leads)() {
            return Err(WriteError::NotLeading);
        }
        let api: Api<K> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let patched = match status {
            true => api.patch_status(&key.name, &params, &patch).await,
            false => api.patch(&key.name, &params, &patch).await,
        };
        match patched {
            Ok(_) => Ok(()),
            Err(error) => Err(failed("write", kind, key, error)),
        }
    }

    async fn delete<K>(
        &self,
        key: &ObjectRef,
        kind: &'static str,
        version: Version,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        if !(self.leads)() {
            return Err(WriteError::NotLeading);
        }
        let api: Api<K> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(version.uid),
                resource_version: Some(version.resource_version),
            }),
            ..DeleteParams::background()
        };
        match api.delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            // The watch has not delivered an earlier deletion yet.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(failed("delete", kind, key, error)),
        }
    }
}

/// The watched version of an object.
fn watched(object: &impl StoreObject) -> Result<Version, WriteError> {
    let id = object.id();
    Version::of(object).ok_or_else(|| WriteError::Stale(ObjectRef::new(id.namespace, id.name)))
}

/// The metadata of a patch that the API server refuses unless the stored object has the watched version.
fn fence(object: &impl StoreObject) -> Result<Value, WriteError> {
    let version = watched(object)?;
    Ok(json!({"uid": version.uid, "resourceVersion": version.resource_version}))
}

fn failed(
    operation: &'static str,
    kind: &'static str,
    key: &ObjectRef,
    error: kube::Error,
) -> WriteError {
    if let kube::Error::Api(status) = &error {
        if status.is_conflict() || status.is_not_found() {
            return WriteError::Stale(key.clone());
        }
        if status.is_already_exists() {
            return WriteError::Exists(key.clone());
        }
    }
    WriteError::Api {
        operation,
        kind,
        key: key.clone(),
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::approvals::stored::tests::{approval, read};

    /// An API server that has newer versions of all objects, and the requests that it got.
    fn api_server() -> (Client, Arc<Mutex<Vec<Value>>>) {
        let requests = Arc::<Mutex<Vec<Value>>>::default();
        let seen = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await?.to_bytes();
                let body: Value = serde_json::from_slice(&body).expect("a body of JSON");
                seen.lock().push(json!([path, body]));
                let conflict = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "reason": "Conflict", "code": 409, "message": "newer"});
                let answer = Response::builder().status(409);
                Ok::<_, kube::Error>(
                    answer
                        .body(Body::from(conflict.to_string().into_bytes()))
                        .expect("a response"),
                )
            }
        });
        (Client::new(service, "pond"), requests)
    }

    /// Makes each write; returns the results.
    async fn write_all(client: &Client, leads: bool) -> Vec<Result<(), WriteError>> {
        let approval: StoredApproval = read(&approval("otter-1"));
        let decision: StoredDecision = read(&json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
            "metadata": {"name": "d0", "namespace": "pond", "uid": "uid-d0", "resourceVersion": "7"},
            "spec": {"approval": {"name": "otter-1", "uid": "uid-otter-1"}, "callDigest": "c1:call",
                "verdict": "Approve", "decidedBy": {"username": "heron"}},
        }));
        let leads = || leads;
        let writer = Writer {
            client,
            leads: &leads,
        };
        let condition = CountedCondition {
            reason: StateReason::Counted,
            message: String::new(),
        };
        vec![
            writer
                .status(&approval, &ToolApprovalStatus::default())
                .await,
            writer
                .counted(&decision, &condition, jiff::Timestamp::UNIX_EPOCH)
                .await,
            writer.adopt(&decision, &approval).await,
            writer.delete_approval(&approval).await,
            writer.delete_decision(&decision).await,
        ]
    }

    #[tokio::test]
    async fn every_write_is_of_the_watched_version() {
        let (client, requests) = api_server();
        for written in write_all(&client, true).await {
            assert!(matches!(written, Err(WriteError::Stale(_))), "{written:?}");
        }
        let fences = requests
            .lock()
            .iter()
            .map(|request| {
                let (path, body) = (&request[0], &request[1]);
                let fence = body.get("metadata").unwrap_or(&body["preconditions"]);
                let path = path.as_str().and_then(|path| path.split_once("/pond/"));
                let version = format!("{} {}", fence["uid"], fence["resourceVersion"]);
                format!(
                    "{} {}",
                    path.expect("a namespace").1,
                    version.replace('"', "")
                )
            })
            .collect::<Vec<_>>();
        assert_eq!(
            fences,
            [
                "toolapprovals/otter-1/status uid-otter-1 1",
                "tooldecisions/d0/status uid-d0 7",
                "tooldecisions/d0 uid-d0 7",
                "toolapprovals/otter-1 uid-otter-1 1",
                "tooldecisions/d0 uid-d0 7",
            ]
        );
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_writes_nothing() {
        let (client, requests) = api_server();
        for written in write_all(&client, false).await {
            assert!(
                matches!(written, Err(WriteError::NotLeading)),
                "{written:?}"
            );
        }
        assert_eq!(*requests.lock(), [] as [Value; 0]);
    }
}
