//! The budgets of one agent: its own, else those of its ToolDefaults, lowered by policies.
//!
//! Invariant: there is at most one budget for each unit and period, and a policy never raises a limit.

use std::collections::BTreeMap;

use toolcrib_crds::Budget;
use toolcrib_manifest::{self as manifest, BudgetPeriod, BudgetUnit};

/// The limit for each unit and period.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets(BTreeMap<(BudgetUnit, BudgetPeriod), u64>);

impl Budgets {
    /// Takes the agent's own budgets, and those of the defaults for other units and periods.
    pub fn merge(own: &[Budget], defaults: &[Budget]) -> Self {
        let mut budgets = Self::default();
        budgets.lower(own);
        let mut theirs = Self::default();
        theirs.lower(defaults);
        for (key, limit) in theirs.0 {
            budgets.0.entry(key).or_insert(limit);
        }
        budgets
    }

    /// Adds budgets. Of several for one unit and period, the lowest limit holds.
    pub fn lower(&mut self, budgets: &[Budget]) {
        for budget in budgets {
            let manifest::Budget { limit, per, unit } = (*budget).into();
            let lowest = self.0.entry((unit, per)).or_insert(limit);
            *lowest = limit.min(*lowest);
        }
    }

    /// The budgets by unit and period, as the files have them.
    pub fn into_files(self) -> Vec<manifest::Budget> {
        let budgets = self.0.into_iter();
        let budgets = budgets.map(|((unit, per), limit)| manifest::Budget { limit, per, unit });
        budgets.collect()
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_crds as crds;

    use super::*;

    fn calls(limit: u64, per: crds::BudgetPeriod) -> Budget {
        Budget {
            unit: crds::BudgetUnit::Calls,
            limit,
            per,
        }
    }

    fn texts(budgets: Budgets) -> Vec<String> {
        let budgets = budgets.into_files();
        budgets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_agents_budget_replaces_the_default_and_a_policy_only_lowers() {
        let (hour, day) = (crds::BudgetPeriod::Hour, crds::BudgetPeriod::Day);
        let mut budgets = Budgets::merge(&[calls(100, day)], &[calls(10, day), calls(5, hour)]);
        assert_eq!(
            texts(budgets.clone()),
            ["5 calls per hour", "100 calls per day"]
        );
        budgets.lower(&[calls(200, day), calls(3, hour)]);
        assert_eq!(
            texts(budgets.clone()),
            ["3 calls per hour", "100 calls per day"]
        );
        budgets.lower(&[calls(9, crds::BudgetPeriod::Month)]);
        assert_eq!(
            texts(budgets),
            ["3 calls per hour", "100 calls per day", "9 calls per month"]
        );
    }

    #[test]
    fn of_two_for_one_period_the_lowest_holds() {
        let day = crds::BudgetPeriod::Day;
        let budgets = Budgets::merge(&[calls(7, day), calls(4, day), calls(9, day)], &[]);
        assert_eq!(texts(budgets), ["4 calls per day"]);
    }
}
