//! Finds the work that a change of a watched object affects.
//!
//! Here: which changes affect work, and the keys of both versions. Not here: watches, and the
//! queue.
//!
//! Invariants: level-based; a queued key means "reconcile", and does not carry the event. Both
//! versions count, so the dependents of a removed reference are reconciled. A change of status
//! alone, including the controller's own, affects no work.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Resource;
use toolcrib_compile::{Key, Keys, Kind, ObjectRef, names};
use toolcrib_crds::{Agent, ClusterToolPolicy, ModelProvider, Surface, ToolDefaults, ToolGrant};

use super::Dependents;
use crate::controller::queue::work::{Work, WorkKind};
use crate::controller::write::digest::digest;
use crate::objects::decode::{DecodedObject, KindWithStatus, MetaOf};
use crate::objects::metadata::ObjectMetadata;
use crate::objects::store::{Change, Store, StoreObject};
use crate::objects::stores::Stores;

/// A watched object.
pub trait WatchedObject: StoreObject {
    /// Whether two versions may differ in a field that the controller reads.
    fn differs(_old: &Self, _new: &Self) -> bool {
        true
    }

    /// The keys whose answers contain this object.
    fn keys(&self, stores: &Stores) -> BTreeSet<Key>;

    /// The work that reconciles or writes this object.
    fn own_work(&self) -> Option<Work>;

    /// Stores the parts of an earlier version that later work needs.
    fn remember(_: &Change<Self>, _: &Stores)
    where
        Self: Sized,
    {
    }

    /// The agents that this object suspends: itself, or those that it or its labels put under a
    /// policy that suspends.
    fn suspended_agents(&self, _: &Stores) -> Vec<ObjectRef> {
        Vec::new()
    }

    /// A digest of the status, for a kind whose status the controller writes.
    fn status(&self) -> Option<u64> {
        None
    }
}

/// The work that `change` affects. The stores must contain the change already.
pub fn affected<K: WatchedObject>(
    change: &Change<K>,
    stores: &Stores,
    dependents: &Dependents,
) -> BTreeSet<Work> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && !K::differs(old, new)
    {
        return BTreeSet::new();
    }
    let mut keys = BTreeSet::new();
    let mut own = BTreeSet::new();
    for version in [&change.old, &change.new].into_iter().flatten() {
        keys.extend(version.keys(stores));
        own.extend(version.own_work());
    }
    let mut affected = dependents.of(&keys);
    affected.append(&mut own);
    affected
}

/// All work, for the start and for the resync.
pub fn everything(stores: &Stores) -> BTreeSet<Work> {
    fn add<K: Resource + Clone>(
        store: &Store<DecodedObject<K>>,
        kind: WorkKind,
        all: &mut BTreeSet<Work>,
    ) where
        DecodedObject<K>: StoreObject,
    {
        all.extend(store.all().iter().map(|object| kind.work(key(&**object))));
    }
    let mut all = BTreeSet::new();
    add(&stores.agents, WorkKind::Agent, &mut all);
    add(&stores.surfaces, WorkKind::Surface, &mut all);
    add(&stores.grants, WorkKind::ToolGrant, &mut all);
    add(&stores.defaults, WorkKind::ToolDefaults, &mut all);
    add(&stores.providers, WorkKind::ModelProvider, &mut all);
    add(&stores.policies, WorkKind::ClusterToolPolicy, &mut all);
    all
}

fn key(object: &impl StoreObject) -> ObjectRef {
    let id = object.id();
    ObjectRef::new(id.namespace, id.name)
}

/// One of Toolcrib's kinds.
trait ToolcribKind: KindWithStatus + Keys {
    const WORK: WorkKind;

    fn remember(_: &Change<DecodedObject<Self>>, _: &Stores) {}

    fn suspended_agents(_: &DecodedObject<Self>, _: &Stores) -> Vec<ObjectRef> {
        Vec::new()
    }

    /// The keys that an object of this name may have if it cannot be decoded.
    fn keys_unread(key: &ObjectRef, _: &Stores) -> BTreeSet<Key> {
        Key::of_object(Self::WORK.kind(), key).into()
    }
}

impl ToolcribKind for Agent {
    const WORK: WorkKind = WorkKind::Agent;

    /// Policies count it too.
    fn keys_unread(key: &ObjectRef, _: &Stores) -> BTreeSet<Key> {
        let own = Key::of_object(Kind::Agent, key).into_iter();
        own.chain([Key::AllAgents]).collect()
    }

    fn suspended_agents(agent: &DecodedObject<Self>, stores: &Stores) -> Vec<ObjectRef> {
        let key = key(agent);
        let is_suspended = agent.is_suspended() || stores.is_suspended_by_policy(&key);
        is_suspended.then_some(key).into_iter().collect()
    }
}

impl ToolcribKind for Surface {
    const WORK: WorkKind = WorkKind::Surface;
}

impl ToolcribKind for ToolGrant {
    const WORK: WorkKind = WorkKind::ToolGrant;

    /// The keys of all agents of the namespace, since the grant may name any of them.
    fn keys_unread(key: &ObjectRef, stores: &Stores) -> BTreeSet<Key> {
        let agents = stores.agents.namespace(&key.namespace);
        let named = agents
            .iter()
            .map(|agent| Key::GrantsFor(self::key(&**agent)));
        named.chain(Key::of_object(Kind::ToolGrant, key)).collect()
    }
}

impl ToolcribKind for ToolDefaults {
    const WORK: WorkKind = WorkKind::ToolDefaults;
}

impl ToolcribKind for ModelProvider {
    const WORK: WorkKind = WorkKind::ModelProvider;
}

impl ToolcribKind for ClusterToolPolicy {
    const WORK: WorkKind = WorkKind::ClusterToolPolicy;

    fn remember(change: &Change<DecodedObject<Self>>, stores: &Stores) {
        stores.remember(change);
    }

    fn suspended_agents(policy: &DecodedObject<Self>, stores: &Stores) -> Vec<ObjectRef> {
        let Some(policy) = stores.policy_in_force(policy) else {
            return Vec::new();
        };
        if !policy.spec.is_suspending() {
            return Vec::new();
        }
        let agents = stores.agents.all();
        let agents = agents.iter().map(|agent| key(&**agent));
        agents
            .filter(|agent| stores.is_matched(&policy, agent))
            .collect()
    }
}

impl<K: ToolcribKind> WatchedObject for DecodedObject<K> {
    fn differs(old: &Self, new: &Self) -> bool {
        // The budget evicted or readmitted the body of the same version.
        if old.object.is_ok() != new.object.is_ok() {
            return true;
        }
        let (old, new) = (old.meta(), new.meta());
        old.uid != new.uid
            || old.generation.is_none()
            || old.generation != new.generation
            || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
            // The stores keep only the annotations that are read.
            || old.annotations != new.annotations
            // The stores keep only the labels that grants select by. They change no generation.
            || old.labels != new.labels
    }

    fn keys(&self, stores: &Stores) -> BTreeSet<Key> {
        match &self.object {
            Ok(object) => object.keys(),
            Err(_) => K::keys_unread(&key(self), stores),
        }
    }

    fn own_work(&self) -> Option<Work> {
        Some(K::WORK.work(key(self)))
    }

    fn remember(change: &Change<Self>, stores: &Stores) {
        K::remember(change, stores);
    }

    fn suspended_agents(&self, stores: &Stores) -> Vec<ObjectRef> {
        K::suspended_agents(self, stores)
    }

    fn status(&self) -> Option<u64> {
        self.object.as_ref().ok()?;
        Some(digest(&self.status_text()))
    }
}

impl WatchedObject for DecodedObject<Service> {
    /// Compares the spec, which is small: Services have no generation.
    fn differs(old: &Self, new: &Self) -> bool {
        match (&old.object, &new.object) {
            (Ok(old), Ok(new)) => old.spec != new.spec,
            (Ok(_) | Err(_), _) => true,
        }
    }

    fn keys(&self, _: &Stores) -> BTreeSet<Key> {
        match &self.object {
            Ok(service) => service.keys(),
            Err(_) => Key::of_object(Kind::Service, &key(self)).into(),
        }
    }

    fn own_work(&self) -> Option<Work> {
        None
    }
}

impl WatchedObject for MetaOf<Namespace> {
    /// Compares the labels, which surfaces of other namespaces may select in their consent.
    fn differs(old: &Self, new: &Self) -> bool {
        old.meta().labels != new.meta().labels
    }

    fn keys(&self, _: &Stores) -> BTreeSet<Key> {
        [Key::namespace(self.id().name)].into()
    }

    fn suspended_agents(&self, stores: &Stores) -> Vec<ObjectRef> {
        let agents = stores.agents.namespace(self.id().name);
        let agents = agents.iter().map(|agent| key(&**agent));
        agents
            .filter(|agent| stores.is_suspended_by_policy(agent))
            .collect()
    }

    fn own_work(&self) -> Option<Work> {
        None
    }
}

impl WatchedObject for ObjectMetadata<Secret> {
    fn keys(&self, _: &Stores) -> BTreeSet<Key> {
        [Key::Object(Kind::Secret, key(self))].into()
    }

    fn own_work(&self) -> Option<Work> {
        of_agent(self, names::COMPILED_FOR_LABEL)
    }
}

impl WatchedObject for ObjectMetadata<ConfigMap> {
    fn keys(&self, _: &Stores) -> BTreeSet<Key> {
        [Key::Object(Kind::ConfigMap, key(self))].into()
    }

    fn own_work(&self) -> Option<Work> {
        of_agent(self, names::COMPILED_FOR_LABEL)
    }
}

impl WatchedObject for ObjectMetadata<NetworkPolicy> {
    fn keys(&self, _: &Stores) -> BTreeSet<Key> {
        BTreeSet::new()
    }

    fn own_work(&self) -> Option<Work> {
        of_agent(self, names::COMPILED_FOR_LABEL)
    }
}

impl WatchedObject for ObjectMetadata<Pod> {
    /// Compares label and deletion: a pod's status changes often and does not matter.
    fn differs(old: &Self, new: &Self) -> bool {
        let read = |pod: &Self| (pod.label(names::AGENT_LABEL).map(str::to_owned), pod.ending);
        read(old) != read(new)
    }

    fn keys(&self, _: &Stores) -> BTreeSet<Key> {
        BTreeSet::new()
    }

    fn own_work(&self) -> Option<Work> {
        of_agent(self, names::AGENT_LABEL)
    }
}

/// The work of the agent that a label of an object names.
fn of_agent<K>(object: &ObjectMetadata<K>, label: &str) -> Option<Work>
where
    ObjectMetadata<K>: StoreObject,
{
    let agent = object.label(label)?;
    let agent = ObjectRef::new(object.id().namespace, agent);
    Some(WorkKind::Agent.work(agent))
}
