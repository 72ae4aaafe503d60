//! The calls of each agent's pods that rules with rates count, as their mediators report them.
//!
//! Pure. A pod's report has all slots of a rule, so a repeated report counts once, and a late one takes
//! nothing back. The calls of deleted pods count until their slots expire. A new leader begins with
//! what pods report next. Bounded: see [`MOST_RATED_RULES`] for a pod, and [`ANSWER_TO_REPORT`] times
//! as much for an agent and for an answer.
//!
//! Invariants: the sum of an agent is that of its pods and its deleted pods, and an answer never has
//! the calls of its receiver.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{
    ANSWER_TO_REPORT, LONGEST_TEXT, MOST_RATE_SLOTS, MOST_RATED_RULES, RateUse,
};
use toolcrib_rules::{RateCount, RatePeriod};

/// Limits the rules of an agent, each for one tool.
const MOST_RULES: usize = MOST_RATED_RULES * ANSWER_TO_REPORT;
/// Limit of the rates of a rule.
const MOST_RATES: usize = 4;

#[derive(Debug, Default)]
pub struct RateSums {
    agents: HashMap<ObjectRef, AgentCounts>,
    pods: HashMap<String, PodCounts>,
}

/// A rule for one tool. The periods are part of it, so that counts of other periods are never added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    tool: String,
    rule: String,
    periods: Vec<RatePeriod>,
}

/// One count for each period of the key.
type Counts = BTreeMap<Key, Vec<RateCount>>;

#[derive(Debug, Default)]
struct AgentCounts {
    sum: Counts,
    /// The part of pods that are deleted.
    deleted: Counts,
}

#[derive(Debug)]
struct PodCounts {
    agent: ObjectRef,
    counts: Counts,
}

impl RateSums {
    /// Replaces what a pod has reported before.
    pub fn merge(&mut self, agent: &ObjectRef, pod: &str, reported: &[RateUse], now: Timestamp) {
        if self.pods.get(pod).is_some_and(|pod| pod.agent != *agent) {
            self.remove_pod(pod, now);
        }
        let before = self.pods.remove(pod).map(|pod| pod.counts);
        if before.is_none() && reported.is_empty() {
            return;
        }
        let before = before.unwrap_or_default();
        let sums = self.agents.entry(agent.clone()).or_default();
        subtract(&mut sums.sum, &before);
        sums.expire(now);
        let after = sums.add_with_room(read(reported, &before, now));
        if sums.sum.is_empty() {
            self.agents.remove(agent);
        }
        if !after.is_empty() {
            let pod_counts = PodCounts {
                agent: agent.clone(),
                counts: after,
            };
            self.pods.insert(pod.to_owned(), pod_counts);
        }
    }

    /// Moves the counts of a deleted pod to those of deleted pods.
    pub fn remove_pod(&mut self, pod: &str, now: Timestamp) {
        let Some(pod) = self.pods.remove(pod) else {
            return;
        };
        if let Some(sums) = self.agents.get_mut(&pod.agent) {
            add(&mut sums.deleted, &pod.counts);
            sums.expire(now);
        }
    }

    pub fn forget_agent(&mut self, agent: &ObjectRef) {
        if self.agents.remove(agent).is_some() {
            self.pods.retain(|_, pod| pod.agent != *agent);
        }
    }

    /// Returns the calls of the agent's pods but this one that count now.
    pub fn of_others(&self, agent: &ObjectRef, pod: &str, now: Timestamp) -> Vec<RateUse> {
        let Some(sums) = self.agents.get(agent) else {
            return Vec::new();
        };
        let mut others = called_last(&sums.sum, now);
        if let Some(pod) = self.pods.get(pod).filter(|pod| pod.agent == *agent) {
            subtract(&mut others, &pod.counts);
        }
        let others = others.into_iter().map(|(key, counts)| RateUse {
            tool: key.tool,
            rule: key.rule,
            counts: counts.iter().map(|count| count.write(now)).collect(),
        });
        others.collect()
    }
}

impl AgentCounts {
    /// Adds a pod's counts and returns those that were added. Once there are [`MOST_RULES`], counts of
    /// further rules are left out: the work for each answer grows with their number.
    fn add_with_room(&mut self, mut counts: Counts) -> Counts {
        let mut left = MOST_RULES.saturating_sub(self.sum.len());
        counts.retain(|key, _| {
            let is_new = !self.sum.contains_key(key);
            let has_room = !is_new || left > 0;
            left -= usize::from(is_new && has_room);
            has_room
        });
        add(&mut self.sum, &counts);
        counts
    }

    /// Removes the calls of deleted pods that do not count any more.
    fn expire(&mut self, now: Timestamp) {
        if self.deleted.is_empty() {
            return;
        }
        subtract(&mut self.sum, &self.deleted);
        self.deleted = called_last(&self.deleted, now);
        add(&mut self.sum, &self.deleted);
    }
}

/// Reads a pod's report. No slot has fewer calls than the pod reported before.
fn read(reported: &[RateUse], before: &Counts, now: Timestamp) -> Counts {
    let mut counts = Counts::new();
    let mut slots = 0;
    for used in reported.iter().take(MOST_RATED_RULES) {
        let is_short = used.tool.len().max(used.rule.len()) <= LONGEST_TEXT;
        if !is_short || used.counts.len() > MOST_RATES {
            continue;
        }
        let read = used.counts.iter().map(|it| RateCount::read(it, now));
        let Some(mut read) = read.collect::<Option<Vec<RateCount>>>() else {
            continue;
        };
        let key = Key {
            tool: used.tool.clone(),
            rule: used.rule.clone(),
            periods: read.iter().map(|count| count.period).collect(),
        };
        for (count, before) in read.iter_mut().zip(before.get(&key).into_iter().flatten()) {
            count.calls.raise(&before.calls);
            count.forget(now);
        }
        slots += slots_of(&read);
        if slots > MOST_RATE_SLOTS {
            break;
        }
        counts.insert(key, read);
    }
    counts.retain(|_, counts| slots_of(counts) > 0);
    counts
}

fn add(sum: &mut Counts, counts: &Counts) {
    for (key, counts) in counts {
        let none = || counts.iter().map(|count| RateCount::new(count.period));
        let sums = sum.entry(key.clone()).or_insert_with(|| none().collect());
        for (sum, count) in sums.iter_mut().zip(counts) {
            sum.calls.add_all(&count.calls);
        }
    }
}

fn subtract(sum: &mut Counts, counts: &Counts) {
    for (key, counts) in counts {
        let Some(sums) = sum.get_mut(key) else {
            continue;
        };
        for (sum, count) in sums.iter_mut().zip(counts) {
            sum.calls.subtract(&count.calls);
        }
        if slots_of(sums) == 0 {
            sum.remove(key);
        }
    }
}

/// Returns the counts that an answer holds: those of the rules that were called last, without calls
/// that do not count any more.
fn called_last(counts: &Counts, now: Timestamp) -> Counts {
    let current = counts.iter().filter_map(|(key, counts)| {
        let last = counts.iter().filter_map(|count| count.last_call(now));
        Some((last.max()?, key, counts))
    });
    let mut current: Vec<(Timestamp, &Key, &Vec<RateCount>)> = current.collect();
    current.sort_by_key(|(last, _, _)| Reverse(*last));
    let mut slots = 0;
    let fitting = current.into_iter().take_while(|(_, _, counts)| {
        slots += slots_of(counts);
        slots <= MOST_RATE_SLOTS * ANSWER_TO_REPORT
    });
    let fitting = fitting.take(MOST_RULES).map(|(_, key, counts)| {
        let mut counts = counts.clone();
        counts.iter_mut().for_each(|count| count.forget(now));
        (key.clone(), counts)
    });
    fitting.collect()
}

fn slots_of(counts: &[RateCount]) -> usize {
    counts.iter().map(|count| count.calls.slots()).sum()
}

#[cfg(test)]
mod tests;
