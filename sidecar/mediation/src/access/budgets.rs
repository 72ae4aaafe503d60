//! What an agent has used of its budgets: this pod exactly, and the other pods as the operator says.
//!
//! Not here: the file that keeps the counts of this pod over a restart, and the link.
//!
//! Invariants: within a period, no count falls. A call is counted under the same lock under which its
//! budgets are checked, so calls beside each other cannot both take the last one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use toolcrib_manifest::{Budget, BudgetPeriod, BudgetUnit, BudgetUse};
use toolcrib_rules::{Exhaustion, Period, PeriodCount};

/// The counts of one agent in this pod. There are at most as many as units and periods together.
#[derive(Debug, Default)]
pub struct BudgetCounts(Mutex<BTreeMap<Key, Counts>>);

type Key = (BudgetUnit, BudgetPeriod);

/// The use of one unit in one period, by this pod and by the others. `None`: nothing is known.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    own: Option<PeriodCount>,
    others: Option<PeriodCount>,
}

impl Counts {
    fn used(&self, per: BudgetPeriod, now: Timestamp) -> u64 {
        let used = |count: Option<PeriodCount>| count.map_or(0, |count| count.used_at(per, now));
        used(self.own).saturating_add(used(self.others))
    }
}

impl BudgetCounts {
    /// Takes over what an earlier process of this pod has used.
    pub fn restore(&self, earlier: &BudgetUse, now: Timestamp) {
        let own = PeriodCount::read(earlier, now);
        let mut counts = self.0.lock();
        counts.entry((earlier.unit, earlier.per)).or_default().own = own;
    }

    /// Notes what the agent's other pods have used. A leader that has just begun may know less than
    /// the one before it, so within a period the higher count stands.
    pub fn learn(&self, others: &[BudgetUse], now: Timestamp) {
        let mut counts = self.0.lock();
        for other in others {
            let Some(told) = PeriodCount::read(other, now) else {
                continue;
            };
            let known = &mut counts.entry((other.unit, other.per)).or_default().others;
            let current = known.filter(|known| Period::is_current(known.start, other.per, now));
            let is_behind =
                current.is_some_and(|known| (known.start, known.used) >= (told.start, told.used));
            if !is_behind {
                *known = Some(told);
            }
        }
    }

    /// Returns what this pod has used in the periods of these budgets.
    pub fn own(&self, budgets: &[Budget], now: Timestamp) -> Vec<BudgetUse> {
        if budgets.is_empty() {
            return Vec::new();
        }
        let counts = self.0.lock();
        let used = budgets.iter().map(|budget| {
            let known = counts.get(&(budget.unit, budget.per));
            let own = known.and_then(|counts| counts.own);
            let own = own.filter(|own| Period::is_current(own.start, budget.per, now));
            let own = own.unwrap_or_else(|| PeriodCount::new(budget.per, now));
            own.write(budget.unit, budget.per)
        });
        used.collect()
    }

    /// Returns the exhaustion of the budget of this unit that lasts longest, if one is used up.
    pub fn exhaustion(
        &self,
        unit: BudgetUnit,
        budgets: &[Budget],
        now: Timestamp,
    ) -> Option<Exhaustion> {
        exhaustion(&self.0.lock(), unit, budgets, now)
    }

    /// Counts what was used of a unit.
    pub fn add(&self, unit: BudgetUnit, budgets: &[Budget], amount: u64, now: Timestamp) {
        add(&mut self.0.lock(), unit, budgets, amount, now);
    }

    /// Counts a call if the budgets have room for it and `permit` permits it.
    pub(crate) fn count_call<T, E>(
        &self,
        budgets: &[Budget],
        now: Timestamp,
        permit: impl FnOnce() -> Result<T, E>,
        exhausted: impl FnOnce(Exhaustion) -> E,
    ) -> Result<T, E> {
        if budgets.is_empty() {
            return permit();
        }
        let mut counts = self.0.lock();
        if let Some(exhaustion) = exhaustion(&counts, BudgetUnit::Calls, budgets, now) {
            return Err(exhausted(exhaustion));
        }
        let permitted = permit()?;
        add(&mut counts, BudgetUnit::Calls, budgets, 1, now);
        Ok(permitted)
    }
}

fn of_unit(budgets: &[Budget], unit: BudgetUnit) -> impl Iterator<Item = &Budget> {
    budgets.iter().filter(move |budget| budget.unit == unit)
}

fn exhaustion(
    counts: &BTreeMap<Key, Counts>,
    unit: BudgetUnit,
    budgets: &[Budget],
    now: Timestamp,
) -> Option<Exhaustion> {
    let exhausted = of_unit(budgets, unit).filter_map(|budget| {
        let known = counts.get(&(unit, budget.per));
        let used = known.map_or(0, |counts| counts.used(budget.per, now));
        Exhaustion::of(*budget, used, now)
    });
    exhausted.max_by_key(|exhaustion| exhaustion.until)
}

fn add(
    counts: &mut BTreeMap<Key, Counts>,
    unit: BudgetUnit,
    budgets: &[Budget],
    amount: u64,
    now: Timestamp,
) {
    let mut counted: Vec<BudgetPeriod> = of_unit(budgets, unit).map(|it| it.per).collect();
    counted.sort_unstable();
    counted.dedup();
    for per in counted {
        let own = &mut counts.entry((unit, per)).or_default().own;
        own.get_or_insert_with(|| PeriodCount::new(per, now))
            .add(per, now, amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum RefusalReason {
        NotPermitted,
        Exhausted(BudgetPeriod),
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn calls(limit: u64, per: BudgetPeriod) -> Budget {
        Budget {
            limit,
            per,
            unit: BudgetUnit::Calls,
        }
    }

    fn used(per: BudgetPeriod, since: &str, used: u64) -> BudgetUse {
        BudgetUse {
            per,
            since: since.to_owned(),
            unit: BudgetUnit::Calls,
            used,
        }
    }

    fn permit(
        counts: &BudgetCounts,
        budgets: &[Budget],
        now: Timestamp,
        permission: Result<(), RefusalReason>,
    ) -> Result<(), RefusalReason> {
        let exhausted = |exhaustion: Exhaustion| RefusalReason::Exhausted(exhaustion.budget.per);
        counts.count_call(budgets, now, || permission, exhausted)
    }

    fn call(
        counts: &BudgetCounts,
        budgets: &[Budget],
        now: Timestamp,
    ) -> Result<(), RefusalReason> {
        permit(counts, budgets, now, Ok(()))
    }

    #[test]
    fn a_call_needs_room_in_each_budget_and_counts_only_if_it_is_permitted() {
        let (counts, now) = (BudgetCounts::default(), at("2026-11-26T19:30:00Z"));
        let budgets = [calls(2, BudgetPeriod::Hour), calls(3, BudgetPeriod::Day)];
        let refused = permit(&counts, &budgets, now, Err(RefusalReason::NotPermitted));
        assert_eq!(refused, Err(RefusalReason::NotPermitted));
        assert_eq!(call(&counts, &budgets, now), Ok(()));
        assert_eq!(call(&counts, &budgets, now), Ok(()));
        let hour = Err(RefusalReason::Exhausted(BudgetPeriod::Hour));
        assert_eq!(call(&counts, &budgets, now), hour);
        // Whatever the order of the budgets; tokens are counted apart.
        let reversed = [budgets[1], budgets[0]];
        assert_eq!(call(&counts, &reversed, now), hour);
        assert_eq!(counts.exhaustion(BudgetUnit::Tokens, &budgets, now), None);
        let later = at("2026-11-26T20:00:00Z");
        assert_eq!(call(&counts, &budgets, later), Ok(()));
        // The day's budget lasts longer than the hour's.
        let day = Err(RefusalReason::Exhausted(BudgetPeriod::Day));
        assert_eq!(
            call(&counts, &[budgets[1], calls(1, BudgetPeriod::Hour)], later),
            day
        );
        assert_eq!(call(&counts, &budgets, at("2026-11-27T00:00:00Z")), Ok(()));
    }

    #[test]
    fn two_budgets_of_one_period_count_a_call_once() {
        let (counts, now) = (BudgetCounts::default(), at("2026-11-26T19:30:00Z"));
        let day = BudgetPeriod::Day;
        let budgets = [calls(2, day), calls(5, day)];
        assert_eq!(call(&counts, &budgets, now), Ok(()));
        assert_eq!(call(&counts, &budgets, now), Ok(()));
        assert_eq!(
            call(&counts, &budgets, now),
            Err(RefusalReason::Exhausted(day))
        );
        let own = counts.own(&budgets[..1], now);
        assert_eq!(own, [used(day, "2026-11-26T00:00:00Z", 2)]);
    }

    #[test]
    fn what_other_pods_have_used_counts_and_never_falls_within_a_period() {
        let (counts, now) = (BudgetCounts::default(), at("2026-11-26T19:30:00Z"));
        let day = BudgetPeriod::Day;
        let budgets = [calls(10, day)];
        let today = "2026-11-26T00:00:00Z";
        counts.learn(&[used(day, today, 9)], now);
        // A new leader that has not heard of all pods yet.
        counts.learn(&[used(day, today, 4)], now);
        counts.learn(&[], now);
        assert_eq!(call(&counts, &budgets, now), Ok(()));
        assert_eq!(
            call(&counts, &budgets, now),
            Err(RefusalReason::Exhausted(day))
        );
        // It is no count of this pod.
        assert_eq!(counts.own(&budgets, now), [used(day, today, 1)]);
        // Yesterday's and wrong reports change nothing.
        for since in ["2026-11-25T00:00:00Z", "2027-11-25T00:00:00Z", ""] {
            counts.learn(&[used(day, since, 1_000)], now);
        }
        let tomorrow = at("2026-11-27T00:00:00Z");
        assert_eq!(call(&counts, &budgets, tomorrow), Ok(()));
        counts.learn(&[used(day, "2026-11-27T00:00:00Z", 3)], tomorrow);
        assert_eq!(
            counts.own(&budgets, tomorrow),
            [used(day, "2026-11-27T00:00:00Z", 1)]
        );
        for _ in 0..6 {
            assert_eq!(call(&counts, &budgets, tomorrow), Ok(()));
        }
        assert_eq!(
            call(&counts, &budgets, tomorrow),
            Err(RefusalReason::Exhausted(day))
        );
    }

    #[test]
    fn an_earlier_process_of_the_pod_counts_in_its_period() {
        let (counts, now) = (BudgetCounts::default(), at("2026-11-26T19:30:00Z"));
        let budgets = [calls(3, BudgetPeriod::Hour), calls(3, BudgetPeriod::Day)];
        counts.restore(&used(BudgetPeriod::Hour, "2026-11-26T18:00:00Z", 3), now);
        counts.restore(&used(BudgetPeriod::Day, "2026-11-26T00:00:00Z", 2), now);
        assert_eq!(call(&counts, &budgets, now), Ok(()));
        assert_eq!(
            call(&counts, &budgets, now),
            Err(RefusalReason::Exhausted(BudgetPeriod::Day))
        );
    }

    #[test]
    fn without_a_budget_nothing_is_counted() {
        let (counts, now) = (BudgetCounts::default(), at("2026-11-26T19:30:00Z"));
        assert_eq!(call(&counts, &[], now), Ok(()));
        counts.add(BudgetUnit::Tokens, &[], 5, now);
        assert!(counts.0.lock().is_empty());
    }
}
