//! The tools that a turn shows, the owners of calls, and the calls that may run now.

pub(crate) mod approval;
pub(crate) mod authority;
pub(crate) mod budgets;
pub(crate) mod denial;
pub(crate) mod fabricated_calls;
pub(crate) mod partition;
pub(crate) mod presented;
pub(crate) mod questions;
pub(crate) mod rates;
