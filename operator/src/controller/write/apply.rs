//! Writes compiled objects: creates them, or patches the operator's own. Never changes an object of
//! another owner.
//!
//! Objects are created with POST, which fails if the object exists. An existing object must be ours
//! (controlled by this Agent, with our label), otherwise it is an [`ApplyError::Conflict`].
//!
//! A patch carries the *watched* uid and resourceVersion, not those of a fresh read: a leader that
//! was paused decided from its watched objects, and must fail instead of restoring a revoked tool.
//! It is a merge patch and not server-side apply: the object was created by POST, so its creator
//! owns every field, and removed entries (a skill's file, an old token) would stay for ever.
//!
//! An object with the wanted content is not written. It is not even read if it had the wanted
//! content in the same version before.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde_json::{Map, Value, json};
use toolcrib_bounds::digest::Parts;
use toolcrib_compile::{ObjectRef, Presence, Role, names};
use toolcrib_crds::Agent;

use super::digest::digest;
use super::managed_object::ManagedObject;
use crate::objects::metadata::ObjectMetadata;
use crate::objects::stores::{ScopedStore, Version};

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{kind} {key} exists and does not belong to this Agent: delete or rename it")]
    Conflict { kind: &'static str, key: ObjectRef },
    #[error("{kind} {key} is left over from an earlier Agent of this name and is being removed")]
    Leftover { kind: &'static str, key: ObjectRef },
    /// The watch has not delivered the current version yet.
    #[error("{kind} {key} is newer than the watched version")]
    Stale { kind: &'static str, key: ObjectRef },
    /// The object cannot be watched, so it is not written.
    #[error("{kind} {key}: {why}")]
    NotWatched {
        kind: &'static str,
        key: ObjectRef,
        why: String,
    },
    /// The lease was lost between reading and writing: another replica may lead by now.
    #[error("{kind} {key}: this replica is no longer the leader")]
    NotLeading { kind: &'static str, key: ObjectRef },
    #[error("cannot {operation} {kind} {key}")]
    Api {
        kind: &'static str,
        key: ObjectRef,
        operation: &'static str,
        source: kube::Error,
    },
}

/// The wanted state of an object. It has no `Debug`, since its data may contain secrets.
pub struct DesiredObject {
    pub role: Role,
    pub key: ObjectRef,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub data: BTreeMap<String, Vec<u8>>,
}

/// Digests of the content and version of an object that was last seen. They are only compared, and
/// every agent has four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedState {
    fingerprint: [u8; 32],
    version: u64,
    owner: u64,
}

impl AppliedState {
    /// Whether the object was written for this owner, and not for an earlier one of the same name.
    pub fn is_owned_by(&self, owner: &OwnerReference) -> bool {
        self.owner == digest(&owner.uid)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Unchanged,
    Created,
    Patched,
}

/// The version of our existing policy, for its deletion; `None` if there is no policy of ours.
pub fn to_remove(
    store: &ScopedStore<NetworkPolicy>,
    owner: &OwnerReference,
    key: &ObjectRef,
) -> Option<Version> {
    match store.look_up(key) {
        Presence::Present(found) if ownership(&found, owner) == Ownership::Ours => {
            Version::of(&*found)
        }
        // A policy of another owner, or one that the operator cannot read.
        Presence::Present(_) | Presence::Absent | Presence::Unknown(_) => None,
    }
}

/// Deletes the object if it still has the watched version.
pub async fn remove<K: ManagedObject>(
    client: &Client,
    key: &ObjectRef,
    version: Version,
) -> Result<(), ApplyError> {
    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(version.uid),
            resource_version: Some(version.resource_version),
        }),
        ..DeleteParams::background()
    };
    match api.delete(&key.name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ApplyError::Stale {
            kind: K::KIND,
            key: key.clone(),
        }),
        Err(source) => Err(ApplyError::Api {
            kind: K::KIND,
            key: key.clone(),
            operation: "delete",
            source,
        }),
    }
}

/// The owner reference of every object that is written for an Agent, so that they are deleted with it.
pub fn owner(agent: &Agent) -> OwnerReference {
    OwnerReference {
        api_version: Agent::api_version(&()).into_owned(),
        kind: Agent::kind(&()).into_owned(),
        name: agent.metadata.name.clone().unwrap_or_default(),
        uid: agent.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

/// The owner of an existing object, relative to an Agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    Ours,
    /// Controlled by an earlier Agent of the same name; the garbage collector deletes it.
    Leftover,
    Foreign,
}

pub fn ownership<K>(found: &ObjectMetadata<K>, owner: &OwnerReference) -> Ownership {
    if found.label(names::MANAGED_BY_LABEL) != Some(names::FIELD_MANAGER) {
        return Ownership::Foreign;
    }
    match found.controller() {
        Some(other) if other.uid == owner.uid => Ownership::Ours,
        Some(other) if other.kind == owner.kind && other.name == owner.name => Ownership::Leftover,
        Some(_) | None => Ownership::Foreign,
    }
}

/// Creates or patches an object to its wanted state. Calls `leads` right before each write: a read
/// takes time, and a creation is not fenced by a version, so a former leader could restore a deleted
/// object.
pub async fn apply<K: ManagedObject>(
    client: &Client,
    store: &ScopedStore<K>,
    owner: &OwnerReference,
    desired: &DesiredObject,
    last: Option<AppliedState>,
    leads: impl Fn() -> bool,
) -> Result<(Verb, AppliedState), ApplyError> {
    let key = &desired.key;
    let not_leading = || ApplyError::NotLeading {
        kind: K::KIND,
        key: key.clone(),
    };
    let fingerprint = fingerprint(desired, owner);
    let failed = |operation| {
        move |source| ApplyError::Api {
            kind: K::KIND,
            key: key.clone(),
            operation,
            source,
        }
    };
    let applied = |object: &K| AppliedState {
        fingerprint,
        version: digest(&Version::of(object)),
        owner: digest(&owner.uid),
    };

    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    let stale = || ApplyError::Stale {
        kind: K::KIND,
        key: key.clone(),
    };
    let seen = match store.look_up(key) {
        Presence::Present(seen) => Version::of(&*seen).ok_or_else(stale)?,
        Presence::Absent => {
            if last.is_some_and(|last| last.fingerprint == fingerprint) {
                // The object was created a moment ago or deleted since; the watch will tell.
                let found = api.get_opt(&key.name).await.map_err(failed("read"))?;
                if found.is_some() {
                    return Err(stale());
                }
            }
            if !leads() {
                return Err(not_leading());
            }
            return create(&api, owner, desired)
                .await
                .map(|created| (Verb::Created, applied(&created)));
        }
        Presence::Unknown(_) if store.is_listing(&key.namespace) => return Err(stale()),
        Presence::Unknown(why) => {
            return Err(ApplyError::NotWatched {
                kind: K::KIND,
                key: key.clone(),
                why,
            });
        }
    };
    if let Some(last) = last
        && last.fingerprint == fingerprint
        && last.version == digest(&Some(&seen))
    {
        return Ok((Verb::Unchanged, last));
    }
    let found = seen
        .read(&api, &key.name)
        .await
        .map_err(failed("read"))?
        .ok_or_else(stale)?;
    match ownership(&ObjectMetadata::<K>::of(found.meta()), owner) {
        Ownership::Ours => {}
        Ownership::Leftover => {
            return Err(ApplyError::Leftover {
                kind: K::KIND,
                key: key.clone(),
            });
        }
        Ownership::Foreign => {
            return Err(ApplyError::Conflict {
                kind: K::KIND,
                key: key.clone(),
            });
        }
    }
    let Some(patch) = patch(&found, desired) else {
        return Ok((Verb::Unchanged, applied(&found)));
    };
    if Version::of(&found).as_ref() != Some(&seen) {
        return Err(stale());
    }
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    if !leads() {
        return Err(not_leading());
    }
    match api.patch(&key.name, &params, &Patch::Merge(&patch)).await {
        Ok(patched) => Ok((Verb::Patched, applied(&patched))),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(stale()),
        Err(error) => Err(failed("patch")(error)),
    }
}

/// Creates the object. An existing object is not changed.
async fn create<K: ManagedObject>(
    api: &Api<K>,
    owner: &OwnerReference,
    desired: &DesiredObject,
) -> Result<K, ApplyError> {
    let key = || desired.key.clone();
    let object = K::with_content(metadata(desired, owner), &desired.data);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, &object).await {
        Ok(created) => Ok(created),
        // Ownership is checked once the watch delivers the object.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Err(ApplyError::Stale {
            kind: K::KIND,
            key: key(),
        }),
        Err(source) => Err(ApplyError::Api {
            kind: K::KIND,
            key: key(),
            operation: "create",
            source,
        }),
    }
}

fn metadata(desired: &DesiredObject, owner: &OwnerReference) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(desired.key.namespace.clone()),
        name: Some(desired.key.name.clone()),
        labels: Some(desired.labels.clone()),
        annotations: Some(desired.annotations.clone()),
        owner_references: Some(vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// The fenced merge patch to the wanted state; `None` if nothing must change. Data becomes exactly
/// the wanted data; labels and annotations of other writers stay.
fn patch<K: ManagedObject>(found: &K, desired: &DesiredObject) -> Option<Value> {
    let data = found.changes(&desired.data);
    let labels = differing(found.meta().labels.as_ref(), &desired.labels);
    let annotations = differing(found.meta().annotations.as_ref(), &desired.annotations);
    if data.is_empty() && labels.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut patch = json!({
        "metadata": {
            "uid": found.meta().uid,
            "resourceVersion": found.meta().resource_version,
        },
    });
    for (pointer, field, changes) in [
        ("", K::FIELD, data),
        ("/metadata", "labels", labels),
        ("/metadata", "annotations", annotations),
    ] {
        if !changes.is_empty()
            && let Some(parent) = patch.pointer_mut(pointer).and_then(Value::as_object_mut)
        {
            parent.insert(field.to_owned(), Value::Object(changes));
        }
    }
    Some(patch)
}

fn differing(
    found: Option<&BTreeMap<String, String>>,
    desired: &BTreeMap<String, String>,
) -> Map<String, Value> {
    desired
        .iter()
        .filter(|(key, value)| found.and_then(|found| found.get(*key)) != Some(value))
        .map(|(key, value)| (key.clone(), Value::String(value.clone())))
        .collect()
}

fn fingerprint(desired: &DesiredObject, owner: &OwnerReference) -> [u8; 32] {
    let mut parts = Parts::default();
    parts.push(&owner.uid);
    for map in [&desired.labels, &desired.annotations] {
        parts.push(map.len().to_be_bytes());
        for (key, value) in map {
            parts.push(key);
            parts.push(value);
        }
    }
    for (key, value) in &desired.data {
        parts.push(key);
        parts.push(value);
    }
    parts.digest()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn desired(data: &[(&str, &str)]) -> DesiredObject {
        DesiredObject {
            role: Role::Context,
            key: ObjectRef::new("pond", "toolcrib-otter-context"),
            labels: map(&[(names::MANAGED_BY_LABEL, names::FIELD_MANAGER)]),
            annotations: map(&[("digest", "d1")]),
            data: data
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec()))
                .collect(),
        }
    }

    fn otter(uid: &str) -> OwnerReference {
        let mut agent = Agent::new("otter", toolcrib_crds::AgentSpec::default());
        agent.metadata.uid = Some(uid.to_owned());
        owner(&agent)
    }

    fn found(data: &[(&str, &str)]) -> ConfigMap {
        let desired = desired(data);
        let mut object = ConfigMap::with_content(metadata(&desired, &otter("u1")), &desired.data);
        object.metadata.uid = Some("uid-7".into());
        object.metadata.resource_version = Some("42".into());
        object
            .metadata
            .annotations
            .get_or_insert_default()
            .insert("theirs".into(), "x".into());
        object
    }

    #[test]
    fn an_object_with_the_wanted_content_is_not_written() {
        let data = [("TOOLCRIB.md", "# Tools")];
        assert_eq!(patch(&found(&data), &desired(&data)), None);
    }

    #[test]
    fn a_patch_is_fenced_removes_old_keys_and_keeps_foreign_annotations() {
        let found = found(&[("TOOLCRIB.md", "old"), ("skill.reed.md", "gone")]);
        let patch = patch(&found, &desired(&[("TOOLCRIB.md", "new")])).unwrap();
        assert_eq!(
            patch,
            json!({
                "metadata": {"uid": "uid-7", "resourceVersion": "42"},
                "data": {"TOOLCRIB.md": "new", "skill.reed.md": null},
            })
        );
    }

    /// A policy with this spec.
    fn policy(spec: Value) -> NetworkPolicy {
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    #[test]
    fn an_edited_policy_is_restored_and_then_stable() {
        let ours = json!({"podSelector": {"matchLabels": {"toolcrib.dev/agent": "otter"}}, "policyTypes": ["Egress"], "egress": []});
        let mut edited = ours.clone();
        edited["podSelector"]["matchLabels"]["never"] = json!("there");
        edited["ingress"] = json!([{}]);
        edited["policyTypes"] = json!(["Ingress"]);
        let desired = policy(ours.clone()).content();
        let changes = policy(edited.clone()).changes(&desired);
        assert_eq!(
            Value::Object(changes.clone()),
            json!({"podSelector": {"matchLabels": {"never": null}}, "policyTypes": ["Egress"], "ingress": null})
        );
        assert!(policy(ours).changes(&desired).is_empty());
        let created = NetworkPolicy::with_content(ObjectMeta::default(), &desired);
        assert!(created.changes(&desired).is_empty());
    }

    #[test]
    fn only_objects_that_the_same_agent_controls_are_ours() {
        let ours = found(&[]).metadata;
        let owned_by = |meta: &ObjectMeta, owner: &OwnerReference| {
            ownership(&ObjectMetadata::<ConfigMap>::of(meta), owner)
        };
        assert_eq!(owned_by(&ours, &otter("u1")), Ownership::Ours);
        assert_eq!(owned_by(&ours, &otter("u2")), Ownership::Leftover);
        let unlabelled = ObjectMeta {
            labels: None,
            ..ours.clone()
        };
        assert_eq!(owned_by(&unlabelled, &otter("u1")), Ownership::Foreign);
        let orphan = ObjectMeta {
            owner_references: None,
            ..ours
        };
        assert_eq!(owned_by(&orphan, &otter("u1")), Ownership::Foreign);
    }

    #[test]
    fn a_fingerprint_depends_on_every_part() {
        let base = desired(&[("a", "bc")]);
        let owner = otter("u1");
        let same = fingerprint(&base, &owner);
        assert_eq!(same, fingerprint(&desired(&[("a", "bc")]), &owner));
        assert_ne!(same, fingerprint(&desired(&[("ab", "c")]), &owner));
        assert_ne!(same, fingerprint(&base, &otter("u2")));
        let mut other = desired(&[("a", "bc")]);
        other.annotations.clear();
        assert_ne!(same, fingerprint(&other, &owner));
    }
}
