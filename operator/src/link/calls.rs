//! The latest calls of agents, as their mediators report them, for claw-api.
//!
//! Pure; the calls have no arguments and results. Each agent and each namespace has a bound, and so has
//! the number of namespaces: no namespace displaces the calls of another.
//!
//! Invariant: a call is kept once, although a report is repeated.

use std::collections::{HashMap, VecDeque};

use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{MOST_RECENT_CALLS, RecentCall};

use super::reports::{Sender, cut};

/// Most calls of an agent.
const MOST_OF_AGENT: usize = 100;
/// Most bytes of the calls of a namespace, about 2,300 calls.
const MOST_BYTES: usize = 1024 * 1024;
/// Most namespaces whose calls are kept.
const MOST_NAMESPACES: usize = 64;

/// A call, and its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCall {
    pub pod: String,
    pub call: RecentCall,
}

impl KnownCall {
    fn bytes(&self) -> usize {
        let RecentCall {
            call_id,
            at,
            tool,
            code,
            executed: _,
            latency_ms: _,
            grant,
            rule,
        } = &self.call;
        let grant = grant
            .as_ref()
            .map_or(0, |it| it.name.len() + it.namespace.len());
        let texts = [
            Some(call_id),
            Some(at),
            Some(tool),
            code.as_ref(),
            rule.as_ref(),
        ];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        size_of::<Self>() + self.pod.len() + texts + grant
    }
}

#[derive(Debug, Default)]
pub struct LatestCalls {
    namespaces: HashMap<String, NamespaceCalls>,
}

#[derive(Debug, Default)]
struct NamespaceCalls {
    /// The calls of each agent by its name, the oldest first.
    agents: HashMap<String, VecDeque<KnownCall>>,
    bytes: usize,
}

impl NamespaceCalls {
    /// Adds a call, unless it is known. The oldest calls of the agent with the most make room.
    fn add(&mut self, agent: &str, new: KnownCall) {
        let known = self.agents.entry(agent.to_owned()).or_default();
        if known
            .iter()
            .any(|it| (&it.pod, &it.call.call_id) == (&new.pod, &new.call.call_id))
        {
            return;
        }
        self.bytes += new.bytes();
        known.push_back(new);
        if known.len() > MOST_OF_AGENT {
            let oldest = known.pop_front();
            self.bytes -= oldest.map_or(0, |it| it.bytes());
        }
        while self.bytes > MOST_BYTES {
            let most = self.agents.values_mut().max_by_key(|calls| calls.len());
            let Some(oldest) = most.and_then(VecDeque::pop_front) else {
                return;
            };
            self.bytes -= oldest.bytes();
        }
    }

    fn forget(&mut self, agent: &str) {
        let forgotten = self.agents.remove(agent).into_iter().flatten();
        self.bytes -= forgotten.map(|it| it.bytes()).sum::<usize>();
    }
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
        let of_namespace = self.namespaces.entry(namespace.clone()).or_default();
        for call in calls.iter().take(MOST_RECENT_CALLS) {
            let new = KnownCall {
                pod: sender.pod.clone(),
                call: plain(call),
            };
            of_namespace.add(name, new);
        }
    }

    pub(super) fn forget_agent(&mut self, agent: &ObjectRef) {
        if let Some(calls) = self.namespaces.get_mut(&agent.namespace) {
            calls.forget(&agent.name);
            if calls.agents.is_empty() {
                self.namespaces.remove(&agent.namespace);
            }
        }
    }

    /// The calls of an agent, the latest first.
    pub fn of(&self, agent: &ObjectRef) -> Vec<KnownCall> {
        let calls = self.namespaces.get(&agent.namespace);
        let calls = calls.and_then(|it| it.agents.get(&agent.name));
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
        let lake = &calls.namespaces["lake"];
        let kept = lake.agents.values().flatten().map(KnownCall::bytes).sum();
        assert_eq!(lake.bytes, kept);
        assert!((MOST_BYTES - 1000..=MOST_BYTES).contains(&kept), "{kept}");
        assert_eq!(calls.of(&otter.agent).len(), 1);
        for agent in 0..50 {
            calls.forget_agent(&ObjectRef::new("lake", format!("heron-{agent}")));
        }
        assert!(!calls.namespaces.contains_key("lake"));
    }
}
