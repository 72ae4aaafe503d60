//! Which tools a turn shows, which calls are managed, and which of them may run now.

pub(crate) mod authority;
pub(crate) mod budgets;
pub(crate) mod fabricated_calls;
pub(crate) mod partition;
pub(crate) mod presented;
pub(crate) mod rates;
