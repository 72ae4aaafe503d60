//! The latest calls of agents, as their mediators report them, for claw-api.
//!
//! Pure. Without arguments and results. Bounded per agent and in all; a namespace's agents share what
//! one namespace may hold, so that none displaces the calls of another.
//!
//! Invariant: a call is kept once, although a report is repeated.

use std::collections::{HashMap, VecDeque};

use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{MOST_RECENT_CALLS, RecentCall};

use super::reports::{Sender, cut};

/// Most calls of an agent.
const MOST_OF_AGENT: usize = 100;
/// Most calls of all agents of a namespace: a megabyte.
const MOST_OF_NAMESPACE: usize = 4000;
/// Most namespaces whose calls are kept.
const MOST_NAMESPACES: usize = 64;

/// A call, and its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCall {
    pub pod: String,
    pub call: RecentCall,
}

#[derive(Debug, Default)]
pub struct LatestCalls {
    namespaces: HashMap<String, HashMap<String, VecDeque<KnownCall>>>,
}

impl LatestCalls {
    pub(super) fn learn(&mut self, sender: &Sender, calls: &[RecentCall]) {
        if calls.is_empty() {
            return;
        }
        let ObjectRef { namespace, name } = &sender.agent;
        if !self.namespaces.contains_key(namespace) && self.namespaces.len() >= MOST_NAMESPACES {
            return;
        }
        let agents = self.namespaces.entry(namespace.clone()).or_default();
        let known = agents.entry(name.clone()).or_default();
        for call in calls.iter().take(MOST_RECENT_CALLS) {
            let call = plain(call);
            let is_known =
                |it: &KnownCall| (&*it.pod, &*it.call.call_id) == (&*sender.pod, &*call.call_id);
            if known.iter().any(is_known) {
                continue;
            }
            if known.len() >= MOST_OF_AGENT {
                known.pop_front();
            }
            known.push_back(KnownCall {
                pod: sender.pod.clone(),
                call,
            });
        }
        while agents.values().map(VecDeque::len).sum::<usize>() > MOST_OF_NAMESPACE {
            let most = agents.values_mut().max_by_key(|calls| calls.len());
            if most.and_then(VecDeque::pop_front).is_none() {
                return;
            }
        }
    }

    pub(super) fn forget_agent(&mut self, agent: &ObjectRef) {
        if let Some(agents) = self.namespaces.get_mut(&agent.namespace) {
            agents.remove(&agent.name);
            if agents.is_empty() {
                self.namespaces.remove(&agent.namespace);
            }
        }
    }

    /// The calls of an agent, the latest first.
    pub fn of(&self, agent: &ObjectRef) -> Vec<KnownCall> {
        let agents = self.namespaces.get(&agent.namespace);
        let calls = agents.and_then(|agents| agents.get(&agent.name));
        let mut calls: Vec<KnownCall> = calls.into_iter().flatten().cloned().collect();
        calls.reverse();
        // Times in RFC 3339 and UTC can be compared as text.
        calls.sort_by(|one, other| other.call.at.cmp(&one.call.at));
        calls
    }
}

/// A mediator may send any text.
fn plain(call: &RecentCall) -> RecentCall {
    let mut grant = call.grant.clone();
    if let Some(grant) = &mut grant {
        grant.name = cut(&grant.name);
        grant.namespace = cut(&grant.namespace);
    }
    RecentCall {
        call_id: cut(&call.call_id),
        at: cut(&call.at),
        tool: cut(&call.tool),
        code: call.code.as_deref().map(cut),
        executed: call.executed,
        latency_ms: call.latency_ms,
        grant,
        rule: call.rule.as_deref().map(cut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(namespace: &str, agent: &str) -> Sender {
        Sender {
            uid: agent.to_owned(),
            pod: format!("{agent}-0"),
            agent: ObjectRef::new(namespace, agent),
            older_than_leader: false,
        }
    }

    fn call(number: usize) -> RecentCall {
        RecentCall {
            call_id: format!("r{number}-1-0"),
            at: format!("2026-01-01T00:00:00.{number:06}Z"),
            tool: "fish.list\u{1b}".to_owned(),
            code: None,
            executed: true,
            latency_ms: 3,
            grant: None,
            rule: None,
        }
    }

    #[test]
    fn calls_are_kept_once_and_the_latest_come_first() {
        let mut calls = LatestCalls::default();
        let otter = sender("pond", "otter");
        calls.learn(&otter, &[call(1), call(2)]);
        calls.learn(&otter, &[call(2), call(3)]);
        let known = calls.of(&otter.agent);
        let ids: Vec<&str> = known.iter().map(|it| &*it.call.call_id).collect();
        assert_eq!(ids, ["r3-1-0", "r2-1-0", "r1-1-0"]);
        assert_eq!(
            (&*known[0].call.tool, &*known[0].pod),
            ("fish.list", "otter-0")
        );
        calls.forget_agent(&otter.agent);
        assert_eq!(calls.of(&otter.agent), []);
        assert!(calls.namespaces.is_empty());
    }

    #[test]
    fn a_namespace_displaces_no_call_of_another() {
        let mut calls = LatestCalls::default();
        let otter = sender("pond", "otter");
        calls.learn(&otter, &[call(1)]);
        for agent in 0..50 {
            let heron = sender("lake", &format!("heron-{agent}"));
            (0..120).for_each(|number| calls.learn(&heron, &[call(number)]));
            assert!(calls.of(&heron.agent).len() <= MOST_OF_AGENT);
        }
        let lake: usize = calls.namespaces["lake"].values().map(VecDeque::len).sum();
        assert_eq!(lake, MOST_OF_NAMESPACE);
        assert_eq!(calls.of(&otter.agent).len(), 1);
    }
}
