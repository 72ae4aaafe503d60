//! One request of the runner: who asks, what it may take, and what is left of it.
//!
//! Reading order: [`admission`] (who is let in), [`caller`] and [`room`] (what a request holds),
//! [`prepare`] (which model is asked, with which body), [`stop`] (when a request must end),
//! [`response`] (the way back), [`record`] (the line in the record). Not here: what happens in
//! between ([`crate::turn`], [`crate::native`]).

pub mod admission;
pub mod caller;
pub mod prepare;
pub mod record;
pub mod response;
pub mod room;
pub mod stop;
