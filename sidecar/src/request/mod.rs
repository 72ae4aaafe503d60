//! One request of the runner: its caller, the bounds that it counts against, and its record.
//!
//! Reading order: [`admission`] (authentication and bounds), [`caller`] and [`room`] (the permits
//! of a request), [`prepare`] (the models to ask, with their bodies), [`stop`] (reasons to end a
//! request early), [`response`] (the way back), [`record`] (the line in the record). Not here: the
//! work on a request ([`crate::turn`], [`crate::native`]).

pub mod admission;
pub mod caller;
pub mod prepare;
pub mod record;
pub mod response;
pub mod room;
pub mod stop;
