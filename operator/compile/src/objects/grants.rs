//! ToolGrants with an index by agent and by label: a namespace with ten thousand of each is compiled
//! without reading every grant for every agent.
//!
//! Invariant: the index agrees with the objects; both change here alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_crds::ToolGrant;

use super::List;
use super::agent_selector::{AgentLabel, labels_selected};
use crate::ObjectRef;

#[derive(Clone, Debug, Default)]
pub(crate) struct Grants {
    all: BTreeMap<ObjectRef, Arc<ToolGrant>>,
    /// The grants that name an agent, by agent.
    naming: BTreeMap<ObjectRef, BTreeSet<ObjectRef>>,
    /// The grants that find agents by a label, by label.
    selecting: BTreeMap<AgentLabel, BTreeSet<ObjectRef>>,
}

impl Grants {
    pub fn insert(&mut self, key: ObjectRef, grant: Arc<ToolGrant>) {
        self.remove(&key);
        for agent in named(&key, &grant) {
            self.naming.entry(agent).or_default().insert(key.clone());
        }
        for label in labels_selected(&key, &grant) {
            self.selecting.entry(label).or_default().insert(key.clone());
        }
        self.all.insert(key, grant);
    }

    pub fn remove(&mut self, key: &ObjectRef) {
        let Some(grant) = self.all.remove(key) else {
            return;
        };
        for agent in named(key, &grant) {
            remove(&mut self.naming, &agent, key);
        }
        for label in labels_selected(key, &grant) {
            remove(&mut self.selecting, &label, key);
        }
    }

    pub fn retain(&mut self, stays: impl Fn(&ObjectRef) -> bool) {
        let gone: Vec<ObjectRef> = self.all.keys().filter(|key| !stays(key)).cloned().collect();
        for key in gone {
            self.remove(&key);
        }
    }

    pub fn extend(&mut self, others: &Self) {
        for (key, grant) in &others.all {
            self.insert(key.clone(), Arc::clone(grant));
        }
    }

    pub fn contains_key(&self, key: &ObjectRef) -> bool {
        self.all.contains_key(key)
    }

    pub fn get(&self, key: &ObjectRef) -> Option<&Arc<ToolGrant>> {
        self.all.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ObjectRef, &ToolGrant)> {
        self.all.iter().map(|(key, grant)| (key, &**grant))
    }

    /// Returns the grants that name `agent`, in order.
    pub fn naming(&self, agent: &ObjectRef) -> List<ToolGrant> {
        self.all_of(self.naming.get(agent))
    }

    /// Returns the grants that find agents by `label`, in order.
    pub fn selecting(&self, label: &AgentLabel) -> List<ToolGrant> {
        self.all_of(self.selecting.get(label))
    }

    fn all_of(&self, keys: Option<&BTreeSet<ObjectRef>>) -> List<ToolGrant> {
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| Some((key.clone(), Arc::clone(self.get(key)?))))
            .collect()
    }
}

/// Removes a grant from an index, and an entry without grants.
fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectRef>>, at: &K, grant: &ObjectRef) {
    if let Some(grants) = index.get_mut(at) {
        grants.remove(grant);
        if grants.is_empty() {
            index.remove(at);
        }
    }
}

/// Returns the agents that a grant names, all in its own namespace.
fn named(key: &ObjectRef, grant: &ToolGrant) -> impl Iterator<Item = ObjectRef> {
    let namespace = key.namespace.clone();
    let agents = grant.spec.agents.iter();
    agents.map(move |agent| ObjectRef::new(namespace.clone(), agent.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(agents: &[&str]) -> Arc<ToolGrant> {
        let text = format!(
            "{{apiVersion: toolcrib.dev/v1alpha1, kind: ToolGrant, metadata: {{name: g}}, spec: {{agents: {agents:?}}}}}"
        );
        Arc::new(serde_yaml::from_str(&text).expect("a grant"))
    }

    #[test]
    fn the_index_follows_every_change() {
        let key = |name: &str| ObjectRef::new("pond", name);
        let names = |grants: &Grants, agent: &ObjectRef| -> Vec<String> {
            grants
                .naming(agent)
                .into_iter()
                .map(|(key, _)| key.name)
                .collect()
        };
        let mut grants = Grants::default();
        grants.insert(key("b"), grant(&["otter", "newt", "otter"]));
        grants.insert(key("a"), grant(&["otter"]));
        grants.insert(ObjectRef::new("lake", "c"), grant(&["otter"]));
        assert_eq!(names(&grants, &key("otter")), ["a", "b"]);
        assert_eq!(names(&grants, &key("newt")), ["b"]);
        grants.insert(key("b"), grant(&["newt"]));
        assert_eq!(names(&grants, &key("otter")), ["a"]);
        let mut others = Grants::default();
        others.insert(key("a"), grant(&["newt"]));
        grants.extend(&others);
        assert_eq!(names(&grants, &key("newt")), ["a", "b"]);
        assert!(names(&grants, &key("otter")).is_empty());
        grants.retain(|key| key.name != "a");
        grants.remove(&key("b"));
        assert!(!grants.contains_key(&key("b")) && names(&grants, &key("newt")).is_empty());
        assert_eq!(grants.naming.len(), 1);
        assert_eq!(grants.iter().count(), 1);
    }

    #[test]
    fn the_index_by_label_follows_every_change() {
        let grant = |value: &str| -> Arc<ToolGrant> {
            let text = format!(
                "{{apiVersion: toolcrib.dev/v1alpha1, kind: ToolGrant, metadata: {{name: g}}, spec: {{agentSelector: {{matchLabels: {{grants.toolcrib.dev/role: {value}}}}}}}}}"
            );
            Arc::new(serde_yaml::from_str(&text).expect("a grant"))
        };
        let label = |value: &str| AgentLabel {
            namespace: "pond".to_owned(),
            name: "grants.toolcrib.dev/role".to_owned(),
            value: Some(value.to_owned()),
        };
        let key = ObjectRef::new("pond", "a");
        let mut grants = Grants::default();
        grants.insert(key.clone(), grant("reader"));
        grants.insert(ObjectRef::new("lake", "b"), grant("reader"));
        assert_eq!(grants.selecting(&label("reader")).len(), 1);
        grants.insert(key.clone(), grant("writer"));
        assert!(grants.selecting(&label("reader")).is_empty());
        assert_eq!(grants.selecting(&label("writer")).len(), 1);
        grants.remove(&key);
        assert!(grants.selecting(&label("writer")).is_empty());
        assert_eq!(grants.selecting.len(), 1);
    }
}
