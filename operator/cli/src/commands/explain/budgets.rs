//! The budgets of an agent in `explain`: in force by the compiler, and what is used by the Agent's status.

use serde::Serialize;
use toolcrib_crds::BudgetStatus;
use toolcrib_manifest::Budget;

/// A budget, and what is used of it, if that is known.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BudgetLine {
    #[serde(flatten)]
    budget: Budget,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// Time at which the period began.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// `status`: what the Agent's status says; empty outside a cluster.
pub(super) fn budgets(in_force: &[Budget], status: &[BudgetStatus]) -> Vec<BudgetLine> {
    let line = |budget: &Budget| {
        let is_same = |shown: &&BudgetStatus| {
            (budget.unit, budget.per) == (shown.unit.into(), shown.per.into())
        };
        let shown = status.iter().find(is_same);
        BudgetLine {
            budget: *budget,
            used: shown.map(|shown| shown.used),
            since: shown.map(|shown| shown.since.0.to_string()),
        }
    };
    in_force.iter().map(line).collect()
}

impl BudgetLine {
    /// `budget of 500 calls per hour: 20 used since 2026-11-26T19:00:00Z`.
    pub(super) fn text(&self) -> String {
        let budget = &self.budget;
        match (self.used, &self.since) {
            (Some(used), Some(since)) => format!("budget of {budget}: {used} used since {since}"),
            (_, _) => format!("budget of {budget}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use toolcrib_crds as crds;
    use toolcrib_manifest::{BudgetPeriod, BudgetUnit};

    use super::*;

    #[test]
    fn a_budget_says_what_is_used_of_it_if_that_is_known() {
        let budget = |per| Budget {
            limit: 500,
            per,
            unit: BudgetUnit::Calls,
        };
        let used = BudgetStatus {
            unit: crds::BudgetUnit::Calls,
            per: crds::BudgetPeriod::Hour,
            limit: 400,
            used: 20,
            used_by_deleted_pods: 3,
            since: Time("2026-11-26T19:00:00Z".parse().expect("a time")),
        };
        let in_force = [budget(BudgetPeriod::Hour), budget(BudgetPeriod::Day)];
        let lines = budgets(&in_force, &[used]);
        let texts: Vec<String> = lines.iter().map(BudgetLine::text).collect();
        assert_eq!(
            texts,
            [
                "budget of 500 calls per hour: 20 used since 2026-11-26T19:00:00Z",
                "budget of 500 calls per day",
            ]
        );
    }
}
