//! The budgets in an Agent's status.
//!
//! Not here: counting ([`crate::link::budgets`]), and the interval of writes.
//!
//! Invariant: `sums` is the inverse of `budgets` within a period, so a new leader goes on from it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use toolcrib_crds::BudgetStatus;
use toolcrib_manifest::Budget;
use toolcrib_rules::Period;

use super::condition::whole_second;
use crate::link::budgets::BudgetSum;

/// The budgets in force, with what is used of them.
pub fn budgets(in_force: &[Budget], sums: &[BudgetSum], now: Timestamp) -> Vec<BudgetStatus> {
    let status = in_force.iter().map(|budget| {
        let mut known = sums.iter();
        let known = known.find(|sum| (sum.unit, sum.per) == (budget.unit, budget.per));
        let since = known.map_or_else(|| Period::of(budget.per, now).start, |sum| sum.since);
        BudgetStatus {
            unit: budget.unit.into(),
            per: budget.per.into(),
            limit: budget.limit,
            used: known.map_or(0, |sum| sum.used),
            used_by_deleted_pods: known.map_or(0, |sum| sum.used_by_deleted_pods),
            since: Time(whole_second(since)),
        }
    });
    status.collect()
}

/// The sums in a status, from which a new leader goes on.
pub fn sums<'a>(status: impl Iterator<Item = &'a BudgetStatus>) -> impl Iterator<Item = BudgetSum> {
    status.map(|budget| BudgetSum {
        unit: budget.unit.into(),
        per: budget.per.into(),
        since: budget.since.0,
        used: budget.used,
        used_by_deleted_pods: budget.used_by_deleted_pods,
    })
}

/// Whether the difference must not wait for the interval of usage: other budgets, a budget that is
/// used up or is not any more, or what a new leader could not learn from the pods.
pub fn is_urgent(before: &[BudgetStatus], after: &[BudgetStatus]) -> bool {
    let shown = |budget: &BudgetStatus| BudgetStatus {
        used: u64::from(is_used_up(budget)),
        // The next period is shown with the next use.
        since: Time(Timestamp::UNIX_EPOCH),
        ..budget.clone()
    };
    !before.iter().map(shown).eq(after.iter().map(shown))
}

pub fn is_used_up(budget: &BudgetStatus) -> bool {
    budget.used >= budget.limit
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::{BudgetPeriod, BudgetUnit};

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_status_has_the_budgets_in_force_and_continues() {
        let now = at("2026-11-26T19:30:00Z");
        let budget = |unit, limit| Budget {
            limit,
            per: BudgetPeriod::Day,
            unit,
        };
        let calls = BudgetSum {
            unit: BudgetUnit::Calls,
            per: BudgetPeriod::Day,
            since: at("2026-11-26T00:00:00Z"),
            used: 9,
            used_by_deleted_pods: 4,
        };
        // A sum of a budget that was removed.
        let removed = BudgetSum {
            per: BudgetPeriod::Month,
            ..calls
        };
        let in_force = [budget(BudgetUnit::Calls, 10), budget(BudgetUnit::Tokens, 5)];
        let first = budgets(&in_force, &[removed, calls], now);
        let tokens = BudgetSum {
            unit: BudgetUnit::Tokens,
            used: 0,
            used_by_deleted_pods: 0,
            ..calls
        };
        assert_eq!(sums(first.iter()).collect::<Vec<_>>(), [calls, tokens]);

        let after = |in_force: &[Budget], used, deleted| {
            let calls = BudgetSum {
                used,
                used_by_deleted_pods: deleted,
                ..calls
            };
            is_urgent(&first, &budgets(in_force, &[calls], now))
        };
        assert!(!after(&in_force, 9, 4) && !after(&in_force, 8, 4));
        assert!(after(&in_force, 10, 4) && after(&in_force, 9, 5));
        assert!(after(&in_force[..1], 9, 4));
        assert!(after(&[budget(BudgetUnit::Calls, 11), in_force[1]], 9, 4));
    }
}
