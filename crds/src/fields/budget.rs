//! How much an agent may use in a period.

use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib_manifest as manifest;

/// At most this much in each hour, day or month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// The unit that is counted.
    pub unit: BudgetUnit,
    /// The most of it in each period, by all pods of the agent together. 0: nothing may be used.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    pub limit: u64,
    /// The period, which begins with the hour, day or month of UTC.
    pub per: BudgetPeriod,
}

/// The rule of a list of budgets: at most one for each unit and period.
pub(crate) fn one_of_each() -> Rule {
    Rule::new("self.all(x, self.exists_one(y, y.unit == x.unit && y.per == x.per))")
        .message("two budgets have the same unit and period: remove one of them")
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum BudgetUnit {
    /// Calls of tools that were permitted, failed ones too.
    Calls,
    /// Tokens that the provider reports for requests and replies. A reply without such a report
    /// counts a token for each four bytes of both.
    Tokens,
}

/// A period of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::fields::documentation::field_speaks)]
pub enum BudgetPeriod {
    Hour,
    Day,
    Month,
}

impl From<Budget> for manifest::Budget {
    fn from(budget: Budget) -> Self {
        let Budget { unit, limit, per } = budget;
        Self {
            unit: unit.into(),
            limit,
            per: per.into(),
        }
    }
}

impl From<BudgetUnit> for manifest::BudgetUnit {
    fn from(unit: BudgetUnit) -> Self {
        match unit {
            BudgetUnit::Calls => Self::Calls,
            BudgetUnit::Tokens => Self::Tokens,
        }
    }
}

impl From<manifest::BudgetUnit> for BudgetUnit {
    fn from(unit: manifest::BudgetUnit) -> Self {
        match unit {
            manifest::BudgetUnit::Calls => Self::Calls,
            manifest::BudgetUnit::Tokens => Self::Tokens,
        }
    }
}

impl From<BudgetPeriod> for manifest::BudgetPeriod {
    fn from(per: BudgetPeriod) -> Self {
        match per {
            BudgetPeriod::Hour => Self::Hour,
            BudgetPeriod::Day => Self::Day,
            BudgetPeriod::Month => Self::Month,
        }
    }
}

impl From<manifest::BudgetPeriod> for BudgetPeriod {
    fn from(per: manifest::BudgetPeriod) -> Self {
        match per {
            manifest::BudgetPeriod::Hour => Self::Hour,
            manifest::BudgetPeriod::Day => Self::Day,
            manifest::BudgetPeriod::Month => Self::Month,
        }
    }
}
