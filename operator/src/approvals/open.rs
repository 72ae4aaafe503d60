//! Counts the open questions of pods, agents, namespaces and the cluster. Pure.
//!
//! Invariant: each count is derived from the entries. An entry counts once although it comes twice: from
//! the request that asks, and from the watch.

use std::collections::{BTreeSet, HashMap};

use toolcrib_compile::ObjectRef;
use toolcrib_manifest::MOST_QUESTIONS;

/// Limits the open questions of an agent.
pub const MOST_OF_AGENT: usize = 32;
/// Limits the open questions of the agents of a namespace.
pub const MOST_OF_NAMESPACE: usize = 256;
/// Limits the open questions of the cluster.
pub const MOST_OF_CLUSTER: usize = 2_000;
/// Limits the bytes of the arguments of all open questions.
pub const MOST_BYTES: usize = 16 * 1024 * 1024;

/// An open question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Uid of the pod.
    pub pod: String,
    pub agent: ObjectRef,
    /// Bytes of the arguments.
    pub bytes: usize,
}

/// The limit that a further question would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionLimit {
    Pod,
    Agent,
    Namespace,
    Cluster,
}

impl QuestionLimit {
    /// Continues a sentence that begins with the tool's name.
    pub fn message(self) -> String {
        match self {
            QuestionLimit::Pod => format!("needs an approval, and this pod waits for {MOST_QUESTIONS} others"),
            QuestionLimit::Agent => {
                format!("needs an approval, and the agent's pods wait for {MOST_OF_AGENT} others")
            }
            QuestionLimit::Namespace => format!(
                "needs an approval, and the agents of the namespace wait for {MOST_OF_NAMESPACE} others"
            ),
            QuestionLimit::Cluster => {
                "needs an approval, and the agents of the cluster wait for as many others as may be open"
                    .to_owned()
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct OpenQuestions {
    entries: HashMap<ObjectRef, Entry>,
    pods: HashMap<String, BTreeSet<ObjectRef>>,
    agents: HashMap<ObjectRef, usize>,
    namespaces: HashMap<String, usize>,
    bytes: usize,
}

impl OpenQuestions {
    /// Returns whether a further question is within all limits.
    pub fn check(&self, entry: &Entry) -> Result<(), QuestionLimit> {
        let count = |counted: Option<&usize>| counted.copied().unwrap_or_default();
        if self.pods.get(&entry.pod).map_or(0, BTreeSet::len) >= MOST_QUESTIONS {
            return Err(QuestionLimit::Pod);
        }
        if count(self.agents.get(&entry.agent)) >= MOST_OF_AGENT {
            return Err(QuestionLimit::Agent);
        }
        if count(self.namespaces.get(&entry.agent.namespace)) >= MOST_OF_NAMESPACE {
            return Err(QuestionLimit::Namespace);
        }
        if self.entries.len() >= MOST_OF_CLUSTER || self.bytes + entry.bytes > MOST_BYTES {
            return Err(QuestionLimit::Cluster);
        }
        Ok(())
    }

    /// Adds the question of a ToolApproval, or replaces it.
    pub fn insert(&mut self, approval: ObjectRef, entry: Entry) {
        self.remove(&approval);
        let pod = self.pods.entry(entry.pod.clone()).or_default();
        pod.insert(approval.clone());
        *self.agents.entry(entry.agent.clone()).or_default() += 1;
        let namespace = entry.agent.namespace.clone();
        *self.namespaces.entry(namespace).or_default() += 1;
        self.bytes += entry.bytes;
        self.entries.insert(approval, entry);
    }

    pub fn remove(&mut self, approval: &ObjectRef) {
        let Some(entry) = self.entries.remove(approval) else {
            return;
        };
        if let Some(pod) = self.pods.get_mut(&entry.pod) {
            pod.remove(approval);
            if pod.is_empty() {
                self.pods.remove(&entry.pod);
            }
        }
        decrease(&mut self.agents, &entry.agent);
        decrease(&mut self.namespaces, &entry.agent.namespace);
        self.bytes -= entry.bytes;
    }

    /// Returns the ToolApprovals that a pod waits for.
    pub fn of_pod(&self, pod: &str) -> Vec<ObjectRef> {
        self.pods.get(pod).into_iter().flatten().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Counts one less, and forgets a count of none.
pub fn decrease<K, Q>(counts: &mut HashMap<K, usize>, key: &Q)
where
    K: std::borrow::Borrow<Q> + Eq + std::hash::Hash,
    Q: Eq + std::hash::Hash + ?Sized,
{
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds questions, `per_pod` for each pod and `per_agent` for each agent, until one is refused.
    fn fill(
        per_pod: usize,
        per_agent: usize,
        per_namespace: usize,
        bytes: usize,
    ) -> (usize, QuestionLimit) {
        let mut open = OpenQuestions::default();
        for number in 0.. {
            let namespace = format!("pond-{}", number / per_namespace);
            let entry = Entry {
                pod: format!("pod-{}", number / per_pod),
                agent: ObjectRef::new(namespace, format!("otter-{}", number / per_agent)),
                bytes,
            };
            if let Err(full) = open.check(&entry) {
                return (open.len(), full);
            }
            open.insert(ObjectRef::new("reef", format!("a-{number}")), entry);
        }
        unreachable!("the numbers do not end")
    }

    #[test]
    fn each_limit_refuses_the_question_beyond_it() {
        let many = usize::MAX;
        assert_eq!(fill(many, many, many, 1), (8, QuestionLimit::Pod));
        assert_eq!(fill(1, many, many, 1), (32, QuestionLimit::Agent));
        assert_eq!(fill(1, 1, many, 1), (256, QuestionLimit::Namespace));
        assert_eq!(fill(1, 1, 1, 1), (2_000, QuestionLimit::Cluster));
        assert_eq!(fill(1, 1, 1, 16 * 1024), (1_024, QuestionLimit::Cluster));
    }

    #[test]
    fn a_question_that_comes_twice_counts_once_and_leaves_nothing_behind() {
        let mut open = OpenQuestions::default();
        let key = ObjectRef::new("pond", "otter-1");
        let entry = |bytes| Entry {
            pod: "p".into(),
            agent: ObjectRef::new("pond", "otter"),
            bytes,
        };
        open.insert(key.clone(), entry(7));
        open.insert(key.clone(), entry(9));
        assert_eq!((open.len(), open.bytes), (1, 9));
        assert_eq!(open.of_pod("p"), std::slice::from_ref(&key));
        open.remove(&key);
        open.remove(&key);
        assert_eq!((open.len(), open.bytes), (0, 0));
        assert!(open.pods.is_empty() && open.agents.is_empty() && open.namespaces.is_empty());
    }
}
