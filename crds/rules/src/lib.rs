//! Rules of grants: whether a call meets one, the arguments that they fill in, and the schema that a
//! model is shown. [`expression`] has the language of `when`.
//!
//! The mediator decides calls with this crate, and the command line tests policies with it, so both
//! give the same answer. Pure: the caller passes the time, builds the validators of [`Rule::schema`]
//! ([`toolcrib_bounds::schema`]), and keeps the counts of [`Rule::rates`], since only it knows how many
//! it may keep. Not here: which rules of the files still stand (the link's
//! allowlist), and the tool's own schema.
//!
//! [`models`] has the globs of policies over models. [`Period`] and [`PeriodCount`] count what an agent uses
//! of its budgets, [`RateCount`] its calls, for mediator and operator alike.
//!
//! Invariants: authority is a union, so a further rule never refuses a call whose arguments are the
//! same. A rule with a condition that cannot be read is never met.

mod budget;
mod call_identity;
mod decision;
pub mod expression;
pub mod models;
mod rate;
mod rule;
mod shown;
mod window;

pub use budget::{Exhaustion, Period, PeriodCount};
pub use call_identity::CallIdentity;
pub use decision::{Coverage, Decision, Mismatch, Refusal, decide};
pub use rate::{CallCount, InvalidRate, Rate, RateCount, RatePeriod};
pub use rule::{Condition, Defect, Rule};
pub use shown::{Contradiction, shown_schema};
pub use window::{Window, WindowState};
