//! What the pods of each agent have used of its budgets, as their mediators report it.
//!
//! Pure. A pod's count is cumulative within a period, so a repeated or late report counts once. What
//! deleted pods have used stays in the sum, and in the Agent's status, from which a new leader goes on.
//! Bounded: each pod and each agent have at most one count for each unit and period.
//!
//! Invariant: within a period, the sum of an agent never falls, and an answer never counts what its
//! receiver has used itself.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use toolcrib_compile::ObjectRef;
use toolcrib_manifest::{Budget, BudgetPeriod, BudgetUnit, BudgetUse};
use toolcrib_rules::{Exhaustion, Period, PeriodCount};

use super::reports::{CLOCK_SKEW, MOST};

/// Limit of the counts in a report: all units with all periods.
const MOST_COUNTS: usize = 6;

type Key = (BudgetUnit, BudgetPeriod);

/// The use of one unit by an agent in one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSum {
    pub unit: BudgetUnit,
    pub per: BudgetPeriod,
    pub since: Timestamp,
    pub used: u64,
    /// The part of pods that are deleted.
    pub used_by_deleted_pods: u64,
}

#[derive(Debug, Default)]
pub struct BudgetSums {
    agents: HashMap<ObjectRef, AgentSums>,
    pods: HashMap<String, PodCounts>,
}

#[derive(Debug, Default)]
struct AgentSums {
    limits: Vec<Budget>,
    sums: BTreeMap<Key, Sum>,
}

/// The sum of one unit in one period.
#[derive(Clone, Copy, Debug)]
struct Sum {
    start: Timestamp,
    /// Used by pods that exist and have reported to this leader.
    living: u64,
    deleted: u64,
    /// What an earlier leader knew, perhaps of pods that have not reported to this one yet.
    known: u64,
}

#[derive(Debug)]
struct PodCounts {
    agent: ObjectRef,
    counts: BTreeMap<Key, PeriodCount>,
}

impl Sum {
    fn new(start: Timestamp) -> Self {
        Self {
            start,
            living: 0,
            deleted: 0,
            known: 0,
        }
    }

    fn used(&self) -> u64 {
        self.living.saturating_add(self.deleted).max(self.known)
    }
}

impl AgentSums {
    /// The budgets that are used up.
    fn exhausted(&self, now: Timestamp) -> Vec<Exhaustion> {
        let exhaustion = |budget: &Budget| {
            let sum = self.sums.get(&(budget.unit, budget.per));
            let sum = sum.filter(|sum| Period::is_current(sum.start, budget.per, now));
            Exhaustion::of(*budget, sum.map_or(0, Sum::used), now)
        };
        self.limits.iter().filter_map(exhaustion).collect()
    }
}

impl BudgetSums {
    /// Starts an agent's sums from its status, unless the agent is known already.
    pub fn begin(&mut self, agent: &ObjectRef, shown: impl IntoIterator<Item = BudgetSum>) {
        if self.has_begun(agent) {
            return;
        }
        let sums = shown.into_iter().map(|shown| {
            let sum = Sum {
                start: shown.since,
                living: 0,
                deleted: shown.used_by_deleted_pods.min(MOST),
                known: shown.used.min(MOST),
            };
            ((shown.unit, shown.per), sum)
        });
        let sums = AgentSums {
            limits: Vec::new(),
            sums: sums.collect(),
        };
        self.agents.insert(agent.clone(), sums);
    }

    pub fn has_begun(&self, agent: &ObjectRef) -> bool {
        self.agents.contains_key(agent)
    }

    /// Sets the budgets in force of an agent that has begun.
    pub fn limit(&mut self, agent: &ObjectRef, budgets: &[Budget]) {
        if let Some(sums) = self.agents.get_mut(agent)
            && sums.limits != budgets
        {
            sums.limits = budgets.to_vec();
        }
    }

    /// Merges a pod's report, if its agent has begun. Returns whether a budget is used up since, or is not any more.
    pub fn merge(
        &mut self,
        agent: &ObjectRef,
        pod: &str,
        reported: &[BudgetUse],
        now: Timestamp,
    ) -> bool {
        if reported.is_empty() {
            return false;
        }
        // A pod may outlive its Agent; nothing is kept for it.
        let Some(sums) = self.agents.get_mut(agent) else {
            return false;
        };
        let before = sums.exhausted(now);
        let pod = self
            .pods
            .entry(pod.to_owned())
            .or_insert_with(|| PodCounts {
                agent: agent.clone(),
                counts: BTreeMap::new(),
            });
        for reported in reported.iter().take(MOST_COUNTS) {
            let Some(count) = PeriodCount::read(reported, now) else {
                continue;
            };
            let (key, start) = ((reported.unit, reported.per), count.start);
            // A later period would end the current one for all pods.
            if now.duration_until(start) > CLOCK_SKEW {
                continue;
            }
            let sum = sums.sums.entry(key).or_insert_with(|| Sum::new(start));
            if sum.start < start {
                *sum = Sum::new(start);
            }
            if sum.start != start {
                continue;
            }
            let known = pod.counts.get(&key).filter(|known| known.start == start);
            let known = known.map_or(0, |known| known.used);
            let used = count.used.min(MOST).max(known);
            sum.living = sum.living.saturating_add(used - known).min(MOST);
            pod.counts.insert(key, PeriodCount { start, used });
        }
        sums.exhausted(now) != before
    }

    /// Moves the counts of a deleted pod to those of deleted pods.
    pub fn remove_pod(&mut self, pod: &str) {
        let Some(pod) = self.pods.remove(pod) else {
            return;
        };
        let Some(sums) = self.agents.get_mut(&pod.agent) else {
            return;
        };
        for (key, PeriodCount { start, used }) in pod.counts {
            if let Some(sum) = sums.sums.get_mut(&key).filter(|sum| sum.start == start) {
                sum.living = sum.living.saturating_sub(used);
                sum.deleted = sum.deleted.saturating_add(used).min(MOST);
            }
        }
    }

    pub fn forget_agent(&mut self, agent: &ObjectRef) {
        if self.agents.remove(agent).is_some() {
            self.pods.retain(|_, pod| pod.agent != *agent);
        }
    }

    /// Returns the sums of an agent in the periods of this time.
    pub fn of(&self, agent: &ObjectRef, now: Timestamp) -> Vec<BudgetSum> {
        let sums = self.agents.get(agent).map(|agent| &agent.sums);
        let sums = sums.into_iter().flatten();
        let current = sums.filter(|((_, per), sum)| Period::is_current(sum.start, *per, now));
        current
            .map(|((unit, per), sum)| BudgetSum {
                unit: *unit,
                per: *per,
                since: sum.start,
                used: sum.used(),
                used_by_deleted_pods: sum.deleted,
            })
            .collect()
    }

    /// Returns what the agent's pods but this one have used.
    pub fn of_others(&self, agent: &ObjectRef, pod: &str, now: Timestamp) -> Vec<BudgetUse> {
        let counts = self.pods.get(pod).map(|pod| &pod.counts);
        let others = self.of(agent, now).into_iter().map(|sum| {
            let own = counts.and_then(|counts| counts.get(&(sum.unit, sum.per)));
            let own = own.filter(|own| own.start == sum.since);
            BudgetUse {
                per: sum.per,
                since: sum.since.to_string(),
                unit: sum.unit,
                used: sum.used.saturating_sub(own.map_or(0, |own| own.used)),
            }
        });
        others.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: BudgetPeriod = BudgetPeriod::Day;
    const TODAY: &str = "2026-11-26T00:00:00Z";

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn begun() -> BudgetSums {
        let mut sums = BudgetSums::default();
        sums.begin(&otter(), []);
        sums
    }

    fn now() -> Timestamp {
        at("2026-11-26T19:30:00Z")
    }

    fn calls(since: &str, used: u64) -> BudgetUse {
        BudgetUse {
            per: DAY,
            since: since.to_owned(),
            unit: BudgetUnit::Calls,
            used,
        }
    }

    fn report(sums: &mut BudgetSums, pod: &str, used: u64) -> bool {
        sums.merge(&otter(), pod, &[calls(TODAY, used)], now())
    }

    fn sum(sums: &BudgetSums) -> (u64, u64) {
        let sums = sums.of(&otter(), now());
        assert_eq!(sums.len(), 1);
        (sums[0].used, sums[0].used_by_deleted_pods)
    }

    fn others(sums: &BudgetSums, pod: &str) -> u64 {
        sums.of_others(&otter(), pod, now())[0].used
    }

    #[test]
    fn pods_are_summed_and_each_is_told_what_the_others_have_used() {
        let mut sums = begun();
        assert_eq!(sums.of_others(&otter(), "a", now()), []);
        report(&mut sums, "a", 5);
        report(&mut sums, "b", 7);
        // A repeated, late or wrong report.
        report(&mut sums, "a", 5);
        report(&mut sums, "b", 6);
        sums.merge(&otter(), "a", &[calls("2026-11-25T00:00:00Z", 90)], now());
        sums.merge(&otter(), "a", &[calls("tomorrow", 90)], now());
        assert_eq!(sum(&sums), (12, 0));
        assert_eq!((others(&sums, "a"), others(&sums, "b")), (7, 5));
        assert_eq!(others(&sums, "new"), 12);
        sums.remove_pod("b");
        assert_eq!(sum(&sums), (12, 7));
        assert_eq!(others(&sums, "a"), 7);
        report(&mut sums, "a", 6);
        assert_eq!(sum(&sums), (13, 7));
        sums.forget_agent(&otter());
        assert!(!report(&mut sums, "a", 7));
        assert_eq!(sums.of(&otter(), now()), []);
        assert!(sums.pods.is_empty() && sums.agents.is_empty());
    }

    #[test]
    fn a_period_begins_at_zero_and_no_clock_begins_it_early() {
        let mut sums = begun();
        report(&mut sums, "a", 5);
        report(&mut sums, "b", 7);
        let tomorrow = "2026-11-27T00:00:00Z";
        // Its clock is hours ahead.
        sums.merge(&otter(), "b", &[calls(tomorrow, 1)], now());
        assert_eq!(sum(&sums), (12, 0));
        // A few seconds are no matter.
        let late = at("2026-11-26T23:59:58Z");
        sums.merge(&otter(), "b", &[calls(tomorrow, 1)], late);
        sums.merge(&otter(), "a", &[calls(TODAY, 6)], late);
        assert_eq!(sums.of(&otter(), late)[0].used, 1);
        sums.merge(
            &otter(),
            "a",
            &[calls(tomorrow, 2)],
            at("2026-11-27T00:00:01Z"),
        );
        let sum = sums.of(&otter(), at("2026-11-27T00:00:01Z"))[0];
        assert_eq!((sum.used, sum.since), (3, at(tomorrow)));
        // The end of a pod adds nothing of yesterday.
        sums.remove_pod("a");
        assert_eq!(sums.of(&otter(), at("2026-11-27T00:00:02Z"))[0].used, 3);
        assert_eq!(sums.of(&otter(), at("2026-11-28T00:00:00Z")), []);
    }

    #[test]
    fn a_new_leader_goes_on_from_the_status() {
        let shown = BudgetSum {
            unit: BudgetUnit::Calls,
            per: DAY,
            since: at(TODAY),
            used: 20,
            used_by_deleted_pods: 8,
        };
        let mut sums = BudgetSums::default();
        sums.begin(&otter(), [shown]);
        assert_eq!(sum(&sums), (20, 8));
        // One of two pods has reported: the other's 5 are known from the status.
        report(&mut sums, "a", 7);
        assert_eq!(sum(&sums), (20, 8));
        assert_eq!(others(&sums, "a"), 13);
        report(&mut sums, "b", 6);
        assert_eq!(sum(&sums), (21, 8));
        assert_eq!(others(&sums, "a"), 14);
        // Only the first status counts.
        sums.begin(&otter(), []);
        assert_eq!(sum(&sums), (21, 8));
        // A status of yesterday.
        let mut sums = BudgetSums::default();
        let since = at("2026-11-25T00:00:00Z");
        sums.begin(&otter(), [BudgetSum { since, ..shown }]);
        assert_eq!(sums.of(&otter(), now()), []);
        report(&mut sums, "a", 7);
        assert_eq!(sum(&sums), (7, 0));
    }

    #[test]
    fn a_report_says_when_a_budget_is_used_up() {
        let mut sums = BudgetSums::default();
        sums.begin(&otter(), []);
        let budget = Budget {
            limit: 10,
            per: DAY,
            unit: BudgetUnit::Calls,
        };
        sums.limit(&otter(), &[budget]);
        assert!(!report(&mut sums, "a", 9));
        assert!(report(&mut sums, "b", 1));
        assert!(!report(&mut sums, "b", 2));
        let next = [calls("2026-11-27T00:00:00Z", 0)];
        assert!(sums.merge(&otter(), "b", &next, at("2026-11-26T23:59:59Z")));
    }

    #[test]
    fn hostile_counts_are_bounded() {
        let mut sums = begun();
        let many: Vec<BudgetUse> = (0..100).map(|_| calls(TODAY, u64::MAX)).collect();
        for pod in ["a", "b", "c"] {
            sums.merge(&otter(), pod, &many, now());
        }
        assert_eq!(sum(&sums), (MOST, 0));
        sums.remove_pod("a");
        assert_eq!(sum(&sums).0, MOST);
    }
}
