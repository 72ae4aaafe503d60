//! The writes of approvals: each of one object, behind a fence.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::{
    ConditionStatus, ConditionType, StateReason, ToolApproval, ToolApprovalStatus, ToolDecision,
};

use crate::approvals::stored::{StoredApproval, StoredDecision};
use crate::objects::stores::Version;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The watch has not delivered the current version yet, or the object is gone.
    #[error("{0} is not the watched version")]
    Stale(ObjectRef),
    #[error("this replica is no longer the leader")]
    NotLeading,
    #[error("cannot {operation} {kind} {key}")]
    Api {
        operation: &'static str,
        kind: &'static str,
        key: ObjectRef,
        source: kube::Error,
    },
}

/// The reason and message of a condition `Counted`.
pub struct Counting<'a> {
    pub reason: StateReason,
    pub message: &'a str,
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
    pub async fn create(&self, approval: &ToolApproval) -> Result<StoredApproval, kube::Error> {
        let namespace = approval.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<StoredApproval> = Api::namespaced(self.client.clone(), namespace);
        let bytes = serde_json::to_vec(approval).map_err(kube::Error::SerdeError)?;
        let request = kube::core::Request::new(api.resource_url());
        let request = request
            .create(&PostParams::default(), bytes)
            .map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// Reads a ToolApproval; `None` if it does not exist. Lists a single object, which needs no further
    /// right.
    pub async fn read(&self, key: &ObjectRef) -> Result<Option<StoredApproval>, kube::Error> {
        let api: Api<StoredApproval> = Api::namespaced(self.client.clone(), &key.namespace);
        let one = ListParams::default().fields(&format!("metadata.name={}", key.name));
        Ok(api.list(&one).await?.items.into_iter().next())
    }

    /// Writes the status of the watched version.
    pub async fn status(
        &self,
        approval: &StoredApproval,
        status: &ToolApprovalStatus,
    ) -> Result<(), WriteError> {
        let key = approval.key();
        // The API server compares uid and version with those of the stored object.
        let version = Version::of(approval).ok_or_else(|| WriteError::Stale(key.clone()))?;
        let fence = json!({"uid": version.uid, "resourceVersion": version.resource_version});
        let patch = json!({"metadata": fence, "status": status});
        self.patch::<StoredApproval>(&key, "ToolApproval", true, patch)
            .await
    }

    /// Writes whether a decision counts.
    pub async fn counted(
        &self,
        decision: &StoredDecision,
        counting: Counting<'_>,
        now: jiff::Timestamp,
    ) -> Result<(), WriteError> {
        let key = decision.key();
        let status = if counting.reason == StateReason::Counted {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        let condition = json!({
            "type": ConditionType::Counted.as_str(), "status": status.as_str(),
            "reason": counting.reason.as_str(), "message": counting.message,
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let uid = decision.meta().uid.clone();
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        self.patch::<StoredDecision>(&key, "ToolDecision", true, patch)
            .await
    }

    /// Makes a decision a part of its ToolApproval, so that it is deleted with it.
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
        let uid = decision.meta().uid.clone();
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": [owner]}});
        self.patch::<StoredDecision>(&key, "ToolDecision", false, patch)
            .await
    }

    /// Deletes the watched version of a ToolApproval.
    pub async fn delete_approval(&self, approval: &StoredApproval) -> Result<(), WriteError> {
        let key = approval.key();
        let version = Version::of(approval).ok_or_else(|| WriteError::Stale(key.clone()))?;
        self.delete::<ToolApproval>(&key, "ToolApproval", version)
            .await
    }

    /// Deletes the watched version of a ToolDecision.
    pub async fn delete_decision(&self, decision: &StoredDecision) -> Result<(), WriteError> {
        let key = decision.key();
        let version = Version::of(decision).ok_or_else(|| WriteError::Stale(key.clone()))?;
        self.delete::<ToolDecision>(&key, "ToolDecision", version)
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
            Err(error) => Err(failed("delete", kind, key, error)),
        }
    }
}

fn failed(
    operation: &'static str,
    kind: &'static str,
    key: &ObjectRef,
    error: kube::Error,
) -> WriteError {
    if let kube::Error::Api(status) = &error
        && (status.is_conflict() || status.is_not_found())
    {
        return WriteError::Stale(key.clone());
    }
    WriteError::Api {
        operation,
        kind,
        key: key.clone(),
        source: error,
    }
}
