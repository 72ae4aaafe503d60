//! The budgets in an Agent's status.
//!
//! Not here: counting ([`crate::link::budgets`]), and the interval of writes.
//!
//! Invariant: `sums` is the inverse of `budgets` within a period, so a new leader goes on from it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use toolcrib_crds::{BudgetStatus, ConditionStatus, StateReason};
use toolcrib_manifest::{Budget, BudgetUnit};
use toolcrib_rules::{Exhaustion, Period};

use super::condition::{Verdict, verdict, whole_second};
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
        used: u64::from(exhaustion(budget).is_some()),
        // The next period is shown with the next use.
        since: Time(Timestamp::UNIX_EPOCH),
        ..budget.clone()
    };
    !before.iter().map(shown).eq(after.iter().map(shown))
}

/// The verdict on budgets that are used up; of several, the one that lasts longest. True: the agent is
/// as its spec says.
pub(super) fn used_up(budgets: &[BudgetStatus]) -> Option<Verdict> {
    let exhausted = budgets.iter().filter_map(exhaustion);
    let longest = exhausted.max_by_key(|exhaustion| exhaustion.until)?;
    let refused = match longest.budget.unit {
        BudgetUnit::Calls => "calls of tools",
        BudgetUnit::Tokens => "requests for a model",
    };
    let text = format!(
        "{longest}, and {refused} are refused until then: raise the limit if the agent needs more"
    );
    Some(verdict(
        ConditionStatus::True,
        StateReason::BudgetUsedUp,
        text,
    ))
}

/// Reason and note of the Warning about budgets that are used up.
pub fn warning(budgets: &[BudgetStatus]) -> Option<(&'static str, String)> {
    let Verdict(_, reason, note) = used_up(budgets)?;
    Some((reason.0, note))
}

fn exhaustion(budget: &BudgetStatus) -> Option<Exhaustion> {
    let in_force = Budget {
        limit: budget.limit,
        per: budget.per.into(),
        unit: budget.unit.into(),
    };
    Exhaustion::of(in_force, budget.used, budget.since.0)
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::BudgetPeriod;

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

        assert_eq!(warning(&first), None);
        let none_left = budgets(&[budget(BudgetUnit::Calls, 9), in_force[1]], &[calls], now);
        let Some((reason, text)) = warning(&none_left) else {
            panic!("{none_left:?}");
        };
        assert_eq!(reason, "BudgetUsedUp");
        assert_eq!(
            text,
            "the budget of 9 calls per day is used up; the next day begins at \
             2026-11-27T00:00:00Z, and calls of tools are refused until then: raise the limit if \
             the agent needs more"
        );
    }
}
