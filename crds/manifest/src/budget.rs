//! Budgets of an agent, and how much of them is used.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A limit on what an agent may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub limit: u64,
    pub per: BudgetPeriod,
    pub unit: BudgetUnit,
}

/// Formats a budget as `100 calls per day`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} per {}", self.limit, self.unit, self.per)
    }
}

/// The unit that a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BudgetUnit {
    /// Permitted calls of tools.
    Calls,
    /// Tokens sent to models and received from them.
    Tokens,
}

impl fmt::Display for BudgetUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calls => "calls",
            Self::Tokens => "tokens",
        })
    }
}

/// A calendar period in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BudgetPeriod {
    Hour,
    Day,
    Month,
}

impl fmt::Display for BudgetPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        })
    }
}

/// The amount of one unit that was used in one period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUse {
    pub per: BudgetPeriod,
    /// RFC 3339. The beginning of the period.
    pub since: String,
    pub unit: BudgetUnit,
    pub used: u64,
}
